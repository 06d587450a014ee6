"""A checkpoint belongs to one fit: its fingerprint covers all that the fit depends on, and nothing else."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bowl import Bowl

from energax import Real, fit
from energax.errors import BadFile, BadInput
from energax.fitting import _checkpoint
from energax.fitting._fingerprint import fingerprint
from energax.learn import Descent, NegativeLogLikelihood

ROWS = np.random.default_rng(0).normal([3.0, -1.0], 1.0, (97, 2)).astype(np.float32)


def by_table(table) -> Descent:
    """A learner whose step sizes are those of a table."""
    return Descent(NegativeLogLikelihood(), optax.sgd(lambda step: jnp.asarray(table)[step]))


def run(learner, checkpoint=None, **options):
    return fit(Bowl(jnp.zeros(2)), {"x": ROWS}, learner, key=0, epochs=2, checkpoint=checkpoint, **options)


@pytest.mark.parametrize("size", [100, 5000])
def test_a_checkpoint_of_another_table_of_step_sizes_is_refused(size, tmp_path):
    table = jnp.full(size, 0.1)
    run(by_table(table), tmp_path / "fit")
    run(by_table(jnp.full(size, 0.1)), tmp_path / "fit")  # an equal table is the same fit
    with pytest.raises(BadInput, match="another energy, data, learner or key"):
        run(by_table(table.at[size - 1].set(0.2)), tmp_path / "fit")


def test_a_large_table_that_was_changed_in_place_is_another_program():
    table = np.full(5000, 0.1, np.float32)
    learner = by_table(table)
    first = run(learner).energy.centre
    table[:] = 0.5
    np.testing.assert_array_equal(run(learner).energy.centre, run(by_table(table.copy())).energy.centre)
    assert not np.array_equal(run(learner).energy.centre, first)


class Schedule:
    """A schedule as an object: hashed by identity, printed without its table."""

    def __init__(self, table, partner=None):
        self.table, self.partner = table, partner

    def __call__(self, step):
        return self.table[step]


@dataclasses.dataclass
class Settings:
    """Not hashable."""

    table: Any


class Slotted:
    __slots__ = ("table",)

    def __init__(self, table):
        self.table = table


def captured(value):
    return lambda step: value


def in_a_cycle(table):
    one = Schedule(table)
    one.partner = Schedule(None, one)
    return one


KINDS = {
    "array": captured,
    "NumPy scalar": lambda table: captured(table[-1]),
    "object": lambda table: captured(Schedule(table)),
    "method": lambda table: Schedule(table).__call__,
    "method of an array": lambda table: captured(table.__getitem__),
    "slots": lambda table: captured(Slotted(table)),
    "dataclass": lambda table: captured(Settings(table)),
    "module": lambda table: captured(Bowl(jnp.asarray(table))),
    "static field": lambda table: Bowl(jnp.zeros(2), captured(table)),
    "list": lambda table: captured([1, {"a": (table,)}]),
    "set": lambda table: captured({1.0, float(table[-1])}),
    "frozenset": lambda table: frozenset({"a", float(table[-1])}),
    "array of objects": lambda table: captured(np.array([table, None], object)),
    "partial": lambda table: functools.partial(jnp.take, table),
    "jit": lambda table: captured(jax.jit(captured(table))),
    "cached": lambda table: functools.lru_cache(captured(table)),
    "key": lambda table: captured(jax.random.key(int(table[-1]))),
    "RandomState": lambda table: captured(np.random.RandomState(int(table[-1]))),
    "default": lambda table: lambda step, table=table: table[step],
    "cycle": lambda table: captured(in_a_cycle(table)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_counts_wherever_it_is(kind):
    make = KINDS[kind]
    table, other = np.arange(5000.0), np.arange(5000.0)
    assert fingerprint(make(table)) == fingerprint(make(other)), "equal values, equal fingerprints"
    other[-1] += 1
    assert fingerprint(make(table)) != fingerprint(make(other))


def test_code_counts_and_addresses_and_order_do_not():
    assert fingerprint(Bowl(jnp.zeros(2), lambda x: x + 1)) != fingerprint(
        Bowl(jnp.zeros(2), lambda x: x + 2)
    )
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 2, "b": 1})
    assert fingerprint(captured(object())) == fingerprint(captured(object()))
    assert fingerprint(1) != fingerprint(1.0) != fingerprint(True) != fingerprint("1")
    assert fingerprint(("dict", 5)) != fingerprint(("dict", 6))  # a word that descriptions use too


def test_a_fit_does_not_change_the_fingerprint_of_its_parts():
    """Facts about an energy are cached on the object."""
    energy, learner = Bowl(jnp.zeros(2), Real(2)), by_table(jnp.full(100, 0.1))
    before = fingerprint(energy, learner, captured(energy))
    result = fit(energy, {"x": ROWS}, learner, key=0, epochs=2)
    assert result.n_steps == 2 and fingerprint(energy, learner, captured(energy)) == before


SCRIPT = """
import jax, numpy as np, optax
from energax.energies import RBM
from energax.fitting._fingerprint import fingerprint
from energax.learn import ContrastiveDivergence, Descent
table, words = np.arange(5000.0), {"one", "two", "three", "four", "five", "six", "seven", "eight"}
schedule = lambda step: table[step] if str(step) in {"a", "b", "c", "d"} or str(step) in words else 0.0
learner = Descent(ContrastiveDivergence(persistent=True), optax.adam(schedule))
energy = RBM(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
parts = (schedule, learner, energy, words, np.array(["a", None], object), jax.jit(schedule), jax.nn.relu)
digests = [fingerprint(part) for part in parts]
print(*digests)
"""


def test_the_fingerprint_is_the_same_in_every_process():
    """Also where texts have other hashes, and sets another order."""
    here: dict[str, Any] = {}
    exec(SCRIPT, here)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
    )
    assert there.stdout.split() == here["digests"], there.stderr


@pytest.mark.parametrize("change", ["history", "missing", "name", "position", "totals"])
def test_a_forged_checkpoint_raises_bad_file(change, tmp_path):
    stream, path = lambda: iter([{"x": ROWS}]), tmp_path / "fit"
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.1))
    again = lambda: fit(Bowl(jnp.zeros(2)), stream, learner, key=0, epochs=2, checkpoint=path)
    again()
    arrays, document = _checkpoint.storage.read(path)
    if change == "history":
        arrays["history"] = arrays["history"][:, :-1]
    elif change == "missing":
        arrays.pop("history")
    elif change == "name":
        arrays["leafx"] = arrays.pop("leaf0")
    else:
        document[change] = {"position": -1, "totals": ["a"]}[change]
    _checkpoint.storage.write(path, arrays, document)
    with pytest.raises(BadFile, match="Delete it to start anew"):
        again()
