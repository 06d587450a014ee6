"""Sums over lists of different lengths, as a few gathers of padded matrices of indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

OVERHEAD = 8192  # entries whose gathering costs as much as starting one more operation


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Lists of indices of different lengths, as a few padded matrices and a permutation."""

    matrices: tuple[np.ndarray, ...]  # (lists, length), padded with the index of a zero
    order: np.ndarray | None  # the row of each list in the concatenated matrices

    @classmethod
    def build(
        cls, groups: Sequence[np.ndarray], pad: int, places: Sequence[np.ndarray] | None = None
    ) -> Ragged:
        """From matrices of indices (lists, length), padded with the index `pad`.

        The lists come in the order of the rows, or at the `places` given for the rows of each matrix.
        """
        lengths = np.array([group.shape[1] for group in groups], int)
        heights = np.array([group.shape[0] for group in groups], int)
        by_length = np.argsort(lengths, kind="stable")
        rows = np.concatenate([[0], np.cumsum(heights[by_length])])
        cost = lambda a, b, longest: float((rows[b] - rows[a]) * longest)
        matrices, start = [], 0
        for stop in cheapest_cuts(lengths[by_length], cost):
            shape = (int(rows[stop] - rows[start]), int(lengths[by_length[stop - 1]]))
            matrix = np.full(shape, pad, np.int32)
            for at, row in zip(by_length[start:stop], rows[start:stop] - rows[start], strict=True):
                matrix[row : row + heights[at], : lengths[at]] = groups[at]
            matrices.append(matrix)
            start = stop
        first = np.empty(len(groups), int)
        first[by_length] = rows[:-1]
        found = [np.arange(a, a + h) for a, h in zip(first, heights, strict=True)]
        order = np.concatenate([np.zeros(0, int), *found]).astype(np.int32)
        if places is not None:
            order[np.concatenate(places)] = order.copy()
        return cls(tuple(matrices), None if np.array_equal(order, np.arange(len(order))) else order)


def cheapest_cuts(
    lengths: np.ndarray, cost: Callable[[int, int, int], float], overhead: int = OVERHEAD
) -> list[int]:
    """Cut sorted lengths into runs, each padded to its longest, at the least total cost; return their ends.

    `cost(start, stop, longest)` is that of the padded run, and `overhead` that of one more run. By
    dynamic programming over the ends, with runs of at most 25 different lengths.
    """
    if not len(lengths):
        return []
    ends = [*np.flatnonzero(np.diff(lengths)) + 1, len(lengths)]
    best: list[tuple[float, int]] = []  # the least cost up to this end, and where its last run starts
    for j, stop in enumerate(ends):
        options = []
        for i in range(max(0, j - 24), j + 1):
            start = 0 if i == 0 else int(ends[i - 1])
            before = 0.0 if i == 0 else best[i - 1][0]
            options.append((before + overhead + cost(start, int(stop), int(lengths[stop - 1])), i))
        best.append(min(options))
    found, j = [], len(ends) - 1
    while j >= 0:
        found.append(int(ends[j]))
        j = best[j][1] - 1
    return found[::-1]


def take(values: Any, index: Any) -> Any:
    """values[index] along the first axis, for indices that are known to be in bounds."""
    return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def ragged_sum(values: Any, lists: Ragged) -> Any:
    """Σ values[list] for every list."""
    sums = jnp.concatenate([jnp.sum(take(values, matrix), axis=1) for matrix in lists.matrices])
    return sums if lists.order is None else take(sums, lists.order)
