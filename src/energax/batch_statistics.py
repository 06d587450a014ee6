"""Layers that normalise by a running mean and variance, and the statistics of a batch in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .batch import ROWS
from .errors import Unsuitable


class NormalisingLayer(eqx.Module):
    """The base class of layers that normalise channels (channels, …) by their `mean` and `variance`.

    Both are fields declared `spaces.running()`, (channels,): a layer is a function of one row. While
    `learn.BatchStatistics` learns, it puts the statistics of the batch in their place.
    """

    mean: eqx.AbstractVar[jax.Array]
    variance: eqx.AbstractVar[jax.Array]


def is_normalising(node: Any) -> bool:
    """Whether a node of a tree is a `NormalisingLayer`."""
    return isinstance(node, NormalisingLayer)


def normalising_layers(tree: Any) -> list[Any]:
    """All normalising layers in a tree, in its order."""
    return [node for node in jax.tree.leaves(tree, is_leaf=is_normalising) if is_normalising(node)]


def replace_layers(tree: Any, new: Any) -> Any:
    """The tree with new layers in the order of `normalising_layers`; None keeps a layer."""
    layers = iter(new)

    def replace(node: Any) -> Any:
        layer = next(layers) if is_normalising(node) else None
        return node if layer is None else layer

    return jax.tree.map(replace, tree, is_leaf=is_normalising)


def with_statistics(layer: Any, mean: Any, variance: Any) -> Any:
    """The layer with this mean and this variance."""
    return eqx.tree_at(lambda layer: (layer.mean, layer.variance), layer, (mean, variance))


def row_statistics(rows: Any, weight: Any) -> Any:
    """Mean and variance of every channel of rows (n, channels, …) with weights (n,), and 1s: (3, channels).

    All are 0 if all weights are 0.

    >>> row_statistics(jnp.array([[1.0], [3.0], [9.0]]), jnp.array([1.0, 1.0, 0.0]))[:, 0]
    Array([2., 1., 1.], dtype=float32)
    """
    total = jnp.sum(weight)
    share = (weight / jnp.where(total > 0, total, 1)).astype(rows.dtype)
    positions = tuple(range(2, rows.ndim))
    expect = lambda values: jnp.sum(share[:, None] * jnp.mean(values, positions), 0)
    mean = expect(rows)
    variance = expect((rows - mean.reshape(-1, *(1,) * len(positions))) ** 2)
    return jnp.stack([mean, variance, jnp.broadcast_to(total > 0, mean.shape).astype(rows.dtype)])


def gathered_rows(x: Any) -> Any:
    """The values that x has in all rows of the batch, (n, …), within `batch.map_rows`."""
    try:
        return jax.lax.all_gather(x, ROWS)
    except NameError:  # JAX's error for an axis that does not exist
        raise Unsuitable(
            "BatchStatistics: a layer is called where there are no rows of a batch, such as in a Markov "
            "chain, an attack or a sum over missing values. Learn without BatchStatistics: compute the "
            "statistics with nn.calibrate, or use equinox.nn.LayerNorm, which has none."
        ) from None


@jax.custom_vjp
def _record(x: Any, probe: Any, statistics: Any) -> Any:
    """x. The cotangent of `probe` is defined as `statistics`, whatever depends on x.

    Cotangents of one array add up over all its uses: a derivative with respect to the probe is the sum of the
    statistics over calls, loops and `vmap`s.
    """
    return x


_record.defvjp(
    lambda x, probe, statistics: (x, statistics),
    lambda statistics, cotangent: (cotangent, statistics, jnp.zeros_like(statistics)),
)


class _InBatch(eqx.Module):
    """A normalising layer that takes the statistics of its inputs in all rows, which it records."""

    layer: Any
    probe: jax.Array
    # A function and no array: arrays of layers that are stacked have one axis more.
    statistics: Callable[[Any], Any]

    def _normalise(self, x: Any) -> tuple[Any, Any]:
        """x, recorded, and the layer with the statistics of the batch."""
        found = self.statistics(gathered_rows(x))
        layer = with_statistics(self.layer, found[0], found[1])
        return _record(x, self.probe, jax.lax.stop_gradient(found).astype(self.probe.dtype)), layer

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        x, layer = self._normalise(x)
        return layer(x)

    def forward(self, x: Any, context: Any = None) -> tuple[Any, Any]:
        x, layer = self._normalise(jnp.asarray(x))
        return layer.forward(x, context)

    def inverse(self, u: Any, context: Any = None) -> tuple[Any, Any]:
        raise Unsuitable(
            "BatchStatistics: the inverse of a normalising layer needs the statistics of its outputs, which "
            "are not known. For a flow that learns from its own draws, use nn.Inverted(layer) in its place."
        )


def zero_probe(layer: Any) -> Any:
    """Zeros whose derivative is the sum of the `row_statistics` of the layer, (…, 3, channels)."""
    return jnp.zeros((*layer.mean.shape[:-1], 3, layer.mean.shape[-1]), layer.mean.dtype)


def in_batch(tree: Any, probes: list[Any], weight: Any) -> Any:
    """The tree with the statistics of a batch in its normalising layers, all but those with None for a probe.

    Args:
        probes: `zero_probe` of every layer.
        weight: the weights (n,) of the rows of `batch.map_rows`. In a map over another number of values, such
            as draws of a generator, all weights are equal.
    """

    def statistics(rows: Any) -> Any:
        return row_statistics(rows, weight if len(rows) == len(weight) else jnp.ones(len(rows), rows.dtype))

    pairs = zip(normalising_layers(tree), probes, strict=True)
    return replace_layers(tree, [None if p is None else _InBatch(n, p, statistics) for n, p in pairs])
