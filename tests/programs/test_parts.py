"""Every part of the catalog: interpreted with NumPy it gives what XLA gives, and nothing is compiled."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from parts import (
    ENERGIES,
    ESTIMATORS,
    INFERENCES,
    KEY,
    LEARNERS,
    OBJECTIVES,
    SAMPLERS,
    find_learner,
    fit_estimator,
    mixed_network,
    observed,
    output_of,
    rows_of,
    takes_binary,
)

import energax
from energax import infer, learn
from energax.errors import Intractable, Unsuitable
from energax.programs import _jit, clear, jit, use_engine

pytestmark = pytest.mark.slow

#: Adam divides a gradient that is zero up to rounding by its own size.
SGD = optax.sgd(0.05)
#: Estimators whose programs XLA compiles for long; their objectives are compared alone.
FITTED_ONCE = ("BernoulliRBM", "DeepBeliefNetwork", "DeepBoltzmannMachine", "EnergyModel", "VAE")


@pytest.fixture
def compare(monkeypatch):
    """Run a function with both engines, and compare what it returns."""

    def check(function, rtol=1e-4, atol=2e-5):
        clear()
        with use_engine("numpy"), monkeypatch.context() as patch:
            patch.setattr(_jit.Program, "_run_compiled", _refuse)
            found = function()
        clear()
        with use_engine("xla"):
            expected = function()
        pairs = zip(
            *(jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (found, expected)), strict=True
        )
        for value, reference in pairs:
            assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
            if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
                value, reference = jax.random.key_data(value), jax.random.key_data(reference)
            np.testing.assert_allclose(value, reference, rtol=rtol, atol=atol)

    return check


def _refuse(self, arrays):
    raise AssertionError("a program was compiled")


@jit
def _values(energy, rows):
    return jax.vmap(lambda row: energy(**row))(rows)


@pytest.mark.parametrize("name", ENERGIES)
def test_an_energy(name, compare):
    energy = ENERGIES[name]()
    compare(lambda: _values(energy, rows_of(energy)))


@pytest.mark.parametrize("name", ENERGIES)
def test_log_prob(name, compare):
    energy = ENERGIES[name]()
    data = {k: np.asarray(v) for k, v in observed(energy).items()}
    try:
        compare(lambda: energax.log_prob(energy, data, infer.Exact()).value)
    except (Unsuitable, Intractable):
        pytest.skip("log p has no closed form")


@pytest.mark.parametrize("name", sorted(set(ENERGIES) - {name for name, _ in OBJECTIVES.values()}))
def test_a_fit(name, compare):
    """Energies that no objective below has as its example."""
    energy = ENERGIES[name]()
    learner = find_learner(energy)
    if learner is None:
        pytest.skip("nothing is learned")
    if isinstance(learner, learn.Descent):
        learner = learn.Descent(learner.objective, SGD)
    data = {k: np.asarray(v) for k, v in observed(energy).items()}
    compare(lambda: energax.fit(energy, data, learner, epochs=2, key=KEY).energy)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective(name, compare):
    energy_name, build = OBJECTIVES[name]
    energy = ENERGIES[energy_name]()
    data = {k: np.asarray(v) for k, v in observed(energy).items()}
    learner = learn.Descent(build(energy, data), SGD)
    compare(lambda: energax.fit(energy, data, learner, epochs=2, key=KEY).energy)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner(name, compare):
    energy_name, build = LEARNERS[name]
    energy = ENERGIES[energy_name]()
    names = [name for name in energy.spaces if name != "z"]
    data = {name: np.asarray(rows) for name, rows in rows_of(energy, names, 20).items()}
    batch_size = 8 if name in ("Descent", "EM") else None  # the others need all rows
    compare(lambda: energax.fit(energy, data, build(), epochs=3, batch_size=batch_size, key=KEY).energy)


#: Inferences by a sampler that is compiled at once.
COMPILED = {"BridgeSampling"}


@pytest.mark.parametrize("name", sorted(set(INFERENCES) - COMPILED))
def test_an_inference(name, compare):
    example = INFERENCES[name]
    build = mixed_network if example.energy == "BayesianNetwork with reals" else ENERGIES[example.energy]
    energy = build()
    data = {"x": np.asarray(rows_of(energy, ["x"])["x"])}
    compare(lambda: example.query(energy, data, example.method()))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler(name, compare):
    energy_name, build = SAMPLERS[name]
    energy, sampler = ENERGIES[energy_name](), build()
    advance = jit(lambda energy, rows, key: sampler.advance(energy, rows, 3, key))
    compare(lambda: advance(energy, rows_of(energy), jax.random.key(KEY)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator(name, compare):
    y = np.arange(14) % 2
    X = (np.random.default_rng(0).normal(size=(14, 3)) + 3 * y[:, None]).astype(np.float32)
    if takes_binary(name):
        X = (X > 1.5).astype(np.float32)

    if name in FITTED_ONCE:
        with use_engine("numpy"):
            model = fit_estimator(name, X, y)
        compare(lambda: output_of(model, X), rtol=1e-3, atol=1e-3)
    else:
        compare(lambda: output_of(fit_estimator(name, X, y), X), rtol=1e-3, atol=1e-3)
