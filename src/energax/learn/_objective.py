"""An objective: a scalar whose gradient in θ is the update of a learning principle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax

from .._util.printing import pretty_repr
from ..batch import Batch
from ..energy import Energy
from ..errors import Unsuitable


class Objective(eqx.Module):
    """`objective(energy, batch, carry, key) -> (loss, carry)`.

    The loss is a scalar, or a dict of named terms that sum to it. `partner` holds a module
    that is trained beside the energy (an encoder, a generator, a learned log Z): its arrays
    receive gradients too. `carry` is what passes from batch to batch and has no gradient,
    such as persistent chains.
    """

    # By keyword only, so that the fields of a subclass come first: ContrastiveDivergence(5).
    partner: Any = eqx.field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return pretty_repr(self)

    def check(self, energy: Energy, data: Mapping[str, Any]) -> None:
        """Raise `Unsuitable`, naming what is missing and what would fit."""

    def init(self, energy: Energy, batch: Batch, key: Any) -> Any:
        """The carry before the first batch."""
        return None

    def init_partner(self, energy: Energy, batch: Batch, key: Any) -> Any:
        """The partner before the first batch: the one given, unless it should start from what is seen."""
        return self.partner

    @abstractmethod
    def __call__(self, energy: Energy, batch: Batch, carry: Any, key: Any) -> tuple[Any, Any]:
        """(loss, carry)."""


def check_variables(objective: Any, energy: Energy, data: Mapping[str, Any], *names: str) -> None:
    """Refuse data without the variables an objective learns from."""
    absent = [n for n in names if n not in data]
    if absent:
        raise Unsuitable(
            f"{type(objective).__name__} needs values of {absent} in the data, but found only {sorted(data)}."
        )


def stop_gradient(module: Any) -> Any:
    """The same module, its real arrays constant to differentiation; functions in it stay as they are."""
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)
