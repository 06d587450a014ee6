"""What the loop asks of a learner: a start, a step, a criterion. It never sees the data set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax

from ..batch import Batch
from ..energy import Energy
from ..errors import check_number


def check_setting(name: str, value: Any, fits: Callable[[Any], bool], expected: str) -> None:
    """Refuse a setting of a learner that is no number, or not one that fits; arrays of JAX may be traced."""
    if value is None or isinstance(value, jax.Array):
        return
    check_number(name, value, fits, expected)


class Learner(eqx.Module):
    """Anything that improves θ from a batch of rows.

    Subclasses are frozen modules whose fields are their hyperparameters. `step` returns the
    new energy, the new state, and the loss as named terms that sum to it: when a fit leaves
    the finite numbers, the status names the term.
    """

    #: The fixed-point learners never raise their objective on a full batch; the loop holds them to it.
    monotone: ClassVar[bool] = False
    #: How products of matrices are computed, in JAX's words; None leaves it to JAX, which on
    #: accelerators rounds single precision to fewer bits: fine for a noisy gradient, and for nothing else.
    matmul_precision: ClassVar[str | None] = None

    def check(self, energy: Energy, data: Mapping[str, Any]) -> None:
        """Raise `Unsuitable`, naming what would fit, if this cannot learn that energy from that data."""

    @abstractmethod
    def init(self, energy: Energy, batch: Batch, key: Any, trainable: Any) -> Any:
        """The state before the first step: optimizer moments, chains, running sums, a partner."""

    @abstractmethod
    def step(
        self, energy: Energy, state: Any, batch: Batch, key: Any, trainable: Any
    ) -> tuple[Energy, Any, dict[str, Any]]:
        """One improvement: (energy, state, {term: loss})."""

    @abstractmethod
    def evaluate(self, energy: Energy, state: Any, batch: Batch, key: Any) -> dict[str, Any]:
        """The loss terms on rows that are not learned from."""

    def partner(self, state: Any) -> Any:
        """The module trained beside the energy, if there is one."""
        return None

    def converged(self, before: Any, after: Any, old: Energy, new: Energy) -> Any:
        """Whether this step of the objective (or of θ) was small enough to stop; traced."""
        return False
