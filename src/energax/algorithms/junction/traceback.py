"""One configuration from a tree of conditionals: root first, then every residual given its separator.

With the largest entry of each row this is the back-tracking of max-product; with a random one, exact
sampling. Only the rows that belong to the configuration are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .layout import TreeLayout
from .passes import Upward
from .ragged import take
from .rooted import Clique

_TWO_STAGES = 4096  # entries; in a longer row first a stretch is drawn, then an entry of it

Pick = Callable[[Any, int], Any]  # (cliques, columns) and the number of the step -> a column for each


def descend(layout: TreeLayout, up: Upward, n_variables: int, pick: Pick) -> Any:
    """The states of all variables, (n_variables,) whole numbers, chosen by `pick` from the root down."""
    states = jnp.zeros(n_variables, jnp.int32)
    step = 0
    for i in layout.core:
        states = _visit(states, up.core[i], [layout.cliques[i]], [0], lambda rows, k=step: pick(rows, k))
        step += 1
    for level, matrices in zip(layout.levels, up.fringe, strict=True):
        for group, matrix in zip(level.groups, matrices, strict=True):
            if group.shape[1] > 1:  # subcliques add no variable
                cliques = [layout.cliques[i] for i in group.cliques]
                starts = np.cumsum([0, *(c.rows for c in cliques)])[:-1].tolist()
                states = _visit(states, matrix, cliques, starts, lambda rows, k=step: pick(rows, k))
                step += 1
    return states


def _visit(states: Any, matrix: Any, cliques: Sequence[Clique], starts: Sequence[int], pick: Any) -> Any:
    """Fill in the states of the residuals of cliques, given those of their separators."""
    n, absent = len(cliques), states.shape[0]
    most = max(c.n_separator for c in cliques)
    left = max(len(c.variables) - c.n_separator for c in cliques)
    given, weight = np.zeros((2, n, most), np.int32)
    new, stride, card = np.full((3, n, left), 1, np.int32)
    new[:] = absent  # past the end, which the last line drops
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


def best_column(rows: Any, step: int) -> Any:
    """The column of the largest entry of every row."""
    return jnp.argmax(rows, axis=1)


def random_column(key: Any) -> Pick:
    """Picks a column of every row at random, with probabilities in proportion to its entries."""

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
    """The first column whose cumulative sum exceeds `uniform` times the total."""
    sums = jnp.cumsum(rows, axis=1)
    total = sums[:, -1]
    target = jnp.minimum(uniform * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return jnp.minimum(jnp.sum(sums <= target[:, None], axis=1), rows.shape[1] - 1)
