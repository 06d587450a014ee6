"""Batch normalisation with statistics that are part of the network, and their computation from data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
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
from ..spaces import fixed, is_concrete


class BatchNorm(eqx.Module):
    """Batch normalisation of channels: y_c = γ_c (x_c − m_c) / √(v_c + ε) + β_c, for x (channels, …).

    m and v are the mean and variance of every channel over rows and positions, which `calibrate` computes
    from data. They are fixed while γ and β are learned: an energy is a function of one row, so its value must
    not depend on the other rows of a batch. Calibrate before learning, and again between two calls of `fit`
    to follow the distribution of the inputs of the layer.

    Args:
        n_channels: the length of the first axis of x; of a vector, its length.
        eps: ε.

    Ioffe and Szegedy (2015), Batch normalization, whose networks have fixed m and v after learning;
    Salimans and Kingma (2016), Weight normalization, for the initialisation from data.

    >>> layer = calibrate(BatchNorm(1), jnp.array([[1.0], [3.0]]))
    >>> float(layer.mean[0]), float(layer.variance[0])
    (2.0, 1.0)
    """

    mean: jax.Array = fixed()
    variance: jax.Array = fixed()
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
        return self.normalised(x, self.mean, self.variance)

    def normalised(self, x: Any, mean: Any, variance: Any) -> Any:
        """The output for these statistics."""
        if x.ndim < 1 or x.shape[0] != len(self.scale):
            raise BadInput(
                "x", f"an array of shape {x.shape}", f"{len(self.scale)} channels in the first axis"
            )
        per_channel = lambda a: a.reshape(-1, *(1,) * (x.ndim - 1))
        factor = self.scale * jax.lax.rsqrt(variance + self.eps)
        return (x - per_channel(mean)) * per_channel(factor) + per_channel(self.bias)


class _Recorder:
    """A `BatchNorm` with the statistics of the mapped axis "rows", which it adds to a list."""

    def __init__(self, layer: BatchNorm, share: Any, records: list[Any]):
        self.layer, self.share, self.records = layer, share, records

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        positions = tuple(range(1, x.ndim))
        expect = lambda values: jax.lax.psum(self.share.astype(x.dtype) * values.mean(positions), "rows")
        mean = expect(x)
        centred = x - mean.reshape(-1, *(1,) * (x.ndim - 1))
        variance = expect(centred**2)
        self.records.append((mean, variance))
        return self.layer.normalised(x, mean, variance)


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

    def run(row, share):
        records: list[list[Any]] = [[] for _ in nodes]
        new = [_Recorder(n, share, r) if _is_norm(n) else n for n, r in zip(nodes, records, strict=True)]
        jax.tree.unflatten(structure, new)(row)
        return records

    share = weight / weight.sum()
    records = jax.vmap(run, out_axes=None, axis_name="rows")(x, share)
    return jax.tree.unflatten(
        structure, [_updated(n, r) if _is_norm(n) else n for n, r in zip(nodes, records, strict=True)]
    )


def _updated(layer: BatchNorm, records: list[Any]) -> BatchNorm:
    if len(records) != 1:
        raise Unsuitable(
            f"calibrate needs a network that calls each BatchNorm once, and one is called {len(records)} "
            "times. Use one layer for each place, or equinox.nn.LayerNorm, which has no statistics."
        )
    new = tuple(a.astype(layer.mean.dtype) for a in records[0])
    return eqx.tree_at(lambda n: (n.mean, n.variance), layer, new)
