"""One table, all contracts: every row of the catalog is compiled, batched, repeated, saved, misused.

A part that is new in the catalog needs one entry in a table of tests/helpers/parts.py, and gets all of this.
"""

from __future__ import annotations

import functools
import inspect
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parts import (
    COUNTED,
    ENERGIES,
    ESTIMATORS,
    FITS,
    INFERENCES,
    KEY,
    LEARNERS,
    NOT_TABLES,
    OBJECTIVES,
    OPTIONS,
    REFUSED,
    SAMPLERS,
    N,
    in_dtype,
    mixed_network,
    observed,
    rows_of,
)

import energax
from energax import Batch, estimators, learn, samplers
from energax.catalog import CATALOG, of_kind
from energax.errors import BadInput, EnergaxError, Unsuitable
from energax.fitting._batching import check_data
from energax.parameters import trainable
from energax.spaces import Categorical


def no_address(thing):
    assert "0x" not in repr(thing), "an address tells a reader nothing"


def saved_and_loaded(thing, tmp_path):
    path = tmp_path / "thing.safetensors"
    energax.save(thing, path)
    return energax.load(path)


def same(a, b):
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def test_every_row_has_its_contract():
    """The tables above and the catalog name the same parts."""
    tables = {"energy": ENERGIES, "objective": OBJECTIVES, "learner": LEARNERS, "inference": INFERENCES}
    tables |= {"sampler": SAMPLERS, "estimator": ESTIMATORS}
    for kind, table in tables.items():
        assert {row.name for row in of_kind(kind)} - NOT_TABLES == set(table), kind
    assert set(FITS) == set(ENERGIES) - COUNTED and set(REFUSED) == set(INFERENCES)
    assert {f"{row.home}.{row.name}" for row in of_kind("option")} == set(OPTIONS)
    assert {row.kind for row in CATALOG} <= {*tables, "option", "base", "result"}


# -- energies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENERGIES)
class TestEnergy:
    def test_jit_and_vmap_change_nothing(self, name):
        energy = ENERGIES[name]()
        rows = rows_of(energy)
        one_by_one = [float(energy(**jax.tree.map(lambda a, i=i: a[i], rows))) for i in range(N)]
        together = eqx.filter_jit(lambda e, r: jax.vmap(lambda row: e(**row))(r))(energy, rows)
        assert together.shape == (N,)
        np.testing.assert_allclose(together, one_by_one, rtol=2e-5, atol=2e-5)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_dtype_is_kept(self, name, dtype):
        with jax.enable_x64(dtype == "float64"):
            energy = in_dtype(ENERGIES[name](), dtype)
            row = in_dtype(jax.tree.map(lambda a: a[0], rows_of(energy)), dtype)
            value, slope = eqx.filter_value_and_grad(lambda e: e(**row))(energy)
            assert value.dtype == dtype and value.shape == ()
            assert {a.dtype for a in jax.tree.leaves(slope)} <= {jnp.dtype(dtype)}

    def test_save_load_and_repr(self, name, tmp_path):
        energy = ENERGIES[name]()
        loaded = saved_and_loaded(energy, tmp_path)
        assert type(loaded) is type(energy) and loaded.spaces == energy.spaces
        row = jax.tree.map(lambda a: a[0], rows_of(energy))
        assert float(loaded(**row)) == float(energy(**row))
        no_address(energy)

    def test_bad_input_is_refused(self, name):
        energy = ENERGIES[name]()
        good = {k: np.asarray(v) for k, v in observed(energy).items()}
        if name in COUNTED:
            learn_from = check_data
        else:
            learner = FITS[name]()
            learner.check(energy, check_data(energy, good))
            learn_from = lambda energy, data: energax.fit(energy, data, learner, key=0)
        space, named = energy.spaces["x"], isinstance(energy.spaces["x"], Categorical)
        wrong = {
            "one row an example" if named else "rows of shape": {
                **good,
                "x": good["x"].reshape(N, -1)[:, :1].repeat(9, 1),
            },
            space.description(): {**good, "x": np.full(good["x"].shape, np.inf)},
            "one of '0'" if named else "expected numbers": {**good, "x": np.full(good["x"].shape, "a")},
            "at least one row": {k: v[:0] for k, v in good.items()},
            "['unknown'": {"unknown": good["x"]},
        }
        for sentence, data in wrong.items():
            with pytest.raises(BadInput, match=re.escape(sentence)):
                learn_from(energy, data)


