"""The two passes over a junction tree, and the way back down along one configuration.

Up, in log space, from the leaves: every clique multiplies its factors and the messages of its children,
and divides by its separator,

    ψ_c(s, r) = Π factors · Π messages,    message(s) = Σ_r ψ_c(s, r),    p(r | s) = ψ_c(s, r) / message(s).

Down, in plain probabilities, from the root: the parent's belief, summed to the separator, is absorbed,

    p_c(s, r) = p(r | s) · p(s) = [clique potential · incoming] / separator · p(s).

This is the absorption of Hugin, arranged so that there is one exponential an entry, nothing is divided
by zero that matters, and no range of logarithms is too wide: sums on the way up are taken relative to the
largest term of each separator state, and on the way down all numbers are probabilities.

References: Lauritzen and Spiegelhalter, J. R. Statist. Soc. B 50, 1988; Jensen, Lauritzen and Olesen,
Comput. Statist. Quart. 4, 1990.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .layout import Level, Ragged, TreeLayout
from .rooted import Clique

_CHAIN = 4  # sums of up to so many terms are left to the compiler's fusion
_LARGE = 2**16  # entries; tables above are made one at a time
Reduce = Callable[[Any], tuple[Any, Any]]  # (rows, columns, …) -> the kept matrix and the messages (rows, …)


def conditional(log_table: Any) -> tuple[Any, Any]:
    """p(r | s) and log Σ_r of a matrix of logarithms; a row without any possibility gives 0 and −inf."""
    largest = jnp.max(log_table, axis=1)
    shift = jnp.where(jnp.isfinite(largest), largest, 0)
    weight = jnp.exp(log_table - shift[:, None])
    total = jnp.sum(weight, axis=1)
    return weight * jnp.where(total > 0, 1 / total, 0)[:, None], jnp.log(total) + shift


def best(log_table: Any) -> tuple[Any, Any]:
    """The matrix itself and its largest entry in each row: max-product instead of sum-product."""
    return log_table, jnp.max(log_table, axis=1)


class Packed(NamedTuple):
    """Log-tables in few arrays, to hand over instead of hundreds."""

    small: Any  # of the fringe end to end, then 0 and −inf, which pad its sums
    large: dict[int, Any]  # of the core, by the number of the factor


def pack(plan: TreeLayout, log_tables: Sequence[Any], dtype: Any) -> Packed:
    """Tables of one precision as the passes read them; NumPy's stay NumPy's."""
    host = all(isinstance(table, np.ndarray) for table in log_tables)
    ends = np.array([0, -np.inf], dtype)
    small = (np if host else jnp).concatenate([*(log_tables[f].ravel() for f in plan.small), ends])
    core = set(range(len(log_tables))) - set(plan.small)
    return Packed(small, {f: log_tables[f] for f in sorted(core)})


class Upward(eqx.Module):
    """What the way up leaves: a matrix for every block of every level and every core clique, and log Z."""

    log_z: Any
    fringe: tuple[tuple[Any, ...], ...]
    core: dict[int, Any]


def upward(plan: TreeLayout, log_tables: Any, log_evidence: Sequence[Any], reduce: Reduce) -> Upward:
    """From the leaves to the roots. Evidence has shape (card, …): trailing axes are rows side by side.

    The tables are `Packed`, or one a factor.
    """
    batch = log_evidence[0].shape[1:]
    wide = lambda a: a.reshape((-1,) + (1,) * len(batch))
    dtype = log_evidence[0].dtype
    small, large = log_tables if isinstance(log_tables, Packed) else pack(plan, log_tables, dtype)
    evidence = jnp.concatenate([*log_evidence, jnp.zeros((1, *batch), dtype)])
    base = ragged_sum(wide(jnp.asarray(small)), plan.factors) + _summed(evidence, plan.evidence, False)
    messages, start = jnp.zeros((0, *batch), dtype), plan.n_beliefs
    fringe: list[tuple[Any, ...]] = []
    for level in reversed(plan.levels):
        padded = jnp.concatenate([messages, jnp.zeros((1, *batch), dtype)])
        start -= sum(math.prod(block.shape) for block in level.blocks)
        at, kept, found = start, [], []
        for block in level.blocks:
            log_table = base[at : at + math.prod(block.shape)].reshape(*block.shape, *batch)
            at += math.prod(block.shape)
            if len(block.messages):
                log_table = log_table + _summed(padded, block.messages, level.inflow is None and plan.core)
            matrix, message = reduce(log_table)
            kept.append(matrix)
            found.append(message)
        fringe.append(tuple(kept))
        messages = jnp.concatenate(found)
    top = plan.levels[0]
    log_z = jnp.sum(messages[top.owner], axis=0)
    core: dict[int, Any] = {}
    arriving: dict[int, Any] = {}
    token = log_z
    for i in reversed(plan.core):
        clique = plan.cliques[i]
        log_table = jnp.zeros((clique.size, *batch), dtype)
        for f in clique.large:
            table = _in_order(large[f], plan.scopes[f], clique)
            log_table = _absorb(log_table, wide(table), plan.scopes[f], clique)
        for child in clique.children:
            if child in arriving:
                message = arriving.pop(child)
            else:
                start = top.start[child]
                message = messages[start : start + plan.cliques[child].rows]
            if clique.size > _LARGE:
                message = _after(message, token)
            log_table = _absorb(log_table, message, plan.cliques[child].separator, clique)
        core[i], message = reduce(log_table.reshape(clique.rows, clique.columns, *batch))
        token = message[0]
        if clique.parent < 0:
            log_z = log_z + message[0]
        else:
            arriving[i] = message
    return Upward(log_z, tuple(fringe[::-1]), core)


class Beliefs(eqx.Module):
    """p(clique) of all cliques: the fringe in one vector (with a zero at its end), the core each alone."""

    fringe: Any
    core: dict[int, Any]


def downward(plan: TreeLayout, up: Upward) -> Beliefs:
    """From the roots to the leaves: each clique's conditional times its separator's marginal."""
    batch = up.log_z.shape
    dtype = up.log_z.dtype
    one = jnp.where(up.log_z > -jnp.inf, 1, 0).astype(dtype)[None]
    core: dict[int, Any] = {}
    entering: dict[int, Any] = {}
    token = up.log_z
    for i in plan.core:
        clique = plan.cliques[i]
        separator = one if clique.parent < 0 else entering.pop(i)
        if clique.size > _LARGE:
            separator = _after(separator, token)
        core[i] = (up.core[i] * separator[:, None]).reshape(clique.size, *batch)
        for child in clique.children:
            entering[child] = sum_to(core[i], plan.cliques[child].separator, clique)
            token = entering[child][0]
    pieces = []
    above = jnp.zeros((0, *batch), dtype)
    zero = jnp.zeros((1, *batch), dtype)
    for level, matrices in zip(plan.levels, up.fringe, strict=True):
        if level.inflow is None:
            separators = _top(plan, level, entering, one)
        else:
            separators = ragged_sum(jnp.concatenate([above, zero]), level.inflow)
        row, found = 0, []
        for matrix in matrices:
            found.append(matrix * separators[row : row + matrix.shape[0], None])
            row += matrix.shape[0]
        above = jnp.concatenate([piece.reshape(-1, *batch) for piece in found])
        pieces.append(above)
    return Beliefs(jnp.concatenate([*pieces, zero]), core)


def _top(plan: TreeLayout, level: Level, entering: dict[int, Any], one: Any) -> Any:
    """The separators of the highest level: pockets take theirs from the core, roots have none."""
    return jnp.concatenate([entering.get(i, one) for block in level.blocks for i in block.cliques])


def take(values: Any, index: Any) -> Any:
    """values[index] along the first axis, for indices that are known to be right."""
    return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _summed(values: Any, index: Any, once: Any) -> Any:
    """Σ_slots values[index]: a few terms are left to fusion, unless they must be computed only once.

    A chain of sums that feeds the core would be repeated for every entry of its tables.
    """
    if len(index) > _CHAIN or once:
        return jnp.sum(take(values, index), axis=0)
    return functools.reduce(jnp.add, [take(values, slot) for slot in index])


def ragged_sum(values: Any, lists: Ragged) -> Any:
    """Σ values[list] for every list."""
    sums = jnp.concatenate([jnp.sum(take(values, block), axis=1) for block in lists.blocks])
    return sums if lists.order is None else take(sums, lists.order)


# -- dense tables of the core -----------------------------------------------------------------------


def _runs(inside: Sequence[int], clique: Clique) -> tuple[list[int], list[bool]]:
    """Neighbouring axes that are all inside, or all outside, as one axis each."""
    members = set(inside)
    sizes, flags = [], []
    groups = itertools.groupby(
        zip(clique.variables, clique.cards, strict=True), key=lambda pair: pair[0] in members
    )
    for flag, group in groups:
        size = 1
        for _, card in group:
            size *= card
        sizes.append(size)
        flags.append(flag)
    return sizes, flags


def _after(value: Any, token: Any) -> Any:
    """The value, but only once the token is known: large tables one after the other, not all at once."""
    return value + jnp.where(token > jnp.inf, 1, 0).astype(value.dtype)  # never, but who could tell


def _absorb(log_table: Any, message: Any, inside: Sequence[int], clique: Clique) -> Any:
    """Multiply a function of some of the clique's variables (in its order) into its table."""
    sizes, flags = _runs(inside, clique)
    batch, own = log_table.shape[1:], message.shape[1:]
    shape = [size if flag else 1 for size, flag in zip(sizes, flags, strict=True)]
    summed = log_table.reshape(*sizes, *batch) + message.reshape(*shape, *own)
    return summed.reshape(-1, *batch)


def sum_to(table: Any, inside: Sequence[int], clique: Clique) -> Any:
    """Sum out all of the clique's variables but some."""
    sizes, flags = _runs(inside, clique)
    axes = tuple(axis for axis, flag in enumerate(flags) if not flag)
    batch = table.shape[1:]
    return jnp.sum(table.reshape(*sizes, *batch), axis=axes).reshape(-1, *batch)


def _in_order(table: Any, scope: Sequence[int], clique: Clique) -> Any:
    """A factor's axes in the order of the clique."""
    inside = [v for v in clique.variables if v in scope]
    return jnp.transpose(table, [scope.index(v) for v in inside])
