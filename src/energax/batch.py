"""A batch of weighted rows, and weighted sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ._util.arrays import asarray
from ._util.sizes import even_rows, number_of_rows
from .programs import interpreted

#: The name of the axis of rows in `map_rows`, for layers that see all rows of a batch while learning.
ROWS = "rows"


def map_rows(function: Callable[..., Any], *rows: Any) -> Any:
    """`function` of every row: `jax.vmap`, with the name `ROWS` of its axis for collectives of `jax.lax`.

    >>> map_rows(lambda x: x - jax.lax.pmean(x, ROWS), jnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    return jax.vmap(function, axis_name=ROWS)(*rows)


class Batch(eqx.Module):
    """Rows of named variables, each with a weight; rows of weight 0 are padding and are ignored.

    `filled`: whether rows of weight 0 are known to be copies of rows with a weight.

    >>> b = Batch({"x": jnp.array([1.0, 2.0, 9.0])}, jnp.array([1.0, 1.0, 0.0]))
    >>> float(b.mean(b.map(lambda x: x)))
    1.5
    """

    data: dict[str, Any]
    weight: jax.Array
    shards: int = eqx.field(static=True, default=1)
    filled: bool = eqx.field(static=True, default=False)

    @property
    def n(self) -> int:
        return number_of_rows(self.data)

    def fill(self) -> Batch:
        """Return the batch with its first row of positive weight in the place of rows of weight 0.

        If a function overflows at the values of such a row, its gradient is 0 × ∞, which is NaN. `fit` has
        already filled the rows of its batches.

        >>> Batch({"x": jnp.array([jnp.inf, 2.0])}, jnp.array([0.0, 1.0])).fill().data["x"]
        Array([2., 2.], dtype=float32)
        """
        if self.filled:
            return self
        counts = self.weight > 0
        first = jnp.argmax(counts)
        fill = lambda a: jnp.where(counts.reshape(-1, *[1] * (a.ndim - 1)), a, a[first])
        rows = jax.tree.map(lambda a: fill(asarray(a)), self.data)
        return Batch(rows, self.weight, self.shards, filled=True)

    def map(self, function: Callable[..., Any]) -> Any:
        """`function(**row)` for every row."""
        return map_rows(lambda row: function(**row), self.data)

    def map_with_keys(self, function: Callable[..., Any], key: Any) -> Any:
        """`function(key, **row)` for every row, each with its own key."""
        keys = jax.random.split(key, self.n)
        return map_rows(lambda k, row: function(k, **row), keys, self.data)

    def mean(self, values: Any) -> Any:
        """Σ wᵢ vᵢ / Σ wᵢ; zero, not NaN, for a batch of padding only."""
        # A padding row may hold an infinity, and 0 × ∞ is NaN.
        values = jnp.where(self.weight > 0, values, 0.0)
        total = jnp.sum(self.weight)
        return jnp.sum(self.weight * values) / jnp.where(total > 0, total, 1.0)

    def sum_chunks(self, function: Callable[[dict[str, Any], Any], Any], size: int) -> Any:
        """Σ over chunks of `function(rows, weight)`, in memory for one chunk of about `size` rows.

        The last chunk overlaps the one before, with weight 0 on the rows already counted, so that the data
        is not copied for padding. With the rows on several devices, each chunk takes equally many rows from
        every device.
        """
        shards = self.shards if self.n % self.shards == 0 else 1
        per_shard = self.n // shards
        size = even_rows(per_shard, max(1, size // shards))
        if size == per_shard or interpreted():
            return function(self.data, self.weight)
        tree = jax.tree.map(lambda a: a.reshape(shards, per_shard, *a.shape[1:]), (self.data, self.weight))

        def chunk(i):
            start = jnp.minimum(i * size, per_shard - size)
            rows, weight = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, axis=1), tree)
            is_new = start + jnp.arange(size) >= i * size
            weight = jnp.where(is_new, weight, 0)
            rows, weight = jax.tree.map(lambda a: a.reshape(shards * size, *a.shape[2:]), (rows, weight))
            return function(rows, weight)

        n_chunks = -(-per_shard // size)
        # Starting from zeros, not from the first chunk, compiles the function only once.
        shapes = jax.eval_shape(chunk, jax.ShapeDtypeStruct((), jnp.int32))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        add = lambda i, total: jax.tree.map(jnp.add, total, chunk(i))
        return jax.lax.fori_loop(0, n_chunks, add, zeros)


def multiply_weight(weight: Any, values: Any) -> Any:
    """weight · values, with 0 for weight 0 even where the value is NaN or infinite.

    >>> multiply_weight(jnp.array([2.0, 0.0]), jnp.array([3.0, jnp.nan]))
    Array([6., 0.], dtype=float32)
    """
    return jnp.where(weight > 0, weight.astype(values.dtype) * values, 0)


def count_epsilon(counts: Any) -> Any:
    """A count that is negligible among these counts, whatever the scale of the weights."""
    limits = jnp.finfo(counts.dtype)
    return 10 * limits.eps * jnp.mean(counts) + limits.tiny


def safe_divide(sums: Any, counts: Any, otherwise: Any) -> Any:
    """sums / counts; `otherwise` where the count is negligible.

    >>> safe_divide(jnp.array([6.0, 0.0]), jnp.array([3.0, 0.0]), jnp.array([7.0, 7.0]))
    Array([2., 7.], dtype=float32)
    """
    enough = counts > count_epsilon(counts)
    return jnp.where(enough, sums / jnp.where(enough, counts, 1), otherwise)


def update_counted(sums: Any, counts: Any, old: Any, function: Callable[[Any], Any]) -> Any:
    """`function(sums / counts)`; `old` as it is where the count is negligible.

    >>> add_one = lambda mean: mean + 1
    >>> update_counted(jnp.array([6.0, 0.0]), jnp.array([3.0, 0.0]), jnp.array([7.0, 7.0]), add_one)
    Array([3., 7.], dtype=float32)
    """
    enough = counts > count_epsilon(counts)
    return jnp.where(enough, function(sums / jnp.where(enough, counts, 1)), old)