# -- learning ----------------------------------------------------------------------------------------


@functools.cache
def one_step(name):
    """(energy, objective, data, step): one compiled step of descent, with two padded rows of any content."""
    energy_name, build = OBJECTIVES[name]
    energy = ENERGIES[energy_name]()
    data = observed(energy)
    objective = build(energy, {k: np.asarray(v) for k, v in data.items()})
    objective.check(energy, data)
    learner, moves = learn.Descent(objective), trainable(energy)
    weight = jnp.concatenate([jnp.ones(N), jnp.zeros(2)])
    padded = lambda filler: {k: jnp.concatenate([v, filler(v[:2])]) for k, v in data.items()}
    state = learner.init(energy, Batch(padded(lambda v: v), weight), jax.random.key(0), moves)

    @eqx.filter_jit
    def compiled(energy, rows):
        new, after, terms = learner.step(energy, state, Batch(rows, weight), jax.random.key(KEY), moves)
        return new, after.partner, terms

    return energy, objective, lambda filler: compiled(energy, padded(filler))


@pytest.mark.parametrize("name", OBJECTIVES)
class TestObjective:
    def test_compiled_repeatable_and_of_one_dtype(self, name):
        energy, objective, step = one_step(name)
        new, _, terms = step(lambda v: v)
        for value in terms.values():
            assert value.shape == () and bool(jnp.isfinite(value)) and value.dtype == jnp.float32
        before, after = (jax.tree.leaves(eqx.filter(e, eqx.is_inexact_array)) for e in (energy, new))
        assert [a.dtype for a in before] == [a.dtype for a in after]
        assert any(bool((a != b).any()) for a, b in zip(before, after, strict=True)), "nothing was learned"
        again = step(lambda v: v)
        same(eqx.filter((new, terms), eqx.is_array), eqx.filter((again[0], again[2]), eqx.is_array))
        no_address(objective)

    @pytest.mark.parametrize("huge", [1e4, 1e30])
    def test_a_padded_row_counts_for_nothing(self, name, huge):
        """Neither in the loss nor in the step, whatever it holds."""
        step = one_step(name)[2]
        absurd = lambda v: jnp.full_like(v, huge) if jnp.issubdtype(v.dtype, jnp.floating) else v
        plain, filled = step(lambda v: v), step(absurd)
        same(eqx.filter(plain, eqx.is_array), eqx.filter(filled, eqx.is_array))

    def test_an_energy_it_makes_no_sense_for_is_refused_in_a_sentence(self, name):
        energy_name, build = OBJECTIVES[name]
        energy = ENERGIES[energy_name]()
        objective = build(energy, {k: np.asarray(v) for k, v in observed(energy).items()})
        strangers = ["NeuralEnergy", "RBM", "Linear"]
        refusals = []
        for other in strangers:
            stranger = ENERGIES[other]()
            try:
                objective.check(stranger, observed(stranger))
            except EnergaxError as error:
                refusals.append(str(error))
        assert refusals, "it takes everything"
        assert all(name in text or "needs" in text or "expected" in text for text in refusals)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_repeats_itself_and_its_fit_is_saved(name, tmp_path):
    energy_name, build = LEARNERS[name]
    energy = ENERGIES[energy_name]()
    data = {"x": np.asarray(rows_of(energy, ["x"], 20)["x"])}
    first, again = (energax.fit(energy, data, build(), epochs=2, key=KEY) for _ in range(2))
    same(eqx.filter(first.energy, eqx.is_array), eqx.filter(again.energy, eqx.is_array))
    no_address(first)
    no_address(build())
    loaded = saved_and_loaded(first.energy, tmp_path)
    same(eqx.filter(loaded, eqx.is_array), eqx.filter(first.energy, eqx.is_array))


# -- inference and sampling ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", INFERENCES)
def test_an_inference_repeats_itself_is_saved_and_keeps_the_dtype(name, tmp_path):
    energy_name, build, ask = INFERENCES[name]
    energy = (mixed_network if energy_name == "BayesianNetwork with reals" else ENERGIES[energy_name])()
    data = {"x": np.asarray(rows_of(energy, ["x"])["x"])}
    method = build()
    answer = np.asarray(ask(energy, data, method))
    same(answer, np.asarray(ask(energy, data, build())))
    assert np.isfinite(answer).all() and answer.dtype == np.float32
    no_address(method)
    loaded = saved_and_loaded(method, tmp_path)
    same(answer, np.asarray(ask(energy, data, loaded)))


