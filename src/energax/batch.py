"""Rows that are learned from together, each with its weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .missing import number_of_rows


class Batch(eqx.Module):
    """Rows of named variables; a row of weight 0 is padding and counts for nothing.

    >>> b = Batch({"x": jnp.array([1.0, 2.0, 9.0])}, jnp.array([1.0, 1.0, 0.0]))
    >>> float(b.mean(b.map(lambda x: x)))
    1.5
    """

    data: dict[str, Any]
    weight: jax.Array
    shards: int = eqx.field(static=True, default=1)

    @property
    def n(self) -> int:
        return number_of_rows(self.data)

    def map(self, function: Callable[..., Any]) -> Any:
        """`function(**row)` for every row."""
        return jax.vmap(lambda row: function(**row))(self.data)

    def map_with_keys(self, function: Callable[..., Any], key: Any) -> Any:
        """`function(key, **row)` for every row, each with a key of its own."""
        keys = jax.random.split(key, self.n)
        return jax.vmap(lambda k, row: function(k, **row))(keys, self.data)

    def mean(self, values: Any) -> Any:
        """Σ wᵢ vᵢ / Σ wᵢ; zero, not NaN, for a batch of nothing but padding."""
        # A padded row may hold anything, infinities too, and 0 × ∞ is not 0.
        kept = jnp.where(self.weight > 0, values, 0.0)
        total = jnp.sum(self.weight)
        return jnp.sum(self.weight * kept) / jnp.where(total > 0, total, 1.0)

    def sum_chunks(self, function: Callable[[dict[str, Any], Any], Any], size: int) -> Any:
        """Σ over chunks of `function(rows, weight)`, so that nothing n × k is ever held at once.

        The last chunk overlaps the one before, with weight 0 on the rows already counted: so
        the data is never copied to pad it. With the rows on several devices each chunk takes
        its share from every one of them.
        """
        shards = self.shards if self.n % self.shards == 0 else 1
        per_shard = self.n // shards
        size = _even(per_shard, max(1, size // shards))
        if size == per_shard:
            return function(self.data, self.weight)
        tree = jax.tree.map(lambda a: a.reshape(shards, per_shard, *a.shape[1:]), (self.data, self.weight))

        def chunk(i):
            start = jnp.minimum(i * size, per_shard - size)
            rows, weight = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, axis=1), tree)
            fresh = start + jnp.arange(size) >= i * size
            weight = jnp.where(fresh, weight, 0)
            rows, weight = jax.tree.map(lambda a: a.reshape(shards * size, *a.shape[2:]), (rows, weight))
            return function(rows, weight)

        n_chunks = -(-per_shard // size)
        # From zeros, not from the first chunk: that would compile the function twice.
        shapes = jax.eval_shape(chunk, jax.ShapeDtypeStruct((), jnp.int32))
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        add = lambda i, total: jax.tree.map(jnp.add, total, chunk(i))
        return jax.lax.fori_loop(0, n_chunks, add, nothing)


def _even(n: int, most: int) -> int:
    """Rows in a chunk, about `most` at most: nearly equal chunks, so that little overlaps; fours if many.

    >>> _even(1000, 655), _even(50_000, 1024), _even(10, 20), _even(7, 1)
    (500, 1024, 10, 1)
    """
    size = -(-n // -(-n // most))
    return min(n, size if size < 64 else -(-size // 4) * 4)


def weighted(weight: Any, values: Any) -> Any:
    """weight · values, where what counts for nothing may hold anything, NaN too.

    >>> weighted(jnp.array([2.0, 0.0]), jnp.array([3.0, jnp.nan]))
    Array([6., 0.], dtype=float32)
    """
    return jnp.where(weight > 0, weight.astype(values.dtype) * values, 0)


def count_epsilon(counts: Any) -> Any:
    """A count that is as good as none among these, whatever the weights of rows are counted in."""
    limits = jnp.finfo(counts.dtype)
    return 10 * limits.eps * jnp.mean(counts) + limits.tiny


def safe_divide(sums: Any, counts: Any, otherwise: Any) -> Any:
    """sums / counts; `otherwise` for those that nobody belongs to.

    >>> safe_divide(jnp.array([6.0, 0.0]), jnp.array([3.0, 0.0]), jnp.array([7.0, 7.0]))
    Array([2., 7.], dtype=float32)
    """
    some = counts > count_epsilon(counts)
    return jnp.where(some, sums / jnp.where(some, counts, 1), otherwise)
