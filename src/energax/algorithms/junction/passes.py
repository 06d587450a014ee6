"""The two passes over a junction tree: messages up, beliefs down.

Up, in log space, from the leaves: every clique multiplies its factors and the messages of its children,
and divides by its separator,

    ψ_c(s, r) = Π factors · Π messages,    message(s) = Σ_r ψ_c(s, r),    p(r | s) = ψ_c(s, r) / message(s).

Down, in plain probabilities, from the root: the parent's belief, summed to the separator, is absorbed,

    p_c(s, r) = p(r | s) · p(s) = [clique potential · incoming] / separator · p(s).

This is the absorption of Hugin, arranged with one exponential per entry. No range of logarithms is too
wide, and a separator state of probability 0 gives 0: sums on the way up are taken relative to the largest
term of each separator state, and on the way down all numbers are probabilities.

Both passes treat the core and the fringe (see `layout`) separately. Rows of evidence lie on the last axis.

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

from ..._util.arrays import asarray
from .layout import Level, TreeLayout
from .ragged import ragged_sum, take
from .rooted import Clique

_CHAIN = 4  # sums of up to so many terms are left to the compiler's fusion
_LARGE = 2**16  # entries; tables above are made one at a time
Reduce = Callable[[Any], tuple[Any, Any]]  # (rows, columns, …) -> the matrix to keep, the messages (rows, …)


def sum_product(log_table: Any) -> tuple[Any, Any]:
    """p(r | s) and log Σ_r of a matrix of logarithms; a row of −inf gives 0 and −inf."""
    largest = jnp.max(log_table, axis=1)
    shift = jnp.where(jnp.isfinite(largest), largest, 0)
    weight = jnp.exp(log_table - shift[:, None])
    total = jnp.sum(weight, axis=1)
    return weight * jnp.where(total > 0, 1 / total, 0)[:, None], jnp.log(total) + shift


def max_product(log_table: Any) -> tuple[Any, Any]:
    """The matrix itself and the largest entry of each row."""
    return log_table, jnp.max(log_table, axis=1)


class PackedLogTables(NamedTuple):
    """Log-tables in few arrays, to pass to compiled code instead of hundreds."""

    small: Any  # those of the fringe end to end, then 0 and −inf, which pad its sums
    large: dict[int, Any]  # those of the core, by the number of the factor


def pack_tables(layout: TreeLayout, log_tables: Sequence[Any], dtype: Any) -> PackedLogTables:
    """Pack tables of one precision as the passes read them; NumPy arrays stay NumPy arrays."""
    on_host = all(isinstance(table, np.ndarray) for table in log_tables)
    ends = np.array([0, -np.inf], dtype)
    flat = [log_tables[f].ravel() for f in layout.small_factors]
    small = (np if on_host else jnp).concatenate([*flat, ends])
    large = set(range(len(log_tables))) - set(layout.small_factors)
    return PackedLogTables(small, {f: log_tables[f] for f in sorted(large)})


# -- up ---------------------------------------------------------------------------------------------


class Upward(eqx.Module):
    """The result of the way up: log Z, and a matrix per group of each level and per core clique."""

    log_z: Any
    fringe: tuple[tuple[Any, ...], ...]
    core: dict[int, Any]


def upward(layout: TreeLayout, log_tables: Any, log_evidence: Sequence[Any], reduce: Reduce) -> Upward:
    """Pass messages from the leaves to the roots, by `sum_product` or `max_product`.

    Evidence has shape (card, …), with rows of evidence on the trailing axes. The tables are
    `PackedLogTables`, or one per factor.
    """
    packed = isinstance(log_tables, PackedLogTables)
    tables = log_tables if packed else pack_tables(layout, log_tables, log_evidence[0].dtype)
    fringe, messages = _fringe_upward(layout, tables.small, log_evidence, reduce)
    log_z = jnp.sum(messages[layout.levels[0].root_rows], axis=0)
    core, log_z = _core_upward(layout, tables.large, messages, log_z, reduce)
    return Upward(log_z, fringe, core)


def _fringe_upward(
    layout: TreeLayout, small_tables: Any, log_evidence: Sequence[Any], reduce: Reduce
) -> tuple[tuple[tuple[Any, ...], ...], Any]:
    """The matrices of all levels from the top, and the messages of the rows of the top level."""
    batch, dtype = log_evidence[0].shape[1:], log_evidence[0].dtype
    evidence = jnp.concatenate([*log_evidence, jnp.zeros((1, *batch), dtype)])
    flat = _add_batch_axes(asarray(small_tables), batch)
    potentials = ragged_sum(flat, layout.factors) + _sum_slots(evidence, layout.evidence, False)
    messages, start = jnp.zeros((0, *batch), dtype), layout.n_beliefs
    matrices: list[tuple[Any, ...]] = []
    for level in reversed(layout.levels):
        padded = jnp.concatenate([messages, jnp.zeros((1, *batch), dtype)])
        feeds_core = level.inflow is None and bool(layout.core)
        start -= sum(math.prod(group.shape) for group in level.groups)
        kept, messages = _level_upward(level, potentials, start, padded, feeds_core, reduce)
        matrices.append(kept)
    return tuple(matrices[::-1]), messages


def _level_upward(
    level: Level, potentials: Any, start: int, messages_below: Any, feeds_core: bool, reduce: Reduce
) -> tuple[tuple[Any, ...], Any]:
    """The matrices of the groups of one level, and the messages of all its rows."""
    batch = potentials.shape[1:]
    matrices, messages = [], []
    for group in level.groups:
        size = math.prod(group.shape)
        log_table = potentials[start : start + size].reshape(*group.shape, *batch)
        start += size
        if len(group.messages):
            log_table = log_table + _sum_slots(messages_below, group.messages, feeds_core)
        matrix, message = reduce(log_table)
        matrices.append(matrix)
        messages.append(message)
    return tuple(matrices), jnp.concatenate(messages)


def _core_upward(
    layout: TreeLayout, large_tables: dict[int, Any], fringe_messages: Any, log_z: Any, reduce: Reduce
) -> tuple[dict[int, Any], Any]:
    """The matrices of the core cliques, and log Z with the roots among them."""
    matrices: dict[int, Any] = {}
    messages: dict[int, Any] = {}  # of core cliques whose parent is still to come
    last = log_z  # a number of the table before, see `_compute_after`
    for i in reversed(layout.core):
        clique = layout.cliques[i]
        log_table = _log_product(layout, clique, large_tables, log_z.shape, log_z.dtype)
        for child in clique.children:
            message = messages.pop(child) if child in messages else _rows_of(layout, child, fringe_messages)
            if clique.size > _LARGE:
                message = _compute_after(message, last)
            log_table = _absorb(log_table, message, layout.cliques[child].separator, clique)
        matrices[i], message = reduce(log_table.reshape(clique.rows, clique.columns, *log_z.shape))
        last = message[0]
        if clique.parent < 0:
            log_z = log_z + message[0]
        else:
            messages[i] = message
    return matrices, log_z


def _log_product(
    layout: TreeLayout, clique: Clique, large_tables: dict[int, Any], batch: tuple[int, ...], dtype: Any
) -> Any:
    """The sum of the large log-tables of a core clique, (entries, …)."""
    log_table = jnp.zeros((clique.size, *batch), dtype)
    for f in clique.large:
        table = _transpose_to_clique(large_tables[f], layout.scopes[f], clique)
        log_table = _absorb(log_table, _add_batch_axes(table, batch), layout.scopes[f], clique)
    return log_table


def _rows_of(layout: TreeLayout, i: int, messages: Any) -> Any:
    """The message of one clique of the top level."""
    start = layout.levels[0].first_row[i]
    return messages[start : start + layout.cliques[i].rows]


# -- down -------------------------------------------------------------------------------------------


class Beliefs(eqx.Module):
    """p(clique) of all cliques: the fringe in one vector (with a zero at its end), the core one by one."""

    fringe: Any
    core: dict[int, Any]


def downward(layout: TreeLayout, up: Upward) -> Beliefs:
    """Pass marginals from the roots to the leaves: each conditional times the marginal of its separator."""
    possible = jnp.where(up.log_z > -jnp.inf, 1, 0).astype(up.log_z.dtype)[None]
    core, separators = _core_downward(layout, up, possible)
    return Beliefs(_fringe_downward(layout, up, separators, possible), core)


def _core_downward(layout: TreeLayout, up: Upward, possible: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """The beliefs of the core, and the separator marginals of its children in the fringe."""
    core: dict[int, Any] = {}
    separators: dict[int, Any] = {}
    last = up.log_z  # a number of the table before, see `_compute_after`
    for i in layout.core:
        clique = layout.cliques[i]
        separator = possible if clique.parent < 0 else separators.pop(i)
        if clique.size > _LARGE:
            separator = _compute_after(separator, last)
        core[i] = (up.core[i] * separator[:, None]).reshape(clique.size, *up.log_z.shape)
        for child in clique.children:
            separators[child] = sum_to(core[i], layout.cliques[child].separator, clique)
            last = separators[child][0]
    return core, separators


def _fringe_downward(layout: TreeLayout, up: Upward, separators: dict[int, Any], possible: Any) -> Any:
    """The beliefs of all levels end to end, then a zero."""
    batch, dtype = up.log_z.shape, up.log_z.dtype
    levels: list[Any] = []
    above, zero = jnp.zeros((0, *batch), dtype), jnp.zeros((1, *batch), dtype)
    for level, matrices in zip(layout.levels, up.fringe, strict=True):
        if level.inflow is None:  # subcliques take their separators from the core; roots have none
            cliques = [i for group in level.groups for i in group.cliques]
            marginals = jnp.concatenate([separators.get(i, possible) for i in cliques])
        else:
            marginals = ragged_sum(jnp.concatenate([above, zero]), level.inflow)
        row, found = 0, []
        for matrix in matrices:
            found.append(matrix * marginals[row : row + matrix.shape[0], None])
            row += matrix.shape[0]
        above = jnp.concatenate([belief.reshape(-1, *batch) for belief in found])
        levels.append(above)
    return jnp.concatenate([*levels, zero])


# -- sums and dense tables --------------------------------------------------------------------------


def _add_batch_axes(table: Any, batch: tuple[int, ...]) -> Any:
    """A table as (entries, 1, …), which broadcasts over rows of evidence."""
    return table.reshape((-1,) + (1,) * len(batch))


def _sum_slots(values: Any, index: Any, feeds_core: bool) -> Any:
    """Σ_slots values[index]; a few terms are left to the compiler's fusion, unless they feed the core.

    There a chain of sums would be repeated for every entry of the large tables.
    """
    if len(index) > _CHAIN or feeds_core:
        return jnp.sum(take(values, index), axis=0)
    return functools.reduce(jnp.add, [take(values, slot) for slot in index])


def _merge_axes(inside: Sequence[int], clique: Clique) -> tuple[list[int], list[bool]]:
    """The sizes of neighbouring axes that are all inside, or all outside, merged; and which are inside."""
    members = set(inside)
    sizes, flags = [], []
    groups = itertools.groupby(
        zip(clique.variables, clique.cards, strict=True), key=lambda pair: pair[0] in members
    )
    for flag, group in groups:
        sizes.append(math.prod(card for _, card in group))
        flags.append(flag)
    return sizes, flags


def _compute_after(value: Any, other: Any) -> Any:
    """The value, made to depend on another one, so that large tables are not all in memory at once."""
    return value + jnp.where(other > jnp.inf, 1, 0).astype(value.dtype)  # adds 0: nothing exceeds infinity


def _absorb(log_table: Any, message: Any, inside: Sequence[int], clique: Clique) -> Any:
    """Multiply a function of some of the clique's variables (in its order) into its table."""
    sizes, flags = _merge_axes(inside, clique)
    batch, own = log_table.shape[1:], message.shape[1:]
    shape = [size if flag else 1 for size, flag in zip(sizes, flags, strict=True)]
    total = log_table.reshape(*sizes, *batch) + message.reshape(*shape, *own)
    return total.reshape(-1, *batch)


def sum_to(table: Any, inside: Sequence[int], clique: Clique) -> Any:
    """Sum out all of the clique's variables but some."""
    sizes, flags = _merge_axes(inside, clique)
    axes = tuple(axis for axis, flag in enumerate(flags) if not flag)
    batch = table.shape[1:]
    return jnp.sum(table.reshape(*sizes, *batch), axis=axes).reshape(-1, *batch)


def _transpose_to_clique(table: Any, scope: Sequence[int], clique: Clique) -> Any:
    """A factor's table with its axes in the order of the clique."""
    inside = [v for v in clique.variables if v in scope]
    return jnp.transpose(table, [scope.index(v) for v in inside])
