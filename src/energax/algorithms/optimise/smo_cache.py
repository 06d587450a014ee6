"""`RowCache`: the rows of a kernel matrix that were used last, in a buffer of fixed size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

#: Rows that are computed by one product, and rows that are added up by one fused loop.
_BLOCK = 128
_ADDED = 8


class RowCache(NamedTuple):
    """Kernel rows by slot. The rows used longest ago are replaced first."""

    values: Any  # (slots, n)
    slot_of: Any  # (n,) the slot of every row, −1 if it is not here
    row_in: Any  # (slots,) the row of every slot, −1 if it is empty
    last_use: Any  # (slots,) the time of the last use, 0 if never
    time: Any

    def add(self, wanted: Any, is_needed: Any, rows: Callable[[Any], Any]) -> RowCache:
        """Return a cache with those of the `wanted` rows (q,) that are needed; q is at most its slots."""
        q = wanted.shape[0]
        time = self.time + 1
        slots = self.slot_of[wanted]
        missing = is_needed & (slots < 0)
        is_here = is_needed & (slots >= 0)
        # Slots in use now come last; an index out of range is dropped.
        n_slots = self.row_in.shape[0]
        last_use = self.last_use.at[jnp.where(is_here, slots, n_slots)].set(time, mode="drop")
        order = jnp.argsort(~missing, stable=True)
        new_rows, n_missing = wanted[order], jnp.sum(missing, dtype=jnp.int32)
        # As float32, for the fast `top_k`: exact for 2²⁴ working sets.
        new_slots = lax.top_k(-last_use.astype(jnp.float32), q)[1]
        is_new = jnp.arange(q) < n_missing
        old_rows = self.row_in[new_slots]
        n = self.slot_of.shape[0]
        # A row that is wanted twice has two slots; only the one that `slot_of` names counts.
        evicted = is_new & (old_rows >= 0) & (self.slot_of[old_rows] == new_slots)
        slot_of = self.slot_of.at[jnp.where(evicted, old_rows, n)].set(-1, mode="drop")
        slot_of = slot_of.at[jnp.where(is_new, new_rows, n)].set(new_slots, mode="drop")
        at = jnp.where(is_new, new_slots, n_slots)
        row_in = self.row_in.at[at].set(new_rows, mode="drop")
        last_use = last_use.at[at].set(time, mode="drop")
        values = _fill(self.values, new_rows, new_slots, n_missing, rows)
        return RowCache(values, slot_of, row_in, last_use, time)

    def weighted_sum(self, wanted: Any, weights: Any) -> Any:
        """Σ_i weight_i · row_i of the wanted rows, (n,); those of weight 0 need not be here."""
        q = wanted.shape[0]
        order = jnp.argsort(weights == 0, stable=True)
        # An empty slot may hold NaN; the first slot is the first to be filled.
        slots, weights = jnp.where(weights != 0, self.slot_of[wanted], 0)[order], weights[order]
        short = -q % _ADDED
        slots, weights = jnp.pad(slots, (0, short)), jnp.pad(weights, (0, short))
        n_blocks = -(-jnp.sum(weights != 0, dtype=jnp.int32) // _ADDED)

        def add(k, total):
            for i in range(_ADDED):
                row = lax.dynamic_index_in_dim(self.values, slots[_ADDED * k + i], keepdims=False)
                total = total + weights[_ADDED * k + i] * row
            return total

        return lax.fori_loop(0, n_blocks, add, jnp.zeros(self.values.shape[1], self.values.dtype))


def empty_cache(n_slots: int, n: int, dtype: Any) -> RowCache:
    """A cache of `n_slots` rows of n numbers. Its memory is not set, so unused slots take none."""
    empty = lambda size: jnp.full(size, -1, jnp.int32)
    used = jnp.zeros(n_slots, jnp.int32)
    return RowCache(lax.empty((n_slots, n), dtype), empty(n), empty(n_slots), used, jnp.zeros((), jnp.int32))


def _fill(values: Any, new_rows: Any, new_slots: Any, n_missing: Any, rows: Callable[[Any], Any]) -> Any:
    """The buffer with the first `n_missing` of these rows computed, a block of them at a time."""
    q = new_rows.shape[0]
    size = min(_BLOCK, q)
    short = -q % size
    new_rows, new_slots = jnp.pad(new_rows, (0, short)), jnp.pad(new_slots, (0, short))

    def fill(k, values):
        start = k * size
        computed = rows(lax.dynamic_slice_in_dim(new_rows, start, size))

        def write(i, values):
            slot, row = new_slots[start + i], lax.dynamic_slice_in_dim(computed, i, 1)
            return lax.dynamic_update_slice(values, row, (slot, jnp.zeros_like(slot)))

        return lax.fori_loop(0, jnp.minimum(size, n_missing - start), write, values)

    return lax.fori_loop(0, -(-n_missing // size), fill, values)
