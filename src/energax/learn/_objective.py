"""The base class of objectives: scalars whose gradient in θ is the update of a learning principle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax

from .._util.arguments import Setting, check_arguments, is_array
from .._util.printing import pretty_repr
from ..batch import Batch
from ..energy import Energy
from ..errors import check_instance

_PARTNER = Setting(
    lambda value: (
        value is None
        or (not isinstance(value, type) and (callable(value) or any(map(is_array, jax.tree.leaves(value)))))
    ),
    "a module with arrays, or None",
)


class Objective(eqx.Module):
    """A loss to minimise: `objective(energy, batch, carry, key) -> (loss, carry)`.

    The loss is a scalar, or a dict of named terms that sum to it. `Descent` minimises it.

    Args:
        partner: a module that is trained together with the energy (an encoder, a generator, a
            learned log Z): its arrays receive gradients too.

    The carry passes from batch to batch and receives no gradient, such as persistent chains.

    >>> import jax.numpy as jnp
    >>> from energax.energies import NeuralEnergy
    >>> class MeanEnergy(Objective):
    ...     def __call__(self, energy, batch, carry, key):
    ...         return batch.mean(batch.map(energy)), carry
    >>> batch = Batch({"x": jnp.array([[1.0, 2.0]])}, jnp.ones(1))
    >>> MeanEnergy()(NeuralEnergy(lambda x: x.sum(), 2, confinement=1.0), batch, None, None)[0]
    Array(5.5, dtype=float32)
    """

    # Keyword-only, so that the fields of a subclass come first: ContrastiveDivergence(5).
    partner: Any = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_arguments(self, partner=_PARTNER)

    def __repr__(self) -> str:
        return pretty_repr(self)

    def check(self, energy: Energy, data: Mapping[str, Any]) -> None:
        """Raise `Unsuitable` with a compatible alternative if the energy cannot be learned from the data."""

    def init(self, energy: Energy, batch: Batch, key: Any) -> Any:
        """The carry before the first batch."""
        return None

    def init_partner(self, energy: Energy, batch: Batch, key: Any) -> Any:
        """The partner before the first batch: the given one, unless a subclass computes it from the batch."""
        return self.partner

    def validate(self, energy: Energy, batch: Batch, carry: Any, key: Any) -> Any:
        """The loss on validation rows: without what a wrapper of the objective adds while learning."""
        return self(energy, batch, carry, key)[0]

    def monitor(self, energy: Energy, batch: Batch) -> dict[str, Any]:
        """Numbers about the batch for the history, by name, that are not part of the loss."""
        return {}

    def term_names(self) -> tuple[str, ...] | None:
        """The names of the terms of the loss, or None where only a call tells."""
        return None

    def after_update(self, energy: Energy, partner: Any, carry: Any) -> tuple[Energy, Any, Any]:
        """(energy, partner, carry) after an update of the parameters; `carry` is that of the loss.

        For what follows the parameters or the batches without a gradient: moving averages, target networks.
        Arrays of the energy that change here are fields declared `spaces.running()`; all others are restored.
        """
        return energy, partner, carry

    @property
    def has_after_update(self) -> bool:
        """Whether `after_update` changes anything. `Descent` is the learner that calls it."""
        return False

    @property
    def differentiates_rows(self) -> bool:
        """Whether the loss has derivatives of the energy of a row in the variables of the row."""
        return False

    def given_trainable(self, trainable: Any) -> Objective:
        """The objective for these trainable parameters of the energy, a tree of bools like it."""
        return self

    def hessian(self, energy: Energy, batch: Batch) -> Any:
        """The Hessian of the loss in closed form, or None.

        Rows and columns are all parameters of the energy, in the order of its leaves. Used by `Newton`.
        """
        return None

    def row_weights(self, batch: Batch) -> Any:
        """The weights of the rows in the loss: 0 for rows that it leaves out."""
        return batch.weight

    @abstractmethod
    def __call__(self, energy: Energy, batch: Batch, carry: Any, key: Any) -> tuple[Any, Any]:
        """(loss, carry)."""


def with_partner(objective: Objective, partner: Any) -> Objective:
    """The objective with this partner."""
    return eqx.tree_at(lambda o: o.partner, objective, partner, is_leaf=lambda leaf: leaf is None)


class WrappedObjective(Objective):
    """The base class of objectives that change the energy or the rows for another objective.

    Its partner, carry and loss on validation rows are those of `objective`.
    """

    objective: Objective

    def __check_init__(self):
        check_instance("objective", self.objective, Objective, "an objective of energax.learn")

    @property
    def inner(self) -> Objective:
        """The wrapped objective, with the current partner."""
        return with_partner(self.objective, self.partner)

    def check(self, energy, data):
        self.objective.check(energy, data)

    def init(self, energy, batch, key):
        return self.inner.init(energy, batch, key)

    def init_partner(self, energy, batch, key):
        return self.objective.init_partner(energy, batch, key)

    def validate(self, energy, batch, carry, key):
        return self.inner.validate(energy, batch, carry, key)

    def monitor(self, energy, batch):
        return self.inner.monitor(energy, batch)

    def after_update(self, energy, partner, carry):
        return self.inner.after_update(energy, partner, carry)

    @property
    def has_after_update(self):
        return self.objective.has_after_update

    @property
    def differentiates_rows(self):
        return self.objective.differentiates_rows

    def given_trainable(self, trainable):
        given = self.objective.given_trainable(trainable)
        return self if given is self.objective else eqx.tree_at(lambda o: o.objective, self, given)

    def row_weights(self, batch):
        return self.objective.row_weights(batch)


def stop_gradient(module: Any) -> Any:
    """The same module with its real arrays constant to differentiation; functions in it are unchanged."""
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)
