"""Ten posteriors of posteriordb: densities by the reference draws, draws of NUTS, and one by NumPyro."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from posteriordb import MODELS, Posterior, eight_schools, posteriordb_energy

from energax import from_numpyro, sample
from energax.programs import jit
from energax.samplers import Draws

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


def eight_schools_model(sigma, y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        t = numpyro.sample("t", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * t)
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def eight_schools_by_numpyro(energy):
    data = {k: np.asarray(v) for k, v in energy.data.items()}
    return from_numpyro(eight_schools_model, data["sigma"], y=data["y"])


def test_eight_schools_through_numpyro_is_the_same_energy(shared_data):
    energy, draws = posteriordb_energy("eight_schools_noncentered", shared_data / "posteriordb")
    other = eight_schools_by_numpyro(energy)
    assert other.spaces == {k: energy.spaces[k] for k in ("mu", "tau", "t")}
    some = {k: draws[k][:20] for k in energy.spaces}
    with jax.enable_x64(True):
        values = [jax.vmap(lambda x, e=e: e(**x))(some) for e in (energy, other)]
    np.testing.assert_allclose(*values, rtol=1e-12)
    np.testing.assert_allclose(other.deterministic(some)["theta"], draws["theta"][:20], rtol=1e-12)


def moments(chains):
    """(mean, standard deviation, standard error of the mean) of every coordinate of (chains, draws, …)."""
    flat = chains.reshape(*chains.shape[:2], -1)
    deviation = flat.std((0, 1))
    return flat.mean((0, 1)), deviation, deviation / np.sqrt(Draws({"x": flat}, method="").ess)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["eight_schools_noncentered", "garch11", "low_dim_gauss_mix", "kidscore_interaction", "mesquite"],
)
def test_default_draws_have_the_reference_moments(name, shared_data):
    """4 chains of NUTS: means within 4 combined standard errors, deviations within 10 %, R-hat < 1.01.

    A hierarchy through NumPyro, a simplex, an ordered mixture, and correlated coefficients on raw scales.
    """
    energy, reference = posteriordb_energy(name, shared_data / "posteriordb")
    by_numpyro = name == "eight_schools_noncentered"
    draws = sample(eight_schools_by_numpyro(energy) if by_numpyro else energy, 8000, key=0)
    assert draws.method == "NUTS" and draws.n_chains == 4 and draws.trusted, draws.verdict
    assert np.nanmax(draws.rhat) < 1.01 and not draws.info["divergent"].any()
    for k in energy.spaces:
        mean, deviation, error = moments(draws.chains[k])
        true, spread, doubt = moments(reference[k].reshape(10, 1000, *reference[k].shape[1:]))
        assert (np.abs(mean - true) < 4 * np.hypot(error, doubt)).all(), (k, mean, true)
        np.testing.assert_allclose(deviation, spread, rtol=0.1, err_msg=k)
