"""Learning to answer: the right answer should have a lower energy than every other."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..batch import Batch
from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable
from ..finite import ENUMERATION_LIMIT, table
from ..missing import is_masked
from ._objective import Objective, check_variables
from ._requirements import check_free_energy, check_marginals


class SupervisedLoss(Objective):
    """A loss of the energies of all answers, (k,), and of the right one.

    Works for any energy with a finite `target`, given everything else in the data; variables
    that are neither are summed out. A row whose target is missing counts for nothing.
    """

    l2: float = eqx.field(default=0.0, kw_only=True)
    target: str = eqx.field(static=True, default="y", kw_only=True)

    @abstractmethod
    def loss(self, right: Any, energies: Any, wrong: Any) -> Any:
        """From e(y), all e(y′), and where y′ ≠ y."""

    def check(self, energy, data):
        name = type(self).__name__
        if self.target not in energy.spaces or not energy.spaces[self.target].is_finite:
            found = energy.spaces.get(self.target)
            raise Unsuitable(
                f"{name} needs a finite target {self.target!r}, but {type(energy).__name__} has "
                f"{'none' if found is None else repr(found)}. Name another with target=, or learn the joint: "
                "NegativeLogLikelihood, ContrastiveDivergence or ScoreMatching."
            )
        check_variables(self, energy, data, self.target)
        check_marginals(self, energy, {k: v for k, v in data.items() if k != self.target})
        check_free_energy(self, energy, data)
        size = energy.spaces[self.target].n_values
        if size > ENUMERATION_LIMIT:
            raise Unsuitable(
                f"{name} lists every answer, and {energy.spaces[self.target]!r} has {size:.3g}. "
                "Use ContrastiveDivergence, which draws some."
            )

    def __call__(self, energy, batch, carry, key):
        space = energy.spaces[self.target]
        batch = _answered(batch, self.target)
        answers = space.values()

        def row(**row):
            given = {k: v for k, v in row.items() if k != self.target}
            answer = lambda i: free_energy(energy, {**given, self.target: answers[i]})
            differs = (answers != row[self.target]).reshape(space.n_values, -1).any(-1)
            return self.loss(free_energy(energy, row), table(answer, space.n_values), differs)

        terms = {"loss": batch.mean(batch.map(row))}
        if not (isinstance(self.l2, int | float) and self.l2 == 0):  # an array may be a tracer
            terms["penalty"] = 0.5 * self.l2 * squared_weights(energy)
        return terms, carry


class Perceptron(SupervisedLoss):
    """e(y) − min_y′ e(y′): zero once the right answer is the best.

    Args:
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more; biases are free).
        target: the variable that is answered.

    Rosenblatt (1958); in this form LeCun et al. (2006), A tutorial on energy-based learning.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.5]))                # e = 0, −½
    >>> Perceptron()(energy, batch, None, None)[0]
    {'loss': Array(0.5, dtype=float32)}
    """

    def loss(self, right, energies, wrong):
        return right - energies.min()


class Margin(SupervisedLoss):
    """max_y′ [margin · 1(y′ ≠ y) + e(y) − e(y′)]: the right answer should be best by a margin.

    Args:
        margin: how much lower the right energy should be.
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more; biases are free).
        target: the variable that is answered.

    Crammer and Singer (2001), On the algorithmic implementation of multiclass kernel-based
    vector machines.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.5]))                # e = 0, −½
    >>> Margin()(energy, batch, None, None)[0]
    {'loss': Array(1.5, dtype=float32)}
    """

    margin: float = 1.0

    def loss(self, right, energies, wrong):
        return jnp.max(jnp.where(wrong, self.margin, 0.0) + right - energies)


class CrossEntropy(SupervisedLoss):
    """e(y) + (1/β) log Σ_y′ exp(−β e(y′)) = −(1/β) log p_β(y | rest).

    β = 1 is the negative log-likelihood of the answers; β → ∞ is the perceptron.

    Args:
        beta: the inverse temperature.
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more; biases are free).
        target: the variable that is answered.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.0]))                # log 2
    >>> CrossEntropy()(energy, batch, None, None)[0]
    {'loss': Array(0.6931472, dtype=float32)}
    """

    beta: float = 1.0

    def __check_init__(self):
        if isinstance(self.beta, int | float) and not self.beta > 0:
            raise BadInput("beta", repr(self.beta), "a number > 0", "For its limit ∞ use Perceptron.")

    def loss(self, right, energies, wrong):
        return right + jax.nn.logsumexp(-self.beta * energies) / self.beta


def squared_weights(energy: Energy) -> Any:
    """Σ w² over the arrays of two axes or more: the weights, and not the biases."""
    arrays = jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array))
    return sum(jnp.sum(a**2) for a in arrays if a.ndim >= 2)


def _answered(batch: Batch, target: str) -> Batch:
    value = batch.data[target]
    if not is_masked(value):
        return batch
    seen = value.observed.reshape(batch.n, -1).all(-1)
    data = {**batch.data, target: value.value}
    return Batch(data, jnp.where(seen, batch.weight, 0), batch.shards)
