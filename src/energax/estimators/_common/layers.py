"""Neural networks from scikit-learn's arguments `hidden_layer_sizes` and `activation`, and fixed layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...errors import BadInput
from ...spaces import fixed
from .settings import Setting

ACTIVATIONS = {
    "identity": lambda: jax.nn.identity,
    "logistic": lambda: jax.nn.sigmoid,
    "tanh": lambda: jax.nn.tanh,
    "relu": lambda: jax.nn.relu,
    "silu": lambda: jax.nn.silu,
    "softplus": lambda: jax.nn.softplus,
    "gelu": lambda: jax.nn.gelu,
}


class FixedAffine(eqx.Module):
    """shift + scale u, with fixed shift and scale: converts outputs to the units of the columns."""

    shift: jax.Array = fixed()
    scale: jax.Array = fixed()

    def __call__(self, u: Any, key: Any = None) -> Any:
        return self.shift + self.scale * u


class StandardiseObserved(eqx.Module):
    """Standardised columns of (x, mask, y), 0 (the mean) where missing; the mask if `keeps_mask`; y.

    n_given: the length of y, which is left as it is.
    """

    shift: jax.Array = fixed()
    scale: jax.Array = fixed()
    keeps_mask: bool = eqx.field(static=True)
    n_given: int = eqx.field(static=True, default=0)

    def __call__(self, x: Any, key: Any = None) -> Any:
        x, given = x[: len(x) - self.n_given], x[len(x) - self.n_given :]
        value, observed = jnp.split(x, 2)
        u = observed * (value - self.shift) / self.scale
        return jnp.concatenate([u, *([observed] if self.keeps_mask else []), given])


class NetworkPlusGaussian(eqx.Module):
    """f(u) + ½‖Ru‖² with a network f and a fixed matrix R: the energy of a Gaussian, corrected by f."""

    network: Any
    root: jax.Array = fixed()

    def __call__(self, u: Any) -> Any:
        whitened = self.root @ u
        return self.network(u) + 0.5 * whitened @ whitened


class Squeeze(eqx.Module):
    """A vector of one entry as a scalar."""

    def __call__(self, x: Any, key: Any = None) -> Any:
        return x[0]


def make_network(
    n_in: int,
    hidden: Any,
    n_out: Any,
    activation: Any,
    *,
    key: Any,
    before: Any = (),
    after: Any = (),
    dropout: float = 0.0,
) -> eqx.nn.Sequential:
    """Return a multilayer perceptron, with the fixed layers `before` and `after` around it.

    n_out: the number of outputs, or "scalar" for one of shape (). dropout: the probability of the dropout
    layers after the activations, which `learn.Dropout` turns on; there are none if it is 0.
    """
    function = activation_function(activation)
    sizes = [n_in, *layer_sizes(hidden), n_out]
    keys = jax.random.split(key, len(sizes))
    layers: list[Any] = list(before)
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        if i:
            layers.append(eqx.nn.Lambda(function))
            if dropout:
                layers.append(eqx.nn.Dropout(float(dropout), inference=True))
        layers.append(eqx.nn.Linear(a, b, key=keys[i]))
    return eqx.nn.Sequential([*layers, *after])


def _as_sizes(hidden: Any) -> Any:
    return (hidden,) if isinstance(hidden, (int, np.integer)) else hidden


def _are_sizes(hidden: Any) -> bool:
    sizes = _as_sizes(hidden)
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Sequence | np.ndarray):
        return False
    if getattr(sizes, "ndim", 1) != 1:
        return False
    return all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) and s >= 1 for s in sizes)


#: `hidden_layer_sizes`: one number, or a list of numbers; the empty list has no hidden layer.
LAYER_SIZES = Setting(_are_sizes, "whole numbers >= 1, one per hidden layer")
ACTIVATION = Setting(
    lambda value: callable(value) or (isinstance(value, str) and value in ACTIVATIONS),
    f"a function, or one of {', '.join(ACTIVATIONS)}",
)


def layer_sizes(hidden: Any) -> tuple[int, ...]:
    """Return `hidden_layer_sizes` as a tuple of ints."""
    return tuple(int(s) for s in _as_sizes(hidden))


def n_network_numbers(n_in: int, hidden: Any, n_out: int) -> tuple[int, int]:
    """Return the number of weights, and the number of units for one row, of a network of these sizes.

    >>> n_network_numbers(2, (3,), 1)
    (13, 4)
    """
    sizes = [n_in, *layer_sizes(hidden), n_out]
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes)), sum(sizes[1:])


def activation_function(activation: Any) -> Any:
    """Return the function that `activation` is or names."""
    if callable(activation):
        _check_activation(activation)
        return activation
    return ACTIVATIONS[activation]()


def _check_activation(function: Any) -> None:
    """Raise unless this is a function of JAX arrays that returns one real number for every unit."""
    name = getattr(function, "__name__", type(function).__name__)
    units = jax.ShapeDtypeStruct((3,), jnp.float32)
    try:
        # Wrapped in a Python function: JAX crashes when it traces a NumPy function twice.
        made = jax.eval_shape(lambda x: function(x), units)
    except Exception as error:  # a user's function may raise anything
        known = f"'{name}' or " if name in ACTIVATIONS else ""
        remedy = f"Use {known}jax.numpy.{name}." if hasattr(jnp, name) else "Write it with jax.numpy."
        found = f"{name}, which raises {type(error).__name__} on a JAX array"
        raise BadInput("activation", found, "a function of JAX arrays", remedy) from None
    is_array = isinstance(made, jax.ShapeDtypeStruct)
    if not is_array or made.shape != units.shape or not jnp.issubdtype(made.dtype, jnp.floating):
        result = f"{made.dtype} of shape {made.shape}" if is_array else repr(made)
        found = f"{name}, which returns {result} for 3 units"
        raise BadInput("activation", found, "a function that returns a real number for every unit")
