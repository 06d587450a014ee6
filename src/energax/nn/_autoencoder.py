"""Pairs of networks with `encode` and `decode`: any two, or layers that share their weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import (
    ARRAYS,
    FUNCTION,
    MATRIX,
    NONE,
    WHOLE,
    check_arguments,
    check_each,
    check_layer_sizes,
)
from .._util.keys import as_key
from ..errors import BadInput, describe
from ._network import mlp


class EncoderDecoder(eqx.Module):
    """Two networks: `encode` maps x (d,) to a code (k,), `decode` maps a code to the outputs for x.

    >>> both = EncoderDecoder.random(4, 2, key=0)
    >>> both.encode(jnp.ones(4)).shape, both.decode(jnp.ones(2)).shape
    ((2,), (4,))
    """

    encoder: Callable[[Any], Any]
    decoder: Callable[[Any], Any]

    def __check_init__(self):
        check_arguments(self, encoder=FUNCTION, decoder=FUNCTION)

    @classmethod
    def random(
        cls, n_features: int, n_code: int, n_outputs: int | None = None, *, key: Any, **network: Any
    ) -> EncoderDecoder:
        """Two multilayer perceptrons; `width`, `depth` and `activation` go to `nn.mlp`."""
        first, second = jax.random.split(as_key(key))
        n_outputs = n_features if n_outputs is None else n_outputs
        return cls(
            mlp(n_features, n_code, key=first, **network), mlp(n_code, n_outputs, key=second, **network)
        )

    def encode(self, x: Any) -> Any:
        return self.encoder(x)

    def decode(self, z: Any) -> Any:
        return self.decoder(z)


class TiedLayers(eqx.Module):
    """Layers whose decoder has the transposed weights of the encoder.

        encode: h ← φ(W_l h + b_l) for l = 1 … L;    decode: h ← φ(W_lᵀ h + c_l) for l = L … 1.

    The outputs of `decode` have no activation. That of the code is `code_activation`.

    Args:
        weights: W, one (units, inputs) per layer.
        biases: b, one (units,) per layer.
        back_biases: c, one (inputs,) per layer.
        activation: φ.
        code_activation: of the last layer of `encode`; φ by default.

    Vincent et al. (2010), Stacked denoising autoencoders.

    >>> tied = TiedLayers.random([4, 3, 2], key=0)
    >>> tied.encode(jnp.ones(4)).shape, tied.decode(jnp.ones(2)).shape
    ((2,), (4,))
    """

    weights: tuple[Any, ...]
    biases: tuple[Any, ...]
    back_biases: tuple[Any, ...]
    activation: Callable[[Any], Any] = eqx.field(static=True, default=jax.nn.sigmoid)
    code_activation: Callable[[Any], Any] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_arguments(self, activation=FUNCTION, code_activation=FUNCTION | NONE)
        check_each("weights", self.weights, MATRIX, "one matrix per layer")
        check_each("biases", self.biases, ARRAYS, "one vector per layer")
        check_each("back_biases", self.back_biases, ARRAYS, "one vector per layer")
        shapes = [weight.shape[-2:] for weight in self.weights]
        if (
            not shapes
            or [(b.shape[-1:]) for b in self.biases] != [(units,) for units, _ in shapes]
            or [(c.shape[-1:]) for c in self.back_biases] != [(inputs,) for _, inputs in shapes]
            or any(below != above for (below, _), (_, above) in itertools.pairwise(shapes))
        ):
            found = f"shapes {[tuple(s) for s in shapes]}, {[b.shape for b in self.biases]}"
            raise BadInput("weights, biases, back_biases", found, "(units, inputs), (units,) and (inputs,)")

    @classmethod
    def random(
        cls,
        sizes: Sequence[int],
        *,
        key: Any,
        activation: Callable[[Any], Any] = jax.nn.sigmoid,
        code_activation: Callable[[Any], Any] | None = None,
    ) -> TiedLayers:
        """Random weights, uniform in ±√(6 / (inputs + units)), for layers of these sizes, the input first."""
        sizes = check_each("sizes", sizes, WHOLE, "the number of inputs and of units of every layer")
        if len(sizes) < 2:
            raise BadInput("sizes", describe(list(sizes)), "the number of inputs and of units of every layer")
        check_layer_sizes("sizes", sizes)
        keys = jax.random.split(as_key(key), len(sizes) - 1)
        weights = tuple(
            jax.random.uniform(k, (b, a), minval=-1, maxval=1) * (6 / (a + b)) ** 0.5
            for k, (a, b) in zip(keys, itertools.pairwise(sizes), strict=True)
        )
        back = tuple(jnp.zeros(a) for a in sizes[:-1])
        return cls(weights, tuple(jnp.zeros(b) for b in sizes[1:]), back, activation, code_activation)

    def reinitialised(self, key: Any) -> TiedLayers:
        """Return the layers with new weights, as those of `random`, and biases of 0."""
        sizes = [self.weights[0].shape[-1], *[weight.shape[-2] for weight in self.weights]]
        code_activation = self.code_activation
        new = TiedLayers.random(sizes, key=key, activation=self.activation, code_activation=code_activation)
        return jax.tree.map(lambda a, old: a.astype(old.dtype), new, self)

    def encode(self, x: Any) -> Any:
        last = len(self.weights) - 1
        for i, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            function = self.code_activation if i == last and self.code_activation else self.activation
            x = function(W @ x + b)
        return x

    def decode(self, z: Any) -> Any:
        for i, (W, c) in reversed(list(enumerate(zip(self.weights, self.back_biases, strict=True)))):
            z = W.T @ z + c
            z = self.activation(z) if i else z
        return z
