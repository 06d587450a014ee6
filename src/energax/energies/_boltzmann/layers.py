"""Names and sizes of the layers of deep machines, and the connections between two neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arguments import (
    MATRIX,
    VECTOR,
    WEIGHT_SCALAR,
    WHOLE,
    check_each,
    check_layer_sizes,
    instance,
)
from ..._util.keys import as_key
from ...errors import BadInput
from .rbm import RBM
from .units import BinaryUnits


def layer_names(n_layers: int) -> tuple[str, ...]:
    """Return "x", "z1", "z2", …

    >>> layer_names(3)
    ('x', 'z1', 'z2')
    """
    return ("x", *[f"z{i}" for i in range(1, n_layers)])


def check_stack(weights: Sequence[Any], biases: Sequence[Any]) -> None:
    """Raise `BadInput` unless there is one weight matrix between every two neighbouring layers."""
    check_each("weights", weights, MATRIX, "a matrix between every two layers")
    check_each("biases", biases, VECTOR, "a vector for every layer")
    if len(weights) < 1 or len(biases) != len(weights) + 1:
        found = f"{len(weights)} and {len(biases)} biases"
        raise BadInput("weights", found, "one more layer of biases than matrices of weights")
    for i, weight in enumerate(weights):
        expected = (biases[i].shape[-1], biases[i + 1].shape[-1])
        if tuple(weight.shape[-2:]) != expected:
            raise BadInput(f"weights[{i}]", f"shape {weight.shape}", f"{expected}, from the biases")


def check_rbms(rbms: Any, name: str = "rbms", *, binary: bool = False) -> tuple[RBM, ...]:
    """Return a stack of RBMs, from the bottom; raise unless the units of each two neighbours match.

    binary: whether all units have to be binary.
    """
    stack = check_each(name, rbms, instance(RBM, "an RBM of energax.energies"), "RBMs, from the bottom")
    if not stack:
        raise BadInput(name, "none", "one or more RBMs, from the bottom")
    for i, (below, above) in enumerate(itertools.pairwise(stack)):
        if below.spaces["z"] != above.spaces["x"]:
            found = f"{below.spaces['z']!r} below {above.spaces['x']!r}"
            raise BadInput(f"{name}[{i}]", found, "hidden units that are the visible ones above")
    for i, rbm in enumerate(stack):
        units = [type(u).__name__ for u in (rbm.visible, rbm.hidden) if not isinstance(u, BinaryUnits)]
        if binary and units:
            raise BadInput(f"{name}[{i}]", f"{' and '.join(units)}", "binary units in both layers")
    return stack


def random_stack(sizes: Sequence[int], key: Any, scale: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return normal weights between layers of these sizes, and biases of 0."""
    if len(check_each("sizes", sizes, WHOLE, "the units of two or more layers")) < 2:
        raise BadInput("sizes", repr(tuple(sizes)), "two or more whole numbers >= 1")
    check_layer_sizes("sizes", sizes)
    WEIGHT_SCALAR.check("scale", scale)
    keys = jax.random.split(as_key(key), len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
    weights = tuple(scale * jax.random.normal(k, (n, m)) for n, m, k in pairs)
    return weights, tuple(jnp.zeros(n) for n in sizes)
