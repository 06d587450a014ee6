"""Statistics that emissions start from: rows assigned to the nearest mean, or at random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...algorithms.optimise.kmeans import nearest_center
from ...batch import Batch

_CHUNK = 1024


def hard_sums(energy: Any, rows: dict[str, Any], weight: Any) -> Any:
    """The statistics of an energy when every row belongs to the nearest of its means."""

    def chunk(rows, weight):
        means = energy.means
        nearest = nearest_center(rows["x"], means, means.mean(0))
        chosen = jax.nn.one_hot(nearest, means.shape[0], dtype=weight.dtype)
        return energy.statistics(rows, chosen * weight[:, None])

    return Batch(rows, weight).sum_chunks(chunk, _CHUNK)


def random_sums(energy: Any, key: Any, rows: dict[str, Any], weight: Any) -> Any:
    """The statistics when every row is shared out among the components by chance."""
    k = energy.spaces["z"].k

    def chunk(rows, weight):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(rows["number"])
        share = jax.vmap(lambda key: jax.random.uniform(key, (k,), weight.dtype))(keys)
        share = share / share.sum(1, keepdims=True) * weight[:, None]
        return energy.statistics({n: v for n, v in rows.items() if n != "number"}, share)

    numbered = {**rows, "number": jnp.arange(weight.shape[0], dtype=jnp.int32)}
    return Batch(numbered, weight).sum_chunks(chunk, _CHUNK)