@pytest.mark.parametrize("name", INFERENCES)
def test_an_inference_refuses_what_it_cannot_do(name):
    energy_name, ask, sentence = REFUSED[name]
    energy = ENERGIES[energy_name]()
    rows = {"x": np.asarray(rows_of(energy, ["x"])["x"])}
    with pytest.raises(Unsuitable, match=f"(?s){sentence}"):
        ask(energy, rows, INFERENCES[name][1]())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_is_compiled_batched_repeatable_and_keeps_the_dtype(name, dtype):
    energy_name, build = SAMPLERS[name]
    with jax.enable_x64(dtype == "float64"):
        energy = in_dtype(ENERGIES[energy_name](), dtype)
        sampler = build()
        sampler.check(energy)
        rows = in_dtype(rows_of(energy), dtype)
        move = eqx.filter_jit(lambda e, r, k: sampler.advance(e, r, 2, k))
        drawn = move(energy, rows, jax.random.key(KEY))
        same(drawn, move(energy, rows, jax.random.key(KEY)))
        assert {k: v.dtype for k, v in drawn.items()} == {k: v.dtype for k, v in rows.items()}
        assert {k: v.shape for k, v in drawn.items()} == {k: v.shape for k, v in rows.items()}
    no_address(sampler)


def test_a_sampler_refuses_what_it_cannot_move():
    with pytest.raises(EnergaxError, match="Langevin"):
        samplers.Gibbs().check(ENERGIES["NeuralEnergy"]())
    with pytest.raises(EnergaxError, match="Gibbs"):
        samplers.Langevin().check(ENERGIES["RBM"]())


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_saved_and_shown(name, tmp_path):
    option = OPTIONS[name]()
    loaded = saved_and_loaded(option, tmp_path)
    assert bool(eqx.tree_equal(loaded, option))
    no_address(option)


# -- estimators ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = np.arange(14) % 2
    real = (rng.normal(size=(14, 3)) + 3 * y[:, None]).astype(np.float32)
    return {"real": real, "binary": (real > 1.5).astype(np.float32), "y": y}


@pytest.mark.parametrize("name", ESTIMATORS)
class TestEstimator:
    def fitted(self, name, table):
        cls = getattr(estimators, name)
        X = table["binary" if name.startswith("Bernoulli") else "real"]
        model = cls(**ESTIMATORS[name], random_state=3)
        model.fit(X, table["y"]) if "Classifier" in name else model.fit(X)
        return model, X

    def answer(self, model, X):
        ask = next(a for a in ("predict_proba", "score_samples", "transform") if hasattr(model, a))
        return getattr(model, ask)(X)

    def test_repeats_itself_keeps_the_dtype_is_saved_and_shown(self, name, table, tmp_path):
        model, X = self.fitted(name, table)
        found = self.answer(model, X)
        assert np.isfinite(found).all() and found.dtype == np.float32
        again, _ = self.fitted(name, table)
        same(found, self.answer(again, X))
        model.save(tmp_path / "model.safetensors")
        loaded = type(model).load(tmp_path / "model.safetensors")
        same(found, self.answer(loaded, X))
        assert repr(loaded) == repr(model)
        no_address(model)

    def test_bad_input_is_refused(self, name, table):
        cls = getattr(estimators, name)
        y = {"y": table["y"]} if "Classifier" in name else {}
        X = table["binary"].copy()
        for bad in (np.full_like(X, np.inf), X[:0], X[:, :0], X[0], np.full(X.shape, "a"), X * 1e30):
            with pytest.raises(EnergaxError):
                cls(**ESTIMATORS[name], random_state=0).fit(bad, **y)
        with pytest.raises(EnergaxError, match="fit"):
            self.answer(cls(**ESTIMATORS[name]), X)

    def test_the_constructor_only_stores(self, name, table):
        cls = getattr(estimators, name)
        for argument, parameter in inspect.signature(cls).parameters.items():
            assert parameter.default is not inspect.Parameter.empty, f"{argument} has no default"
            assert getattr(cls(), argument) is parameter.default
