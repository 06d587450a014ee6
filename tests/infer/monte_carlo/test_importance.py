"""Importance sampling: bounds are below, estimates cover the truth, and dominant weights warn."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import stats

from energax import Mixture, log_partition, log_prob, posterior
from energax.energies import Decoder, Gaussian, Gaussians, NeuralEnergy
from energax.errors import ConvergenceWarning, Unsuitable
from energax.infer import MCMC, Importance
from energax.samplers import Langevin

W = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)
factor = Decoder(lambda z: W @ z, 2, Gaussian(0.5))
X = np.random.default_rng(1).normal(size=(6, 4))
TRUTH = stats.multivariate_normal(np.zeros(4), np.asarray(W @ W.T) + 0.25 * np.eye(4)).logpdf(X)


class Prior:
    """An encoder that ignores x."""

    def __call__(self, *, x):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)


prior = Prior()


def test_the_bound_is_below_and_rises():
    """E[bound] ≤ log p(x), and more draws bring it closer (factor analysis has both in closed form)."""
    gaps = []
    for k in (1, 10, 100):
        method = Importance(encoder=prior, n_samples=k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            bounds = [log_prob(factor, {"x": X}, method, key=i).value for i in range(40)]
        mean, error = np.mean(bounds, 0), np.std(bounds, 0) / np.sqrt(40)
        assert (mean < TRUTH + 4 * error).all()
        gaps.append((TRUTH - mean).mean())
    assert gaps[0] > gaps[1] > gaps[2] > 0


def test_the_fitted_proposal_is_tight():
    """The Laplace approximation of a Gaussian posterior is the posterior: bound and truth within errors."""
    got = log_prob(factor, {"x": X}, key=0)
    assert got.kind == "lower bound" and got.method == "importance"
    assert (np.abs(got.value - TRUTH) < 5 * got.stderr + 1e-3).all() and (got.stderr < 0.03).all()
    holes = X.copy()
    holes[:, 1] = np.nan
    covariance = (np.asarray(W @ W.T) + 0.25 * np.eye(4))[np.ix_([0, 2, 3], [0, 2, 3])]
    truth = stats.multivariate_normal(np.zeros(3), covariance).logpdf(X[:, [0, 2, 3]])
    got = log_prob(factor, {"x": holes}, key=0)
    assert (np.abs(got.value - truth) < 5 * got.stderr + 1e-3).all()


def test_log_partition_of_a_known_integral():
    """∫ exp(−½ λ ‖x‖²) = (2π/λ)^(d/2), by a fitted proposal, a distribution and an energy that can draw."""
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 3, confinement=2.0)
    truth = 1.5 * np.log(np.pi)
    energy = Mixture(Gaussians(jnp.zeros((1, 3)), jnp.eye(3)[None]))
    for method in (
        Importance(n_samples=20000),
        Importance(dist.Normal(jnp.zeros(3), 1.0).to_event(1), 20000),
        Importance(energy, 20000),
    ):
        got = log_partition(bowl, method, key=0)
        assert got.kind == "estimate" and 0 < float(got.stderr) < 0.05
        assert abs(float(got) - truth) < 4 * float(got.stderr)


def test_an_unknown_log_partition_is_shared_by_all_rows():
    """The error of one log Z does not average away over rows."""
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    got = log_prob(bowl, {"x": np.full((1000, 1), 0.3)}, Importance(n_samples=500), key=0)
    assert got.kind == "estimate" and got.shared > 0
    assert float(got.mean().stderr) == pytest.approx(got.shared, rel=1e-3)
    assert (np.abs(got.value - stats.norm.logpdf(0.3)) < 4 * got.stderr).all()


def test_poor_weights_warn():
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 8, confinement=1.0)
    far = Importance(dist.Normal(jnp.full(8, 6.0), 0.3).to_event(1), n_samples=200)
    with pytest.warns(ConvergenceWarning, match="Use a better proposal"):
        log_partition(bowl, far, key=0)


def test_unsuitable_proposals():
    wrong = dist.Normal(jnp.zeros(5), 1.0).to_event(1)
    with pytest.raises(Unsuitable, match="cannot use the proposal"):
        log_prob(factor, {"x": X}, Importance(wrong), key=0)


def test_a_single_draw_has_no_error_to_show():
    with pytest.warns(ConvergenceWarning, match=r"1\.0 effective draws of 1 "):
        got = log_prob(factor, {"x": X}, Importance(encoder=prior, n_samples=1), key=0)
    assert np.isfinite(got.value).all() and np.isinf(got.stderr).all()


def test_the_error_of_few_draws():
    """Over 2000 runs of 5 draws the squared standard error is, on average, the variance of the runs."""
    from energax.infer._monte_carlo.weighing import log_mean

    weights = np.random.default_rng(0).uniform(1, 1.2, size=(2000, 5))
    value, error, _ = (np.asarray(a) for a in jax.vmap(log_mean)(jnp.log(jnp.asarray(weights))))
    assert np.sqrt((error**2).mean()) == pytest.approx(value.std(), rel=0.06)


def test_the_evidence_is_drawn_with_the_key_of_the_posterior():
    chains = MCMC(Langevin(0.05), n_chains=2, warmup=1, n_draws=4)
    one, same, other = (posterior(factor, {"x": X}, chains, key=k).log_evidence for k in (0, 0, 1))
    assert one.kind == "lower bound"
    np.testing.assert_array_equal(one.value, same.value)
    assert (one.value != other.value).any()
