"""Names and sizes of the layers of deep machines, and the connections between two neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.keys import as_key
from ...errors import BadInput


def layer_names(n_layers: int) -> tuple[str, ...]:
    """Return "x", "z1", "z2", …

    >>> layer_names(3)
    ('x', 'z1', 'z2')
    """
    return ("x", *[f"z{i}" for i in range(1, n_layers)])


def check_stack(weights: Sequence[Any], biases: Sequence[Any]) -> None:
    """Raise `BadInput` unless there is one weight matrix between every two neighbouring layers."""
    if len(weights) < 1 or len(biases) != len(weights) + 1:
        found = f"{len(weights)} and {len(biases)} biases"
        raise BadInput("weights", found, "one more layer of biases than matrices of weights")
    for i, weight in enumerate(weights):
        expected = (biases[i].shape[-1], biases[i + 1].shape[-1])
        if tuple(weight.shape[-2:]) != expected:
            raise BadInput(f"weights[{i}]", f"shape {weight.shape}", f"{expected}, from the biases")


def random_stack(sizes: Sequence[int], key: Any, scale: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return normal weights between layers of these sizes, and biases of 0."""
    if len(sizes) < 2 or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise BadInput("sizes", repr(tuple(sizes)), "two or more whole numbers >= 1")
    keys = jax.random.split(as_key(key), len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
    weights = tuple(scale * jax.random.normal(k, (n, m)) for n, m, k in pairs)
    return weights, tuple(jnp.zeros(n) for n in sizes)
