"""The training loop for arrays: shuffled batches, compiled epochs, checkpoints."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util import sizes
from .._util.arrays import asarray
from ..batch import Batch
from ..errors import BadInput
from ..programs import use_engine
from . import _epochs
from ._batching import batch_layout, pad_to_multiple, shuffle_batches, split_validation
from ._checkpoint import load_carry, save_carry
from ._fingerprint import fingerprint
from ._progress import Bar
from ._result import Fit
from ._run import Run


def fit_arrays(
    run: Run,
    data: Any,
    weights: Any,
    *,
    epochs: int | None,
    steps: int | None,
    batch_size: int | None,
    validation: Any,
    n_init: int,
    initialise: bool | None,
) -> Fit:
    """Fit to a dict of arrays; the arguments are those of `fit`."""
    initialise = n_init > 1 if initialise is None else bool(initialise)
    if initialise and not hasattr(run.energy, "initialise"):
        found = f"{n_init} restarts of {type(run.energy).__name__}"
        raise BadInput("n_init", found, "an energy with `initialise`")
    data, weight = run.check_rows(data, weights)
    data, weight, held_out = _hold_out(run, data, weight, validation)
    batches = _Batches(run, len(weight), batch_size, epochs, steps)
    data, weight = pad_to_multiple(data, weight, run.shards)
    program = run.program(data)
    identity = ""
    if run.checkpoint:
        identity = fingerprint(
            run.original, run.learner, data, weight, run.key, run.trainable, held_out
        ) + batches.identity(n_init, initialise, steps)
    data, weight = run.place((data, weight), by_rows=True)
    with use_engine("numpy"):  # equal bits, without loading a compiled program first
        keys = _epochs.restart_keys(run.key, n_init)
    program, carries = run.start(
        program, data, weight, keys, held_out is not None, initialise=initialise, first_indices=batches.first
    )
    return _run_epochs(run, program, carries, data, weight, batches, held_out, keys, identity)


def _hold_out(
    run: Run, data: Any, weight: np.ndarray, validation: Any
) -> tuple[Any, np.ndarray, Batch | None]:
    """(training rows, their weights, validation batch or None); `validation` is a fraction, rows or None."""
    if not isinstance(validation, float):
        return data, weight, run.check_validation(validation, data, weight.dtype)
    training, held_out = split_validation(data, weight, validation, run.key)
    return *training, Batch(*jax.tree.map(asarray, held_out))


class _Batches:
    """The number and size of batches and epochs, and shuffled row numbers."""

    def __init__(self, run: Run, n: int, batch_size: int | None, epochs: int | None, steps: int | None):
        self.key, self.n = run.key, n
        self.n_batches, self.rows = batch_layout(n, batch_size)
        self.size = self.rows + -self.rows % run.shards
        self.patience = run.patience
        self.full = self.n_batches == 1
        self.n_epochs = epochs or (-(-steps // self.n_batches) if steps else 100)
        self.n_steps = steps or self.n_epochs * self.n_batches
        #: Row numbers of a first batch, for the learner's `init`; None for all rows.
        self.first = None if self.full else jnp.arange(self.size, dtype=jnp.int32) % n

    def identity(self, n_init: int, initialise: bool, steps: int | None) -> str:
        """The part of a checkpoint's identity that depends on batches and restarts."""
        text = f"/{self.n_batches}x{self.size}/{n_init}/{self.patience}/{initialise}"
        # A fit that ends within an epoch can be resumed only by a fit of as many steps.
        return f"{text}/{steps}" if steps and steps % self.n_batches else text

    def orders(self, done: int, count: int, at_most: int) -> tuple[Any, np.ndarray]:
        """(row numbers (at_most, batches, rows) or None for all, batches per epoch), after `done` epochs."""
        batches_in = np.zeros(at_most, np.int32)
        for i in range(count):
            batches_in[i] = max(0, min(self.n_batches, self.n_steps - (done + i) * self.n_batches))
        if self.full:
            return None, batches_in
        orders = np.full((at_most, self.n_batches, self.size), np.iinfo(np.int32).max, np.int32)
        for i in range(count):
            orders[i, :, : self.rows] = shuffle_batches(self.key, done + i, self.n, self.n_batches, self.rows)
        return asarray(orders), batches_in


def _run_epochs(
    run: Run,
    program: _epochs.Program,
    carries: Any,
    data: Any,
    weight: Any,
    batches: _Batches,
    held_out: Batch | None,
    keys: Any,
    identity: str,
) -> Fit:
    """Call the compiled program; after each call update history, progress bar, checkpoint and callbacks."""
    history = np.zeros((int(keys.shape[0]), 0, len(program.term_names) + 1))
    done, n_epochs, checkpoint = 0, batches.n_epochs, run.checkpoint
    if checkpoint and (saved := load_carry(checkpoint, carries, history, identity, n_epochs)):
        carries, history, _ = saved
        done = history.shape[1]
    if run.mesh is not None or done:
        carries = run.place(carries, by_rows=False)
    at_most = min(sizes.EPOCHS.value, sizes.EPOCH_ROWS.rows(len(weight)))
    per_call = 1 if (run.progress or run.callbacks) else at_most
    stopped = False
    with Bar(run.progress, n_epochs, done) as bar:
        while done < n_epochs and not stopped and (np.asarray(carries.code) == _epochs.RUNNING).any():
            count = min(per_call, n_epochs - done)
            if checkpoint:
                count = min(count, checkpoint.every - done % checkpoint.every)
            orders, batches_in = batches.orders(done, count, at_most)
            began = time.perf_counter()
            carries, rows = _epochs.run_epochs(
                program, carries, data, weight, orders, batches_in, np.int32(count), held_out, keys
            )
            history = np.concatenate([history, np.asarray(rows)[:, :count]], axis=1)
            done += count
            if run.progress and not run.callbacks and time.perf_counter() - began < 0.1:
                per_call = min(at_most, per_call * 2)
            bar.update(done, carries.objective)
            if checkpoint and (done % checkpoint.every == 0 or done >= n_epochs):
                save_carry(checkpoint, carries, history, {"identity": identity, "epoch": done})
            stopped = run.run_callbacks(carries, history, program)
    return run.result(program, carries, history, held_out is not None, stopped)
