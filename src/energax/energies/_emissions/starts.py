"""Initial statistics of emissions: rows assigned to the nearest mean, or random responsibilities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util import sizes
from ...algorithms.optimise.kmeans import nearest_center
from ...batch import Batch


def nearest_statistics(energy: Any, rows: dict[str, Any], weight: Any, active: Any = None) -> Any:
    """The statistics of an energy with every row assigned to the nearest of its (active) means."""

    def chunk(rows, weight):
        means = energy.means
        nearest = nearest_center(rows["x"], means, means.mean(0), active)
        assigned = jax.nn.one_hot(nearest, means.shape[0], dtype=weight.dtype)
        return energy.statistics(rows, assigned * weight[:, None])

    return Batch(rows, weight).sum_chunks(chunk, sizes.START_ROWS.value)


def random_statistics(energy: Any, key: Any, rows: dict[str, Any], weight: Any, active: Any = None) -> Any:
    """The statistics of an energy with random responsibilities of its (active) components."""
    k = energy.spaces["z"].k

    def chunk(rows, weight):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(rows["number"])
        posterior = jax.vmap(lambda key: jax.random.uniform(key, (k,), weight.dtype))(keys)
        posterior = posterior if active is None else jnp.where(active, posterior, 0)
        posterior = posterior / posterior.sum(1, keepdims=True) * weight[:, None]
        return energy.statistics({n: v for n, v in rows.items() if n != "number"}, posterior)

    numbered = {**rows, "number": jnp.arange(weight.shape[0], dtype=jnp.int32)}
    return Batch(numbered, weight).sum_chunks(chunk, sizes.START_ROWS.value)
