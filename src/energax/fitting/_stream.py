"""The training loop for data that does not fit in memory: batches are read one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from ..batch import Batch
from ..errors import BadInput, describe
from ..missing import Masked
from ..programs import jit
from . import _epochs
from ._batching import pad_to_multiple
from ._checkpoint import load_carry, position_in_epoch, save_carry
from ._fingerprint import fingerprint
from ._progress import Bar
from ._result import Fit
from ._run import Run


class _Batches:
    """The validated batches of a stream, padded to one size; iterated once per epoch."""

    def __init__(self, run: Run, source: Any, epochs: int):
        self.run, self.source = run, source
        self.size, self.masked = 0, frozenset[str]()
        self.names: frozenset[str] | None = None
        if isinstance(source, Iterator) and epochs > 1:
            raise BadInput(
                "data",
                f"an iterator, which can be read only once, and epochs={epochs}",
                "data that can be read again",
                "Pass a function that returns a new iterator, or epochs=1.",
            )

    def __iter__(self) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        for i, item in enumerate(self._read()):
            if isinstance(item, tuple) and len(item) != 2:
                raise BadInput(f"batch {i}", f"a tuple of {len(item)}", "a dict, or (dict, weights)")
            data, weights = item if isinstance(item, tuple) else (item, None)
            data, weight = self.run.check_rows(data, weights, f"batch {i}")
            if self.names not in (None, frozenset(data)):
                found, before = f"the names {sorted(data)}", sorted(self.names or ())
                raise BadInput(f"batch {i}", found, f"those of the batches before: {before}")
            self.names = frozenset(data)
            data = self._mask(data)
            self.size = max(self.size, len(weight))
            data, weight = pad_to_multiple(data, weight, self.size)
            yield pad_to_multiple(data, weight, self.run.shards)

    def _read(self) -> Any:
        """The batches of one epoch."""
        if not callable(self.source):
            return self.source
        batches = self.source()
        if not isinstance(batches, Iterable):
            found = f"a function that returns {describe(batches)}"
            raise BadInput("data", found, "a function that returns an iterator of dicts")
        return batches

    def _mask(self, data: dict[str, Any]) -> dict[str, Any]:
        """Mask the variables that had missing values in any batch so far, so that the step compiles once."""
        masked = {k for k, v in data.items() if isinstance(v, Masked)}
        if masked - self.masked:
            self.run.learner.check(self.run.energy, data)
        self.masked |= masked
        complete = self.masked - masked
        return data | {k: Masked(data[k], np.ones(data[k].shape, bool)) for k in complete}


@jit
def _run_batch(program: _epochs.Program, carry: _epochs.Carry, data: Any, weight: Any, key: Any) -> Any:
    """One update. → ((energy, state, step, loss terms, whether one is not finite, which term), weight)."""
    outcome = _epochs.run_batches(program, carry, data, weight, None, jnp.int32(1), key)
    return outcome, program.learner.row_weights(_epochs.take_batch(data, weight, None, program.shards)).sum()


_end_epoch = jit(_epochs.end_epoch)


def fit_stream(run: Run, source: Any, epochs: int, validation: Any) -> Fit:
    """Fit to an iterable of dicts of arrays, or to a function that returns one."""
    if isinstance(validation, float):
        raise BadInput("validation", "a fraction of a stream", "a dict of held-out rows")
    batches = _Batches(run, source, epochs)
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise BadInput("data", "a stream without batches", "at least one batch")
    data, weight = first
    program = run.program(data)
    held_out = run.check_validation(validation, data, weight.dtype)
    keys = _epochs.restart_keys(run.key, 1)
    data, weight = run.place((data, weight), by_rows=True)
    program, carries = run.start(program, data, weight, keys, held_out is not None)
    # An iterator cannot be read again: its only epoch begins with the batch that was read above.
    once = itertools.chain([first], iterator) if isinstance(source, Iterator) else None
    carry = _epochs.take_restart(carries, 0)
    return _StreamLoop(run, program, carry, held_out, keys[0]).go(once or batches, epochs)


class _StreamLoop:
    """The loop over a stream, with its position within the current epoch."""

    def __init__(self, run: Run, program: _epochs.Program, carry: Any, held_out: Batch | None, key: Any):
        self.run, self.program, self.held_out, self.key = run, program, held_out, key
        self.start = carry  # at the beginning of the epoch, restored if it diverges
        self.now = carry
        self.position = 0
        self.totals = np.zeros(len(program.term_names) + 1)  # weighted losses, and the weight
        self.history = np.zeros((0, len(program.term_names) + 1))
        self.identity = "stream/" + fingerprint(run.original, run.learner, run.key, run.trainable, held_out)

    def go(self, batches: Any, epochs: int) -> Fit:
        self._resume(epochs)
        run, stopped = self.run, False
        with Bar(run.progress, epochs, len(self.history)) as bar:
            while len(self.history) < epochs and int(self.start.code) == _epochs.RUNNING and not stopped:
                outcome = self._epoch(batches)
                validation_key = _epochs.subkey(self.key, "validation")
                self.start, row = _end_epoch(self.program, self.start, outcome, self.held_out, validation_key)
                self.now, self.position = self.start, 0
                self.totals[:] = 0
                self.history = np.concatenate([self.history, np.asarray(row)[None]])
                self._save()
                bar.update(len(self.history), self.start.objective)
                carries = _epochs.add_restart_axis(self.start)
                stopped = run.run_callbacks(carries, self.history[None], self.program)
        carries = _epochs.add_restart_axis(self.start)
        return run.result(self.program, carries, self.history[None], self.held_out is not None, stopped)

    def _epoch(self, batches: Any) -> Any:
        epoch_key = jax.random.fold_in(_epochs.subkey(self.key, "epochs"), self.start.epoch)
        bad, which = jnp.array(False), jnp.int32(0)
        for i, (data, weight) in enumerate(batches):
            if i < self.position:
                continue  # learned from before the interruption
            data, weight = self.run.place((data, weight), by_rows=True)
            outcome, batch_weight = _run_batch(
                self.program, self.now, data, weight, jax.random.fold_in(epoch_key, i)
            )
            energy, state, step, losses, bad, which = outcome
            self.totals += float(batch_weight) * np.append(np.asarray(losses, float), 1.0)
            self.now = eqx.tree_at(lambda c: (c.energy, c.state, c.step), self.now, (energy, state, step))
            self.position = i + 1
            if bad:
                break
            every = self.run.checkpoint.every if self.run.checkpoint else 0
            if every and self.position % every == 0:
                self._save()
        losses = asarray(self.totals[:-1] / max(self.totals[-1], 1e-300), self.start.objective.dtype)
        return self.now.energy, self.now.state, self.now.step, losses, bad, which

    def _save(self) -> None:
        if self.run.checkpoint:
            extra = {"identity": self.identity, "position": self.position, "totals": self.totals.tolist()}
            save_carry(self.run.checkpoint, (self.start, self.now), self.history, extra)

    def _resume(self, epochs: int) -> None:
        checkpoint = self.run.checkpoint
        if not checkpoint:
            return
        saved = load_carry(checkpoint, (self.start, self.now), self.history, self.identity, epochs)
        if saved:
            (self.start, self.now), self.history, document = saved
            self.position, self.totals = position_in_epoch(checkpoint, document, len(self.totals))
