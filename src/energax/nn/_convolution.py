"""Convolutional networks of small images, from vectors to vectors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import (
    FUNCTION,
    WHOLE,
    WIDTH,
    Setting,
    check_arguments,
    check_each,
    check_layer_sizes,
    one_of,
    whole,
)
from .._util.keys import as_key
from ..errors import BadInput, check_memory, describe
from ._blocks import Reshape, Residual

Norm = Callable[[int], Any] | None
_NORM = Setting(
    lambda value: value is None or callable(value), "a function of the number of channels, or None"
)
_PADDING = one_of("ZEROS", "CIRCULAR")
Padding = Literal["ZEROS", "CIRCULAR"]


class ToImage(eqx.Module):
    """A layer from vectors (height · width · channels,), the channels of a pixel together, to images
    (channels, height, width), as the convolutions of Equinox take them.

    >>> ToImage((2, 1, 3))(jnp.arange(6))[:, :, 0]
    Array([[0, 3],
           [1, 4],
           [2, 5]], dtype=int32)
    """

    shape: tuple[int, int, int] = eqx.field(static=True)

    def __check_init__(self):
        sizes = check_each("shape", self.shape, WHOLE, "(height, width, channels)")
        if len(sizes) != 3:
            raise BadInput("shape", describe(self.shape), "(height, width, channels)")

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return jnp.moveaxis(x.reshape(self.shape), 2, 0)


class FromImage(eqx.Module):
    """The inverse of `ToImage`: images (channels, height, width) as vectors.

    >>> FromImage()(ToImage((2, 1, 3))(jnp.arange(6)))
    Array([0, 1, 2, 3, 4, 5], dtype=int32)
    """

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return jnp.moveaxis(x, 0, 2).reshape(-1)


def residual_block(
    channels: int,
    *,
    key: Any,
    activation: Callable[[Any], Any] = jax.nn.silu,
    norm: Norm = None,
    padding_mode: Padding = "ZEROS",
) -> Residual:
    """A residual block of images (channels, height, width): x + conv(φ(conv(φ(x)))), with 3 × 3 convolutions.

    Args:
        channels: the number of channels.
        key: an int or a JAX key, for the initial weights.
        activation: φ.
        norm: a function from the number of channels to a layer before each φ, such as `BatchNorm` or
            `lambda c: equinox.nn.GroupNorm(1, c)`; none by default.
        padding_mode: "ZEROS" or "CIRCULAR"; circular convolutions commute with all translations.

    He, Zhang, Ren and Sun (2016), Identity mappings in deep residual networks.

    >>> residual_block(4, key=0)(jnp.zeros((4, 5, 5))).shape
    (4, 5, 5)
    """
    check_arguments(locals(), channels=WHOLE, activation=FUNCTION, norm=_NORM, padding_mode=_PADDING)
    check_memory("channels", channels, 18 * channels**2, "the weights", 4)
    layers: list[Any] = []
    for k in jax.random.split(as_key(key)):
        conv = eqx.nn.Conv2d(channels, channels, 3, padding=1, padding_mode=padding_mode, key=k)
        layers += [*_activated(channels, activation, norm), conv]
    return Residual(eqx.nn.Sequential(layers))


def conv_network(
    shape: Sequence[int],
    n_out: int | Literal["scalar"],
    *,
    key: Any,
    widths: Sequence[int] = (32, 64),
    kernel_size: int = 4,
    n_blocks: int = 0,
    activation: Callable[[Any], Any] = jax.nn.silu,
    norm: Norm = None,
    padding_mode: Padding = "ZEROS",
) -> eqx.nn.Sequential:
    """A convolutional network from images, given as vectors, to vectors.

    Every convolution halves height and width; a linear layer is last. It takes the place of `mlp` in models
    of images, as the network of an `Encoder`, a `NeuralEnergy` or a `Scorer`.

    On a CPU, XLA runs many convolutions several times more slowly within a compiled loop (issue 12868 of
    JAX). `fit` of arrays is such a loop; `fit` of a stream of batches is not.

    Args:
        shape: (height, width) or (height, width, channels). A vector holds the channels of a pixel together.
        n_out: the number of outputs, or "scalar" for an output of shape ().
        key: an int or a JAX key, for the initial weights.
        widths: channels after every convolution. 28 × 28 becomes 14 × 14, then 7 × 7.
        kernel_size: height and width of the kernels, ≥ 2.
        n_blocks: residual blocks after every convolution.
        activation: after every convolution.
        norm: a function from the number of channels to a layer before each activation, such as `BatchNorm`
            or `lambda c: equinox.nn.GroupNorm(1, c)`; none by default.
        padding_mode: "ZEROS" or "CIRCULAR".

    LeCun et al. (1998), Gradient-based learning applied to document recognition.

    >>> conv_network((28, 28), 10, widths=(4, 8), key=0)(jnp.zeros(784)).shape
    (10,)
    """
    check_arguments(locals(), n_out=WIDTH, activation=FUNCTION, norm=_NORM, padding_mode=_PADDING)
    sizes = _image_sizes(shape, widths, kernel_size, n_blocks)
    keys = iter(jax.random.split(as_key(key), len(widths) * (1 + n_blocks) + 1))
    layers: list[Any] = [ToImage(_with_channels(shape))]
    channels = [layers[0].shape[2], *widths]
    style: dict[str, Any] = {"activation": activation, "norm": norm}
    for c_in, c_out in itertools.pairwise(channels):
        padding = (kernel_size - 1) // 2
        conv = eqx.nn.Conv2d(c_in, c_out, kernel_size, 2, padding, padding_mode=padding_mode, key=next(keys))
        blocks = [
            residual_block(c_out, key=next(keys), padding_mode=padding_mode, **style) for _ in range(n_blocks)
        ]
        layers += [conv, *blocks, *_activated(c_out, activation, norm)]
    n_features = sizes[-1][0] * sizes[-1][1] * channels[-1]
    check_layer_sizes("n_out", (n_features, 1 if isinstance(n_out, str) else n_out))
    layers += [Reshape((-1,)), eqx.nn.Linear(n_features, n_out, key=next(keys))]
    return eqx.nn.Sequential(layers)


def deconv_network(
    n_in: int,
    shape: Sequence[int],
    *,
    key: Any,
    widths: Sequence[int] = (64, 32),
    kernel_size: int = 4,
    n_blocks: int = 0,
    activation: Callable[[Any], Any] = jax.nn.silu,
    norm: Norm = None,
) -> eqx.nn.Sequential:
    """A network of transposed convolutions from vectors to images, which are given as vectors.

    A linear layer is first; every transposed convolution doubles height and width. The sizes in between are
    those of `conv_network(shape, n_in, widths=widths[::-1])` in reverse order, for odd sizes too. It takes
    the place of `mlp` in models of images, as the network of a `Decoder` or a `Generator`.

    Args:
        n_in: the number of inputs.
        shape: (height, width) or (height, width, channels). A vector holds the channels of a pixel together;
            for a likelihood with k outputs per pixel, such as `Categorical(k)`, pass (height, width, k).
        key: an int or a JAX key, for the initial weights.
        widths: channels before every transposed convolution.
        kernel_size: height and width of the kernels, ≥ 2. With an even size, equally many inputs
            contribute to every pixel inside the image, which avoids checkerboard patterns.
        n_blocks: residual blocks before every transposed convolution.
        activation: before every transposed convolution.
        norm: a function from the number of channels to a layer before each activation, such as `BatchNorm`
            or `lambda c: equinox.nn.GroupNorm(1, c)`; none by default.

    Radford, Metz and Chintala (2016), Unsupervised representation learning with deep convolutional generative
    adversarial networks; Odena, Dumoulin and Olah (2016), Deconvolution and checkerboard artifacts.

    >>> deconv_network(10, (28, 28), widths=(8, 4), key=0)(jnp.zeros(10)).shape
    (784,)
    """
    check_arguments(locals(), n_in=WHOLE, activation=FUNCTION, norm=_NORM)
    sizes = _image_sizes(shape, widths, kernel_size, n_blocks)[::-1]
    keys = iter(jax.random.split(as_key(key), len(widths) * (1 + n_blocks) + 1))
    channels = [*widths, _with_channels(shape)[2]]
    first = (channels[0], *sizes[0])
    check_layer_sizes("n_in", (n_in, first[0] * first[1] * first[2]))
    layers: list[Any] = [
        eqx.nn.Linear(n_in, first[0] * first[1] * first[2], key=next(keys)),
        Reshape(first),
    ]
    padding = (kernel_size - 1) // 2
    for i, (c_in, c_out) in enumerate(itertools.pairwise(channels)):
        layers += [
            residual_block(c_in, key=next(keys), activation=activation, norm=norm) for _ in range(n_blocks)
        ]
        layers += _activated(c_in, activation, norm)
        # Two sizes of an image become the same under a convolution of stride 2: this chooses one of them.
        extra = [
            after - (2 * (before - 1) - 2 * padding + kernel_size)
            for before, after in zip(sizes[i], sizes[i + 1], strict=True)
        ]
        conv = eqx.nn.ConvTranspose2d(c_in, c_out, kernel_size, 2, extra, padding, key=next(keys))
        layers.append(conv)
    return eqx.nn.Sequential([*layers, FromImage()])


def _activated(channels: int, activation: Callable[[Any], Any], norm: Norm) -> list[Any]:
    return [*([] if norm is None else [norm(channels)]), eqx.nn.Lambda(activation)]


def _with_channels(shape: Sequence[int]) -> tuple[int, int, int]:
    """(height, width, channels), where (height, width) has one channel."""
    if len(check_each("shape", shape, WHOLE, "(height, width)")) not in (2, 3):
        raise BadInput("shape", describe(shape), "(height, width) or (height, width, channels)")
    return (int(shape[0]), int(shape[1]), int(shape[2]) if len(shape) == 3 else 1)


def _image_sizes(
    shape: Sequence[int], widths: Sequence[int], kernel_size: int, n_blocks: int
) -> list[tuple[int, int]]:
    """(height, width) of the image, and after every convolution of stride 2; raises if one vanishes."""
    sizes = [_with_channels(shape)[:2]]
    check_arguments(locals(), kernel_size=whole(2), n_blocks=whole(0))
    if not check_each("widths", widths, WHOLE, "channels after every convolution"):
        raise BadInput("widths", describe(widths), "the channels of one or more convolutions")
    most = max(_with_channels(shape)[2], *widths)
    n_weights = (len(widths) + 2 * n_blocks) * (most * kernel_size) ** 2
    check_memory("widths, kernel_size", most, n_weights, "the weights", 4)
    for _ in widths:
        padded = [size + 2 * ((kernel_size - 1) // 2) for size in sizes[-1]]
        if min(padded) < kernel_size:
            raise BadInput(
                "widths",
                f"{len(widths)} convolutions of stride 2 for images {sizes[0][0]} × {sizes[0][1]}",
                f"at most {len(sizes) - 1}",
                "Each one halves height and width.",
            )
        sizes.append(((padded[0] - kernel_size) // 2 + 1, (padded[1] - kernel_size) // 2 + 1))
    return sizes
