"""Models of NumPyro as energies: densities, spaces, discrete sites, refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.distributions import constraints
from numpyro.infer.util import log_density

from energax import (
    Binary,
    Categorical,
    Count,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Real,
    Simplex,
    from_numpyro,
    posterior,
    sample,
)
from energax.errors import BadInput, Unsuitable
from energax.infer import Laplace
from energax.samplers import Langevin
from energax.samplers._sampler import random_value
from energax.spaces import Constrained, space_of


def everything(y, scale=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("rows", 4), numpyro.handlers.mask(mask=np.arange(4) < 3):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, scale), obs=y)
    numpyro.sample("simplex", dist.Dirichlet(jnp.ones((2, 3))))
    numpyro.sample("cholesky", dist.LKJCholesky(3, 1.0))
    numpyro.sample("ordered", dist.ImproperUniform(constraints.ordered_vector, (), (3,)))
    numpyro.sample("bounded", dist.Uniform(-1, 2))
    numpyro.sample("matrix", dist.Wishart(4.0, jnp.eye(2)))
    numpyro.sample("class", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
    numpyro.sample("coin", dist.Bernoulli(0.3))
    numpyro.sample("count", dist.Poisson(2.0))
    numpyro.factor("penalty", -0.5 * mu**2)
    numpyro.deterministic("sum", mu + tau)


def test_every_site_has_its_space_and_the_density_is_that_of_numpyro():
    y, scale = np.arange(4.0), np.ones(4)
    energy = from_numpyro(everything, y, scale=scale)
    assert energy.spaces == {
        "mu": Real(),
        "tau": Positive(),
        "theta": Real(4),
        "simplex": Simplex().with_shape(2, 3),
        "cholesky": Constrained(constraints.corr_cholesky, 3, 3),
        "ordered": Ordered(3),
        "bounded": Interval(-1, 2),
        "matrix": PositiveDefinite(2),
        "class": Categorical(3),
        "coin": Binary(),
        "count": Count(),
    }
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), len(energy.spaces))
        values = {n: random_value(s, k) for k, (n, s) in zip(keys, energy.spaces.items(), strict=True)}
        own = {**values, "coin": values["coin"].astype(int)}
        expected = -log_density(everything, (y,), {"scale": scale}, own)[0]
        np.testing.assert_allclose(energy(**values), expected, rtol=1e-12)
        assert energy(**values).dtype == jnp.float64
        for name, space in energy.spaces.items():
            space.check(np.asarray(values[name]), name)
    draws = {k: np.stack([v, v]) for k, v in values.items()}
    np.testing.assert_allclose(energy.deterministic(draws)["sum"], values["mu"] + values["tau"])


def test_discrete_sites_are_enumerated():
    """A mixture of two coins, one flip seen: Bayes' rule by hand."""

    def model(y):
        which = numpyro.sample("which", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        bias = jnp.array([0.1, 0.5, 0.9])[which]
        numpyro.sample("y", dist.Bernoulli(bias), obs=y)

    found = posterior(from_numpyro(model, 1), {})
    joint = np.array([0.02, 0.15, 0.45])
    np.testing.assert_allclose(found.marginals["which"], joint / joint.sum(), rtol=1e-5)


def test_conjugate_posteriors_by_laplace_and_by_a_sampler():
    """Normal mean with known variance: exact by Laplace; within 5 standard errors by Langevin."""
    y = np.array([1.0, 2.0, 4.0])

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    energy = from_numpyro(model, y)
    found = posterior(energy, {}, Laplace())
    np.testing.assert_allclose(found.mean["mean"], 7 / 3.25, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, [[1 / 3.25]], rtol=1e-6)
    draws = sample(energy, 4000, method=Langevin(), key=0, thin=3)
    assert abs(draws["mean"].mean() - 7 / 3.25) < 5 / np.sqrt(3.25 * draws.ess.min())


def test_models_without_a_fixed_density_are_refused():
    def dynamic():
        top = numpyro.sample("top", dist.HalfNormal(1.0))
        numpyro.sample("below", dist.Uniform(0.0, top))

    def optional():
        if numpyro.sample("coin", dist.Bernoulli(0.5)):
            numpyro.sample("other", dist.Normal(0.0, 1.0))

    def with_param():
        numpyro.sample("x", dist.Normal(numpyro.param("loc", 0.0), 1.0))

    def subsampled(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 10, subsample_size=3) as rows:
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[rows])

    for model, arguments, message in (
        (dynamic, (), "'below'.*fixed support"),
        (with_param, (), "'loc' is a numpyro.param"),
        (subsampled, (jnp.zeros(10),), "3 of 10 rows.*subsample_size"),
        (lambda: numpyro.sample("x", dist.Multinomial(3, jnp.ones(2) / 2)), (), "discrete vector"),
        (lambda: numpyro.sample("x", dist.DiscreteUniform(1, 3)), (), "from 0"),
    ):
        with pytest.raises(Unsuitable, match=message):
            from_numpyro(model, *arguments)
    with pytest.raises(BadInput, match="no latent site"):
        from_numpyro(lambda: None)
    with pytest.raises(BadInput, match="a function"):
        from_numpyro(3)


