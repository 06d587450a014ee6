"""`fit`: the one training loop of the library."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key, numpy_generator
from ..batch import Batch
from ..energy import Energy
from ..errors import BadInput, Unsuitable, check_whole_number
from ..missing import number_of_rows
from ..parameters import Freeze, check_parameters, trainable, with_energy_precision
from . import _epochs as compiled
from ._batching import (
    batch_layout,
    check_data,
    check_weights,
    epoch_order,
    fill_zero_weight_rows,
    is_stream,
    padded_rows,
    real_dtype,
)
from ._checkpoint import as_checkpoint, fingerprint, load_carry, save_carry
from ._learner import Learner
from ._progress import Bar
from ._result import Fit
from ._static_functions import hash_functions, plain

_MOST_INDICES = 2**20  # of shuffled rows handed to one compiled call
_MOST_EPOCHS = 64  # in one compiled call


@with_energy_precision
def fit(
    energy: Energy,
    data: Any,
    learner: Learner,
    *,
    key: Any,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    weights: Any = None,
    validation: Any = None,
    patience: int | None = None,
    freeze: Freeze = None,
    n_init: int = 1,
    initialise: bool | None = None,
    callbacks: Iterable[Callable[[dict[str, Any]], Any]] = (),
    checkpoint: Any = None,
    mesh: Any = None,
    progress: bool = False,
) -> Fit:
    """Improve θ from data: minibatches, restarts, validation, checkpoints and devices, once for all.

    Args:
        data: a dict of arrays by variable name (NaN or `Masked` where missing); or, for what
            does not fit in memory, a function that returns an iterator of such dicts.
        key: an int or a JAX key. The same key gives the same result, also after a resume.
        epochs, steps: how long, in passes over the data or in updates (default: 100 epochs, of a stream 1).
        batch_size: rows in an update; None means all of them.
        weights: how much each row counts.
        validation: rows held out to watch: a dict, or a fraction of `data`. The energy that
            did best on them is returned; with `patience`, the fit stops so many epochs after it.
        freeze: parameters that stay: dotted names, or a function from the energy to leaves.
        n_init: restarts from `energy.initialise`, side by side; the best is returned, all are kept.
        initialise: whether to begin at `energy.initialise` (default: only with `n_init > 1`).
        callbacks: each is called after every epoch with a dict (epoch, step, objective, energy,
            history); one that returns True stops the fit.
        checkpoint: a path, or `Checkpoint(path, every=)`. If the file exists, the fit goes on
            from it, and ends bit for bit where it would have ended uninterrupted.
        mesh: a `jax.sharding.Mesh`; the rows are spread over all its devices.
        progress: show a bar.

    >>> import optax
    >>> from energax.energies import RBM
    >>> from energax.learn import ContrastiveDivergence, Descent
    >>> rbm = RBM.random(6, 3, key=0)
    >>> X = np.tile([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], (32, 1))
    >>> fit(rbm, {"x": X}, Descent(ContrastiveDivergence(k=1), optax.adam(0.1)), key=0, epochs=5).status
    'budget spent'
    """
    key = as_key(key)
    if not isinstance(energy, Energy):
        raise BadInput("energy", type(energy).__name__, "an Energy")
    if not isinstance(learner, Learner):
        raise BadInput(
            "learner",
            type(learner).__name__,
            "a learner",
            "Wrap an objective: Descent(objective, optimizer).",
        )
    _check_counts(epochs=epochs, steps=steps, batch_size=batch_size, patience=patience, n_init=n_init)
    if epochs is not None and steps is not None:
        raise BadInput("steps", "both epochs and steps", "one of the two")
    if patience is not None and validation is None:
        raise BadInput("patience", "no validation to watch", "validation= rows or a fraction", "")
    run = _Run(energy, learner, key, freeze, patience, tuple(callbacks), checkpoint, mesh, progress)
    precision = learner.matmul_precision
    with jax.default_matmul_precision(precision) if precision else contextlib.nullcontext():
        if is_stream(data):
            from ._stream import fit_stream

            asked = {"weights": weights, "steps": steps, "batch_size": batch_size, "initialise": initialise}
            asked |= {"n_init": n_init > 1 or None}
            refused = [k for k, v in asked.items() if v is not None and v is not False]
            if refused:
                raise BadInput("data", f"a stream, and {', '.join(refused)}", "arrays for those")
            return fit_stream(run, data, epochs or 1, validation)
        return run.arrays(data, epochs, steps, batch_size, weights, validation, n_init, initialise)


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None:
            check_whole_number(name, value)


class _Run:
    """One call of `fit`: its settings, and the host side of the loop."""

    def __init__(self, energy, learner, key, freeze, patience, callbacks, checkpoint, mesh, progress):
        self.energy = jax.tree.map(_strong, energy)
        self.original = energy
        self.learner, self.key, self.patience, self.mesh = learner, key, patience, mesh
        self.energy_arrays = eqx.filter(self.energy, eqx.is_inexact_array)
        self.spec = trainable(self.energy, freeze)
        beside = bool(jax.tree.leaves(eqx.filter(learner, eqx.is_inexact_array)))
        check_parameters(self.energy, self.spec, beside)
        self.callbacks, self.shown = callbacks, progress
        self.checkpoint = as_checkpoint(checkpoint)
        self.shards = 1 if mesh is None else int(mesh.size)
        self.began = time.perf_counter()

    def program(self, data: Any) -> compiled.Program:
        self.learner.check(self.energy, data)
        return hash_functions(compiled.Program(self.learner, self.spec, self.patience, self.shards))

    def place(self, tree: Any, *, by_rows: bool) -> Any:
        """Arrays on the device, or spread over the mesh by rows, or copied to all of it."""
        if self.mesh is None:
            # Rows may still be NumPy's. (`device_put` holds one copy while it works, `jnp.asarray` two.)
            return _put(tree) if by_rows else tree
        axes = (tuple(self.mesh.axis_names),) if by_rows else ()
        sharding = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*axes))
        return _put(tree, sharding)

    def arrays(self, data, epochs, steps, batch_size, weights, validation, n_init, initialise) -> Fit:
        data = check_data(self.energy, data)
        n = number_of_rows(data)
        weight = check_weights(weights, n, real_dtype((data, self.energy_arrays)))
        data, weight, held_out = self._hold_out(fill_zero_weight_rows(data, weight), weight, validation)
        self.n = n = len(weight)  # rows that are added to fill the devices are never shuffled in
        data, weight = padded_rows(data, weight, self.shards)
        n_batches, size = batch_layout(n, batch_size)
        size += -size % self.shards
        self.n_batches, self.size = n_batches, size
        n_epochs = epochs or (-(-steps // n_batches) if steps else 100)
        self.total_steps = steps or n_epochs * n_batches
        program = self.program(data)
        identity = ""
        if self.checkpoint:
            identity = fingerprint(self.original, self.learner, data, weight, self.key, self.spec, held_out)
            identity += f"/{n_batches}x{size}/{n_init}/{self.patience}/{bool(initialise)}"
            if steps and steps % n_batches:  # the last epoch is cut short, and no other fit can go on from it
                identity += f"/{steps}"
        data, weight = self.place((data, weight), by_rows=True)

        initialise = n_init > 1 if initialise is None else initialise
        if initialise and not hasattr(self.energy, "initialise"):
            raise BadInput(
                "n_init", f"{n_init} restarts of {type(self.energy).__name__}", "an energy with `initialise`"
            )
        keys = compiled.restart_keys(self.key, n_init)
        full = n_batches == 1
        first = None if full else jnp.arange(size, dtype=jnp.int32) % n
        energy = self.place(hash_functions(self.energy), by_rows=False)
        carry, names = compiled.start_restarts(
            program, energy, data, weight, keys, held_out is not None, bool(initialise), first
        )
        return self._epochs(
            program.naming(names), carry, data, weight, held_out, keys, n_epochs, identity, full
        )

    def _hold_out(self, data, weight, validation):
        if validation is None:
            return data, weight, None
        if isinstance(validation, float):
            if not 0 < validation < 1:
                raise BadInput("validation", repr(validation), "a fraction strictly between 0 and 1")
            counted, padding = np.flatnonzero(weight), np.flatnonzero(weight == 0)
            n_held = max(1, round(validation * len(counted)))
            if n_held >= len(counted):
                found = f"{n_held} of {len(counted)} rows that count"
                raise BadInput("validation", found, "at least one row left to learn")
            order = numpy_generator(self.key, 2**31).permutation(counted)
            held, kept = np.sort(order[:n_held]), np.sort(np.append(order[n_held:], padding))
            held_out = Batch(*jax.tree.map(lambda a: jnp.asarray(a[held]), (data, weight)))
            return jax.tree.map(lambda a: a[kept], data), weight[kept], held_out
        return data, weight, self.held_out(validation, data, weight.dtype)

    def held_out(self, validation, data, dtype) -> Batch | None:
        """Validation rows given as such: of the variables that are learned from."""
        if validation is None:
            return None
        rows = check_data(self.energy, validation, "validation")
        if set(rows) != set(data):
            raise BadInput("validation", f"the names {sorted(rows)}", f"those of the data: {sorted(data)}")
        try:
            self.learner.check(self.energy, rows)
        except Unsuitable as refusal:
            raise Unsuitable(f"validation: {refusal}") from None
        return Batch(jax.tree.map(jnp.asarray, rows), jnp.ones(number_of_rows(rows), dtype))

    def _epochs(self, program, carry, data, weight, held_out, keys, n_epochs, identity, full) -> Fit:
        """The host loop: hand epochs to the compiled program, look at what came back, save."""
        n_restarts = int(keys.shape[0])
        history = np.zeros((n_restarts, 0, len(program.term_names) + 1))
        done = 0
        if self.checkpoint:
            resumed = load_carry(self.checkpoint, carry, identity)
            if resumed:
                carry, history, document = resumed
                done = document["epoch"]
        if self.mesh is not None or done:
            carry = self.place(carry, by_rows=False)
        room = min(_MOST_EPOCHS, max(1, _MOST_INDICES // max(1, len(weight))))
        pace = 1 if (self.shown or self.callbacks) else room
        stopped = False
        with Bar(self.shown, n_epochs, done) as bar:
            while done < n_epochs and not stopped and (np.asarray(carry.code) == compiled.RUNNING).any():
                count = min(room, n_epochs - done, pace)
                if self.checkpoint:
                    count = min(count, self.checkpoint.every - done % self.checkpoint.every)
                orders, batches_in = self._orders(done, count, room, full)
                started = time.perf_counter()
                carry, rows = compiled.run_epochs(
                    program, carry, data, weight, orders, batches_in, np.int32(count), held_out, keys
                )
                history = np.concatenate([history, np.asarray(rows)[:, :count]], axis=1)
                done += count
                if self.shown and not self.callbacks and time.perf_counter() - started < 0.1:
                    pace = min(room, pace * 2)
                bar.update(done, carry.objective)
                if self.checkpoint and (done % self.checkpoint.every == 0 or done >= n_epochs):
                    save_carry(self.checkpoint, carry, history, {"identity": identity, "epoch": done})
                stopped = self.call_back(carry, history, program)
        return self.result(program, carry, history, held_out is not None, stopped)

    def _orders(self, done, count, room, full):
        n = self.n
        left = [
            max(0, min(self.n_batches, self.total_steps - (done + i) * self.n_batches)) for i in range(count)
        ]
        batches_in = np.array(left + [0] * (room - count), np.int32)
        if full:
            return None, batches_in
        orders = np.full((room, self.n_batches, self.size), np.iinfo(np.int32).max, np.int32)
        size = -(-n // self.n_batches)
        for i in range(count):
            orders[i, :, :size] = epoch_order(self.key, done + i, n, self.n_batches, size)
        return jnp.asarray(orders), batches_in

    def call_back(self, carry, history, program) -> bool:
        if not self.callbacks:
            return False
        single = _restart(carry, 0)
        info = {
            "epoch": int(single.epoch),
            "step": int(single.step),
            "objective": float(single.objective),
            "energy": plain(single.energy),
            "partner": plain(program.learner.partner(single.state)),
            "history": {"objective": _sum_of_terms(history[0])},
        }
        answers = [callback(info) for callback in self.callbacks]  # every one is called
        return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)

    def result(self, program, carry, history, validated: bool, stopped: bool) -> Fit:
        seconds = time.perf_counter() - self.began
        fits = []
        for i in range(history.shape[0]):
            single = _restart(carry, i)
            energy, state = single.best if validated else (single.energy, single.state)
            if validated and not np.isfinite(single.best_validation):
                energy, state = single.energy, single.state
            n_done = int(single.epoch)
            columns = history[i, :n_done]
            record = {"objective": _sum_of_terms(columns)}
            if len(program.term_names) > 1:
                record |= {name: columns[:, j] for j, name in enumerate(program.term_names)}
            if validated:
                record["validation"] = columns[:, -1]
            status, message = _status(program, single, stopped)
            partner = plain(program.learner.partner(state))
            fits.append(
                Fit(
                    plain(energy),
                    partner,
                    record,
                    status,
                    message,
                    seconds,
                    n_done,
                    int(single.step),
                    plain(state),
                )
            )
        if len(fits) == 1:
            return fits[0]
        rank = lambda f: (f.status == "diverged", np.nan_to_num(f.loss, nan=np.inf))
        best = min(fits, key=rank)
        return dataclasses.replace(best, restarts=tuple(fits))


def _put(tree: Any, *where: Any) -> Any:
    """All arrays on the device by one call: one for each would take longer than a short fit."""
    leaves, shape = jax.tree.flatten(tree)
    put = iter(jax.device_put([a for a in leaves if eqx.is_array(a)], *where))
    return jax.tree.unflatten(shape, [next(put) if eqx.is_array(a) else a for a in leaves])


def _restart(carry: Any, i: int) -> Any:
    """One of the fits that ran side by side; cut out by NumPy, since JAX starts a program for each array."""
    leaves, shape = jax.tree.flatten(carry)
    plainly = [_is_uncommitted(a) for a in leaves]
    fetched = iter(jax.device_get([a for a, is_plain in zip(leaves, plainly, strict=True) if is_plain]))
    number, other = (lambda: np.asarray(next(fetched)[i])), (lambda a: a[i] if eqx.is_array(a) else a)
    cut = [number() if is_plain else other(a) for a, is_plain in zip(leaves, plainly, strict=True)]
    # What the loop has counted is only read; the rest goes back to where it was.
    n_kept = len(jax.tree.leaves((carry.energy, carry.state, carry.best)))
    return jax.tree.unflatten(shape, [*_put(cut[:n_kept]), *cut[n_kept:]])


def _is_uncommitted(leaf: Any) -> bool:
    """Whether this is an array of numbers that nobody has bound to a device or a mesh."""
    number = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return number and not leaf.committed


def _strong(leaf: Any) -> Any:
    """No weak types: a Python scalar's dtype would change inside a compiled loop."""
    if isinstance(leaf, np.ndarray | jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def _sum_of_terms(columns: np.ndarray) -> np.ndarray:
    """The objective of every epoch; the last column is that of the validation rows."""
    with np.errstate(invalid="ignore", over="ignore"):  # a fit that diverged says so in words
        return columns[:, :-1].sum(-1)


def _status(program: compiled.Program, carry: compiled.Carry, stopped: bool) -> tuple[str, str]:
    code, epoch = int(carry.code), int(carry.epoch)
    if code == compiled.CONVERGED:
        return "converged", f"converged after {epoch} epochs"
    if code == compiled.STOPPED_EARLY:
        return (
            "stopped early",
            f"stopped early: no better validation for {program.patience} epochs, after {epoch}",
        )
    if code == compiled.DIVERGED:
        which = int(carry.bad_term)
        term = "a parameter" if which == compiled.PARAMETERS else f"the term {program.term_names[which]!r}"
        where = f"at step {int(carry.bad_step)} (epoch {epoch})"
        return "diverged", f"diverged: {term} was not finite {where}; the last finite energy is kept"
    if stopped:
        return "stopped early", f"stopped early: a callback asked for it, after {epoch} epochs"
    if program.learner.monotone:
        first, last = float(carry.first_objective), float(carry.objective)
        if last > first + 1e-3 * max(1.0, abs(first)):
            return (
                "budget spent",
                f"budget spent after {epoch} epochs, and the objective got worse: {first:.6g} to {last:.6g}",
            )
    return "budget spent", f"budget spent after {epoch} epochs"
