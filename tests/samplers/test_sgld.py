"""SGLD and SGHMC on conjugate posteriors: moments, minibatches, and the bias of the step in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Normal

from energax import Bayes, Energy, Real, sample
from energax.energies import RBM, Gaussian, LinearModel
from energax.errors import BadInput, Unsuitable
from energax.samplers import SGHMC, SGLD

RNG = np.random.default_rng(0)
N = 200
X = RNG.normal(size=(N, 2)) @ np.array([[1.0, 0.4], [0.0, 1.0]])
Y = X @ [1.0, -0.5] + 0.3 + RNG.normal(size=N)
DESIGN = np.column_stack([X, np.ones(N)])
PRECISION = DESIGN.T @ DESIGN + np.eye(3)
MEAN, COVARIANCE = np.linalg.solve(PRECISION, DESIGN.T @ Y), np.linalg.inv(PRECISION)


@pytest.fixture(scope="module")
def over_theta():
    line = LinearModel(jnp.zeros(2), jnp.zeros(()), Gaussian(1.0))
    return Bayes(Normal(0.0, 1.0))(line, {"x": X, "y": Y})


def flat(draws):
    return np.column_stack([draws["weight"], draws["bias"]])


class Parabola(Energy):
    """½ h x²."""

    curvature: jax.Array

    @property
    def spaces(self):
        return {"x": Real()}

    def __call__(self, *, x):
        return 0.5 * self.curvature * x**2


@pytest.mark.parametrize("sampler", [SGLD(5e-5, 50), SGHMC(0.002, 50, friction=20.0)], ids=["SGLD", "SGHMC"])
def test_minibatches_give_the_posterior_of_linear_regression(over_theta, sampler):
    """Means within 5 standard errors plus the bias of the step; standard deviations within 15 %."""
    draws = sample(over_theta, 4000, method=sampler, key=0, n_chains=8, warmup=2000, thin=20)
    found, scale = flat(draws), np.sqrt(np.diag(COVARIANCE))
    error = 5 * scale / np.sqrt(draws.ess.min()) + 0.02 * scale
    assert draws.ess.min() > 200
    assert (np.abs(found.mean(0) - MEAN) < error).all()
    np.testing.assert_allclose(found.std(0), scale, rtol=0.15)
    np.testing.assert_allclose(np.corrcoef(found.T)[0, 1], COVARIANCE[0, 1] / scale[0] / scale[1], atol=0.15)
    assert "minibatches of 50 rows" in draws.caveat


def test_the_variance_of_a_parabola_is_that_of_the_recursion():
    """x ← (1 − ε h) x + √(2ε) ξ has the variance 1 / (h (1 − ε h / 2)): a bias that shrinks with ε.

    Each variance is within 5 standard errors of it, √(2 / effective draws).
    """
    h, biases = 2.0, []
    for step in (0.4, 0.1):
        draws = sample(
            Parabola(jnp.array(h)), 40_000, method=SGLD(step), key=1, n_chains=40, warmup=100, thin=5
        )
        expected = 1 / (h * (1 - step * h / 2))
        rho = (1 - step * h) ** 5  # of draws that are five moves apart; of their squares rho²
        effective = 40_000 * (1 - rho**2) / (1 + rho**2)
        found = draws["x"].var()
        assert abs(found / expected - 1) < 5 * np.sqrt(2 / effective)
        biases.append(found * h - 1)
    assert biases[0] > 4 * biases[1] > 0


def test_the_steps_decay_through_warm_up_and_draws():
    energy, sampler = Parabola(jnp.array(1.0)), SGLD(0.1, decay=0.5, delay=10.0)
    far = {"x": jnp.array(1e6)}  # so far out that the noise of a move is negligible
    u, momentum, _ = sampler.init_memory(energy, far)
    moved, (_, _, t), _ = sampler.move(energy, far, (u, momentum, jnp.array(30)), jax.random.key(0))
    assert int(t) == 31
    np.testing.assert_allclose((1e6 - moved["x"]) / 1e6, 0.1 * (1 + 30 / 10) ** -0.5, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")  # steps that shrink this fast do not mix
def test_the_moves_of_the_warm_up_count():
    """After 1000 moves of warm-up, differences of draws have the variance 2 ε_t of moves t ≥ 1000."""
    sampler = SGLD(0.1, decay=1.0, delay=1e-3)
    draws = sample(Parabola(jnp.array(1.0)), 101, method=sampler, key=0, n_chains=1, warmup=1000)
    scale = np.sqrt(2 * 0.1 / (1 + np.arange(1001, 1101) / 1e-3))
    found = np.diff(draws["x"].astype(np.float64)) / scale
    assert abs(found.std() - 1) < 5 / np.sqrt(2 * 100)


def test_a_minibatch_energy_is_unbiased(over_theta):
    """The mean over all single rows is the energy itself, in value and gradient."""
    theta = {"weight": jnp.array([0.3, -1.0]), "bias": jnp.array(0.2)}
    both = jax.value_and_grad(lambda t, e: e(**t))
    whole, slope = both(theta, over_theta)
    values, slopes = jax.vmap(lambda i: both(theta, over_theta.minibatch(i[None])))(jnp.arange(N))
    np.testing.assert_allclose(values.mean(), whole, rtol=1e-5)
    np.testing.assert_allclose(slopes["weight"].mean(0), slope["weight"], rtol=1e-4)


def test_what_it_does_not_support_is_refused(over_theta):
    with pytest.raises(Unsuitable, match=r"needs real variables.*Gibbs"):
        SGLD(0.1).check(RBM.random(2, 2, key=0))
    with pytest.raises(Unsuitable, match=r"subsample.*Langevin"):
        SGLD(0.1, 10).check(Parabola(jnp.array(1.0)))
    for bad in ({"step_size": 0.0}, {"step_size": 0.1, "batch_size": 0}, {"step_size": 0.1, "decay": 2.0}):
        with pytest.raises(BadInput, match=r"expected"):
            SGLD(**bad)
