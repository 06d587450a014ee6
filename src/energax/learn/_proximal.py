"""Proximal gradients: any smooth objective plus a penalty on the absolute values of some weights."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from .._util.arguments import NAME, WEIGHT, check_arguments, check_each
from ..algorithms.optimise import proximal
from ..errors import BadInput, Unsuitable, check_instance, check_whole_number, describe
from ..fitting import Learner, check_setting
from ..parameters import constrain, trainable_leaves, unconstrain
from ._objective import Objective
from ._requirements import check_no_after_update


class ProximalState(eqx.Module):
    """The state of the accelerated proximal gradient method, and the largest violation of its conditions."""

    search: proximal.State

    @property
    def violation(self) -> Any:
        """By how much the parameters fail to be a minimum, the largest over the coordinates."""
        return self.search.violation


class Proximal(Learner):
    """Accelerated proximal gradients on an objective plus an L1 penalty: min_θ objective(θ) + Σ l1 |w|.

    Weights become exactly 0. Every step uses all rows; the objective must be smooth and not random. The
    result has a certificate: `fit.state.violation`, the largest distance of the negative gradient from the
    slopes of the penalty, which is 0 at a minimum.

    Args:
        objective: the smooth part, such as `CrossEntropy(l2=…)` or `NegativeLogLikelihood()`.
        l1: the penalty, a number or an array that broadcasts to the weights.
        on: the names of the parameters with the penalty.
        tol: converged when the violation is at most this; None never converges.
        n_steps: steps in an epoch.

    Beck and Teboulle (2009), A fast iterative shrinkage-thresholding algorithm for linear inverse problems;
    O'Donoghue and Candès (2015), Adaptive restart for accelerated gradient schemes.

    >>> from energax import fit
    >>> from energax.energies import Gaussian, LinearModel
    >>> from energax.learn import NegativeLogLikelihood
    >>> X = jnp.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> start = LinearModel(jnp.zeros(2), jnp.zeros(()), Gaussian(1.0))
    >>> data = {"x": X, "y": 3 * X[:, 0] + 0.2 * X[:, 1]}
    >>> fit(start, data, Proximal(NegativeLogLikelihood(), l1=0.5), key=0).energy.weight
    Array([2.5, 0. ], dtype=float32)
    """

    matmul_precision = "highest"

    objective: Objective
    l1: Any
    on: tuple[str, ...] = eqx.field(static=True)
    tol: Any
    n_steps: int = eqx.field(static=True)

    def __init__(
        self,
        objective: Objective,
        l1: Any,
        *,
        on: Any = ("weight",),
        tol: Any = 1e-6,
        n_steps: int = 10,
    ):
        check_instance("objective", objective, Objective, "an objective of energax.learn")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        check_arguments(locals(), l1=WEIGHT)
        if not check_each("on", [on] if isinstance(on, str) else on, NAME, "names of parameters"):
            raise BadInput("on", describe(on), "names of parameters")
        check_whole_number("n_steps", n_steps)
        self.objective, self.l1, self.tol, self.n_steps = objective, l1, tol, n_steps
        self.on = (on,) if isinstance(on, str) else tuple(on)

    def check(self, energy, data):
        self.objective.check(energy, data)
        if self.objective.partner is not None:
            name = type(self.objective).__name__
            raise Unsuitable(f"Proximal does not train the partner of {name}. Use Descent({name}(…)).")
        check_no_after_update(self, self.objective)
        unknown = [name for name in self.on if not hasattr(energy, name)]
        if unknown:
            name = type(energy).__name__
            raise Unsuitable(
                f"Proximal penalises {unknown}, which {name} does not have. Pass other names as on=."
            )

    def init(self, energy, batch, key, trainable):
        flat, target, l1 = self._problem(energy, batch, key, trainable)[:3]
        return ProximalState(proximal.init(target, flat, l1))

    def step(self, energy, state, batch, key, trainable):
        _, target, l1, rebuild = self._problem(energy, batch, key, trainable)
        tol = -jnp.inf if self.tol is None else self.tol

        def is_running(carry):
            return (carry[0].violation > tol) & (carry[1] < self.n_steps)

        advance = lambda carry: (proximal.step(target, carry[0], l1), carry[1] + 1)
        search, _ = jax.lax.while_loop(is_running, advance, (state.search, jnp.zeros((), jnp.int32)))
        penalty = jnp.sum(l1 * jnp.abs(search.x))
        terms = {"loss": search.value - penalty, "l1": penalty}
        return rebuild(search.x), ProximalState(search), terms

    def _problem(self, energy, batch, key, trainable):
        """(the parameters (d,), the smooth function of them, their penalties (d,), the energy of them)."""
        parameters, frozen = eqx.partition(unconstrain(energy), trainable)
        flat, unravel = ravel_pytree(parameters)
        rebuild = lambda x: constrain(eqx.combine(unravel(x), frozen))
        carry = self.objective.init(energy, batch, key)

        def smooth(x):
            terms, _ = self.objective(rebuild(x), batch, carry, key)
            return sum(terms.values()) if isinstance(terms, dict) else terms

        zeros = jax.tree.map(jnp.zeros_like, parameters)
        for name in self.on:
            if getattr(zeros, name) is not None:  # None if it is frozen
                full = jnp.broadcast_to(jnp.asarray(self.l1), getattr(zeros, name).shape)
                zeros = eqx.tree_at(lambda tree, name=name: getattr(tree, name), zeros, full)
        return flat, smooth, ravel_pytree(zeros)[0].astype(flat.dtype), rebuild

    def term_names(self, energy, state, batch, key, trainable):
        return ("loss", "l1")

    def evaluate(self, energy, state, batch, key):
        flat, smooth, l1, _ = self._problem(energy, batch, key, trainable_leaves(energy))
        return {"loss": smooth(flat), "l1": jnp.sum(l1 * jnp.abs(flat))}

    def converged(self, before, after, old, new):
        """Whether an epoch changed nothing: the violation was within the tolerance."""
        if self.tol is None:
            return False
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        same = [jnp.all(a == b) for a, b in pairs if eqx.is_inexact_array(a)]
        return jnp.all(jnp.stack(same)) if same else True
