"""Batches that come from outside and are seen one at a time: data that does not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..batch import Batch
from ..errors import BadInput
from ..missing import Masked, number_of_rows
from . import _epochs as compiled
from ._batching import check_data, check_weights, fill_zero_weight_rows, padded_rows, real_dtype
from ._checkpoint import fingerprint, load_carry, save_carry
from ._progress import Bar
from ._result import Fit
from ._static_functions import hash_functions

if TYPE_CHECKING:
    from ._loop import _Run


class _Batches:
    """The batches of one epoch after another, checked, and padded to one size."""

    def __init__(self, run: _Run, source: Any, epochs: int):
        self.run, self.source = run, source
        self.size, self.with_missing = 0, frozenset[str]()
        self.names: frozenset[str] | None = None
        if isinstance(source, Iterator) and epochs > 1:
            raise BadInput(
                "data",
                f"an iterator, which can be read only once, and epochs={epochs}",
                "something that can be read again",
                "Pass a function that returns a new iterator, or epochs=1.",
            )

    def __iter__(self) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        for i, item in enumerate(self.source() if callable(self.source) else self.source):
            data, weights = item if isinstance(item, tuple) else (item, None)
            data = check_data(self.run.energy, data, f"batch {i}")
            weight = check_weights(weights, number_of_rows(data), real_dtype((data, self.run.energy_arrays)))
            data = fill_zero_weight_rows(data, weight)
            if self.names not in (None, frozenset(data)):
                found, before = f"the names {sorted(data)}", sorted(self.names or ())
                raise BadInput(f"batch {i}", found, f"those of the batches before: {before}")
            self.names = frozenset(data)
            # Once a variable has missing values it stays masked: the compiled step is for one kind.
            missing = {k for k, v in data.items() if isinstance(v, Masked)}
            if missing - self.with_missing:
                self.run.learner.check(self.run.energy, data)
            self.with_missing |= missing
            for name in self.with_missing & set(data):
                if not isinstance(data[name], Masked):
                    data[name] = Masked(data[name], np.ones(data[name].shape, bool))
            self.size = max(self.size, len(weight))
            short = self.size - len(weight)
            if short:
                data, weight = padded_rows(data, weight, self.size)
            yield padded_rows(data, weight, self.run.shards)


@eqx.filter_jit
def _one_batch(program: compiled.Program, carry: compiled.Carry, data: Any, weight: Any, key: Any) -> Any:
    """One update. → (energy, state, step, loss terms, is bad, which term)."""
    return compiled.run_batches(program, carry, data, weight, None, jnp.int32(1), key)


@eqx.filter_jit
def _end_epoch(program: compiled.Program, carry: Any, outcome: Any, validation: Any, key: Any) -> Any:
    return compiled.after_epoch(program, carry, outcome, validation, key)


def fit_stream(run: _Run, source: Any, epochs: int, validation: Any) -> Fit:
    """The same loop as for arrays, with the batches handed over one by one."""
    if isinstance(validation, float):
        raise BadInput("validation", "a fraction of a stream", "a dict of held-out rows")
    batches = _Batches(run, source, epochs)
    first = next(iter(batches), None) if not isinstance(source, Iterator) else None
    pending = None
    if isinstance(source, Iterator):  # what was taken to look at must still be learned from
        pending = iter(batches)
        first = next(pending, None)
    if first is None:
        raise BadInput("data", "a stream without batches", "at least one batch")
    data, weight = first
    program = run.program(data)
    held_out = run.held_out(validation, data, weight.dtype)
    key = compiled.restart_keys(run.key, 1)[0]
    energy = run.place(hash_functions(run.energy), by_rows=False)
    placed = run.place((data, weight), by_rows=True)
    carry, names = compiled.start_restarts(
        program, energy, placed[0], placed[1], key[None], held_out is not None, False, None
    )
    carry = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, carry)
    return _Stream(run, program.naming(names), carry, held_out, key).go(batches, pending, first, epochs)


class _Stream:
    """The host loop over a stream, with what has been seen of the epoch at hand."""

    def __init__(self, run: _Run, program: compiled.Program, carry: Any, held_out: Batch | None, key: Any):
        self.run, self.program, self.held_out, self.key = run, program, held_out, key
        self.start = carry  # at the beginning of the epoch, to go back to if it diverges
        self.now = carry
        self.position = 0
        self.totals = np.zeros(len(program.term_names) + 1)  # weighted losses, and the weight
        self.history = np.zeros((0, len(program.term_names) + 1))
        self.identity = "stream/" + fingerprint(run.original, run.learner, run.key, run.spec, held_out)

    def go(self, batches: Any, pending: Any, first: Any, epochs: int) -> Fit:
        self._resume()
        stopped = False
        with Bar(self.run.shown, epochs, len(self.history)) as bar:
            while len(self.history) < epochs and int(self.start.code) == compiled.RUNNING and not stopped:
                outcome = self._epoch(batches, pending, first)
                self.start, row = _end_epoch(
                    self.program, self.start, outcome, self.held_out, compiled.subkey(self.key, "validation")
                )
                self.now, self.position = self.start, 0
                self.totals[:] = 0
                self.history = np.concatenate([self.history, np.asarray(row)[None]])
                self._save()
                bar.update(len(self.history), self.start.objective)
                carries = jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, self.start)
                stopped = self.run.call_back(carries, self.history[None], self.program)
        carries = jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, self.start)
        return self.run.result(self.program, carries, self.history[None], self.held_out is not None, stopped)

    def _epoch(self, batches: Any, pending: Any, first: Any) -> Any:
        epoch_key = jax.random.fold_in(compiled.subkey(self.key, "epochs"), self.start.epoch)
        bad, which = jnp.array(False), jnp.int32(0)
        source = iter(batches) if pending is None else _chain_first(first, pending)
        for i, (data, weight) in enumerate(source):
            if i < self.position:
                continue  # already learned from before the interruption
            data, weight = self.run.place((data, weight), by_rows=True)
            energy, state, step, losses, bad, which = _one_batch(
                self.program, self.now, data, weight, jax.random.fold_in(epoch_key, i)
            )
            share = float(weight.sum())
            self.totals += share * np.append(np.asarray(losses, float), 1.0)
            self.now = eqx.tree_at(lambda c: (c.energy, c.state, c.step), self.now, (energy, state, step))
            self.position = i + 1
            if bad:
                break
            every = self.run.checkpoint.every if self.run.checkpoint else 0
            if every and self.position % every == 0:
                self._save()
        losses = jnp.asarray(self.totals[:-1] / max(self.totals[-1], 1e-300), self.start.objective.dtype)
        return self.now.energy, self.now.state, self.now.step, losses, bad, which

    def _save(self) -> None:
        if self.run.checkpoint:
            extra = {"identity": self.identity, "position": self.position, "totals": self.totals.tolist()}
            save_carry(self.run.checkpoint, (self.start, self.now), self.history, extra)

    def _resume(self) -> None:
        if not self.run.checkpoint:
            return
        saved = load_carry(self.run.checkpoint, (self.start, self.now), self.identity)
        if saved:
            (self.start, self.now), self.history, document = saved
            self.position, self.totals = document["position"], np.array(document["totals"])


def _chain_first(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
