"""Multilayer perceptrons, and the reinitialisation of any network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax

from .._util.arguments import FUNCTION, WHOLE, WIDTH, check_arguments, check_layer_sizes, whole
from .._util.keys import as_key


def mlp(
    n_in: int,
    n_out: int | Literal["scalar"],
    *,
    key: Any,
    width: int = 64,
    depth: int = 1,
    activation: Callable[[Any], Any] = jax.nn.silu,
) -> eqx.nn.MLP:
    """A multilayer perceptron with `depth` hidden layers of `width` units each.

    Args:
        n_in: the number of inputs.
        n_out: the number of outputs, or "scalar" for an output of shape ().
        key: an int or a JAX key, for the initial weights.
        width: units per hidden layer.
        depth: hidden layers; 0 is a linear map.
        activation: of the hidden layers. The default is smooth, as score matching needs it.

    >>> mlp(2, "scalar", key=0)(jax.numpy.zeros(2)).shape
    ()
    """
    check_arguments(locals(), n_in=WHOLE, n_out=WIDTH, width=WHOLE, depth=whole(0), activation=FUNCTION)
    n_last = 1 if isinstance(n_out, str) else n_out
    check_layer_sizes("n_in", (n_in, width if depth else n_last))
    check_layer_sizes("n_out", (width if depth else n_in, n_last))
    check_layer_sizes("width", (width, width * (depth - 1) if depth > 1 else 1))
    return eqx.nn.MLP(n_in, n_out, width, depth, activation, key=as_key(key))


def _is_layer(node: Any) -> bool:
    """Whether this is a layer of Equinox with weights, or layers of energax with a method `reinitialised`."""
    return isinstance(node, eqx.nn.Linear | eqx.nn.Conv | eqx.nn.ConvTranspose) or hasattr(
        node, "reinitialised"
    )


def reinitialise(network: Any, key: Any) -> Any:
    """The same network with new weights in all linear and convolutional layers, uniform in ±1/√fan-in.

    Layers that share weights, `TiedLayers`, start as their method `random` does.

    Other arrays, such as the gains of a normalisation, are unchanged: `calibrate` computes the statistics of
    `BatchNorm` for the new weights.

    Args:
        network: any tree of Equinox layers.
        key: an int or a JAX key.

    >>> a = mlp(3, 2, key=0)
    >>> bool((reinitialise(a, 1).layers[0].weight == a.layers[0].weight).any())
    False
    """
    nodes, treedef = jax.tree.flatten(network, is_leaf=_is_layer)
    keys = iter(jax.random.split(as_key(key), sum(map(_is_layer, nodes)) or 1))
    return jax.tree.unflatten(
        treedef, [_reinitialise_layer(n, next(keys)) if _is_layer(n) else n for n in nodes]
    )


def _reinitialise_layer(layer: Any, key: Any) -> Any:
    if hasattr(layer, "reinitialised"):
        return layer.reinitialised(key)
    fan_in = max(1, layer.weight[0].size)
    leaves, treedef = jax.tree.flatten(eqx.filter(layer, eqx.is_inexact_array))
    new = [
        jax.random.uniform(k, leaf.shape, leaf.dtype, -1, 1) / fan_in**0.5
        for leaf, k in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(treedef, new), layer)
