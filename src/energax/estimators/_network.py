"""Networks from the arguments that scikit-learn's users know: `hidden_layer_sizes`, `activation`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BadInput
from ..spaces import fixed

ACTIVATIONS = {
    "identity": lambda: jax.nn.identity,
    "logistic": lambda: jax.nn.sigmoid,
    "tanh": lambda: jax.nn.tanh,
    "relu": lambda: jax.nn.relu,
    "silu": lambda: jax.nn.silu,
    "softplus": lambda: jax.nn.softplus,
    "gelu": lambda: jax.nn.gelu,
}


class Rescale(eqx.Module):
    """x = shift + scale u, fixed: a network need not learn the units of its columns."""

    shift: jax.Array = fixed()
    scale: jax.Array = fixed()

    def __call__(self, u: Any, key: Any = None) -> Any:
        return self.shift + self.scale * u


class SeenStandardised(eqx.Module):
    """From (x, mask) to standardised columns, 0 (the mean) where unknown; then the mask, if kept."""

    shift: jax.Array = fixed()
    scale: jax.Array = fixed()
    keeps_mask: bool = eqx.field(static=True)

    def __call__(self, x: Any, key: Any = None) -> Any:
        value, seen = jnp.split(x, 2)
        u = seen * (value - self.shift) / self.scale
        return jnp.concatenate([u, seen]) if self.keeps_mask else u


class Tilted(eqx.Module):
    """f(u) + ½‖Ru‖², with R fixed: a Gaussian, bent by a network."""

    network: Any
    root: jax.Array = fixed()

    def __call__(self, u: Any) -> Any:
        whitened = self.root @ u
        return self.network(u) + 0.5 * whitened @ whitened


class Scalar(eqx.Module):
    """The only entry of a vector."""

    def __call__(self, x: Any, key: Any = None) -> Any:
        return x[0]


def network(
    n_in: int, hidden: Any, n_out: int, activation: Any, *, key: Any, before: Any = (), after: Any = ()
):
    """Linear layers with an activation between them, and fixed layers around them."""
    act = activation_function(activation)
    sizes = [n_in, *layer_sizes(hidden), n_out]
    keys = jax.random.split(key, len(sizes))
    layers: list[Any] = list(before)
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        if i:
            layers.append(eqx.nn.Lambda(act))
        layers.append(eqx.nn.Linear(a, b, key=keys[i]))
    return eqx.nn.Sequential([*layers, *after])


def layer_sizes(hidden: Any) -> tuple[int, ...]:
    sizes = (hidden,) if isinstance(hidden, (int, np.integer)) else hidden
    fine = isinstance(sizes, Sequence | np.ndarray) and all(
        isinstance(s, (int, np.integer)) and not isinstance(s, bool) and s >= 1 for s in sizes
    )
    if not fine:
        raise BadInput("hidden_layer_sizes", repr(hidden), "whole numbers >= 1, one a hidden layer")
    return tuple(int(s) for s in sizes)


def activation_function(activation: Any) -> Any:
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise BadInput("activation", repr(activation), f"a function, or one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation]()
