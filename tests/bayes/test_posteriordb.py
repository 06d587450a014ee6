"""The densities of ten posteriors of posteriordb, by their reference draws, and one through NumPyro."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from posteriordb import MODELS, Posterior, eight_schools, posteriordb_energy

from energax import from_numpyro
from energax.programs import jit

#: One false alarm in 10⁴ runs of all tests together, for about 500 tested numbers.
Z = scipy.stats.norm.isf(1e-4 / 500 / 2)


@jit
def stein(energy, draws):
    """(∇ log p(u), u) of every draw, in unconstrained coordinates u, (n, D) each."""
    spaces = energy.spaces

    def one(x):
        u, unravel = ravel_pytree({k: spaces[k].bijection.inv(v) for k, v in x.items()})

        def log_p(u):
            values, total = {}, 0.0
            for k, v in unravel(u).items():
                values[k] = spaces[k].bijection(v)
                total = total + spaces[k].bijection.log_abs_det_jacobian(v, values[k]).sum()
            return total - energy(**values)

        return jax.grad(log_p)(u), u

    return jax.vmap(one)(draws)


@pytest.mark.parametrize("name", MODELS)
def test_reference_draws_satisfy_the_identities_of_the_density(name, shared_data):
    """E[∂_i log p(u)] = 0 and E[(u_j − c_j) ∂_i log p(u)] = −δ_ij, for every i and j."""
    energy, draws = posteriordb_energy(name, shared_data / "posteriordb")
    with jax.enable_x64(True):
        slope, u = map(np.asarray, stein(energy, {k: draws[k] for k in energy.spaces}))
    n, d = u.shape
    assert n == 10_000 and np.isfinite(slope).all()
    score = slope.mean(0) / (slope.std(0) / np.sqrt(n))
    assert np.abs(score).max() < Z
    products = (u - u.mean(0))[:, None, :] * slope[:, :, None]
    moments = (products.mean(0) + np.eye(d)) / (products.std(0) / np.sqrt(n))
    assert np.abs(moments).max() < Z


def without_prior_of_tau(data, t, mu, tau):
    return eight_schools(data, t, mu, tau) - dist.HalfCauchy(5).log_prob(tau)


def test_a_wrong_density_fails_the_identities(shared_data):
    """The check itself: without one prior, the eight schools are another posterior."""
    energy, draws = posteriordb_energy("eight_schools_noncentered", shared_data / "posteriordb")
    wrong = Posterior(energy.data, without_prior_of_tau, energy.variables)
    with jax.enable_x64(True):
        slope, _ = map(np.asarray, stein(wrong, {k: draws[k] for k in wrong.spaces}))
    assert np.abs(slope.mean(0) / slope.std(0)).max() * np.sqrt(len(slope)) > Z


def test_eight_schools_through_numpyro_is_the_same_energy(shared_data):
    def model(sigma, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("schools", len(y)):
            t = numpyro.sample("t", dist.Normal(0, 1))
            theta = numpyro.deterministic("theta", mu + tau * t)
            numpyro.sample("y", dist.Normal(theta, sigma), obs=y)

    energy, draws = posteriordb_energy("eight_schools_noncentered", shared_data / "posteriordb")
    data = {k: np.asarray(v) for k, v in energy.data.items()}
    other = from_numpyro(model, data["sigma"], y=data["y"])
    assert other.spaces == {k: energy.spaces[k] for k in ("mu", "tau", "t")}
    some = {k: draws[k][:20] for k in energy.spaces}
    with jax.enable_x64(True):
        values = [jax.vmap(lambda x, e=e: e(**x))(some) for e in (energy, other)]
    np.testing.assert_allclose(*values, rtol=1e-12)
    np.testing.assert_allclose(other.deterministic(some)["theta"], draws["theta"][:20], rtol=1e-12)
