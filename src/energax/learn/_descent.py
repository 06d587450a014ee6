"""Descent on an objective, by any Optax optimizer, through the bijections of the parameters."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from ..errors import BadInput
from ..fitting import Learner, check_setting
from ..parameters import constrained, unconstrained
from ..parameters import trainable as movable
from ._objective import Objective


class DescentState(eqx.Module):
    """Optimizer moments, the partner, the objective's carry, and what of θ is constrained, in ℝⁿ.

    A parameter that lies in ℝⁿ anyway is in the energy and nowhere else: kept twice, it would be
    copied after every update.
    """

    optimizer: Any
    free: Any
    partner: Any
    carry: Any


class Descent(Learner):
    """θ ← θ − step(∂ objective / ∂θ).

    `optimizer` is any Optax transformation (`optax.adam(1e-3)`, with schedules, chains,
    L-BFGS …), by default Adam with step 1e-3. Constrained parameters move through the
    bijection of their space. `clip` bounds the global norm of the gradient. With `tol`, the
    fit has converged when the objective of an epoch changes by less.
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
        if not isinstance(objective, Objective):
            raise BadInput("objective", type(objective).__name__, "an objective of energax.learn")
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
        free = eqx.filter(unconstrained(energy), trainable)
        key, partner_key = jax.random.split(key)
        partner = self.objective.init_partner(energy, batch, partner_key)
        moving = (free, eqx.filter(partner, movable(partner)))
        carry = self.objective.init(energy, batch, key)
        bent = jax.tree.map(lambda new, old: None if new is old else new, free, eqx.filter(energy, trainable))
        return DescentState(self._transformation.init(moving), bent, partner, carry)

    def step(self, energy, state, batch, key, trainable):
        free, frozen = eqx.partition(unconstrained(energy), trainable)
        partner, rest = eqx.partition(state.partner, movable(state.partner))
        # There and back again through a bijection is not where one was: what is bent goes on from ℝⁿ.
        moving = (eqx.combine(state.free, free), partner)

        def loss(moving):
            free, partner = moving
            model = constrained(eqx.combine(free, frozen))
            objective = _with_partner(self.objective, eqx.combine(partner, rest))
            terms, carry = objective(model, batch, state.carry, key)
            terms = terms if isinstance(terms, dict) else {"loss": terms}
            return sum(terms.values()), (terms, carry)

        (value, (terms, carry)), gradient = jax.value_and_grad(loss, has_aux=True)(moving)
        updates, optimizer = self._transformation.update(
            gradient,
            state.optimizer,
            moving,
            value=value,
            grad=gradient,
            value_fn=lambda moving: loss(moving)[0],
        )
        free, partner = optax.apply_updates(moving, updates)
        energy = constrained(eqx.combine(free, frozen))
        carry = jax.lax.stop_gradient(carry) if carry is not None else None
        bent = jax.tree.map(lambda old, new: None if old is None else new, state.free, free, is_leaf=_nothing)
        return energy, DescentState(optimizer, bent, eqx.combine(partner, rest), carry), terms

    def evaluate(self, energy, state, batch, key):
        objective = _with_partner(self.objective, state.partner)
        terms, _ = objective(energy, batch, objective.init(energy, batch, key), key)
        return terms if isinstance(terms, dict) else {"loss": terms}

    def partner(self, state):
        return state.partner

    def converged(self, before, after, old, new):
        return False if self.tol is None else jnp.abs(before - after) <= self.tol


def _with_partner(objective: Objective, partner: Any) -> Objective:
    return eqx.tree_at(lambda o: o.partner, objective, partner, is_leaf=_nothing)


def _nothing(leaf: Any) -> bool:
    return leaf is None
