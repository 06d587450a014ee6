"""The compiled part of the training loop: whole epochs of all restarts, with the stopping rules.

The result does not depend on the number of epochs in one call: a resumed fit ends bit for bit where an
uninterrupted one ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import fold_in_each
from .._util.sizes import Limit, number_of_rows
from ..batch import Batch
from ..errors import BadInput
from ..parameters import all_finite
from ..programs import jit
from ._learner import MONITOR, Learner

RUNNING, CONVERGED, STOPPED_EARLY, DIVERGED = range(4)
PARAMETERS = -1  # the `bad_term` if the loss was finite but a parameter was not

#: The most numbers of data with which restarts run side by side. CPU, ten restarts of k-means on digits: 104
#: ms one after another, each until it has converged, and 251 side by side. GPU: only memory limits them.
_SIDE_BY_SIDE_NUMBERS = Limit(2**15, 2**62)

_PURPOSES = ("restarts", "start", "epochs", "validation")


def subkey(key: Any, purpose: str) -> Any:
    """Return the key for one purpose, so that no key is used twice."""
    return jax.random.split(key, len(_PURPOSES))[_PURPOSES.index(purpose)]


@jit
def restart_keys(key: Any, n: int) -> Any:
    """Return one key per restart."""
    return jax.random.split(subkey(key, "restarts"), n)


class Carry(eqx.Module):
    """The state of one restart between epochs."""

    energy: Any
    state: Any  # of the learner
    best: Any  # (energy, state) with the lowest validation loss, or None
    epoch: jax.Array
    step: jax.Array
    code: jax.Array  # RUNNING, CONVERGED, STOPPED_EARLY or DIVERGED
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
    """The settings that stay the same during a fit."""

    learner: Learner
    trainable: Any  # a tree of bools like the energy
    changing: Any  # the same, where running statistics are True too
    patience: int | None = eqx.field(static=True)
    shards: int = eqx.field(static=True)
    term_names: tuple[str, ...] = eqx.field(static=True, default=())

    def with_term_names(self, names: tuple[str, ...]) -> Program:
        return Program(self.learner, self.trainable, self.changing, self.patience, self.shards, names)


# -- restarts -------------------------------------------------------------------------------------------


def _map_restarts(function: Callable[..., Any], data: Any, *trees: Any) -> Any:
    """Return `function` of every restart, over the leading axis of all arrays.

    A single restart runs without vmap, which would compute both sides of every branch: 1.7 times as fast for
    a diagonal mixture of digits, 1.5 to 2 times for a hidden Markov model.
    """
    if number_of_rows(trees) > 1:
        if sum(a.size for a in jax.tree.leaves(data)) > _SIDE_BY_SIDE_NUMBERS.value:
            arrays, static = eqx.partition(trees, eqx.is_array)
            return jax.lax.map(lambda arrays: function(*eqx.combine(arrays, static)), arrays)
        return eqx.filter_vmap(function)(*trees)
    first = _map_arrays(lambda a: jax.lax.squeeze(a, (0,)), trees)
    return _map_arrays(lambda a: jax.lax.expand_dims(a, (0,)), function(*first))


def _map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    return jax.tree.map(lambda a: function(a) if eqx.is_array(a) else a, tree)


def take_restart(carries: Carry, i: int) -> Carry:
    """Return one of the restarts."""
    if isinstance(carries.code, np.ndarray):
        return _map_arrays(lambda a: a[i], carries)
    return _take_restart(carries, np.int32(i))


def read_restart(carries: Carry, i: int) -> Carry:
    """Return one of the restarts, that of a single one on a CPU with arrays of NumPy.

    A program that takes it, compiled or loaded from the cache, was a tenth of a first fit.
    """
    if len(carries.code) == 1 and all(map(_is_on_cpu, jax.tree.leaves(eqx.filter(carries, eqx.is_array)))):
        return _map_arrays(lambda a: np.asarray(a)[i], carries)
    return take_restart(carries, i)


def _is_on_cpu(array: Any) -> bool:
    """Return whether NumPy can read an array where it is: numbers on one device, a CPU."""
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return False
    return isinstance(array, np.ndarray) or [d.platform for d in array.sharding.device_set] == ["cpu"]


@jit
def _take_restart(carries: Carry, i: Any) -> Carry:
    """Return one restart. Array by array, a fit of a small mixture with five took 1.7 times as long."""
    take = lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False, allow_negative_indices=False)
    return _map_arrays(take, carries)


def add_restart_axis(carry: Carry) -> Carry:
    """Return a carry whose arrays have a leading axis of one restart."""
    return _map_arrays(lambda a: a[None], carry)


# -- one epoch ---------------------------------------------------------------------------------------------


def restore_frozen(changing: Any, old: Any, new: Any) -> Any:
    """Return the new energy with every frozen leaf, and every dtype, of the old one.

    Here once for all learners: `initialise` sets every leaf, and bijections of constrained parameters do not
    round-trip exactly.
    """

    def keep(may_change, before, after):
        return after.astype(before.dtype) if may_change and eqx.is_array(before) else before

    return jax.tree.map(keep, changing, old, new)


def _cast_like(old: Any, new: Any) -> Any:
    cast = lambda a, b: b.astype(a.dtype) if eqx.is_array(a) and eqx.is_array(b) else b
    return jax.tree.map(cast, old, new)


def _where(condition: Any, new: Any, old: Any) -> Any:
    """Return the arrays of `new` if the condition holds, else those of `old`."""
    return jax.tree.map(lambda a, b: jax.lax.select(condition, a, b) if eqx.is_array(a) else a, new, old)


def take_batch(data: Any, weight: Any, indices: Any, shards: int) -> Batch:
    """Return the rows with these numbers, all rows if None; a number past the end marks padding.

    The rows of the data with weight 0 must be copies of others, as `check_rows` makes them.
    """
    if indices is None:
        return Batch(data, weight, shards, filled=True)
    n = number_of_rows(data)
    rows = jax.tree.map(lambda a: jnp.take(a, indices, axis=0, mode="clip"), data)
    kept = jnp.where(indices < n, jnp.take(weight, indices, mode="clip"), 0)
    return Batch(rows, kept, shards, filled=True)


def run_batches(program: Program, carry: Carry, data: Any, weight: Any, order: Any, n_batches: Any, key: Any):
    """Learn from every batch once; stop at the first whose loss is not finite.

    → (energy, state, step, mean loss terms, whether one is not finite, which term).
    """
    arrays, static = eqx.partition((carry.energy, carry.state), eqx.is_array)
    dtype = carry.objective.dtype
    zeros = jnp.zeros(len(program.term_names), dtype)
    start = (arrays, carry.step, zeros, jnp.zeros((), dtype))
    # On a GPU an update is many small kernels: what does not depend on the step is computed before the loop.
    keys = None if order is None else fold_in_each(key, len(order))

    def body(loop):
        i, (arrays, step, totals, total_weight), _ = loop
        energy, state = eqx.combine(arrays, static)
        batch = take_batch(data, weight, None if order is None else order[i], program.shards)
        batch_key = jax.random.fold_in(key, i) if keys is None else keys[i]
        new, new_state, terms = program.learner.step(energy, state, batch, batch_key, program.trainable)
        new = restore_frozen(program.changing, energy, new)
        losses = jnp.stack([terms[name] for name in program.term_names]).astype(dtype)
        bad = ~all_finite(losses)
        batch_weight = program.learner.row_weights(batch).sum().astype(dtype)
        arrays = eqx.filter((new, _cast_like(state, new_state)), eqx.is_array)
        totals = totals + batch_weight * losses
        return i + 1, (arrays, step + 1, totals, total_weight + batch_weight), (bad, losses)

    def is_running(loop):
        i, _, (bad, _) = loop
        return (i < n_batches) & ~bad

    loop = (jnp.zeros((), jnp.int32), start, (jnp.array(False), zeros))
    loop = body(loop) if order is None else jax.lax.while_loop(is_running, body, loop)
    _, (arrays, step, totals, total_weight), (bad, last) = loop
    energy, state = eqx.combine(arrays, static)
    # Parameters are checked once per epoch, not in every step, where each of them would cost a kernel: if one
    # is not finite, nor is the next loss, and the whole epoch is undone.
    bad_loss, bad = ~jnp.isfinite(last), bad | ~all_finite(energy)
    which = jnp.where(bad_loss.any(), jnp.argmax(bad_loss), PARAMETERS).astype(jnp.int32)
    return energy, state, step, totals / jnp.where(total_weight > 0, total_weight, 1), bad, which


def end_epoch(program: Program, carry: Carry, outcome: Any, validation: Batch | None, key: Any):
    """Apply the stopping rules after an epoch. → (new carry, its row of history)."""
    energy, state, step, losses, bad, which = outcome
    counted = [j for j, name in enumerate(program.term_names) if not name.startswith(MONITOR)]
    objective = (losses if len(counted) == len(program.term_names) else losses[np.array(counted)]).sum()
    first = jnp.where(carry.epoch == 0, objective, carry.first_objective)
    slack = jnp.sqrt(jnp.finfo(objective.dtype).eps) * jnp.maximum(1, jnp.abs(first))
    small = program.learner.converged(carry.objective, objective, carry.energy, energy)
    # Not on NaN, and not on an objective worse than the first one.
    converged = small & (carry.epoch > 0) & ~bad & (objective <= first + slack)
    code = jnp.where(converged, CONVERGED, RUNNING)

    best, best_value, since_best = carry.best, carry.best_validation, carry.since_best
    value = jnp.zeros((), objective.dtype)
    if validation is not None:
        terms = program.learner.evaluate(energy, state, validation, key)
        value = jnp.stack(list(terms.values())).sum().astype(objective.dtype)
        better = (value < carry.best_validation) & ~bad
        best = _where(better, (energy, state), carry.best)
        best_value = jnp.where(better, value, carry.best_validation)
        since_best = jnp.where(better, 0, carry.since_best + 1)
        if program.patience is not None:
            code = jnp.where(since_best >= program.patience, STOPPED_EARLY, code)
    new = Carry(
        energy=_where(~bad, energy, carry.energy),  # an epoch that diverged is undone
        state=_where(~bad, state, carry.state),
        best=best,
        epoch=carry.epoch + 1,
        step=step,
        code=jnp.where(bad, DIVERGED, code).astype(jnp.int32),
        objective=jnp.where(bad, carry.objective, objective),
        first_objective=first,
        best_validation=best_value,
        since_best=since_best.astype(jnp.int32),
        bad_term=jnp.where(bad, which, 0),
        bad_step=jnp.where(bad, step, 0),
    )
    return new, jnp.concatenate([losses, value[None]])


# -- compiled calls ----------------------------------------------------------------------------------------


@jit
def run_epochs(
    program: Program,
    carries: Any,  # one Carry, whose arrays have a leading axis of restarts
    data: Any,
    weight: Any,
    orders: Any,  # (epochs, batches, rows) row numbers, or None for all rows in one batch
    batches_in: Any,  # (epochs,) the number of batches in each epoch
    n_epochs: Any,
    validation: Batch | None,
    keys: Any,  # one per restart
) -> tuple[Any, Any]:
    """Run up to `n_epochs` epochs of every restart. → (carries, history)."""
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
            carry, row = end_epoch(program, carry, outcome, validation, subkey(key, "validation"))
            return i + 1, eqx.filter(carry, eqx.is_array), history.at[i].set(row)

        def is_running(loop):
            i, arrays, _ = loop
            return (i < n_epochs) & (eqx.combine(arrays, static).code == RUNNING)

        start = (jnp.zeros((), jnp.int32), arrays, history)
        _, arrays, history = jax.lax.while_loop(is_running, body, start)
        return arrays, history

    arrays, history = _map_restarts(one, data, arrays, keys)
    return eqx.combine(arrays, static), history


@jit
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
    """Return the carry of every restart before the first step, and the names of the loss terms.

    Energies are initialised if asked.
    """
    _check_scalar(energy)
    batch = take_batch(data, weight, first_indices, program.shards)

    def one(key):
        start = energy
        init_key, state_key = jax.random.split(subkey(key, "start"))
        if initialise:
            start = restore_frozen(program.changing, energy, energy.initialise(init_key, data, weight))
        state = program.learner.init(start, batch, state_key, program.trainable)
        return Carry.start(start, state, validated=validated, dtype=weight.dtype)

    carries = _map_restarts(one, data, keys)
    first = _map_arrays(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), carries)
    names = program.learner.term_names(first.energy, first.state, batch, keys[0], program.trainable)
    return carries, tuple(names)


def _check_scalar(energy: Any) -> None:
    """Raise `BadInput` if the energy is not one number, with a clearer message than that of `jax.grad`."""
    if _is_own(energy):
        return
    example = {k: jax.ShapeDtypeStruct(s.shape, s.jax_dtype) for k, s in energy.spaces.items()}
    try:
        out = eqx.filter_eval_shape(lambda values: energy(**values), example)
    except Exception:
        return  # some energies take other examples, such as masked ones
    if getattr(out, "shape", ()) != ():
        raise BadInput("energy", f"{type(energy).__name__} returns shape {out.shape}", "one number, shape ()")


def _is_own(node: Any) -> bool:
    """Return whether a module and all modules in it are of this library, and call no function of the user."""
    if isinstance(node, eqx.Module):
        own = type(node).__module__.split(".")[0] == __name__.split(".")[0]
        return own and all(map(_is_own, vars(node).values()))
    if isinstance(node, dict | list | tuple):
        return all(map(_is_own, node.values() if isinstance(node, dict) else node))
    return not callable(node)
