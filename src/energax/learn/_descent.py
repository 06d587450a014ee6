"""Gradient descent on an objective with any Optax optimizer, in unconstrained parameters."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from ..errors import BadInput, check_instance
from ..fitting import MONITOR, Learner, check_setting
from ..parameters import constrain, trainable_leaves, unconstrain
from ._objective import Objective, with_partner


class DescentState(eqx.Module):
    """The state of the optimizer, the partner, the objective's carry, and the constrained parameters in ℝⁿ.

    `free` holds the unconstrained values of trainable parameters with a constraint, and None elsewhere:
    parameters in ℝⁿ are only in the energy, since a second copy would be written at every update.
    """

    optimizer: Any
    free: Any
    partner: Any
    carry: Any


class Descent(Learner):
    """Gradient descent on an objective: θ ← θ − step(∂ objective / ∂θ).

    Constrained parameters are updated in ℝⁿ, through the bijection of their space.

    Args:
        objective: the loss, an `Objective`; its partner is trained too.
        optimizer: any Optax optimizer, with schedules, chains, L-BFGS …; by default Adam with step 1e-3.
        clip: the largest global norm of the gradient; None does not clip.
        tol: the fit has converged when the objective of an epoch changes by at most this; None never stops.

    >>> from energax import fit
    >>> from energax.energies import RBM
    >>> from energax.learn import NegativeLogLikelihood
    >>> learner = Descent(NegativeLogLikelihood(), optax.adam(0.1))
    >>> found = fit(RBM.random(2, 1, key=0), {"x": jnp.ones((8, 2))}, learner, epochs=20, key=0)
    >>> bool(found.history["objective"][-1] < found.history["objective"][0])
    True
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    clip: float | None
    tol: float | None

    def __init__(
        self,
        objective: Objective,
        optimizer: optax.GradientTransformation | None = None,
        *,
        clip: float | None = None,
        tol: float | None = None,
    ):
        check_instance("objective", objective, Objective, "an objective of energax.learn")
        optimizer = optax.adam(1e-3) if optimizer is None else optimizer
        if not isinstance(optimizer, optax.GradientTransformation):
            raise BadInput(
                "optimizer", type(optimizer).__name__, "an Optax optimizer", "Try optax.adam(1e-3)."
            )
        check_setting("clip", clip, lambda clip: clip > 0, "a number > 0, or None")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        self.objective, self.optimizer, self.clip, self.tol = objective, optimizer, clip, tol

    @property
    def _transformation(self) -> optax.GradientTransformationExtraArgs:
        optimizer = self.optimizer
        if self.clip is not None:
            optimizer = optax.chain(optax.clip_by_global_norm(self.clip), optimizer)
        return optax.with_extra_args_support(optimizer)

    def check(self, energy, data):
        self.objective.check(energy, data)

    def init(self, energy, batch, key, trainable):
        parameters = eqx.filter(unconstrain(energy), trainable)
        key, partner_key = jax.random.split(key)
        partner = self.objective.init_partner(energy, batch, partner_key)
        optimizer = self._transformation.init((parameters, eqx.filter(partner, trainable_leaves(partner))))
        carry = with_partner(self.objective, partner).init(energy, batch, key)
        in_energy = eqx.filter(energy, trainable)
        free = jax.tree.map(lambda new, old: None if new is old else new, parameters, in_energy)
        return DescentState(optimizer, free, partner, carry)

    def step(self, energy, state, batch, key, trainable):
        parameters, frozen = eqx.partition(unconstrain(energy), trainable)
        partner, frozen_partner = eqx.partition(state.partner, trainable_leaves(state.partner))
        # Bijections do not round-trip exactly, so constrained parameters continue from their values in ℝⁿ.
        both = (eqx.combine(state.free, parameters), partner)
        objective = self.objective.given_trainable(trainable)

        def loss(both):
            parameters, partner = both
            model = constrain(eqx.combine(parameters, frozen))
            here = with_partner(objective, eqx.combine(partner, frozen_partner))
            terms, carry = here(model, batch, state.carry, key)
            return sum(_named(terms).values()), (_named(terms), carry)

        monitored = self._monitored(energy, state, batch)

        (value, (terms, carry)), gradient = jax.value_and_grad(loss, has_aux=True)(both)
        updates, optimizer = self._transformation.update(
            gradient,
            state.optimizer,
            both,
            value=value,
            grad=gradient,
            value_fn=lambda both: loss(both)[0],
        )
        parameters, partner = optax.apply_updates(both, updates)
        carry = jax.lax.stop_gradient(carry) if carry is not None else None
        energy, partner = constrain(eqx.combine(parameters, frozen)), eqx.combine(partner, frozen_partner)
        energy, partner, carry = with_partner(objective, partner).after_update(energy, partner, carry)
        keep = lambda old, new: None if old is None else new
        free = jax.tree.map(keep, state.free, parameters, is_leaf=_is_none)
        return energy, DescentState(optimizer, free, partner, carry), terms | monitored

    def term_names(self, energy, state, batch, key, trainable):
        def terms(energy, state):
            terms, _ = with_partner(self.objective, state.partner)(energy, batch, state.carry, key)
            return _named(terms) | self._monitored(energy, state, batch)

        return tuple(eqx.filter_eval_shape(terms, energy, state))

    def _monitored(self, energy, state, batch):
        """Return what the objective adds to the history, before the step."""
        found = with_partner(self.objective, state.partner).monitor(energy, batch)
        return {MONITOR + name: value for name, value in found.items()}

    def evaluate(self, energy, state, batch, key):
        objective = with_partner(self.objective, state.partner)
        return _named(objective.validate(energy, batch, objective.init(energy, batch, key), key))

    def row_weights(self, batch):
        return self.objective.row_weights(batch)

    def partner(self, state):
        return state.partner

    def converged(self, before, after, old, new):
        return False if self.tol is None else jnp.abs(before - after) <= self.tol


def _named(terms: Any) -> dict[str, Any]:
    return terms if isinstance(terms, dict) else {"loss": terms}


def _is_none(leaf: Any) -> bool:
    return leaf is None
