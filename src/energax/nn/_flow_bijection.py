"""Bijections of ℝᵈ with log-determinants: the base class, compositions, linear layers, normalisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import (
    MATRIX,
    VECTOR,
    WEIGHT_SCALAR,
    WHOLE,
    check_arguments,
    check_each,
    check_layer_sizes,
    instance,
)
from .._util.arrays import asarray
from .._util.keys import as_key
from .._util.linalg import solve_lower
from ..errors import BadInput, check_memory, check_whole_number, describe


class Bijection(eqx.Module):
    """An invertible map u = f(x; context) of vectors (d,), with the logarithms of its volume changes.

    A flow maps data x to noise u by `forward`, and noise to data by `inverse`. A subclass defines both, and,
    if it starts from random numbers or from data, `initialise`.
    """

    @abstractmethod
    def forward(self, x: Any, context: Any = None) -> tuple[Any, Any]:
        """Return u = f(x), (d,), and log|det ∂u/∂x|. `context`: a vector that the map may depend on."""

    @abstractmethod
    def inverse(self, u: Any, context: Any = None) -> tuple[Any, Any]:
        """Return x = f⁻¹(u), (d,), and log|det ∂x/∂u|."""

    def initialise(self, key: Any, x: Any, weight: Any, context: Any = None) -> Bijection:
        """Return the same layer with new random parameters, or fitted to rows x (n, d) with weights (n,)."""
        return self


_BIJECTION = instance(Bijection, "a Bijection of energax.nn")


class Composed(Bijection):
    """Layers one after another: f = f_k ∘ … ∘ f₁, and log|det| is the sum of theirs.

    >>> both = Composed([Permutation([1, 0]), LULinear.random(2)])
    >>> both.forward(jnp.array([1.0, 2.0]))[0]
    Array([2., 1.], dtype=float32)
    """

    layers: tuple[Bijection, ...]

    def __init__(self, layers: Sequence[Bijection]):
        self.layers = check_each("layers", layers, _BIJECTION, "bijections")

    def forward(self, x, context=None):
        total: Any = jnp.zeros((), asarray(x).dtype)
        for layer in self.layers:
            x, log_det = layer.forward(x, context)
            total = total + log_det
        return x, total

    def inverse(self, u, context=None):
        total: Any = jnp.zeros((), asarray(u).dtype)
        for layer in reversed(self.layers):
            u, log_det = layer.inverse(u, context)
            total = total + log_det
        return u, total

    def initialise(self, key, x, weight, context=None):
        layers = []
        for layer, sub in zip(self.layers, jax.random.split(key, len(self.layers)), strict=True):
            layers.append(layer.initialise(sub, x, weight, context))
            x = _forward_rows(layers[-1], x, context)
        return Composed(layers)


class Repeated(Bijection):
    """n layers of the same structure, one after another, as one loop: only one layer is compiled.

    Args:
        layers: the layers, stacked: every array has a leading axis of n.

    >>> blocks = Repeated.stack([LULinear.random(2), LULinear.random(2)])
    >>> blocks.n_layers, blocks.forward(jnp.array([1.0, 2.0]))[0]
    (2, Array([1., 2.], dtype=float32))
    """

    layers: Bijection

    def __check_init__(self):
        check_arguments(self, layers=_BIJECTION)

    @classmethod
    def stack(cls, layers: Sequence[Bijection]) -> Repeated:
        """Stack layers whose arrays have the same shapes."""
        layers = check_each("layers", layers, _BIJECTION, "bijections")
        if not layers:
            raise BadInput("layers", "none", "at least one layer")
        arrays, rest = zip(*(eqx.partition(layer, eqx.is_array) for layer in layers), strict=True)
        shapes = [[(a.shape, a.dtype) for a in jax.tree.leaves(tree)] for tree in arrays]
        alike = [eqx.tree_equal(rest[0], other) is True for other in rest]
        if not all(alike) or any(other != shapes[0] for other in shapes):
            raise BadInput(
                "layers", "layers of several structures", "equal ones", "Compose them: Composed(layers)."
            )
        stacked = jax.tree.map(lambda *leaves: asarray(np.stack(leaves)), *arrays)
        return cls(eqx.combine(stacked, rest[0]))

    @property
    def n_layers(self) -> int:
        return len(jax.tree.leaves(eqx.filter(self.layers, eqx.is_array))[0])

    def forward(self, x, context=None):
        return self._scan(lambda layer, x: layer.forward(x, context), x, reverse=False)

    def inverse(self, u, context=None):
        return self._scan(lambda layer, u: layer.inverse(u, context), u, reverse=True)

    def _scan(self, apply, x, reverse):
        arrays, rest = eqx.partition(self.layers, eqx.is_array)

        def step(carry, arrays):
            x, total = carry
            x, log_det = apply(eqx.combine(arrays, rest), x)
            return (x, total + log_det), None

        start = (asarray(x), jnp.zeros((), asarray(x).dtype))
        return jax.lax.scan(step, start, arrays, reverse=reverse)[0]

    def initialise(self, key, x, weight, context=None):
        arrays, rest = eqx.partition(self.layers, eqx.is_array)

        def step(x, each):
            arrays, key = each
            layer = eqx.combine(arrays, rest).initialise(key, x, weight, context)
            return _forward_rows(layer, x, context), eqx.filter(layer, eqx.is_array)

        keys = jax.random.split(key, self.n_layers)
        return Repeated(eqx.combine(jax.lax.scan(step, asarray(x), (arrays, keys))[1], rest))


def _forward_rows(layer: Bijection, x: Any, context: Any) -> Any:
    return jax.vmap(lambda x, c: layer.forward(x, c)[0], (0, None if context is None else 0))(x, context)


class Inverted(Bijection):
    """A layer with its two directions exchanged.

    >>> Inverted(Permutation([2, 0, 1])).forward(jnp.array([1.0, 2.0, 3.0]))[0]
    Array([2., 3., 1.], dtype=float32)
    """

    layer: Bijection

    def __check_init__(self):
        check_arguments(self, layer=_BIJECTION)

    def forward(self, x, context=None):
        return self.layer.inverse(x, context)

    def inverse(self, u, context=None):
        return self.layer.forward(u, context)


class Permutation(Bijection):
    """u_i = x_{π(i)}; log|det| = 0.

    Args:
        index: π, the numbers 0, …, d − 1 in any order.
    """

    index: jax.Array

    def __init__(self, index: Any):
        try:
            order = np.asarray(index)
            valid = order.ndim == 1 and order.size and order.dtype.kind in "iuf"
            valid = valid and np.array_equal(np.sort(order), np.arange(order.size))
        except ValueError:  # ragged
            valid = False
        if not valid:
            raise BadInput("index", describe(index), "the numbers 0, …, d − 1, each once")
        self.index = asarray(order.astype(np.int32))

    @classmethod
    def random(cls, d: int, *, key: Any) -> Permutation:
        """A random order of d coordinates."""
        check_whole_number("d", d)
        check_memory("d", d, d, "the order", 4)
        return cls(np.asarray(jax.random.permutation(as_key(key), d)))

    def forward(self, x, context=None):
        x = asarray(x)
        return x[self.index], jnp.zeros((), x.dtype)

    def inverse(self, u, context=None):
        u = asarray(u)
        return u[jnp.argsort(self.index)], jnp.zeros((), u.dtype)


class LULinear(Bijection):
    """u = L U x + b, with L lower triangular, L_ii = 1, and U upper triangular, U_ii = exp(s_i).

    log|det| = Σ s_i, and the inverse is two triangular solves.

    Args:
        entries: the entries of L below the diagonal and of U above it, in one matrix (d, d).
        log_scale: s, (d,).
        bias: b, (d,).

    Oliva et al. (2018), Transformation autoregressive networks.

    >>> LULinear(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.zeros(2), jnp.zeros(2)).matrix()
    Array([[1., 2.],
           [1., 3.]], dtype=float32)
    """

    entries: jax.Array
    log_scale: jax.Array
    bias: jax.Array

    def __check_init__(self):
        check_arguments(self, entries=MATRIX, log_scale=VECTOR, bias=VECTOR)
        d = self.bias.shape[-1]
        if tuple(self.entries.shape[-2:]) != (d, d) or self.log_scale.shape[-1] != d:
            found = f"shapes {self.entries.shape}, {self.log_scale.shape}, {self.bias.shape}"
            raise BadInput("entries, log_scale, bias", found, "(d, d), (d,) and (d,)")

    @classmethod
    def random(cls, d: int, *, key: Any = None, spread: float = 0.1) -> LULinear:
        """The identity without a key; with one, entries ~ N(0, spread² / d)."""
        check_arguments(locals(), d=WHOLE, spread=WEIGHT_SCALAR)
        check_layer_sizes("d", (d, d))
        zero = jnp.zeros(d)
        entries = jnp.zeros((d, d))
        if key is not None:
            entries = spread / d**0.5 * jax.random.normal(as_key(key), (d, d))
        return cls(entries, zero, zero)

    def _factors(self):
        eye = jnp.eye(len(self.bias), dtype=self.bias.dtype)
        return jnp.tril(self.entries, -1) + eye, jnp.triu(self.entries, 1) + eye * jnp.exp(self.log_scale)

    def matrix(self) -> Any:
        """Return L U."""
        lower, upper = self._factors()
        return lower @ upper

    def forward(self, x, context=None):
        lower, upper = self._factors()
        return lower @ (upper @ x) + self.bias, self.log_scale.sum()

    def inverse(self, u, context=None):
        lower, upper = self._factors()
        half = solve_lower(lower, (u - self.bias)[:, None])
        # With both orders reversed, the upper triangle is a lower one.
        x = solve_lower(upper[::-1, ::-1], half[::-1])[::-1, 0]
        return x, -self.log_scale.sum()


class ActNorm(Bijection):
    """Activation normalisation: u = (x − m) exp(−s), where `initialise` sets m and exp(s) to mean and
    standard deviation of every coordinate; later they are learned as all other parameters.

    With `InvertibleBatchNorm`, log|det| of a row depends on the other rows of its batch while learning.

    Args:
        mean: m, (d,).
        log_scale: s, (d,).

    Kingma and Dhariwal (2018), Glow: generative flow with invertible 1 × 1 convolutions.

    >>> ActNorm(jnp.ones(2), jnp.zeros(2)).forward(jnp.array([1.0, 3.0]))[0]
    Array([0., 2.], dtype=float32)
    """

    mean: jax.Array
    log_scale: jax.Array

    def __check_init__(self):
        check_arguments(self, mean=VECTOR, log_scale=VECTOR)
        if self.mean.shape != self.log_scale.shape:
            raise BadInput("log_scale", f"shape {self.log_scale.shape}", f"{self.mean.shape}, as of the mean")

    @classmethod
    def identity(cls, d: int) -> ActNorm:
        """The layer that changes nothing, to be initialised from data."""
        check_whole_number("d", d)
        check_memory("d", d, d, "the scales", 4)
        return cls(jnp.zeros(d), jnp.zeros(d))

    def initialise(self, key, x, weight, context=None):
        x, share = asarray(x), (weight / weight.sum()).astype(x.dtype)
        mean = share @ x
        variance = share @ (x - mean) ** 2
        # A constant coordinate keeps its scale.
        noise = (8 * jnp.finfo(x.dtype).eps * mean) ** 2
        return ActNorm(mean, 0.5 * jnp.log(jnp.where(variance > noise, variance, 1)))

    def forward(self, x, context=None):
        return (x - self.mean) * jnp.exp(-self.log_scale), -self.log_scale.sum()

    def inverse(self, u, context=None):
        return u * jnp.exp(self.log_scale) + self.mean, self.log_scale.sum()


class Conv1x1(Bijection):
    """An invertible 1 × 1 convolution of images given as vectors: the same LU layer for every pixel.

    log|det| = n_pixels · Σ s_c. The vector (n_pixels · channels,) holds the channels of a pixel together.

    Args:
        channel: the layer of one pixel, an `LULinear` of the number of channels.
        n_pixels: the number of pixels.

    Kingma and Dhariwal (2018), Glow: generative flow with invertible 1 × 1 convolutions.

    >>> swap = LULinear(jnp.zeros((2, 2)), jnp.log(jnp.array([1.0, 2.0])), jnp.zeros(2))
    >>> Conv1x1(swap, 2).forward(jnp.ones(4))
    (Array([1., 2., 1., 2.], dtype=float32), Array(1.3862944, dtype=float32))
    """

    channel: LULinear
    n_pixels: int = eqx.field(static=True)

    def __check_init__(self):
        check_arguments(self, channel=instance(LULinear, "an LULinear"), n_pixels=WHOLE)

    @classmethod
    def random(cls, shape: Sequence[int], *, key: Any) -> Conv1x1:
        """A layer near the identity, for images of `shape` (…, channels)."""
        if not check_each("shape", shape, WHOLE, "(…, channels)"):
            raise BadInput("shape", describe(shape), "(…, channels)")
        n = int(np.prod(shape[:-1]))
        return cls(LULinear.random(shape[-1], key=key), n)

    def forward(self, x, context=None):
        return self._map(self.channel.forward, x)

    def inverse(self, u, context=None):
        return self._map(self.channel.inverse, u)

    def _map(self, function, x):
        values, log_dets = jax.vmap(function)(asarray(x).reshape(self.n_pixels, -1))
        return values.reshape(-1), log_dets.sum()
