"""The compiled part of the loop: whole epochs, with the stopping rules, inside one program.

Nothing here depends on how many epochs are run in one call, so that a fit that was
interrupted and resumed executes the very same program as one that was not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..batch import Batch
from ..errors import BadInput
from ..missing import number_of_rows
from ..parameters import all_finite
from ._learner import Learner

RUNNING, CONVERGED, STOPPED_EARLY, DIVERGED = range(4)
PARAMETERS = -1  # the `bad_term` when the loss was finite but a parameter was not


STREAMS = ("restarts", "start", "epochs", "validation")


def subkey(key: Any, name: str) -> Any:
    """One key for one purpose: the keys of a fit are never drawn from twice."""
    return jax.random.split(key, len(STREAMS))[STREAMS.index(name)]


@partial(jax.jit, static_argnums=1)
def restart_keys(key: Any, n: int) -> Any:
    """One key a restart; compiled, since each step alone would be a program of its own."""
    return jax.random.split(subkey(key, "restarts"), n)


class Carry(eqx.Module):
    """Everything that one restart takes from one epoch to the next."""

    energy: Any
    state: Any
    best: Any  # (energy, state) at the best validation, or None
    epoch: jax.Array
    step: jax.Array
    code: jax.Array
    objective: jax.Array
    first_objective: jax.Array
    best_validation: jax.Array
    since_best: jax.Array
    bad_term: jax.Array
    bad_step: jax.Array

    @classmethod
    def start(cls, energy: Any, state: Any, *, validated: bool, dtype: Any) -> Carry:
        infinity, zero = jnp.array(jnp.inf, dtype), jnp.zeros((), jnp.int32)
        best = (energy, state) if validated else None
        return cls(energy, state, best, zero, zero, zero, infinity, infinity, infinity, zero, zero, zero)


class Program(eqx.Module):
    """What stays the same during a fit."""

    learner: Learner
    trainable: Any
    patience: int | None = eqx.field(static=True)
    shards: int = eqx.field(static=True)
    term_names: tuple[str, ...] = eqx.field(static=True, default=())

    def naming(self, names: tuple[str, ...]) -> Program:
        return Program(self.learner, self.trainable, self.patience, self.shards, names)


def restore_frozen(trainable: Any, old: Any, new: Any) -> Any:
    """The new energy, with every frozen leaf as it was, and no dtype changed."""

    def keep(moves, before, after):
        return after.astype(before.dtype) if moves and eqx.is_array(before) else before

    return jax.tree.map(keep, trainable, old, new)


def same_dtypes(old: Any, new: Any) -> Any:
    cast = lambda a, b: b.astype(a.dtype) if eqx.is_array(a) and eqx.is_array(b) else b
    return jax.tree.map(cast, old, new)


def take_batch(data: Any, weight: Any, indices: Any, shards: int) -> Batch:
    """The rows with these numbers; any number past the end stands for padding."""
    n = number_of_rows(data)
    rows = jax.tree.map(lambda a: jnp.take(a, indices, axis=0, mode="clip"), data)
    kept = jnp.where(indices < n, jnp.take(weight, indices, mode="clip"), 0)
    return Batch(rows, kept, shards)


def run_batches(program: Program, carry: Carry, data: Any, weight: Any, order: Any, n_batches: Any, key: Any):
    """Every batch once; stops at the first one whose loss or parameters are not finite."""
    arrays, static = eqx.partition((carry.energy, carry.state), eqx.is_array)
    dtype = carry.objective.dtype
    start = (arrays, carry.step, jnp.zeros(len(program.term_names), dtype), jnp.zeros((), dtype))
    good = jnp.array(False), jnp.zeros((), jnp.int32)  # (is bad, which term)
    # All at once: what a batch draws can then begin with it, beside its first products.
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(1 if order is None else order.shape[0]))

    def body(loop):
        i, (arrays, step, totals, seen), _ = loop
        energy, state = eqx.combine(arrays, static)
        if order is None:
            batch = Batch(data, weight, program.shards)
        else:
            batch = take_batch(data, weight, order[i], program.shards)
        new, new_state, terms = program.learner.step(energy, state, batch, keys[i], program.trainable)
        new = restore_frozen(program.trainable, energy, new)
        losses = jnp.stack([terms[name] for name in program.term_names]).astype(dtype)
        bad_loss = ~jnp.isfinite(losses)
        bad = bad_loss.any() | ~all_finite(new)
        which = jnp.where(bad_loss.any(), jnp.argmax(bad_loss), PARAMETERS).astype(jnp.int32)
        share = batch.weight.sum().astype(dtype)
        arrays = eqx.filter((new, same_dtypes(state, new_state)), eqx.is_array)
        return i + 1, (arrays, step + 1, totals + share * losses, seen + share), (bad, which)

    def running(loop):
        i, _, (bad, _) = loop
        return (i < n_batches) & ~bad

    _, (arrays, step, totals, seen), (bad, which) = jax.lax.while_loop(
        running, body, (jnp.zeros((), jnp.int32), start, good)
    )
    energy, state = eqx.combine(arrays, static)
    return energy, state, step, totals / jnp.where(seen > 0, seen, 1), bad, which


def _validation_loss(program: Program, energy: Any, state: Any, validation: Batch, key: Any) -> Any:
    terms = program.learner.evaluate(energy, state, validation, key)
    return jnp.stack([terms[name] for name in terms]).sum()


def after_epoch(program: Program, carry: Carry, outcome: Any, validation: Batch | None, key: Any):
    """Decide how the epoch ended. Returns the new carry and its row of history."""
    energy, state, step, losses, bad, which = outcome
    objective = losses.sum()
    # An epoch that left the finite numbers is undone whole.
    keep = lambda new, old: jax.tree.map(
        lambda a, b: jnp.where(bad, b, a) if eqx.is_array(a) else a, new, old
    )
    first = jnp.where(carry.epoch == 0, objective, carry.first_objective)
    slack = jnp.sqrt(jnp.finfo(objective.dtype).eps) * jnp.maximum(1, jnp.abs(first))
    small = program.learner.converged(carry.objective, objective, carry.energy, energy)
    # Never on NaN, never on an objective worse than the one it began with.
    converged = small & (carry.epoch > 0) & ~bad & (objective <= first + slack)
    code = jnp.where(converged, CONVERGED, RUNNING)

    best, best_value, since_best = carry.best, carry.best_validation, carry.since_best
    value = jnp.zeros((), objective.dtype)
    if validation is not None:
        value = _validation_loss(program, energy, state, validation, key).astype(objective.dtype)
        better = (value < carry.best_validation) & ~bad
        choose = lambda new, old: jnp.where(better, new, old) if eqx.is_array(new) else new
        best = jax.tree.map(choose, (energy, state), carry.best)
        best_value = jnp.where(better, value, carry.best_validation)
        since_best = jnp.where(better, 0, carry.since_best + 1)
        if program.patience is not None:
            code = jnp.where(since_best >= program.patience, STOPPED_EARLY, code)
    code = jnp.where(bad, DIVERGED, code).astype(jnp.int32)
    new = Carry(
        energy=keep(energy, carry.energy),
        state=keep(state, carry.state),
        best=best,
        epoch=carry.epoch + 1,
        step=step,
        code=code,
        objective=jnp.where(bad, carry.objective, objective),
        first_objective=first,
        best_validation=best_value,
        since_best=since_best.astype(jnp.int32),
        bad_term=jnp.where(bad, which, 0),
        bad_step=jnp.where(bad, step, 0),
    )
    return new, jnp.concatenate([losses, value[None]])


@eqx.filter_jit
def run_epochs(
    program: Program,
    carries: Any,  # one Carry whose leaves have a leading axis of restarts
    data: Any,
    weight: Any,
    orders: Any,  # (epochs, batches, rows) indices, or None for the full batch
    batches_in: Any,  # (epochs,) how many batches each epoch has
    n_epochs: Any,
    validation: Batch | None,
    keys: Any,  # one key a restart
) -> tuple[Any, Any]:
    """Up to `n_epochs` epochs of every restart, side by side. → (carries, history)."""
    arrays, static = eqx.partition(carries, eqx.is_array)
    n_columns = len(program.term_names) + 1

    def one(arrays, key):
        carry = eqx.combine(arrays, static)
        history = jnp.full((batches_in.shape[0], n_columns), jnp.nan, carry.objective.dtype)

        def body(loop):
            i, arrays, history = loop
            carry = eqx.combine(arrays, static)
            epoch_key = jax.random.fold_in(subkey(key, "epochs"), carry.epoch)
            order = None if orders is None else orders[i]
            outcome = run_batches(program, carry, data, weight, order, batches_in[i], epoch_key)
            carry, row = after_epoch(program, carry, outcome, validation, subkey(key, "validation"))
            return i + 1, eqx.filter(carry, eqx.is_array), history.at[i].set(row)

        def running(loop):
            i, arrays, _ = loop
            return (i < n_epochs) & (eqx.combine(arrays, static).code == RUNNING)

        _, arrays, history = jax.lax.while_loop(running, body, (jnp.zeros((), jnp.int32), arrays, history))
        return arrays, history

    if keys.shape[0] == 1:  # one restart needs no vmap, which would turn every branch into a select
        single = jax.tree.map(lambda a: a[0], arrays)
        arrays, history = one(single, keys[0])
        arrays, history = jax.tree.map(lambda a: a[None], (arrays, history))
    else:
        arrays, history = jax.vmap(one)(arrays, keys)
    return eqx.combine(arrays, static), history


def _check_scalar(energy: Any) -> None:
    """An energy is one number: said here, before JAX speaks of gradients."""
    example = {k: jax.ShapeDtypeStruct(s.shape, s.jax_dtype) for k, s in energy.spaces.items()}
    try:
        out = eqx.filter_eval_shape(lambda values: energy(**values), example)
    except Exception:
        return  # it may not be callable on a plain example; what it does then is its own affair
    if getattr(out, "shape", ()) != ():
        raise BadInput("energy", f"{type(energy).__name__} returns shape {out.shape}", "one number, shape ()")


@eqx.filter_jit
def start_restarts(
    program: Program,
    energy: Any,
    data: Any,
    weight: Any,
    keys: Any,
    validated: bool,
    initialise: bool,
    first_indices: Any,
) -> tuple[Any, tuple[str, ...]]:
    """A carry for every restart (initialised energies if asked, and the learner's first state),
    and the names of the loss terms, which a step is traced for and nothing is computed."""
    if first_indices is None:
        batch = Batch(data, weight, program.shards)
    else:
        batch = take_batch(data, weight, first_indices, program.shards)

    def one(key):
        start = energy
        init_key, state_key = jax.random.split(subkey(key, "start"))
        if initialise:
            start = restore_frozen(program.trainable, energy, energy.initialise(init_key, data, weight))
        state = program.learner.init(start, batch, state_key, program.trainable)
        return Carry.start(start, state, validated=validated, dtype=weight.dtype)

    _check_scalar(energy)

    if keys.shape[0] == 1:  # traced once: an initialisation may be a whole algorithm of its own
        first = one(keys[0])
        carries = jax.tree.map(lambda a: a[None] if eqx.is_array(a) else a, first)
    else:
        carries = eqx.filter_vmap(one)(keys)
        first = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, carries)

    def terms(carry, key):
        return program.learner.step(carry.energy, carry.state, batch, key, program.trainable)[2]

    return carries, tuple(eqx.filter_eval_shape(terms, first, keys[0]))
