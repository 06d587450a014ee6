"""Newton's method on a smooth objective over all rows."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..algorithms.optimise import newton
from ..errors import Unsuitable, check_instance
from ..fitting import Learner, check_setting
from ..parameters import constrain, trainable_leaves, unconstrain
from ._objective import Objective
from ._requirements import check_no_after_update

#: The most parameters: the Hessian of so many takes 200 MB in float64.
MOST_PARAMETERS = 5000


def l1_weights(parameters: Any, l1: Any) -> Any:
    """The weight of |θ| for every parameter, flat: l1 for arrays of two axes or more, 0 for biases."""
    leaves = jax.tree.leaves(parameters)
    penalised = np.concatenate([np.full(leaf.size, leaf.ndim >= 2) for leaf in leaves])
    return jnp.asarray(l1, jnp.result_type(*leaves)) * penalised


def l1_term(energy: Any, l1: Any) -> Any:
    """l1 Σ |w| over the arrays of two axes or more."""
    arrays = jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array))
    return l1 * sum(jnp.abs(a).sum() for a in arrays if a.ndim >= 2)


class NewtonState(eqx.Module):
    """The certificate of the last step, at the point where it began.

    gradient: the largest partial derivative. decrease: the predicted decrease of the objective, twice the
    distance to the minimum of a parabola. Both are 0 at a minimum. carry: that of the objective.
    """

    gradient: Any
    decrease: Any
    carry: Any


class Newton(Learner):
    """Newton's method: θ ← θ − t H⁻¹ ∇, for a smooth objective of few parameters over all rows.

    H is the Hessian in closed form where objective and energy have one (`CrossEntropy` of a `Linear`
    classifier: iteratively reweighted least squares), else that of JAX. It is damped where it is not positive
    definite, and t is the first of 1, ½, ¼, … that decreases the objective, so no step raises it. Constrained
    parameters move in ℝⁿ, through the bijection of their space.

    With `l1`, the step minimises the quadratic model plus the penalty (a proximal Newton step).

    Args:
        objective: the loss, an `Objective` without a partner.
        l1: adds l1 times the sum of |weights| (arrays of two axes or more, not biases).
        tol: the fit has converged when a step changes the objective by at most this, or by rounding error;
            None never stops.

    Nocedal and Wright (2006), Numerical optimization; with `l1`, Lee, Sun and Saunders (2014), Proximal
    Newton-type methods for minimizing composite functions.

    >>> from energax import fit
    >>> from energax.energies import Linear
    >>> from energax.learn import CrossEntropy
    >>> start = Linear(jnp.zeros((2, 1)), jnp.zeros(2))
    >>> rows = {"x": jnp.array([[0.0], [1.0], [2.0], [3.0]]), "y": jnp.array([0, 1, 0, 1])}
    >>> found = fit(start, rows, Newton(CrossEntropy(l2=0.1), tol=1e-6), epochs=20, key=0)
    >>> found.status, found.n_epochs < 8
    ('converged', True)
    """

    objective: Objective
    l1: Any
    tol: float | None

    monotone = True
    matmul_precision = "highest"
    init_computes = False

    def __init__(self, objective: Objective, *, l1: Any = None, tol: float | None = None):
        check_instance("objective", objective, Objective, "an objective of energax.learn")
        check_setting("l1", l1, lambda l1: l1 >= 0, "a number >= 0, or None")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        self.objective, self.l1, self.tol = objective, l1, tol

    def check(self, energy, data):
        self.objective.check(energy, data)
        if self.objective.partner is not None:
            name = type(self.objective).__name__
            raise Unsuitable(f"Newton does not train a partner, but {name} has one. Use Descent.")
        check_no_after_update(self, self.objective)
        n = sum(a.size for a in jax.tree.leaves(eqx.filter(energy, trainable_leaves(energy))))
        if n > MOST_PARAMETERS:
            raise Unsuitable(
                f"Newton holds a Hessian of {n:,} × {n:,} numbers, and takes at most {MOST_PARAMETERS:,} "
                "parameters. Use Descent(objective, optax.lbfgs())."
            )

    def init(self, energy, batch, key, trainable):
        infinity = jnp.array(jnp.inf, batch.weight.dtype)
        return NewtonState(infinity, infinity, self.objective.init(energy, batch, key))

    def step(self, energy, state, batch, key, trainable):
        parameters, frozen = eqx.partition(unconstrain(energy), trainable)
        x, unravel = ravel_pytree(parameters)

        def loss(x):
            terms, _ = self._smooth(constrain(eqx.combine(unravel(x), frozen)), batch, state.carry, key)
            return sum(terms.values()), terms

        here, gradient = jax.value_and_grad(loss, has_aux=True)(x)
        hessian = self._closed_hessian(energy, parameters, batch, trainable)
        if hessian is None:
            hessian = jax.hessian(lambda x: loss(x)[0])(x)
        if self.l1 is None:
            found, terms = newton.step(loss, x, here, gradient, hessian), {}
        else:
            weights = l1_weights(parameters, self.l1)
            found = newton.proximal_step(loss, x, here, gradient, hessian, weights)
            terms = {"l1": weights @ jnp.abs(found.x)}
        energy = constrain(eqx.combine(unravel(found.x), frozen))
        terms = found.aux | terms
        return energy, NewtonState(jnp.abs(gradient).max(), found.decrease, state.carry), terms

    def term_names(self, energy, state, batch, key, trainable):
        names = self.objective.term_names()
        if names is None:
            smooth = lambda e, s: self._smooth(e, batch, s.carry, key)[0]
            names = tuple(eqx.filter_eval_shape(smooth, energy, state))
        return names if self.l1 is None else (*names, "l1")

    def evaluate(self, energy, state, batch, key):
        terms = self._smooth(energy, batch, state.carry, key)[0]
        return terms if self.l1 is None else terms | {"l1": l1_term(energy, self.l1)}

    def converged(self, before, after, old, new):
        if self.tol is None:
            return False
        rounding = 4 * jnp.finfo(after.dtype).eps * jnp.abs(after)
        return jnp.abs(before - after) <= jnp.maximum(self.tol, rounding)

    def _smooth(self, energy, batch, carry, key):
        """({name: loss}, carry) of the objective."""
        terms, carry = self.objective(energy, batch, carry, key)
        return terms if isinstance(terms, dict) else {"loss": terms}, carry

    def _closed_hessian(self, energy, parameters, batch, trainable):
        """The Hessian in the trainable parameters, if the objective has it in closed form; else None."""
        in_energy = jax.tree.leaves(eqx.filter(energy, trainable))
        if any(a is not b for a, b in zip(jax.tree.leaves(parameters), in_energy, strict=True)):
            return None  # constrained parameters move in other coordinates
        hessian = self.objective.hessian(energy, batch)
        if hessian is None:
            return None
        leaves = zip(jax.tree.leaves(trainable), jax.tree.leaves(energy), strict=True)
        kept = np.concatenate([np.full(a.size, is_kept) for is_kept, a in leaves if eqx.is_inexact_array(a)])
        return hessian if kept.all() else hessian[np.ix_(kept.nonzero()[0], kept.nonzero()[0])]
