"""Normalising flows of grey MNIST: the layers of two flows, and learning with fresh noise in every batch."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energax.energies import Flow
from energax.learn import NegativeLogLikelihood
from energax.learn._objective import WrappedObjective
from energax.nn import (
    Composed,
    Conv1x1,
    Coupling,
    FromImage,
    MaskedAutoregressive,
    Permutation,
    Repeated,
    SplineTransform,
    ToImage,
    residual_block,
)

#: Grey values 0 to 256 are mapped to −HALF … HALF, where the splines are.
HALF = 3.0
PIXELS = 784


class Dequantised(WrappedObjective):
    """An objective of grey values 0 to 255 with noise from U(0, 1), drawn anew for every batch."""

    objective: Any = NegativeLogLikelihood()

    def __call__(self, energy, batch, carry, key):
        noise_key, key = jax.random.split(key)
        rows = {"x": scaled(batch.data["x"], noise_key)}
        return self.inner(energy, eqx.tree_at(lambda b: b.data, batch, rows), carry, key)

    def validate(self, energy, batch, carry, key):
        return self(energy, batch, carry, key)[0]


def scaled(x: Any, key: Any) -> Any:
    """Return grey values plus noise from U(0, 1), in units of the splines."""
    noise = jax.random.uniform(key, x.shape, x.dtype)
    return (x + noise) * (2 * HALF / 256) - HALF


def bits_per_dimension(flow: Flow, x: np.ndarray, n_noises: int = 1) -> float:
    """Return −log₂ p of grey values with noise, per pixel: an upper bound of that of the grey values."""
    log_scale = math.log(2 * HALF / 256)
    mean = eqx.filter_jit(lambda flow, rows: jax.vmap(flow.log_prob)(rows).mean())
    total, n = 0.0, 0
    for draw in range(n_noises):
        for i in range(0, len(x), 500):
            rows = x[i : i + 500]
            key = jax.random.fold_in(jax.random.key(draw), i)
            total += float(mean(flow, scaled(jnp.asarray(rows), key))) * len(rows)
            n += len(rows)
    return -(total / n / PIXELS + log_scale) / math.log(2)


def autoregressive_flow(width: int, n_bins: int) -> Flow:
    """Return one masked autoregressive layer of splines: every pixel given those before it."""
    transform = SplineTransform(n_bins, bound=HALF + 0.01)
    layer = MaskedAutoregressive.random(PIXELS, key=0, transform=transform, width=width, depth=1)
    return Flow(layer, PIXELS)


def image_flow(width: int, n_couplings: int, n_bins: int = 8) -> Flow:
    """Return couplings of splines with convolutions: on 14 × 14 × 4 numbers, then on 7 × 7 × 16."""
    first, second = jax.random.split(jax.random.key(0))
    return Flow(
        Composed(
            [
                _squeeze(28, 1),
                _couplings(14, 4, width, n_couplings, n_bins, first),
                _squeeze(14, 4),
                _couplings(7, 16, width, n_couplings, n_bins, second),
            ]
        ),
        PIXELS,
    )


def _squeeze(side: int, channels: int) -> Permutation:
    """Return the permutation of images that makes four channels of every square of four pixels."""
    index = np.arange(side * side * channels).reshape(side // 2, 2, side // 2, 2, channels)
    return Permutation(index.transpose(0, 2, 1, 3, 4).reshape(-1))


def _couplings(side: int, channels: int, width: int, n: int, n_bins: int, key: Any) -> Repeated:
    """Return n blocks, each an invertible 1 × 1 convolution and a coupling of the halves of the channels."""
    index = np.arange(side * side * channels).reshape(side * side, 2, channels // 2)
    order = index.transpose(1, 0, 2).reshape(-1)
    apart, together = Permutation(order), Permutation(np.argsort(order))
    transform = SplineTransform(n_bins, bound=HALF + 2)
    blocks = []
    for sub in jax.random.split(key, n):
        mix_key, net_key = jax.random.split(sub)
        network = _network(side, channels // 2, width, transform.n_parameters, net_key)
        coupling = Coupling(network, side * side * channels // 2, transform)
        mixed = Conv1x1.random((side, side, channels), key=mix_key)
        blocks.append(Composed([mixed, apart, coupling, together]))
    return Repeated.stack(blocks)


def _network(side: int, channels: int, width: int, n_parameters: int, key: Any) -> eqx.nn.Sequential:
    """Return two residual blocks between convolutions, whose outputs start near 0, for splines near x."""
    keys = jax.random.split(key, 4)
    last = eqx.nn.Conv2d(width, channels * n_parameters, 3, padding=1, key=keys[3])
    last = eqx.tree_at(lambda c: (c.weight, c.bias), last, replace_fn=lambda a: 0.1 * a)
    return eqx.nn.Sequential(
        [
            ToImage((side, side, channels)),
            eqx.nn.Conv2d(channels, width, 3, padding=1, key=keys[0]),
            residual_block(width, key=keys[1]),
            residual_block(width, key=keys[2]),
            eqx.nn.Lambda(jax.nn.silu),
            last,
            FromImage(),
        ]
    )
