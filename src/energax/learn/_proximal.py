"""Proximal gradient descent: a smooth objective plus an L1 penalty, with weights that are exactly 0."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ..algorithms.optimise import proximal
from ..errors import Unsuitable, check_instance, check_whole_number
from ..fitting import Learner, check_setting
from ..parameters import constrain, unconstrain
from ._newton import l1_term, l1_weights
from ._objective import Objective


class Proximal(Learner):
    """Accelerated proximal gradient steps on objective + l1 Σ |weights|, for any number of parameters.

    `Newton` with `l1` takes fewer steps where its Hessian fits in memory.

    Args:
        objective: a smooth loss, an `Objective` without a partner.
        l1: the weight of Σ |weights| (arrays of two axes or more, not biases).
        n_steps: gradient steps in an epoch.
        tol: the fit has converged when an epoch changes the objective by at most this, or by rounding error;
            None never stops.

    Beck and Teboulle (2009), A fast iterative shrinkage-thresholding algorithm for linear inverse problems.

    >>> from energax import fit
    >>> from energax.energies import Linear
    >>> from energax.learn import CrossEntropy
    >>> start = Linear(jnp.zeros((2, 1)), jnp.zeros(2))
    >>> rows = {"x": jnp.array([[0.0], [1.0], [2.0], [3.0]]), "y": jnp.array([0, 1, 0, 1])}
    >>> fit(start, rows, Proximal(CrossEntropy(), 1.0), epochs=2, key=0).energy.weight
    Array([[0.],
           [0.]], dtype=float32)
    """

    objective: Objective
    l1: Any
    n_steps: int = eqx.field(static=True)
    tol: float | None

    monotone = True
    matmul_precision = "highest"

    def __init__(self, objective: Objective, l1: Any, *, n_steps: int = 100, tol: float | None = None):
        check_instance("objective", objective, Objective, "an objective of energax.learn")
        check_setting("l1", l1, lambda l1: l1 >= 0, "a number >= 0")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        check_whole_number("n_steps", n_steps)
        self.objective, self.l1, self.n_steps, self.tol = objective, l1, int(n_steps), tol

    def check(self, energy, data):
        self.objective.check(energy, data)
        if self.objective.partner is not None:
            name = type(self.objective).__name__
            raise Unsuitable(f"Proximal does not train a partner, but {name} has one. Use Descent.")

    def init(self, energy, batch, key, trainable):
        return self.objective.init(energy, batch, key)

    def step(self, energy, state, batch, key, trainable):
        parameters, frozen = eqx.partition(unconstrain(energy), trainable)
        x, unravel = ravel_pytree(parameters)
        model = lambda x: constrain(eqx.combine(unravel(x), frozen))
        smooth = lambda x: sum(self._smooth(model(x), state, batch, key).values())
        found, _, _ = proximal.minimise(smooth, x, l1_weights(parameters, self.l1), 0.0, self.n_steps)
        new = model(found)
        return new, state, self.evaluate(new, state, batch, key)

    def evaluate(self, energy, state, batch, key):
        return self._smooth(energy, state, batch, key) | {"l1": l1_term(energy, self.l1)}

    def converged(self, before, after, old, new):
        if self.tol is None:
            return False
        rounding = 4 * jnp.finfo(after.dtype).eps * jnp.abs(after)
        return jnp.abs(before - after) <= jnp.maximum(self.tol, rounding)

    def _smooth(self, energy, carry, batch, key):
        terms, _ = self.objective(energy, batch, carry, key)
        return terms if isinstance(terms, dict) else {"loss": terms}
