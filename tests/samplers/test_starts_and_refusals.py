"""Starts at which the energy is not finite, and samplers that do not support a variable or an argument."""

import jax.numpy as jnp
import pytest
from function_energy import Given

from energax import Binary, Categorical, Count, Positive, Real, plan, sample
from energax.energies import RBM
from energax.errors import BadInput, ConvergenceWarning, Unsuitable
from energax.samplers import (
    HMC,
    MALA,
    NUTS,
    SGHMC,
    SGLD,
    Compound,
    EllipticalSlice,
    Gibbs,
    Langevin,
    MetropolisHastings,
    ParallelTempering,
    RandomWalk,
)

NORMAL = Given(lambda x: 0.5 * x @ x, Real(3))


@pytest.mark.parametrize(
    ("function", "sampler", "fault"),
    [
        (lambda x: jnp.log(-jnp.abs(x[0]) - 1.0) + x[1] ** 2, NUTS(), "the value NaN"),
        (lambda x: jnp.inf + jnp.sum(x), NUTS(), "the value infinity"),
        (lambda x: jnp.inf + jnp.sum(x), RandomWalk(), "the value infinity"),
        (lambda x: jnp.sqrt(0.0 * jnp.sum(x)), NUTS(), "a gradient in x that is NaN or infinite"),
    ],
    ids=["NaN", "inf", "inf of a walk", "gradient"],
)
def test_a_start_that_is_not_finite(function, sampler, fault):
    with pytest.raises(BadInput, match=rf"energy: found {fault} at 20 random starts.*x = .*bijection"):
        sample(Given(function, Real(2)), 10, method=sampler, key=0)


def test_gibbs_may_start_at_impossible_values_but_not_at_nan():
    with pytest.raises(BadInput, match=r"the value NaN.*x = "):
        sample(Given(lambda x: jnp.nan * jnp.sum(x), Binary(2)), 10, method=Gibbs(), key=0)
    with pytest.warns(ConvergenceWarning, match=r"4 of 4 chains is infinite"):
        sample(Given(lambda x: jnp.inf + jnp.sum(x), Binary(2)), 10, method=Gibbs(), key=0, warmup=1)
    one_of_many = Given(lambda x: jnp.where(x == 7, 0.0, jnp.inf), Categorical(1000))
    for sampler in (Gibbs(), ParallelTempering(Gibbs(), n_temperatures=2)):
        with pytest.warns(ConvergenceWarning, match="is infinite"):
            draws = sample(one_of_many, 8, method=sampler, key=0, warmup=1)
        assert (draws["x"] == 7).all()


@pytest.mark.parametrize(
    "sampler",
    [
        NUTS(),
        HMC(),
        MALA(),
        Langevin(),
        SGLD(0.1),
        SGHMC(0.1),
        EllipticalSlice(jnp.ones(3)),
        ParallelTempering(),
    ],
    ids=lambda s: s.label,
)
def test_discrete_variables_are_refused_by_gradients(sampler):
    for space, other in ((Binary(3), "Gibbs"), (Count(3), "RandomWalk")):
        with pytest.raises(Unsuitable, match=rf"needs real variables, but .* \['x'\] .*Use {other}"):
            sample(Given(lambda x: jnp.sum(x), space), 10, method=sampler, key=0)


def test_a_plan_of_chains_names_tempering():
    assert "ParallelTempering or TemperedSMC" in str(plan(sample, NORMAL))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: sample(RBM.random(2, 2, key=0), 3, method=NUTS(), key=0),
            Unsuitable,
            "NUTS needs real variables",
        ),
        (lambda: NUTS(step_size=-1.0), BadInput, "step_size"),
        (lambda: NUTS(target_acceptance=1.5), BadInput, "target_acceptance"),
        (lambda: NUTS(max_doublings=0), BadInput, "max_doublings"),
        (lambda: HMC(n_steps=0), BadInput, "n_steps"),
        (lambda: NUTS(dense="yes"), BadInput, "dense"),
        (lambda: RandomWalk(scale=0.0), BadInput, "scale"),
        (lambda: ParallelTempering(Gibbs(), n_temperatures=1), BadInput, "n_temperatures"),
        (lambda: ParallelTempering(Gibbs(), max_temperature=0.5), BadInput, "max_temperature"),
        (lambda: ParallelTempering("gibbs"), BadInput, "sampler"),
        (lambda: Compound({"x": "gibbs"}), BadInput, "parts"),
        (lambda: Compound({"x": Gibbs()}).check(RBM.random(2, 2, key=0)), BadInput, "every variable once"),
        (
            lambda: Compound({"x": ParallelTempering(Gibbs()), "z": Gibbs()}).check(RBM.random(2, 2, key=0)),
            Unsuitable,
            r"cannot hold parallel tempering of Gibbs.*Use ParallelTempering\(Compound",
        ),
        (lambda: EllipticalSlice(jnp.ones((2, 3))), BadInput, "covariance"),
        (lambda: EllipticalSlice(jnp.ones(2)).check(NORMAL), BadInput, "3, one for every coordinate"),
        (lambda: EllipticalSlice(jnp.ones(1)).check(Given(lambda x: x, Positive())), Unsuitable, "Use NUTS"),
        (lambda: MetropolisHastings(3), BadInput, "proposal"),
        (lambda: MetropolisHastings(lambda k, s: {}).check(NORMAL), BadInput, "proposal"),
    ],
)
def test_refusals(call, error, says):
    with pytest.raises(error, match=says):
        call()
