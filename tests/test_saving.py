"""Saved objects are loaded unchanged; files cannot build anything else."""

from __future__ import annotations

import importlib
import json
import pathlib
import pickle
import pkgutil
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from parts import row_of

import energax
from energax import Energy, Estimate, Real
from energax._util import storage
from energax.energies import RBM, Decoder, NeuralEnergy, Scorer
from energax.errors import BadFile, BadInput
from energax.learn import ContrastiveDivergence, Descent
from energax.programs import jit
from energax.spaces import (
    Binary,
    Categorical,
    Count,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Sequence,
    Simplex,
)


def halved(x):
    return x / 2


class Bowl(Energy):
    """A user's own energy, with a function, a dict and static parts among its fields."""

    centre: jax.Array
    extras: dict[str, Any]
    bend: Any
    space: Any = eqx.field(static=True)

    @property
    def spaces(self):
        return {"x": self.space}

    def __call__(self, *, x):
        return jnp.sum(self.bend(x - self.centre) ** 2)


def round_trip(obj, tmp_path, classes=()):
    path = tmp_path / "thing.safetensors"
    energax.save(obj, path)
    return energax.load(path, classes=classes)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        if eqx.is_array(x):
            assert x.dtype == y.dtype and np.array_equal(np.asarray(x), np.asarray(y))
        else:
            assert x == y or x is y


