"""Rows, a batch-normalised classifier, and one update of it, for the tests of `BatchStatistics`."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from energax import Batch, nn
from energax.energies import Scorer
from energax.learn import Descent
from energax.parameters import trainable_leaves

RNG = np.random.default_rng(0)
N = 12
X = (RNG.normal(size=(N, 3)) * [1, 5, 0.2] + [0, 30, -4]).astype(np.float32)
Y = RNG.integers(0, 2, N)
WEIGHT = np.array([1, 2, 0.5, 1, 0, 1, 1, 3, 0, 1, 1, 1], np.float32)
BATCH = Batch({"x": jnp.asarray(X), "y": jnp.asarray(Y)}, jnp.asarray(WEIGHT))


def moments(values, weight=WEIGHT):
    """Mean and variance over rows (n, channels, …) and positions, in float64."""
    rows = np.asarray(values, float).reshape(len(values), values.shape[1], -1)
    share = np.asarray(weight, float)[:, None, None] / np.sum(weight) / rows.shape[2]
    mean = (share * rows).sum((0, 2))
    return mean, (share * (rows - mean[:, None]) ** 2).sum((0, 2))


def linear(n_in, n_out, key=0):
    return eqx.nn.Linear(n_in, n_out, key=jax.random.key(key))


def classifier():
    layers = [nn.BatchNorm(3), linear(3, 4), nn.BatchNorm(4), eqx.nn.Lambda(jnp.tanh), linear(4, 2, 1)]
    return Scorer(eqx.nn.Sequential(layers), 3, 2)


def step(energy, objective, batch=BATCH, optimizer=None, key=0):
    """(energy, state, terms) after one compiled update."""
    learner = Descent(objective, optax.sgd(0.1) if optimizer is None else optimizer)
    trainable = trainable_leaves(energy)

    def update():
        state = learner.init(energy, batch, jax.random.key(1), trainable)
        return learner.step(energy, state, batch, jax.random.key(key), trainable)

    return eqx.filter_jit(update)()