def test_missing_values_by_obs_mask_are_proper():
    """Two of three values observed: the energy of the joint normal, also of a replicated observed value."""

    def model(y, is_known):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 3):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=is_known)

    energy = from_numpyro(model, np.array([1.0, 2.0, 0.0]), np.array([True, True, False]))
    assert energy.spaces == {"mean": Real(), "y_unobserved": Real(3)}
    found = posterior(energy, {}, Laplace())
    np.testing.assert_allclose(found.mean["mean"], 1.0, atol=1e-5)
    np.testing.assert_allclose(found.mean["y_unobserved"], 1.0, atol=1e-5)
    np.testing.assert_allclose(np.diag(found.covariance), [1 / 3, 4 / 3, 4 / 3, 4 / 3], rtol=1e-4)
    draws = {"mean": np.zeros(2), "y_unobserved": np.full((2, 3), 7.0)}
    np.testing.assert_allclose(energy.deterministic(draws)["y"], [[1, 2, 7]] * 2)


def test_arguments_that_programs_cannot_hold_are_refused():
    frame = pd.DataFrame({"y": [1.0, 2.0]})

    def model(table):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=table["y"].to_numpy())

    for arguments in ((frame,), ({"y": frame["y"]},)):
        with pytest.raises(BadInput, match=r"args: found .*arrays, numbers and texts.*to_numpy"):
            from_numpyro(model, *arguments)


def test_constraints_with_arrays_of_bounds_have_a_space():
    space = space_of(constraints.interval(0.0, np.array([1.0, 2.0])), (2,))
    assert space == space_of(constraints.interval(0.0, np.array([1.0, 2.0])), (2,))
    assert space != space_of(constraints.interval(0.0, np.array([1.0, 3.0])), (2,))
    assert hash(space) == hash(space_of(constraints.interval(0.0, np.array([1.0, 2.0])), (2,)))
    with pytest.raises(BadInput, match="Interval"):
        space.check(np.array([0.5, 2.5]))


def test_draws_carry_deterministic_sites_chain_by_chain():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        numpyro.deterministic("twice", 2 * jnp.stack([mean, -mean]))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    energy = from_numpyro(model, np.array([1.0, 2.0, 4.0]))
    draws = sample(energy, 40, method=Langevin(), key=0)
    both = energy.with_deterministic(draws)
    chains = draws.chains["mean"]
    np.testing.assert_allclose(both.chains["twice"], np.stack([2 * chains, -2 * chains], -1))
    assert both.method == draws.method and both.info.keys() == draws.info.keys()
    assert both.rhat.shape == (3,) and both.rhat[0] == draws.rhat[0]
    with pytest.raises(BadInput, match="the Draws of sample"):
        energy.with_deterministic(dict(draws))


def test_new_data_of_the_same_shape_does_not_compile_again():
    """y ~ N(m, 1) four times, m ~ N(0, 1): the mean of m is 4 / 5 of that of y."""
    traces = []

    def model(y):
        traces.append(1)
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    first, second = (from_numpyro(model, np.full(4, v, np.float32)) for v in (1.0, -2.0))
    means = [sample(first, 400, key=0, warmup=100)["m"].mean()]
    before = len(traces)
    means.append(sample(second, 400, key=0, warmup=100)["m"].mean())
    assert len(traces) == before
    np.testing.assert_allclose(means, [0.8, -1.6], atol=0.2)
