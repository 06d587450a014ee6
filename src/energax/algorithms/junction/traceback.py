"""One configuration from a tree of conditionals: root first, then every residual given its separator.

With the largest entry of each row this is the back-tracking of max-product; with a random one, exact
sampling. Only the rows that the configuration passes through are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .layout import TreeLayout
from .passes import Upward, take
from .rooted import Clique

_TWO_STAGES = 4096  # entries; a longer row is drawn from in two steps, a stretch and then its entry

Pick = Callable[[Any, int], Any]  # (cliques, columns) and the number of the step -> a column for each


def descend(plan: TreeLayout, up: Upward, n_variables: int, pick: Pick) -> Any:
    """The states of all variables, (n_variables,) whole numbers."""
    states = jnp.zeros(n_variables, jnp.int32)
    step = 0
    for i in plan.core:
        states = _visit(states, up.core[i], [plan.cliques[i]], [0], lambda rows, k=step: pick(rows, k))
        step += 1
    for level, matrices in zip(plan.levels, up.fringe, strict=True):
        for block, matrix in zip(level.blocks, matrices, strict=True):
            if block.shape[1] > 1:  # pockets add no variable
                cliques = [plan.cliques[i] for i in block.cliques]
                starts = np.cumsum([0, *(c.rows for c in cliques)])[:-1].tolist()
                states = _visit(states, matrix, cliques, starts, lambda rows, k=step: pick(rows, k))
                step += 1
    return states


def _visit(states: Any, matrix: Any, cliques: Sequence[Clique], starts: Sequence[int], pick: Any) -> Any:
    """Fill in the residuals of cliques whose separators are known."""
    n, absent = len(cliques), states.shape[0]
    most = max(c.n_separator for c in cliques)
    left = max(len(c.variables) - c.n_separator for c in cliques)
    given, weight = np.zeros((2, n, most), np.int32)
    new, stride, card = np.full((3, n, left), 1, np.int32)
    new[:] = absent  # past the end: dropped
    for k, c in enumerate(cliques):
        m = c.n_separator
        given[k, :m], weight[k, :m] = c.separator, _strides(c.cards[:m])
        size = len(c.variables) - m
        new[k, :size], card[k, :size] = c.variables[m:], c.cards[m:]
        stride[k, :size] = _strides(c.cards[m:])
    rows = jnp.sum(take(states, given) * weight, axis=1) + np.array(starts, np.int32)
    column = pick(take(matrix, rows)).astype(jnp.int32)
    return states.at[new].set(column[:, None] // stride % card, mode="drop")


def _strides(cards: Sequence[int]) -> np.ndarray:
    return np.cumprod([1, *cards[::-1]])[::-1][1:].astype(np.int32)


def largest(rows: Any, step: int) -> Any:
    """The best column of every row."""
    return jnp.argmax(rows, axis=1)


def random_column(key: Any) -> Pick:
    """A column of every row, with probabilities in proportion to its entries."""

    def pick(rows: Any, step: int) -> Any:
        n, columns = rows.shape
        first, second = jax.random.uniform(jax.random.fold_in(key, step), (2, n), rows.dtype)
        if columns <= _TWO_STAGES:
            return _invert(rows, first)
        width = 1 << (columns.bit_length() // 2)
        padded = jnp.pad(rows, ((0, 0), (0, -columns % width))).reshape(n, -1, width)
        stretch = _invert(jnp.sum(padded, axis=2), first)
        inside = jnp.take_along_axis(padded, stretch[:, None, None], axis=1)[:, 0]
        return stretch * width + _invert(inside, second)

    return pick


def _invert(rows: Any, uniform: Any) -> Any:
    """The first column whose cumulative sum exceeds a uniform share of the total."""
    sums = jnp.cumsum(rows, axis=1)
    total = sums[:, -1]
    wanted = jnp.minimum(uniform * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return jnp.minimum(jnp.sum(sums <= wanted[:, None], axis=1), rows.shape[1] - 1)