@pytest.mark.parametrize(
    "energy",
    [
        RBM.random(4, 3, key=0),
        RBM.random(4, 3, key=0) / 2.0,
        RBM.random(4, 3, key=0) + RBM.random(4, 3, key=1),
        RBM.random(4, 3, key=0).given(z=np.ones(3, np.float32)),
        RBM.random(4, 3, key=0).over("z"),
        Decoder.random(5, 2, key=0, activation=jax.nn.relu),
        NeuralEnergy.random(3, key=0, activation=jnp.tanh),
        Scorer.random(3, 2, key=0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_energies_come_back_leaf_for_leaf(energy, tmp_path):
    back = round_trip(energy, tmp_path)
    same(energy, back)
    assert back.spaces == energy.spaces and repr(back) == repr(energy)


def test_a_class_of_ones_own_is_built_only_if_handed_over(tmp_path):
    bowl = Bowl(jnp.ones(2), {"note": "hello", "more": (1, 2.5, None)}, halved, Real(2))
    with pytest.raises(BadFile, match=r"Bowl.*classes="):
        round_trip(bowl, tmp_path)
    with pytest.raises(BadFile, match=r"halved.*classes="):
        round_trip(bowl, tmp_path, classes=(Bowl,))
    same(bowl, round_trip(bowl, tmp_path, classes=(Bowl, halved)))


def test_one_class_needs_no_tuple_and_an_invalid_one_raises_bad_input(tmp_path):
    bowl, path = Bowl(jnp.ones(2), {}, jnp.tanh, Real(2)), tmp_path / "bowl.safetensors"
    energax.save(bowl, path)
    same(bowl, energax.load(path, Bowl))
    same(bowl, energax.load(path, [Bowl]))
    for wrong in ("Bowl", bowl, ("Bowl",), 3):
        with pytest.raises(BadInput, match=r"classes: found .*; expected a class or function"):
            energax.load(path, wrong)


def test_float64_and_odd_dtypes_keep_their_bits(tmp_path):
    with jax.enable_x64(True):
        wide = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
        assert wide.dtype == jnp.float64
    brain = jnp.arange(4, dtype=jnp.bfloat16) / 3
    key = jax.random.key(7)
    back = round_trip((wide, brain, jnp.bfloat16(0.1), key, np.arange(0.0)), tmp_path)
    assert back[0].dtype == jnp.float64 and np.array_equal(np.asarray(back[0]), np.asarray(wide))
    assert back[1].dtype == jnp.bfloat16 and bool((back[1] == brain).all())
    assert bool((jax.random.key_data(back[3]) == jax.random.key_data(key)).all())
    assert back[4].shape == (0,)


def test_plain_values_survive(tmp_path):
    thing = {
        "none": None,
        "flags": (True, False),
        "numbers": [1, -(2**70), 0.1, float("inf"), 1 + 2j],
        "nested": {"a": {1: frozenset({2})}},
        "scalars": (np.float32(0.1), np.int64(3), np.bool_(True)),
        "labels": np.array(["one", "zwei", "три"], dtype=object),
        "mixed": np.array([1, "b", None], dtype=object),
        "strings": np.array([["ab", "c"]]),
        "dates": np.dtype("float32"),
        "ints": np.arange(6, dtype=np.int16).reshape(2, 3),
        "spaces": (
            Real(2, 3), Positive(), Interval(0, 1, 2), Simplex(3), Ordered(2), PositiveDefinite(2), Binary(4),
            Categorical(3, 2), Count(), Sequence(Real(2)), Sequence(Binary(3), 5),
        ),
    }  # fmt: skip
    back = round_trip(thing, tmp_path)
    assert back.keys() == thing.keys()
    for name in ("none", "flags", "numbers", "nested", "dates", "spaces"):
        assert back[name] == thing[name], name
    for name in ("labels", "mixed", "strings", "ints"):
        assert back[name].dtype == thing[name].dtype and (back[name] == thing[name]).all(), name
    assert [type(s) for s in back["scalars"]] == [np.float32, np.int64, np.bool_]
    assert back["scalars"] == thing["scalars"]
    estimate = round_trip(Estimate(np.array([1.0, 2.0]), 0.5, "lower bound", "importance"), tmp_path)
    assert repr(estimate) == "Estimate(2 values, mean 1.500, lower bound)" and estimate.method == "importance"


def test_a_fit_comes_back_with_the_state_to_go_on_from(tmp_path):
    X = np.tile([1.0, 0.0, 1.0, 0.0], (16, 1)).astype(np.float32)
    learner = Descent(ContrastiveDivergence(persistent=True), optax.adam(0.1))
    fit = energax.fit(RBM.random(4, 2, key=0), {"x": X}, learner, key=0, epochs=2)
    back = round_trip(fit, tmp_path)
    assert repr(back) == repr(fit) and back.status == fit.status
    same(fit.energy, back.energy)
    same(fit.state, back.state)
    assert np.array_equal(back.history["objective"], fit.history["objective"])


def test_objects_that_are_not_data_raise_before_anything_is_written(tmp_path):
    path = tmp_path / "no.safetensors"
    for thing, word in ((lambda x: x, "a lambda"), (object(), "object"), ({"f": open}, "builtin")):
        with pytest.raises(BadInput, match=word):
            energax.save(thing, path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_foreign_and_newer_files_raise(tmp_path):
    path = tmp_path / "rbm.safetensors"
    energax.save(RBM.random(4, 3, key=0), path)
    whole = path.read_bytes()

    def rejects(data, words):
        path.write_bytes(data)
        with pytest.raises(BadFile, match=words):
            energax.load(path)

    rejects(whole[:-10], "truncated")
    rejects(whole[:20], "truncated")
    rejects(b"", "truncated")
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    rejects(bytes(flipped), "digest")
    rejects(whole.replace(b'"version":"1"', b'"version":"9"'), "Update energax")
    rejects(whole.replace(b'"format":"energax"', b'"format":"otherax"'), "did not write")
    with pytest.raises(BadFile, match="no such file"):
        energax.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name",
    ["os:system", "builtins:eval", "energax.saving:save", "subprocess:Popen", "jax.numpy:save", "optax:adam",
     "energax.saving:storage.write", "equinox:filter_jit", "energax.fitting:fit", "jax.nn:jnp"],
)  # fmt: skip
def test_a_file_cannot_name_code(name, tmp_path):
    """A file that names code to be called is rejected, whatever it names."""
    path = tmp_path / "bad.safetensors"
    for node in ({"$": "name", "name": name}, {"$": "object", "class": name, "fields": {}},
                 {"$": "space", "class": name, "items": {"$": "tuple", "items": ["echo"]}}):  # fmt: skip
        storage.write(path, {}, {"kind": "object", "root": node})
        with pytest.raises(BadFile, match="not part of energax"):
            energax.load(path)


def test_an_inconsistent_file_is_rejected(tmp_path):
    path = tmp_path / "bad.safetensors"
    rbm = {"$": "object", "class": "energax.energies._boltzmann.rbm:RBM", "fields": {"colour": 1}}
    for node in (rbm, {"$": "warp"}, {"$": "numpy", "array": "absent"}, {"no": "tag"}):
        storage.write(path, {}, {"kind": "object", "root": node})
        with pytest.raises(BadFile, match=r"bad\.safetensors"):
            energax.load(path)


def test_a_checkpoint_is_not_a_saved_object(tmp_path):
    path = tmp_path / "point"
    storage.write(path, {}, {"kind": "fit"})
    with pytest.raises(BadFile, match="checkpoint"):
        energax.load(path)


def test_the_document_is_plain_json(tmp_path):
    path = tmp_path / "rbm.safetensors"
    energax.save(RBM.random(4, 3, key=0), path)
    arrays, document = storage.read(path)
    assert json.loads(json.dumps(document)) == document and len(arrays) == 3
    assert b"pickle" not in path.read_bytes()


def test_unwritten_files_leave_the_old_one_whole(tmp_path, monkeypatch):
    path = tmp_path / "rbm.safetensors"
    energax.save(RBM.random(4, 3, key=0), path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        energax.save(RBM.random(4, 3, key=1), path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


SAVED_BY_0_1 = pathlib.Path(__file__).parent / "files" / "saved_0_1.safetensors"


def test_a_file_of_version_0_1_still_loads_and_gives_the_same_numbers():
    """The file names classes by the private modules of that version, and holds one of every kind of part."""
    saved = energax.load(SAVED_BY_0_1)
    of_row = jit(lambda energy, row: energy(**row))
    for name, energy in saved["energies"].items():
        rows = saved["rows"][name]
        values = [float(of_row(energy, row_of(rows, i))) for i in range(6)]
        np.testing.assert_allclose(values, saved["values"][name], rtol=1e-4, err_msg=name)
    for name, (model, method, X) in saved["estimators"].items():
        answer = np.asarray(getattr(model, method)(X))
        np.testing.assert_allclose(answer, saved["answers"][name], rtol=2e-3, atol=1e-5, err_msg=name)
    assert {type(s).__name__ for s in saved["samplers"].values()} == {"Gibbs", "Langevin"}
    assert all(fit.state is not None for fit in saved["fits"].values())
    assert len(saved["options"]) == 20 and saved["spaces"][-1] == Sequence(Real(2))


def test_files_name_no_private_module(tmp_path):
    path = tmp_path / "again.safetensors"
    energax.save(energax.load(SAVED_BY_0_1), path)
    names = set(re.findall(r'"(energax[\w.]*):\w+"', json.dumps(storage.read(path)[1])))
    assert len(names) > 5 and not any("._" in name for name in names), names


def test_class_names_are_unique_within_a_subpackage():
    """A file names a class by its subpackage alone."""
    from energax.saving._names import defined_in, find, is_buildable, public_name

    seen: dict[str, type] = {}
    for info in pkgutil.walk_packages(energax.__path__, "energax."):
        if info.name.endswith("__main__"):
            continue
        for cls in filter(is_buildable, defined_in(importlib.import_module(info.name))):
            name = public_name(cls)
            assert seen.setdefault(name, cls) is cls, f"{cls.__module__} and {seen[name].__module__}: {name}"
            assert find(name, {}) is cls


def test_pickle_keeps_64_bits_and_jax_functions():
    from energax.saving import pack_state, unpack_state

    with jax.enable_x64(True):
        wide = jnp.asarray(np.linspace(0, 1, 3))
    state = {"energy": (wide, jax.nn.relu), "optimizer": optax.adam(1e-3), "n": 3}
    back = unpack_state(pickle.loads(pickle.dumps(pack_state(state))))
    assert back["energy"][0].dtype == jnp.float64 and back["energy"][1] is jax.nn.relu
    assert callable(back["optimizer"].update) and back["n"] == 3
