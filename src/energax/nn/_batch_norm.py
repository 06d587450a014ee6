"""Batch normalisation of networks and of flows, and statistics computed from data before learning."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from ..batch import ROWS
from ..batch_statistics import NormalisingLayer, gathered_rows, row_statistics, with_statistics
from ..errors import (
    BadInput,
    Unsuitable,
    as_numbers,
    check_memory,
    check_number,
    check_whole_number,
    describe,
)
from ..missing import is_masked, mask_of, value_of
from ..programs import jit
from ..spaces import is_concrete, running
from ._flow_bijection import Bijection


class BatchNorm(NormalisingLayer):
    """Batch normalisation of channels: y_c = γ_c (x_c − m_c) / √(v_c + ε) + β_c, for x (channels, …).

    m and v are the mean and variance of every channel over rows and positions. An energy is a function of one
    row, so they are numbers in the layer, 0 and 1 at first. There are two ways to set them:

    - `learn.BatchStatistics(objective)`: while it learns, the layers normalise by the statistics of the
      batch, and m and v follow as running averages;
    - `calibrate` computes them from rows before learning, and they stay so while γ and β are learned.

    Args:
        n_channels: the length of the first axis of x; of a vector, its length.
        eps: ε.

    Ioffe and Szegedy (2015), Batch normalization; for statistics from data before learning, Salimans and
    Kingma (2016), Weight normalization.

    >>> layer = calibrate(BatchNorm(1), jnp.array([[1.0], [3.0]]))
    >>> float(layer.mean[0]), float(layer.variance[0])
    (2.0, 1.0)
    """

    mean: jax.Array = running()
    variance: jax.Array = running()
    scale: jax.Array
    bias: jax.Array
    eps: float = eqx.field(static=True)

    def __init__(self, n_channels: int, eps: float = 1e-5):
        check_whole_number("n_channels", n_channels)
        check_memory("n_channels", n_channels, 4 * n_channels, "the parameters", 4)
        check_number("eps", eps, lambda eps: eps > 0, "a number > 0")
        self.mean, self.variance = jnp.zeros(n_channels), jnp.ones(n_channels)
        self.scale, self.bias = jnp.ones(n_channels), jnp.zeros(n_channels)
        self.eps = eps

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        if x.ndim < 1 or x.shape[0] != len(self.scale):
            raise BadInput(
                "x", f"an array of shape {x.shape}", f"{len(self.scale)} channels in the first axis"
            )
        per_channel = lambda a: a.reshape(-1, *(1,) * (x.ndim - 1))
        factor = self.scale * jax.lax.rsqrt(self.variance + self.eps)
        return (x - per_channel(self.mean)) * per_channel(factor) + per_channel(self.bias)


class InvertibleBatchNorm(Bijection, NormalisingLayer):
    """Batch normalisation as a layer of a flow: u = (x − m) exp(s) / √(v + ε) + b, for vectors x (d,).

    log|det ∂u/∂x| = Σ (s_i − ½ log(v_i + ε)). m and v are as those of `BatchNorm`: while
    `learn.BatchStatistics` learns, the mean and variance of the batch, also in the determinant; after that
    running averages, with which the layer is an exact bijection. `initialise` sets them from rows. `ActNorm`
    has m and v as parameters instead.

    Args:
        d: the number of coordinates.
        eps: ε.

    Dinh, Sohl-Dickstein and Bengio (2017), Density estimation using Real NVP; Papamakarios, Pavlakou and
    Murray (2017), Masked autoregressive flow for density estimation.

    >>> layer = InvertibleBatchNorm(1).initialise(None, jnp.array([[1.0], [5.0]]), jnp.ones(2))
    >>> u, log_det = layer.forward(jnp.array([5.0]))
    >>> u.round(4), log_det.round(4)                                     # (5 − 3) / 2, −log 2
    (Array([1.], dtype=float32), Array(-0.6931, dtype=float32))
    """

    mean: jax.Array = running()
    variance: jax.Array = running()
    log_scale: jax.Array
    bias: jax.Array
    eps: float = eqx.field(static=True)

    def __init__(self, d: int, eps: float = 1e-5):
        check_whole_number("d", d)
        check_memory("d", d, 4 * d, "the parameters", 4)
        check_number("eps", eps, lambda eps: eps > 0, "a number > 0")
        self.mean, self.variance = jnp.zeros(d), jnp.ones(d)
        self.log_scale, self.bias = jnp.zeros(d), jnp.zeros(d)
        self.eps = eps

    def _log_factor(self) -> Any:
        return self.log_scale - 0.5 * jnp.log(self.variance + self.eps)

    def forward(self, x, context=None):
        log_factor = self._log_factor()
        return (asarray(x) - self.mean) * jnp.exp(log_factor) + self.bias, log_factor.sum()

    def inverse(self, u, context=None):
        log_factor = self._log_factor()
        return (asarray(u) - self.bias) * jnp.exp(-log_factor) + self.mean, -log_factor.sum()

    def initialise(self, key, x, weight, context=None):
        mean, variance, _ = row_statistics(asarray(x), weight)
        return with_statistics(self, mean, variance)


class _Recorder:
    """A `BatchNorm` with the statistics of all rows, which it adds to a list."""

    def __init__(self, layer: BatchNorm, weight: Any, records: list[Any]):
        self.layer, self.weight, self.records = layer, weight, records

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        mean, variance, _ = row_statistics(gathered_rows(x), self.weight)
        self.records.append((mean, variance))
        return with_statistics(self.layer, mean, variance)(x)


def calibrate(network: Any, x: Any, weight: Any = None) -> Any:
    """The same network with the statistics of all its `BatchNorm` layers computed from rows.

    One pass: every layer gets the mean and variance of its inputs, where the layers before it have the new
    statistics already. A network without such layers is returned as it is. For a network within a model, use
    `equinox.tree_at(lambda m: m.network, model, calibrate(model.network, x))`.

    Args:
        network: a function of one row that calls each of its `BatchNorm` layers once, outside of `jax.vmap`
            and loops of its own.
        x: rows (n, …), all of which are in memory at once; a few thousand are enough. Missing values are
            taken as zeros.
        weight: weights of the rows (n,); equal if None.

    >>> network = eqx.nn.Sequential([BatchNorm(2), eqx.nn.Linear(2, 3, key=jax.random.key(0)), BatchNorm(3)])
    >>> rows = jnp.array([[0.0, 1.0], [4.0, 1.0], [2.0, 4.0]])
    >>> bool(jnp.allclose(jax.vmap(calibrate(network, rows))(rows).mean(0), 0, atol=1e-6))
    True
    """
    if not any(map(_is_norm, jax.tree.leaves(network, is_leaf=_is_norm))):
        return network
    if is_masked(x):
        x = jnp.where(mask_of(x), value_of(x), 0)
    x = asarray(as_numbers("x", x, "rows (n, …) of numbers"))
    if x.ndim < 1 or x.shape[0] == 0:
        raise BadInput("x", describe(x), "rows (n, …), at least one")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(float)
    weight = (
        jnp.ones(x.shape[0], x.dtype)
        if weight is None
        else asarray(as_numbers("weight", weight, "one number per row"))
    )
    if weight.shape != x.shape[:1]:
        raise BadInput("weight", f"shape {weight.shape}", f"{x.shape[:1]}: one per row of x")
    if is_concrete(x) and not np.isfinite(np.asarray(x)).all():
        raise BadInput(
            "x", "NaN or infinite numbers", "finite ones", "For missing values use Masked.from_nan."
        )
    if is_concrete(weight) and not (np.asarray(weight) >= 0).all() & (np.asarray(weight) > 0).any():
        raise BadInput("weight", describe(weight), "numbers >= 0, not all 0")
    return _calibrated(network, x, weight)


def _is_norm(node: Any) -> bool:
    return isinstance(node, BatchNorm)


@jit
def _calibrated(network: Any, x: Any, weight: Any) -> Any:
    nodes, structure = jax.tree.flatten(network, is_leaf=_is_norm)

    def run(row):
        records: list[list[Any]] = [[] for _ in nodes]
        new = [_Recorder(n, weight, r) if _is_norm(n) else n for n, r in zip(nodes, records, strict=True)]
        jax.tree.unflatten(structure, new)(row)
        return records

    records = jax.vmap(run, out_axes=None, axis_name=ROWS)(x)
    return jax.tree.unflatten(
        structure, [_updated(n, r) if _is_norm(n) else n for n, r in zip(nodes, records, strict=True)]
    )


def _updated(layer: BatchNorm, records: list[Any]) -> BatchNorm:
    if len(records) != 1:
        raise Unsuitable(
            f"calibrate needs a network that calls each BatchNorm once, and one is called {len(records)} "
            "times. Use one layer for each place, or equinox.nn.LayerNorm, which has no statistics."
        )
    return with_statistics(layer, *(a.astype(layer.mean.dtype) for a in records[0]))
