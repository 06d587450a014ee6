"""`RowCache`: the rows of a kernel matrix that were used last, in a buffer of fixed size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

#: Rows that are computed by one product: a large block while there are as many, then small ones.
_BLOCKS = (64, 16)
#: Cached rows that are added up by one fused loop.
_ADDED = 8

#: The slot of a row that is not in the cache: it was never used, or it was computed before.
_UNUSED, _USED = -1, -2


class RowCache(NamedTuple):
    """Kernel rows by slot. The rows used longest ago are replaced first.

    A row is stored when it is used for the second time: most support vectors at a bound change once.
    """

    values: Any  # (slots, n)
    slot_of: Any  # (n,) the slot of every row; negative if it is not here
    row_in: Any  # (slots,) the row of every slot, −1 if it is empty
    last_use: Any  # (slots,) the time of the last use, 0 if never
    time: Any

    def weighted_sum(self, wanted: Any, weights: Any, rows: Callable[[Any], Any]) -> tuple[RowCache, Any]:
        """Return (the new cache, Σ_i weight_i · row_i over the wanted rows).

        Args:
            wanted: indices of rows (q,).
            weights: (q,); rows of weight 0 are not computed.
            rows: maps indices (m,) to rows, (m, n).
        """
        slots = self.slot_of[wanted]
        is_here = (weights != 0) & (slots >= 0)
        is_stored = (weights != 0) & (slots == _USED)
        is_stored &= jnp.cumsum(is_stored) <= len(self.row_in)
        total = self._sum_of_cached(jnp.where(is_here, slots, 0), jnp.where(is_here, weights, 0))
        # The rows to store come first.
        order, n_stored = compact(is_stored)
        others, n_others = compact((weights != 0) & (slots < 0) & ~is_stored)
        at = jnp.arange(len(wanted))
        order = jnp.where(at < n_stored, order, jnp.roll(others, n_stored))
        is_computed = at < n_stored + n_others
        new_rows, new_weights = wanted[order], jnp.where(is_computed, weights[order], 0)
        n_slots, n = self.values.shape
        slot_of = self.slot_of.at[jnp.where(is_computed, new_rows, n)].set(_USED, mode="drop")
        time = self.time + 1
        # An index out of range is dropped.
        last_use = self.last_use.at[jnp.where(is_here, slots, n_slots)].set(time, mode="drop")
        cache = self._replace(slot_of=slot_of, last_use=last_use, time=time)
        cache, new_slots = cache._reserve(new_rows, at < n_stored)
        counts = n_stored, n_stored + n_others
        values, total = _compute(cache.values, total, (new_rows, new_slots, new_weights), counts, rows)
        return cache._replace(values=values), total

    def _reserve(self, new_rows: Any, is_new: Any) -> tuple[RowCache, Any]:
        """(The cache with slots for these rows, the slots (q,)); slots that are in use now come last."""
        q, n_slots, n = len(new_rows), len(self.row_in), len(self.slot_of)
        # As float32, for the fast `top_k`: exact for 2²⁴ working sets.
        slots = lax.top_k(-self.last_use.astype(jnp.float32), min(q, n_slots))[1]
        slots = jnp.pad(slots, (0, q - len(slots)))
        old_rows = self.row_in[slots]
        # A row that is wanted twice has two slots; only the one that `slot_of` names counts.
        is_evicted = is_new & (old_rows >= 0) & (self.slot_of[old_rows] == slots)
        slot_of = self.slot_of.at[jnp.where(is_evicted, old_rows, n)].set(_USED, mode="drop")
        slot_of = slot_of.at[jnp.where(is_new, new_rows, n)].set(slots, mode="drop")
        at = jnp.where(is_new, slots, n_slots)
        row_in = self.row_in.at[at].set(new_rows, mode="drop")
        last_use = self.last_use.at[at].set(self.time, mode="drop")
        return self._replace(slot_of=slot_of, row_in=row_in, last_use=last_use), slots

    def _sum_of_cached(self, slots: Any, weights: Any) -> Any:
        order, count = compact(weights != 0)
        short = -len(slots) % _ADDED
        is_one = jnp.arange(len(slots)) < count
        # An empty slot may hold NaN; the padding reads a slot that is in use, with weight 0.
        slots = jnp.where(is_one, slots[order], slots[order[0]])
        weights = jnp.where(is_one, weights[order], 0)
        slots, weights = jnp.pad(slots, (0, short), mode="edge"), jnp.pad(weights, (0, short))

        def add(k, total):
            for i in range(_ADDED):
                row = lax.dynamic_index_in_dim(self.values, slots[_ADDED * k + i], keepdims=False)
                total = total + weights[_ADDED * k + i] * row
            return total

        zero = jnp.zeros(self.values.shape[1], self.values.dtype)
        return lax.fori_loop(0, -(-count // _ADDED), add, zero)


def empty_cache(n_slots: int, n: int, dtype: Any) -> RowCache:
    """A cache of `n_slots` rows of n numbers. XLA sets its memory to 0 on a CPU: 200 MB take 100 ms."""
    unused, empty = jnp.full(n, _UNUSED, jnp.int32), jnp.full(n_slots, -1, jnp.int32)
    used = jnp.zeros(n_slots, jnp.int32)
    return RowCache(lax.empty((n_slots, n), dtype), unused, empty, used, jnp.zeros((), jnp.int32))


def compact(mask: Any) -> tuple[Any, Any]:
    """(The indices where a mask (q,) is true, in order, then zeros; their number), without a sort."""
    q = len(mask)
    place = jnp.cumsum(mask, dtype=jnp.int32) - 1
    index = jnp.zeros(q, jnp.int32)
    index = index.at[jnp.where(mask, place, q)].set(jnp.arange(q, dtype=jnp.int32), mode="drop")
    return index, jnp.sum(mask, dtype=jnp.int32)


def _compute(values: Any, total: Any, new: Any, counts: Any, rows: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(The buffer with the first n_stored new rows, total + Σ weight · row of the first n_computed)."""
    n_stored, n_computed = counts
    new = [jnp.pad(array, (0, max(_BLOCKS))) for array in new]

    def block_of(size):
        def compute(state):
            start, values, total = state
            index, slots, weights = (lax.dynamic_slice_in_dim(array, start, size) for array in new)
            computed = rows(index)

            def write(i, values):
                row = lax.dynamic_slice_in_dim(computed, i, 1)
                return lax.dynamic_update_slice(values, row, (slots[i], jnp.zeros_like(slots[i])))

            stored = jnp.clip(n_stored - start, 0, size)
            values = lax.fori_loop(0, stored, write, values)
            return start + size, values, total + weights @ computed

        return compute

    large, small = _BLOCKS
    state = jnp.zeros((), jnp.int32), values, total
    state = lax.while_loop(lambda state: n_computed - state[0] > large // 2, block_of(large), state)
    state = lax.while_loop(lambda state: state[0] < n_computed, block_of(small), state)
    return state[1:]
