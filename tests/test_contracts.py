"""Contracts of every part of the catalog: it compiles, batches, repeats itself, is saved, rejects bad input.

A new part of the catalog needs one entry in a table of tests/helpers/parts.py to be tested here.
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
    ENERGIES,
    ESTIMATORS,
    INFERENCES,
    KEY,
    LEARNERS,
    OBJECTIVES,
    OPTIONS,
    SAMPLERS,
    N,
    find_learner,
    fit_estimator,
    in_dtype,
    make_estimator,
    mixed_network,
    needs_y,
    observed,
    output_of,
    row_of,
    rows_of,
    takes_binary,
    takes_tables,
)
from quick import evaluate

import energax
from energax import Batch, estimators, learn, samplers
from energax.catalog import CATALOG, of_kind
from energax.errors import BadInput, EnergaxError, Unsuitable
from energax.fitting._batching import check_data
from energax.parameters import trainable_leaves
from energax.programs import jit
from energax.protocols import KNOWLEDGE
from energax.spaces import Categorical


def no_address(thing):
    assert "0x" not in repr(thing), "the repr contains an address"


def saved_and_loaded(thing, tmp_path):
    path = tmp_path / "thing.safetensors"
    energax.save(thing, path)
    return energax.load(path)


def same(a, b):
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def test_every_part_of_the_catalog_has_an_example():
    tables = {"energy": ENERGIES, "objective": OBJECTIVES, "learner": LEARNERS, "inference": INFERENCES}
    tables |= {"sampler": SAMPLERS}
    for kind, table in tables.items():
        assert {row.name for row in of_kind(kind)} == set(table), kind
    assert {row.name for row in of_kind("estimator") if takes_tables(row)} == set(ESTIMATORS)
    assert {f"{row.home}.{row.name}" for row in of_kind("option")} == set(OPTIONS)
    assert {row.kind for row in CATALOG} <= {*tables, "estimator", "option", "base", "result"}


# -- energies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENERGIES)
class TestEnergy:
    def test_jit_and_vmap_change_nothing(self, name):
        energy = ENERGIES[name]()
        rows = rows_of(energy)
        of_row = jit(lambda energy, row: energy(**row))
        one_by_one = [float(of_row(energy, row_of(rows, i))) for i in range(N)]
        together = eqx.filter_jit(lambda e, r: jax.vmap(lambda row: e(**row))(r))(energy, rows)
        assert together.shape == (N,)
        np.testing.assert_allclose(together, one_by_one, rtol=2e-5, atol=2e-5)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_dtype_is_kept(self, name, dtype):
        with jax.enable_x64(dtype == "float64"):
            energy = in_dtype(ENERGIES[name](), dtype)
            row = in_dtype(row_of(rows_of(energy), 0), dtype)
            value, slope = evaluate(lambda: eqx.filter_value_and_grad(lambda e: e(**row))(energy))
            assert value.dtype == dtype and value.shape == ()
            assert {a.dtype for a in jax.tree.leaves(slope)} <= {jnp.dtype(dtype)}

    def test_save_load_and_repr(self, name, tmp_path):
        energy = ENERGIES[name]()
        loaded = saved_and_loaded(energy, tmp_path)
        assert type(loaded) is type(energy) and loaded.spaces == energy.spaces
        row = row_of(rows_of(energy), 0)
        assert float(evaluate(lambda: loaded(**row))) == float(evaluate(lambda: energy(**row)))
        no_address(energy)

    def test_bad_input_raises(self, name):
        energy = ENERGIES[name]()
        good = {k: np.asarray(v) for k, v in observed(energy).items()}
        learner = find_learner(energy)
        if learner is None:
            learn_from = check_data
        else:
            learner.check(energy, check_data(energy, good))
            learn_from = lambda energy, data: energax.fit(energy, data, learner, key=0)
        space, named = energy.spaces["x"], isinstance(energy.spaces["x"], Categorical)
        wrong = {
            "one example per row" if named else "rows of shape": {
                **good,
                "x": good["x"].reshape(N, -1)[:, :1].repeat(9, 1),
            },
            space.description(): {**good, "x": np.full(good["x"].shape, np.inf)},
            "one of '0'" if named else "expected numbers": {**good, "x": np.full(good["x"].shape, "a")},
            "at least one row": {k: v[:0] for k, v in good.items()},
            "['unknown'": {"unknown": good["x"]},
        }
        for message, data in wrong.items():
            with pytest.raises(BadInput, match=re.escape(message)):
                learn_from(energy, data)

    def test_its_optional_methods_have_the_signatures_of_the_protocols(self, name):
        energy = ENERGIES[name]()
        for method, protocol in KNOWLEDGE.items():
            if callable(getattr(type(energy), method, None)):
                difference = signature_difference(
                    getattr(protocol, method), getattr(type(energy), method), energy.spaces
                )
                assert difference is None, f"{type(energy).__name__}.{method}: {difference}"


def signature_difference(protocol, method, spaces):
    """The first way in which calls that the protocol allows fail for the method; None if there is none.

    Variables are keywords: where the protocol has `**given`, a method may name the variables it takes.
    """
    expected, found = (dict(inspect.signature(f).parameters) for f in (protocol, method))
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found.values())
    variables = any(p.kind is p.VAR_KEYWORD for p in expected.values())
    for p in expected.values():
        if p.kind is p.VAR_KEYWORD:
            continue
        own = found.pop(p.name, None)
        if own is None:
            if p.kind is p.KEYWORD_ONLY and takes_any:
                continue
            return f"no parameter {p.name!r}"
        if p.kind is p.POSITIONAL_OR_KEYWORD and own.kind is not p.POSITIONAL_OR_KEYWORD:
            return f"{p.name!r} cannot be given by position"
        if p.default is not p.empty and own.default is own.empty:
            return f"{p.name!r} has no default"
    for own in found.values():
        if own.kind is own.VAR_KEYWORD or own.default is not own.empty:
            continue
        if not (variables and own.kind is own.KEYWORD_ONLY and own.name in spaces):
            return f"{own.name!r} is required"
    return None


def test_every_method_of_the_protocols_is_implemented():
    classes = {type(build()) for build in ENERGIES.values()} | {energax.bayes.ParameterEnergy}
    unused = [name for name in KNOWLEDGE if not any(callable(getattr(c, name, None)) for c in classes)]
    assert not unused, "a protocol that no energy implements"


def test_a_signature_that_differs_from_its_protocol_is_found():
    """The check itself: it must notice what it exists to forbid."""
    conditional = KNOWLEDGE["conditional"].conditional
    good = (
        lambda self, name, **given: 0,
        lambda self, name, *, x: 0,
        lambda self, name, *, x=None, deep=True: 0,
    )
    assert all(signature_difference(conditional, f, {"x"}) is None for f in good)
    bad = (lambda self, **given: 0, lambda self, *, name, **given: 0, lambda self, name, *, y: 0)
    assert all(signature_difference(conditional, f, {"x"}) is not None for f in bad)


# -- learning ----------------------------------------------------------------------------------------


@functools.cache
def one_step(name):
    """(energy, objective, data, step): one compiled step of descent, with two padded rows of any content."""
    energy_name, build = OBJECTIVES[name]
    energy = ENERGIES[energy_name]()
    data = observed(energy)
    objective = build(energy, {k: np.asarray(v) for k, v in data.items()})
    objective.check(energy, data)
    learner, trainable = learn.Descent(objective), trainable_leaves(energy)
    weight = jnp.concatenate([jnp.ones(N), jnp.zeros(2)])
    padded = lambda filler: {k: jnp.concatenate([v, filler(v[:2])]) for k, v in data.items()}
    state = learner.init(energy, Batch(padded(lambda v: v), weight), jax.random.key(0), trainable)

    @eqx.filter_jit
    def compiled(energy, rows):
        new, after, terms = learner.step(energy, state, Batch(rows, weight), jax.random.key(KEY), trainable)
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

    def test_an_unsupported_energy_raises(self, name):
        energy_name, build = OBJECTIVES[name]
        energy = ENERGIES[energy_name]()
        objective = build(energy, {k: np.asarray(v) for k, v in observed(energy).items()})
        messages = []
        for other in ("NeuralEnergy", "RBM", "Linear", "Decoder"):
            unsupported = ENERGIES[other]()
            try:
                objective.check(unsupported, observed(unsupported))
            except EnergaxError as error:
                messages.append(str(error))
        assert messages, "no energy is rejected"
        assert all(name in text or "needs" in text or "expected" in text for text in messages)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_repeats_itself_and_its_fit_is_saved(name, tmp_path):
    energy_name, build = LEARNERS[name]
    energy = ENERGIES[energy_name]()
    names = [name for name in energy.spaces if name != "z"]
    data = {name: np.asarray(value) for name, value in rows_of(energy, names, 20).items()}
    first, again = (energax.fit(energy, data, build(), epochs=2, key=KEY) for _ in range(2))
    same(eqx.filter(first.energy, eqx.is_array), eqx.filter(again.energy, eqx.is_array))
    no_address(first)
    no_address(build())
    loaded = saved_and_loaded(first.energy, tmp_path)
    same(eqx.filter(loaded, eqx.is_array), eqx.filter(first.energy, eqx.is_array))


# -- inference and sampling ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", INFERENCES)
def test_an_inference_repeats_itself_is_saved_and_keeps_the_dtype(name, tmp_path):
    example = INFERENCES[name]
    build = mixed_network if example.energy == "BayesianNetwork with reals" else ENERGIES[example.energy]
    energy, method = build(), example.method()
    data = {"x": np.asarray(rows_of(energy, ["x"])["x"])}
    result = np.asarray(example.query(energy, data, method))
    same(result, np.asarray(example.query(energy, data, example.method())))
    assert np.isfinite(result).all() and result.dtype == np.float32
    no_address(method)
    loaded = saved_and_loaded(method, tmp_path)
    same(result, np.asarray(example.query(energy, data, loaded)))


@pytest.mark.parametrize("name", INFERENCES)
def test_an_inference_rejects_unsupported_queries(name):
    example = INFERENCES[name]
    energy = ENERGIES[example.rejected]()
    rows = {"x": np.asarray(rows_of(energy, ["x"])["x"])}
    with pytest.raises(Unsuitable, match=f"(?s){example.message}"):
        example.rejected_query(energy, rows, example.method())


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


def test_a_sampler_rejects_unsupported_variables():
    with pytest.raises(EnergaxError, match="NUTS"):
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
    def fit(self, name, table):
        X = table["binary" if takes_binary(name) else "real"]
        return fit_estimator(name, X, table["y"]), X

    def test_repeats_itself_keeps_the_dtype_is_saved_and_shown(self, name, table, tmp_path):
        model, X = self.fit(name, table)
        found = output_of(model, X)
        assert np.isfinite(found).all() and found.dtype == np.float32
        again, _ = self.fit(name, table)
        same(found, output_of(again, X))
        model.save(tmp_path / "model.safetensors")
        loaded = type(model).load(tmp_path / "model.safetensors")
        same(found, output_of(loaded, X))
        assert repr(loaded) == repr(model)
        no_address(model)

    def test_bad_input_raises(self, name, table):
        cls = getattr(estimators, name)
        y = {"y": table["y"]} if needs_y(cls()) else {}
        X = table["binary"].copy()
        strings = np.full(X.shape, {} if cls().__sklearn_tags__().input_tags.string else "a")
        for bad in (np.full_like(X, np.inf), X[:0], X[:, :0], X[0], strings, X * 1e30):
            with pytest.raises(EnergaxError):
                make_estimator(name, 0).fit(bad, **y)
        with pytest.raises(EnergaxError, match="fit"):
            output_of(cls(**ESTIMATORS[name]), X)

    def test_the_constructor_only_stores(self, name, table):
        cls = getattr(estimators, name)
        for argument, parameter in inspect.signature(cls).parameters.items():
            assert parameter.default is not inspect.Parameter.empty, f"{argument} has no default"
            assert getattr(cls(), argument) is parameter.default
