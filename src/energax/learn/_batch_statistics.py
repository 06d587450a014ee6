"""Batch normalisation while learning, around any objective: statistics of the batch, and running averages."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import check_arguments, numbers
from ..batch_statistics import in_batch, normalising_layers, replace_layers, with_statistics, zero_probe
from ..errors import Unsuitable
from ..parameters import trainable_leaves
from ._objective import WrappedObjective, with_partner


class BatchStatisticsState(eqx.Module):
    """The carry of the wrapped objective, the running (mean, variance) of every layer, and the updates."""

    inner: Any
    running: list[tuple[Any, Any]]
    step: jax.Array


class BatchStatistics(WrappedObjective):
    """An objective with batch normalisation: layers of energy and partner take the statistics of the batch.

    While it learns, every `nn.BatchNorm` and `nn.InvertibleBatchNorm` normalises by the weighted mean m_t and
    variance v_t of its inputs over the rows of the batch and their positions, and gradients flow through
    both. After update t = 1, 2, … the running statistics, with which the layers compute everything after
    learning and on validation rows, are

        m ← m + a_t (m_t − m),   v ← v + a_t (v_t − v),   a_t = max(1 − momentum, 1 / t).

    So they are plain averages at first. Of a layer that is called several times in an update, for example for
    every sample of an `ELBO`, m_t and v_t are the means over the calls. A layer whose parameters are all
    frozen keeps its running statistics and normalises by them.

    The loss of a row then depends on the other rows. Losses with derivatives in x of the energy of one row
    (`ScoreMatching`) and Markov chains, which have no rows, are rejected; `nn.calibrate` needs neither.

    Args:
        objective: the objective, such as `CrossEntropy()`, `ELBO(encoder)` or `NegativeLogLikelihood()`.
        momentum: the share of the old running statistics in an update, from 0 to 1.
        trainable: the trainable parameters of the energy, a tree of bools; `Descent` sets it.

    Ioffe and Szegedy (2015), Batch normalization: accelerating deep network training by reducing internal
    covariate shift; for flows Dinh, Sohl-Dickstein and Bengio (2017), Density estimation using Real NVP.

    >>> import optax
    >>> from energax import fit
    >>> from energax.energies import Scorer
    >>> from energax.learn import CrossEntropy, Descent
    >>> from energax.nn import BatchNorm
    >>> layers = [BatchNorm(1), eqx.nn.Linear(1, 2, key=jax.random.key(0))]
    >>> rows = {"x": jnp.array([[100.0], [104.0]]), "y": jnp.array([0, 1])}
    >>> learner = Descent(BatchStatistics(CrossEntropy()), optax.adam(0.1))
    >>> found = fit(Scorer(eqx.nn.Sequential(layers), 1, 2), rows, learner, epochs=20, key=0).energy
    >>> float(found.network[0].mean[0]), float(found.network[0].variance[0])
    (102.0, 4.0)
    """

    momentum: Any = 0.9
    trainable: Any = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        share = numbers(lambda m: (m >= 0) & (m <= 1), "a number from 0 to 1", scalar=True)
        check_arguments(self, momentum=share)

    @property
    def has_after_update(self):
        return True

    def given_trainable(self, trainable):
        new = super().given_trainable(trainable)
        return eqx.tree_at(lambda o: o.trainable, new, trainable, is_leaf=lambda leaf: leaf is None)

    def check(self, energy, data):
        super().check(energy, data)
        objective = self.objective
        while isinstance(objective, WrappedObjective) and objective.partner is None:
            objective = objective.objective
        name, inner = type(energy).__name__, type(self.objective).__name__
        if not normalising_layers((energy, objective.partner)):
            raise Unsuitable(
                f"BatchStatistics needs layers nn.BatchNorm or nn.InvertibleBatchNorm, and {name} has none, "
                f"nor has the partner of {inner}. Add them, or use {inner} without BatchStatistics."
            )
        if self.objective.differentiates_rows and normalising_layers(energy):
            raise Unsuitable(
                f"BatchStatistics: {inner} differentiates the energy of one row in x, and with batch "
                "statistics it depends on all rows. Wrap the objective inside an AdversarialTraining; else "
                "learn without BatchStatistics (nn.calibrate), or use equinox.nn.LayerNorm."
            )

    def init(self, energy, batch, key):
        layers = normalising_layers((energy, self.partner))
        running = [(layer.mean, layer.variance) for layer in layers]
        return BatchStatisticsState(super().init(energy, batch, key), running, jnp.zeros((), jnp.int32))

    def validate(self, energy, batch, carry, key):
        return super().validate(energy, batch, carry.inner, key)

    def __call__(self, energy, batch, carry, key):
        layers = normalising_layers((energy, self.partner))
        learned = self._learned_layers(energy)
        probes = [
            zero_probe(n) if is_learned else None for n, is_learned in zip(layers, learned, strict=True)
        ]
        batch = batch.fill()

        def loss(probes):
            model, partner = in_batch((energy, self.partner), probes, batch.weight)
            terms, inner = with_partner(self.objective, partner)(model, batch, carry.inner, key)
            return sum(terms.values()) if isinstance(terms, dict) else terms, (terms, inner)

        value, pull, (terms, inner) = jax.vjp(loss, probes, has_aux=True)
        (sums,) = pull(jnp.ones_like(value))
        rate = jnp.maximum(1 - self.momentum, 1 / (carry.step + 1))
        running = [_follow(layer, total, rate) for layer, total in zip(layers, sums, strict=True)]
        return terms, BatchStatisticsState(inner, running, carry.step + 1)

    def _learned_layers(self, energy: Any) -> list[bool]:
        """Whether each layer has a trainable parameter."""
        trainable = trainable_leaves(energy) if self.trainable is None else self.trainable
        flags = normalising_layers((trainable, trainable_leaves(self.partner)))
        return [any(jax.tree.leaves(layer)) for layer in flags]

    def after_update(self, energy, partner, carry):
        energy, partner, inner = super().after_update(energy, partner, carry.inner)
        layers = normalising_layers((energy, partner))
        new = [with_statistics(n, *both) for n, both in zip(layers, carry.running, strict=True)]
        energy, partner = replace_layers((energy, partner), new)
        return (
            energy,
            partner,
            eqx.tree_at(lambda c: c.inner, carry, inner, is_leaf=lambda leaf: leaf is None),
        )


def _follow(layer: Any, sums: Any, rate: Any) -> tuple[Any, Any]:
    """The running statistics after an update; `sums`: those of `row_statistics` over all calls, or None."""
    if sums is None:
        return layer.mean, layer.variance
    mean, variance, count = jnp.moveaxis(sums, -2, 0)
    rate = jnp.where(count > 0, rate, 0).astype(sums.dtype)
    move = lambda old, total: old + rate * (total / jnp.where(count > 0, count, 1) - old)
    return move(layer.mean, mean), move(layer.variance, variance)
