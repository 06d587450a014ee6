"""Posteriors and expectations by importance sampling: closed forms, quadrature, and honest errors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import stats

from energax import Energy, Mixture, expectation, log_partition, log_prob, plan, posterior, sample
from energax.energies import RBM, Decoder, Gaussian, Gaussians, NeuralEnergy
from energax.errors import BadInput, ConvergenceWarning, Unsuitable
from energax.infer import MCMC, AdaptiveMixture, Enumeration, Exceeds, Importance
from energax.samplers import Draws, Gibbs
from energax.spaces import Categorical, Real

W = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
factor = Decoder(lambda z: W @ z, 2, Gaussian(0.5))
X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
COVARIANCE = W @ W.T + 0.25 * np.eye(4)


def posterior_of_z(x, seen=(0, 1, 2, 3)):
    """The mean and covariance of p(z | x), in closed form."""
    part = W[list(seen)]
    covariance = np.linalg.inv(np.eye(2) + part.T @ part / 0.25)
    return x[:, list(seen)] @ part @ covariance / 0.25, covariance


class Switch(Energy):
    """z in {0, 1, 2}, u ~ N(2 z, 1), x ~ N(u³ / 4, 1): p(z, u, x) up to a constant."""

    @property
    def spaces(self):
        return {"x": Real(), "z": Categorical(3), "u": Real()}

    def __call__(self, *, x, z, u):
        return 0.5 * (u - 2.0 * z) ** 2 + 0.5 * (x - u**3 / 4) ** 2


class StandardNormal(Energy):
    """N(0, I), normalised."""

    d: int = eqx.field(static=True)

    @property
    def spaces(self):
        return {"x": Real(self.d)}

    def __call__(self, *, x):
        return 0.5 * jnp.sum(x**2) + 0.5 * self.d * jnp.log(2 * jnp.pi)

    def log_partition(self):
        return jnp.zeros(())

    def draw(self, key):
        return {"x": jax.random.normal(key, (self.d,))}


def test_the_posterior_of_factor_analysis():
    """Means within 4.5 errors (6 means: one failure in 24,000 keys), and the evidence of the same draws."""
    found = posterior(factor, {"x": X}, Importance(), key=0)
    mean, covariance = posterior_of_z(X)
    assert found.weights.shape == (4000, 3) and found.weights.dtype == np.float32
    np.testing.assert_allclose(found.weights.sum(0), 1, rtol=1e-5)
    assert (found.effective_draws > 3000).all() and (found.pareto_k < 0.5).all() and not found.problem
    assert found.verdict.startswith("no problem found")
    estimate = found.expectation(lambda z: z)
    np.testing.assert_allclose(estimate.value, found.mean["z"], rtol=1e-4)
    assert (np.abs(estimate.value - mean) < 4.5 * estimate.stderr).all() and (estimate.stderr < 0.02).all()
    truth = stats.multivariate_normal(np.zeros(4), COVARIANCE).logpdf(X)
    assert found.log_evidence.kind == "lower bound"
    assert (np.abs(found.log_evidence.value - truth) < 4.5 * found.log_evidence.stderr).all()
    assert np.abs(found.mode["z"] - mean).max() < 0.1
    drawn = found.sample(2000, key=1)["z"]
    assert drawn.shape == (2000, 3, 2)
    np.testing.assert_allclose(np.cov(drawn[:, 0].T), covariance, atol=0.02)


def test_missing_coordinates_are_drawn_given_the_hidden_variable():
    """E[x₁ | x₀, x₂, x₃] of a Gaussian, and draws of it that keep what was observed."""
    holes = X.copy()
    holes[:, 1] = np.nan
    found = posterior(factor, {"x": holes}, Importance(), key=0)
    mean, covariance = posterior_of_z(X, (0, 2, 3))
    estimate = found.expectation(lambda x: x[1])
    assert (np.abs(estimate.value - mean @ W[1]) < 4.5 * estimate.stderr).all()
    assert np.std(found.sample(4000, key=1)["x"][:, 0, 1]) == pytest.approx(
        np.sqrt(W[1] @ covariance @ W[1] + 0.25), rel=0.1
    )
    np.testing.assert_array_equal(found.sample(5, key=0)["x"][:, :, 0], np.broadcast_to(X[:, 0], (5, 3)))


def test_finite_variables_are_summed_out_and_drawn():
    """p(z | x), E[u | x] and p(z = 1, u > 1 | x) by quadrature over u."""
    u = np.linspace(-8, 12, 40001)
    for x in (0.5, 2.0):
        table = np.exp(-0.5 * (u - 2.0 * np.arange(3)[:, None]) ** 2 - 0.5 * (x - u**3 / 4) ** 2)
        table /= table.sum()
        found = posterior(Switch(), {"x": x}, Importance(AdaptiveMixture(2), 8000), key=0)
        n = found.effective_draws
        p = table.sum(1)
        assert n > 2000
        assert (np.abs(found.marginals["z"] - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()
        np.testing.assert_allclose(found.joint("z"), found.marginals["z"], atol=1e-6)
        mean = found.expectation(lambda u: u)
        assert abs(mean.value - table.sum(0) @ u) < 4.5 * mean.stderr
        both = found.expectation(lambda z, u, x: (z == 1) & (u > 1.0) & (x > 0))
        assert abs(both.value - table[1, u > 1].sum()) < 4.5 * both.stderr
        assert found.joint("z")[int(found.mode["z"])] > 0.05


def test_weights_that_cannot_be_trusted_warn():
    """A proposal with lighter tails than the posterior, and one far away."""
    wide = StandardNormal(2)
    narrow = Importance(dist.Normal(jnp.zeros(2), 0.4).to_event(1))
    with pytest.warns(ConvergenceWarning, match=r"Pareto k-hat is [\d.]+, above 0.7; use a better proposal"):
        found = posterior(wide, {}, narrow, key=0)
    assert found.pareto_k > 0.7 and "not to be trusted" in repr(found) and "unreliable" in found.verdict
    far = Importance(dist.Normal(jnp.full(2, 9.0), 1.0).to_event(1))
    with pytest.warns(ConvergenceWarning, match=r"only [\d.]+ of 4000 draws are effective"):
        draws = sample(wide, 100, method=far, key=0)
    assert not draws.trusted


def test_draws_chosen_by_their_weights():
    """The variance of 20,000 resampled draws of a mixture, whose proposal is one wide normal."""
    two = Mixture(Gaussians(jnp.array([[-2.0], [2.0]]), covariance=jnp.full((2, 1, 1), 0.25)))
    method = Importance({"x": dist.Normal(jnp.zeros(1), 3.0).to_event(1)}, 80_000)
    draws = sample(two, 20_000, method=method, key=0)
    assert draws["x"].shape == (20_000, 1) and draws["z"].shape == (20_000,) and draws.trusted
    assert draws["x"].var() == pytest.approx(4.25, rel=0.03)
    assert ((draws["x"][:, 0] > 0) == (draws["z"] == 1)).mean() > 0.999


class Shear(eqx.Module):
    """A flow in ℝ²: u₀ = 0.3 + ε₀, u₁ = tanh(u₀) / 2 + 1.2 ε₁."""

    def sample(self, key):
        noise = jax.random.normal(key, (2,))
        first = 0.3 + noise[0]
        return jnp.stack([first, 0.5 * jnp.tanh(first) + 1.2 * noise[1]])

    def log_prob(self, u):
        away = jnp.stack([u[0] - 0.3, (u[1] - 0.5 * jnp.tanh(u[0])) / 1.2])
        return -0.5 * away @ away - jnp.log(2 * jnp.pi * 1.2)


def encoder(x):
    mean, _ = posterior_of_z(x[None])
    return {"z": dist.Normal(mean[0] + 0.1, 0.6).to_event(1)}


@pytest.mark.parametrize(
    "proposal",
    [None, encoder, Shear(), AdaptiveMixture(2, 4, 300)],
    ids=["fitted", "encoder", "flow", "adaptive"],
)
def test_standard_errors_of_log_p_are_those_of_repetitions(proposal):
    """200 scores of log p(x): their root mean square is within 0.2 of 1, four standard deviations."""
    rows = np.repeat(X[:1], 200, axis=0)
    found = log_prob(factor, {"x": rows}, Importance(proposal, 4000), key=1)
    truth = stats.multivariate_normal(np.zeros(4), COVARIANCE).logpdf(rows)
    scores = (found.value - truth) / found.stderr
    assert np.sqrt((scores**2).mean()) == pytest.approx(1, abs=0.2)
    assert found.stderr.max() < 0.1


def test_standard_errors_of_log_z_with_a_mixture_as_proposal():
    """∫ of two wells; the proposal is a mixture with wrong weights. 100 scores: within 0.3 of 1."""
    wells = NeuralEnergy(lambda x: -jnp.logaddexp(2 * x[0], -2 * x[0] - 1), 1, confinement=1.0)
    truth = 0.5 * np.log(2 * np.pi) + 2 + np.log1p(np.exp(-1))
    mixture = Mixture(Gaussians(jnp.array([[-2.0], [2.0]]), covariance=jnp.ones((2, 1, 1))), [0.5, 0.5])
    found = [log_partition(wells, Importance(mixture, 500), key=i) for i in range(100)]
    scores = np.array([(e.value - truth) / e.stderr for e in found])
    assert np.sqrt((scores**2).mean()) == pytest.approx(1, abs=0.3)


# -- expectations --------------------------------------------------------------------------------------


def test_the_optimal_proposal_has_no_variance():
    """q ∝ f p for f = exp(3 x) and p = N(0, 1) is N(3, 1), and E[f] = exp(4.5)."""
    best = Importance(dist.Normal(jnp.full(1, 3.0), 1.0).to_event(1), n_samples=50)
    found = expectation(StandardNormal(1), lambda x: jnp.exp(3 * x[0]), method=best, key=0)
    assert found.value == pytest.approx(np.exp(4.5), rel=1e-5) and found.stderr < 1e-5 * np.exp(4.5)


def test_adaptive_proposals_find_rare_events():
    """P(Σ x / 2 ≥ 7) = 1.3e-12 in ℝ⁴, in 20 runs: no bias, errors below 3 %, scores of spread 1."""
    method = Importance(AdaptiveMixture(n_rounds=8), n_samples=4000)
    event = Exceeds(lambda x: x.sum() / 2, 7.0)
    runs = [expectation(StandardNormal(4), event, method=method, key=i) for i in range(20)]
    truth = stats.norm.sf(7.0)
    scores = np.array([(e.value - truth) / e.stderr for e in runs])
    assert max(e.stderr for e in runs) < 0.03 * truth
    assert abs(scores.mean()) < 4 / np.sqrt(20) and np.sqrt((scores**2).mean()) < 1.8


def test_an_unseen_event_has_no_standard_error():
    event = lambda x: x[0] > 50.0
    with pytest.warns(ConvergenceWarning, match="the function is 0 at all 1000 draws"):
        found = expectation(StandardNormal(1), event, method=Importance(n_samples=1000), key=0)
    assert found.value == 0 and np.isinf(found.stderr)


def test_an_adaptive_proposal_where_log_z_is_unknown():
    """P(x ≥ 4) of exp(−x²/2 − 0.3 x⁴/4), as a ratio of two integrals, against quadrature."""
    energy = NeuralEnergy(lambda x: 0.075 * x[0] ** 4, 1, confinement=1.0)
    grid = np.linspace(-6, 6, 200_001)
    density = np.exp(-0.5 * grid**2 - 0.075 * grid**4)
    truth = density[grid >= 4].sum() / density.sum()
    method = Importance(AdaptiveMixture(), n_samples=10_000)
    found = expectation(energy, Exceeds(lambda x: x[0], 4.0), method=method, key=0)
    assert truth < 1e-10 and abs(found.value - truth) < 4.5 * found.stderr < 0.15 * truth
    moment = expectation(energy, lambda x: x**2, method=method, key=0)
    assert moment.value.shape == (1,)
    assert abs(moment.value - (grid**2 * density).sum() / density.sum()) < 4.5 * moment.stderr


def test_a_mixture_of_proposals_covers_separate_modes():
    """Six modes on a circle; a single Student t that is moved to them wastes most of its draws."""
    angles = 2 * np.pi * np.arange(6) / 6
    centers = jnp.asarray(5 * np.stack([np.cos(angles), np.sin(angles)], 1), jnp.float32)
    energy = Mixture(Gaussians(centers, covariance=jnp.stack([0.1 * jnp.eye(2)] * 6))).over("z")
    one, many = (
        posterior(energy, {}, Importance(AdaptiveMixture(c, 15, 2000)), key=0).effective_draws
        for c in (1, 10)
    )
    assert many > 2000 > 5 * one


def test_errors_of_means_over_chains():
    """AR(1) with ρ = 0.8: the variance of a mean of n is (1 + ρ) / (1 − ρ) / n; 200 scores of spread 1."""
    from energax.infer._monte_carlo.weights import mean_of_draws

    noise = np.random.default_rng(0).normal(size=(4, 1100, 200))
    chains = np.zeros_like(noise)
    for t in range(1, 1100):
        chains[:, t] = 0.8 * chains[:, t - 1] + 0.6 * noise[:, t]
    draws = Draws({"x": chains[:, 100:]}, method="AR(1)")
    mean, error = mean_of_draws(draws["x"].T[:, :, None], draws)
    assert mean.shape == (200, 1) and error.mean() == pytest.approx(np.sqrt(9 / 4000), rel=0.05)
    assert np.sqrt(((mean / error) ** 2).mean()) == pytest.approx(1, abs=0.2)


def test_expectations_of_other_posteriors():
    """By enumeration, whose draws are independent, and by chains; of a bool that is never True."""
    rbm = RBM.random(3, 2, key=0, scale=1.5)
    exact = posterior(rbm, {"x": [0, 1, 1]}, Enumeration())
    p = exact.joint("z")
    estimate = exact.expectation(lambda z, x: z[0] * z[1] + x.sum(), key=0)
    assert abs(estimate.value - p[3] - 2) < 4.5 * estimate.stderr < 0.05
    with pytest.raises(BadInput, match="pass key=0"):
        exact.expectation(lambda z: z)
    chains = posterior(rbm, {"x": [0, 1, 1]}, MCMC(Gibbs(), warmup=50), key=0)
    estimate = chains.expectation(lambda z, x: z[0] * z[1] + x.sum())
    assert abs(estimate.value - p[3] - 2) < 4.5 * estimate.stderr < 0.1
    never = chains.expectation(lambda z: z[0] > 99.0)
    assert never.value == 0 and 0 < never.stderr < 0.01


def test_double_precision():
    with jax.enable_x64(True):
        energy = StandardNormal(2)
        event = Exceeds(lambda x: x[0], 3.0)
        found = expectation(energy, event, method=Importance(AdaptiveMixture(n_rounds=4), 2000), key=0)
        assert found.value.dtype == np.float64
        assert posterior(energy, {}, Importance(n_samples=500), key=0).weights.dtype == np.float64


# -- choices and messages ------------------------------------------------------------------------------


def test_the_planner_takes_importance_only_if_it_is_named():
    assert plan(posterior, factor, {"x": X}).method.label == "NUTS"
    found = plan("posterior", factor, {"x": X}, Importance(AdaptiveMixture(n_rounds=5, n_draws=100)))
    assert (found.kind, found.cost.evaluations) == ("estimate", 3 * (4000 + 500))
    assert plan("log_prob", factor, {"x": X}).method.label == "importance"


ERRORS: list[tuple[Any, Any, str]] = [
    (lambda: expectation(factor, lambda y: y, {"x": X}, key=0), BadInput, r"arguments \['y'\].*'x', 'z'"),
    (lambda: expectation(factor, 3, {"x": X}, key=0), BadInput, "a function, such as"),
    (lambda: expectation(factor, lambda z: z, {"x": X}, "importance"), BadInput, "pass key=0"),
    (lambda: Exceeds(lambda x: x, np.nan), BadInput, "threshold: found .*a finite number"),
    (lambda: Exceeds(3, 1.0), BadInput, "function: found 3"),
    (lambda: AdaptiveMixture(0), BadInput, "n_components"),
    (lambda: AdaptiveMixture(elite=1.5), BadInput, "elite: found 1.5"),
    (lambda: AdaptiveMixture(n_draws=10, elite=0.01), BadInput, "at least one draw"),
    (
        lambda: posterior(Switch(), {"x": 0.0}, Importance({"z": dist.Categorical(jnp.ones(3) / 3)}), key=0),
        Unsuitable,
        r"Importance cannot use the proposal dict.*Use NUTS|Use FiniteFirst",
    ),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_say_what_to_do(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=f"(?s){message}"):
        call()
