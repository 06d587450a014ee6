"""Noise while learning, around any objective: on the inputs, and dropout inside networks."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import NAME, WEIGHT, check_arguments
from ..batch import Batch
from ..errors import Unsuitable
from ..missing import is_masked
from ._objective import WrappedObjective


class InputNoise(WrappedObjective):
    """An objective on rows whose inputs have noise: x + scale · N(0, I), drawn anew for every batch.

    For small noise this is a penalty on the slope of the output. Validation rows have no noise.

    Args:
        objective: the objective, such as `CrossEntropy()`.
        scale: the standard deviation of the noise, a number or one per coordinate of x.
        name: the variable that gets noise.

    Bishop (1995), Training with noise is equivalent to Tikhonov regularization.

    >>> from energax.energies import Linear
    >>> from energax.learn import CrossEntropy
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> two = Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2))
    >>> noisy = InputNoise(CrossEntropy(), 0.5)
    >>> losses = [float(noisy(two, batch, None, jax.random.key(i))[0]["loss"]) for i in range(2)]
    >>> losses[0] != losses[1]
    True
    """

    scale: Any = 0.1
    name: str = eqx.field(static=True, default="x")

    def __check_init__(self):
        check_arguments(self, scale=WEIGHT, name=NAME)

    def check(self, energy, data):
        super().check(energy, data)
        if self.name not in data or not energy.spaces[self.name].is_real:
            raise Unsuitable(
                f"InputNoise needs rows of a real variable {self.name!r}. Pass its name as name=."
            )

    def __call__(self, energy, batch, carry, key):
        draw_key, key = jax.random.split(key)
        x = batch.data[self.name]
        value = x.value if is_masked(x) else x
        value = value + self.scale * jax.random.normal(draw_key, value.shape, value.dtype)
        noisy = eqx.tree_at(lambda m: m.value, x, value) if is_masked(x) else value
        return self.inner(energy, replace_rows(batch, self.name, noisy), carry, key)


class Dropout(WrappedObjective):
    """An objective with the dropout layers of the energy turned on.

    Every `equinox.nn.Dropout` in the energy, which is usually made with `inference=True`, sets each of its
    units to 0 with its probability p and divides the others by 1 − p, anew for every row and batch. On
    validation rows, and after learning, the layers stay as they are.

    Args:
        objective: the objective, such as `CrossEntropy()`.

    Srivastava et al. (2014), Dropout: a simple way to prevent neural networks from overfitting.

    >>> from energax.energies import Scorer
    >>> from energax.learn import CrossEntropy
    >>> layers = [eqx.nn.Dropout(0.5, inference=True), eqx.nn.Linear(2, 2, key=jax.random.key(0))]
    >>> energy = Scorer(eqx.nn.Sequential(layers), 2, 2)
    >>> batch = Batch({"x": jnp.ones((1, 2)), "y": jnp.array([0])}, jnp.ones(1))
    >>> drop = Dropout(CrossEntropy())
    >>> len({float(drop(energy, batch, None, jax.random.key(i))[0]["loss"]) for i in range(4)}) > 1
    True
    """

    def check(self, energy, data):
        super().check(energy, data)
        if not any(map(_is_dropout, jax.tree.leaves(energy, is_leaf=_is_dropout))):
            name = type(energy).__name__
            raise Unsuitable(
                f"Dropout needs layers equinox.nn.Dropout(p, inference=True) in the network, and {name} has "
                "none. Add them, or use InputNoise."
            )

    def __call__(self, energy, batch, carry, key):
        drop_key, key = jax.random.split(key)
        return self.inner(_turn_on(energy, drop_key), batch, carry, key)


class RowDropout(eqx.Module):
    """Dropout whose mask is a function of a key and the units themselves, so that every row has its own.

    Energies take one row and no key. The key is folded with a hash of the bits of the units.
    """

    p: Any
    key: Any

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(x).astype(jnp.float32), jnp.uint32)
        factors = jnp.arange(bits.size, dtype=jnp.uint32).reshape(bits.shape) * np.uint32(2654435762) + 1
        row = (bits * factors).sum(dtype=jnp.uint32)
        keep = jax.random.bernoulli(jax.random.fold_in(self.key, row), 1 - self.p, x.shape)
        return jnp.where(keep, x / (1 - self.p), 0)


def _is_dropout(node: Any) -> bool:
    return isinstance(node, eqx.nn.Dropout)


def _turn_on(energy: Any, key: Any) -> Any:
    """The energy with a `RowDropout` of its own key for every dropout layer."""
    nodes, structure = jax.tree.flatten(energy, is_leaf=_is_dropout)
    keys = iter(jax.random.split(key, max(1, sum(map(_is_dropout, nodes)))))
    return jax.tree.unflatten(
        structure, [RowDropout(n.p, next(keys)) if _is_dropout(n) else n for n in nodes]
    )


def replace_rows(batch: Batch, name: str, value: Any) -> Batch:
    """The batch with other values of one variable."""
    return Batch({**batch.data, name: value}, batch.weight, batch.shards)
