"""Supervised losses: the energy of the observed target should be lower than that of other values."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import (
    NAME,
    NUMBER_SCALAR,
    POSITIVE_SCALAR,
    WEIGHT_SCALAR,
    check_arguments,
    numbers,
)
from ..batch import Batch
from ..energy import free_energy
from ..errors import Unsuitable
from ..finite import ENUMERATION_LIMIT, table
from ..missing import is_masked
from ._objective import Objective
from ._penalty import squared_weights
from ._requirements import check_free_energy, check_missing, check_variables


class SupervisedLoss(Objective):
    """The base class of losses that compare the energy of the target with those of its other values.

    Works for any energy with a finite target, given all other variables in the data; variables
    that are not in the data are summed out. Rows whose target is missing get weight 0.

    Args:
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more, not biases).
        target: the name of the variable to predict.
    """

    l2: float = eqx.field(default=0.0, kw_only=True)
    target: str = eqx.field(static=True, default="y", kw_only=True)

    def __check_init__(self):
        check_arguments(self, l2=WEIGHT_SCALAR, target=NAME)

    @abstractmethod
    def loss(self, target_energy: Any, energies: Any, is_other: Any) -> Any:
        """The loss of one row: from e(y), the energies e(y′) of all k values (k,), and y′ ≠ y (k,)."""

    def check(self, energy, data):
        name = type(self).__name__
        if self.target not in energy.spaces or not energy.spaces[self.target].is_finite:
            found = energy.spaces.get(self.target)
            raise Unsuitable(
                f"{name} needs a finite target {self.target!r}, but {type(energy).__name__} has "
                f"{'none' if found is None else repr(found)}. Pass another target=, or learn all variables: "
                "NegativeLogLikelihood, ContrastiveDivergence or ScoreMatching."
            )
        check_variables(self, data, self.target)
        check_missing(self, energy, {k: v for k, v in data.items() if k != self.target})
        check_free_energy(self, energy, data)
        size = energy.spaces[self.target].n_values
        if size > ENUMERATION_LIMIT:
            raise Unsuitable(
                f"{name} computes the energy of every value of the target, and "
                f"{energy.spaces[self.target]!r} has {size:.3g}. Use ContrastiveDivergence, which draws some."
            )

    def row_weights(self, batch):
        return _drop_missing_targets(batch, self.target).weight

    def _is_library_loss(self, *methods: str) -> bool:
        """Whether these methods are those of this module: a subclass that overrides one is another loss."""
        return all(getattr(type(self), name).__module__ == __name__ for name in methods)

    @property
    def _has_penalty(self) -> bool:
        return not (isinstance(self.l2, int | float) and self.l2 == 0)  # an array may be a tracer

    def term_names(self):
        if not self._is_library_loss("__call__"):
            return None
        return ("loss", "penalty") if self._has_penalty else ("loss",)

    def __call__(self, energy, batch, carry, key):
        space = energy.spaces[self.target]
        batch = _drop_missing_targets(batch, self.target)
        values = space.values()

        names = set(batch.data) - {self.target}
        # All energies at once where the energy has them, for any other finite target one by one.
        together = not space.shape and {*names, self.target} == set(energy.spaces)
        together = together and energy.knows("energies", names)

        def row(**row):
            given = {k: v for k, v in row.items() if k != self.target}
            energy_of = lambda i: free_energy(energy, {**given, self.target: values[i]})
            energies = energy.energies(**given) if together else table(energy_of, space.n_values)
            is_other = (values != row[self.target]).reshape(space.n_values, -1).any(-1)
            return self.loss(jnp.where(is_other, 0, energies).sum(), energies, is_other)

        terms = {"loss": batch.mean(batch.map(row))}
        if self._has_penalty:
            terms["penalty"] = 0.5 * self.l2 * squared_weights(energy)
        return terms, carry


class Perceptron(SupervisedLoss):
    """The perceptron loss e(y) − min_y′ e(y′), which is zero if y has the lowest energy.

    Args:
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more, not biases).
        target: the name of the variable to predict.

    Rosenblatt (1958); in this form LeCun et al. (2006), A tutorial on energy-based learning.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.5]))                # e = 0, −½
    >>> Perceptron()(energy, batch, None, None)[0]
    {'loss': Array(0.5, dtype=float32)}
    """

    def loss(self, target_energy, energies, is_other):
        return target_energy - energies.min()


class Margin(SupervisedLoss):
    """The multiclass hinge loss max_y′ [margin · 1(y′ ≠ y) + e(y) − e(y′)].

    Args:
        margin: how much lower e(y) should be than all other energies.
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more, not biases).
        target: the name of the variable to predict.

    Crammer and Singer (2001), On the algorithmic implementation of multiclass kernel-based
    vector machines.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.5]))                # e = 0, −½
    >>> Margin()(energy, batch, None, None)[0]
    {'loss': Array(1.5, dtype=float32)}
    """

    margin: float = 1.0

    def __check_init__(self):
        check_arguments(self, margin=NUMBER_SCALAR)

    def loss(self, target_energy, energies, is_other):
        return jnp.max(jnp.where(is_other, self.margin, 0.0) + target_energy - energies)


class CrossEntropy(SupervisedLoss):
    """The cross-entropy e(y) + (1/β) log Σ_y′ exp(−β e(y′)) = −(1/β) log p_β(y | rest).

    β = 1 is the negative log-likelihood of the target; β → ∞ is the perceptron loss.

    With label smoothing ε, e(y) is (1 − ε) e(y) + ε times the mean energy of all values: the target is y with
    probability 1 − ε, and else any value.

    Args:
        beta: β, the inverse temperature.
        label_smoothing: ε, from 0 to 1.
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more, not biases).
        target: the name of the variable to predict.

    LeCun et al. (2006), A tutorial on energy-based learning; for label smoothing Szegedy et al. (2016),
    Rethinking the Inception architecture.

    >>> from energax.energies import Linear
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> energy = Linear(jnp.zeros((2, 1)), jnp.array([0.0, 0.0]))                # log 2
    >>> CrossEntropy()(energy, batch, None, None)[0]
    {'loss': Array(0.6931472, dtype=float32)}
    """

    beta: float = 1.0
    label_smoothing: float = eqx.field(default=0.0, kw_only=True)

    def __check_init__(self):
        share = numbers(lambda v: (v >= 0) & (v <= 1), "a number from 0 to 1", scalar=True)
        check_arguments(self, label_smoothing=share)
        check_arguments(
            self, beta=dataclasses.replace(POSITIVE_SCALAR, remedy="The limit β → ∞ is Perceptron.")
        )

    def loss(self, target_energy, energies, is_other):
        if not (isinstance(self.label_smoothing, int | float) and self.label_smoothing == 0):
            target_energy = target_energy + self.label_smoothing * (energies.mean() - target_energy)
        return target_energy + jax.nn.logsumexp(-self.beta * energies) / self.beta

    def hessian(self, energy, batch):
        """Σ_n w_n Σ_{a<b} β p_a p_b (J_a − J_b)ᵀ(J_a − J_b) + l2 I, if the scores are linear in θ."""
        if (
            self.target != "y"
            or not energy.knows("score_hessian")
            or not self._is_library_loss("__call__", "loss")
        ):
            return None
        batch = _drop_missing_targets(batch, self.target)
        a, b = np.triu_indices(energy.spaces["y"].n_values, 1)

        def pairs(rows, weight):
            p = jax.nn.softmax(self.beta * jax.vmap(energy.scores)(rows["x"]))
            return (self.beta * weight)[:, None] * p[:, a] * p[:, b]

        total = jnp.sum(batch.weight)
        found = energy.score_hessian(batch, pairs) / jnp.where(total > 0, total, 1)
        leaves = jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array))
        penalised = np.concatenate([np.full(leaf.size, leaf.ndim >= 2) for leaf in leaves])
        return found + self.l2 * np.diag(penalised).astype(found.dtype)


def _drop_missing_targets(batch: Batch, target: str) -> Batch:
    """The batch with weight 0 for rows whose target is missing."""
    value = batch.data[target]
    if not is_masked(value):
        return batch
    observed = value.observed.reshape(batch.n, -1).all(-1)
    data = {**batch.data, target: value.value}
    return Batch(data, jnp.where(observed, batch.weight, 0), batch.shards)
