"""Simulation-based calibration of samplers on a conjugate model, and of samplers that are wrong."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Gamma, Normal

from energax import Energy, Positive, Real
from energax.energies import RBM
from energax.errors import BadInput, Unsuitable
from energax.evaluate import Calibration, simulation_based_calibration
from energax.infer import MCMC, Laplace
from energax.samplers import NUTS, SGLD, Gibbs, MetropolisHastings

LEVEL = 0.01
N_ROWS = 4  # of a data set


class NormalGamma(Energy):
    """τ ~ Gamma(a, a), μ | τ ~ N(0, 1 / τ), y | μ, τ ~ N(μ, 1 / τ): conjugate, and more skewed for small a.

    `error` is added to the rate of p(τ | μ, y), so that Gibbs sampling is wrong unless it is 0.
    """

    a: jax.Array = eqx.field(converter=jnp.asarray, default=10.0)
    error: jax.Array = eqx.field(converter=jnp.asarray, default=0.0)

    @property
    def spaces(self):
        return {"mu": Real(), "tau": Positive(), "y": Real(N_ROWS)}

    def __call__(self, *, mu, tau, y):
        spread = 1 / jnp.sqrt(tau)
        normal = Normal(0, spread).log_prob(mu) + Normal(mu, spread).log_prob(y).sum()
        return -Gamma(self.a, self.a).log_prob(tau) - normal

    def conditional(self, name, *, mu=None, tau=None, y):
        if name == "tau":
            squares = mu**2 + jnp.sum((y - mu) ** 2)
            return Gamma(self.a + (N_ROWS + 1) / 2, self.a + squares / 2 + self.error)
        precision = (N_ROWS + 1) * tau
        return Normal(y.sum() / (N_ROWS + 1), 1 / jnp.sqrt(precision))

    def draw(self, key):
        tau_key, mu_key, y_key = jax.random.split(key, 3)
        tau = Gamma(self.a, self.a).sample(tau_key)
        mu = jax.random.normal(mu_key) / jnp.sqrt(tau)
        return {"mu": mu, "tau": tau, "y": mu + jax.random.normal(y_key, (N_ROWS,)) / jnp.sqrt(tau)}


class LoudSGLD(SGLD):
    """SGLD with noise of the variance 3 ε for 2 ε."""

    def update(self, gradient, u, momentum, key, step_size):
        u, momentum = super().update(gradient, u, momentum, key, step_size)
        return u + jnp.sqrt(step_size) * jax.random.normal(jax.random.fold_in(key, 1), u.shape), momentum


def stretch(key, state):
    """An asymmetric proposal: its ratio q(τ | τ′) / q(τ′ | τ) is τ′ / τ."""
    mu_key, tau_key = jax.random.split(key)
    factor = jnp.exp(0.7 * jax.random.normal(tau_key))
    return {**state, "mu": state["mu"] + 0.7 * jax.random.normal(mu_key), "tau": state["tau"] * factor}


GIBBS = MCMC(Gibbs(("mu", "tau")), warmup=20, thin=4)
RIGHT = {
    "NUTS": MCMC(NUTS(), warmup=150, thin=2),
    "Gibbs": GIBBS,
    "SGLD": MCMC(SGLD(0.005), warmup=1000, thin=150),
}
WRONG = {
    "a wrong acceptance": (NormalGamma(), MCMC(MetropolisHastings(stretch), warmup=100, thin=20)),
    "wrong noise of the steps": (NormalGamma(), MCMC(LoudSGLD(0.005), warmup=1000, thin=150)),
    "a wrong conditional": (NormalGamma(error=2.0), GIBBS),
    "an approximation of skewed posteriors": (NormalGamma(a=0.7), Laplace()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_samplers_are_calibrated(name):
    """At level 0.01, divided by the number of samplers and of coordinates."""
    found = simulation_based_calibration(NormalGamma(), "y", RIGHT[name], n=300, key=1)
    assert found.pvalue > LEVEL / len(RIGHT), found.pvalues


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_methods_are_found(name):
    energy, method = WRONG[name]
    n = 1500 if isinstance(method, Laplace) else 300
    found = simulation_based_calibration(energy, "y", method, n=n, key=1)
    assert found.pvalue < LEVEL and found.verdict.startswith("miscalibrated"), found.pvalues


def test_the_test_has_its_level():
    """p-values of exact ranks are uniform: 3000 coordinates, at 5 standard errors of their frequency."""
    ranks = np.random.default_rng(0).integers(0, 100, (200, 3000))
    p = Calibration({"x": ranks}, 99, "exact").pvalues["x"]
    for level in (0.01, 0.1, 0.5):
        assert abs((p < level).mean() - level) < 5 * np.sqrt(level * (1 - level) / p.size)


def test_equal_draws_are_ordered_at_random():
    """Finite variables, drawn exactly: ties would make ranks uneven."""
    rbm = RBM(jnp.array([[1.0, -1.0], [0.5, 2.0]]), jnp.zeros(2), jnp.array([0.3, -0.4]))
    found = simulation_based_calibration(rbm, ["x"], key=0)
    assert found.ranks["z"].shape == (300, 2) and found.pvalue > LEVEL
    assert found.verdict.startswith("no problem found (exact): 300 simulated data sets")


@pytest.mark.parametrize(
    ("energy", "observed", "settings", "error", "says"),
    [
        (NormalGamma(), "x", {}, BadInput, r"observed.*some, but not all, of \['mu', 'tau', 'y'\]"),
        (NormalGamma(), ("mu", "tau", "y"), {}, BadInput, "observed"),
        (NormalGamma(), "y", {"n": 3}, BadInput, "n: found"),
        (NormalGamma(), "y", {"n_draws": 2}, BadInput, "n_draws: found"),
    ],
)
def test_bad_arguments(energy, observed, settings, error, says):
    with pytest.raises(error, match=says):
        simulation_based_calibration(energy, observed, key=0, **settings)


def test_an_energy_without_exact_draws_is_refused():
    class Undrawn(NormalGamma):
        draw = Energy.draw

    with pytest.raises(Unsuitable, match=r"exact draws of Undrawn.*Give the energy `draw`"):
        simulation_based_calibration(Undrawn(), "y", n=20, key=0)
