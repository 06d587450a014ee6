"""What a fitted mixture says about rows: a piece at a time, always through the same compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._base import bucketed, padded

_PIECE = 2**15


def map_chunks(function: Callable[..., Any], energy: Any, data: dict[str, Any]) -> Any:
    """`function(energy, rows)` over rows; memory is bounded, and all large tables share one program."""
    n = len(jax.tree.leaves(data)[0])
    if n <= _PIECE:
        return jax.tree.map(lambda a: np.asarray(a)[:n], function(energy, bucketed(data)))
    out = []
    for start in range(0, n, _PIECE):
        piece = jax.tree.map(lambda a: a[start : start + _PIECE], data)  # noqa: B023
        out.append(jax.tree.map(np.asarray, function(energy, padded(piece, _PIECE))))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n], *out)


@eqx.filter_jit
def joint(energy: Any, rows: dict[str, Any]) -> Any:
    """log p(x, z) (or −e), (n, k)."""
    return energy.log_posterior(_on_device(rows))


@eqx.filter_jit
def evidence(energy: Any, rows: dict[str, Any]) -> Any:
    """log p(x), (n,)."""
    return jax.nn.logsumexp(energy.log_posterior(_on_device(rows)), axis=1)


@eqx.filter_jit
def responsibilities(energy: Any, rows: dict[str, Any], temperature: Any = 1.0) -> Any:
    """p(z | x), (n, k)."""
    return jax.nn.softmax(energy.log_posterior(_on_device(rows)) / temperature, axis=1)


@eqx.filter_jit
def nearest(energy: Any, rows: dict[str, Any]) -> tuple[Any, Any]:
    """The centre of least energy, and that energy by plain differences, (n,) each."""
    rows = _on_device(rows)
    chosen = energy.nearest(**rows)
    return chosen, jax.vmap(lambda row, z: energy(**row, z=z))(rows, chosen)


@eqx.filter_jit
def imputed(energy: Any, rows: dict[str, Any]) -> Any:
    """E[x | what is known of it], (n, d)."""
    return energy.impute(_on_device(rows))["x"]


def _on_device(rows: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(jnp.asarray, rows)
