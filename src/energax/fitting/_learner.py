"""`Learner`: the interface between the training loop and a learning algorithm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax

from ..batch import Batch
from ..energy import Energy
from ..errors import check_number


def check_setting(name: str, value: Any, is_valid: Callable[[Any], bool], expected: str) -> None:
    """Raise `BadInput` if a learner's setting is not a valid number. JAX arrays are not checked: they may
    be traced."""
    if value is None or isinstance(value, jax.Array):
        return
    check_number(name, value, is_valid, expected)


#: The prefix of terms that are recorded in the history and do not count in the loss.
MONITOR = "monitor: "


class Learner(eqx.Module):
    """An algorithm that improves θ from a batch of rows.

    Subclasses are frozen modules whose fields are their hyperparameters. `step` returns the
    new energy, the new state, and the loss as named terms that sum to it: if one is not finite,
    the status of the fit names the term. Terms whose name starts with `MONITOR` do not count in the
    loss; the history has them under the rest of their name.
    """

    #: Whether a step on all rows never raises the objective; if it did, the message of the fit says so.
    monotone: ClassVar[bool] = False
    #: JAX's precision of matrix products. None is JAX's default, which on accelerators rounds
    #: float32 to fewer bits: enough for stochastic gradients only.
    matmul_precision: ClassVar[str | None] = None
    #: Whether `init` computes from rows or the key. If not, its program is interpreted for large data too.
    init_computes: ClassVar[bool] = True

    def check(self, energy: Energy, data: Mapping[str, Any]) -> None:
        """Raise `Unsuitable`, with an alternative, if this learner cannot fit the energy to the data."""

    @abstractmethod
    def init(self, energy: Energy, batch: Batch, key: Any, trainable: Any) -> Any:
        """Return the state before the first step: optimizer moments, chains, running sums, a partner."""

    @abstractmethod
    def step(
        self, energy: Energy, state: Any, batch: Batch, key: Any, trainable: Any
    ) -> tuple[Energy, Any, dict[str, Any]]:
        """Return (energy, state, {term: loss}) after one update.

        `trainable` is a tree of bools like the energy. The loop restores frozen leaves after every step.
        """

    def term_names(
        self, energy: Energy, state: Any, batch: Batch, key: Any, trainable: Any
    ) -> tuple[str, ...]:
        """Return the names of the loss terms of `step`; by default found by tracing a step."""
        terms = lambda energy, state: self.step(energy, state, batch, key, trainable)[2]
        return tuple(eqx.filter_eval_shape(terms, energy, state))

    @abstractmethod
    def evaluate(self, energy: Energy, state: Any, batch: Batch, key: Any) -> dict[str, Any]:
        """Return the loss terms on validation rows."""

    def row_weights(self, batch: Batch) -> Any:
        """Return the weights of the rows in the loss of `step`: 0 for rows that it leaves out.

        The objective of an epoch is the mean over its batches with the sums of these weights.
        """
        return batch.weight

    def partner(self, state: Any) -> Any:
        """Return the module trained beside the energy, or None."""
        return None

    def converged(self, before: Any, after: Any, old: Energy, new: Energy) -> Any:
        """Return whether the objective, or θ, changed little enough to stop; traced by JAX."""
        return False
