"""`SMO`: kernel expansions learned through their dual."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import is_whole
from .._util.arrays import asarray
from .._util.sizes import SMO_CHEAP_COLUMNS, number_of_rows
from ..algorithms.optimise.smo import Certificate, DualSolution, certify, solve_dual
from ..algorithms.optimise.smo_several import solve_duals
from ..errors import Unsuitable, check_whole_number
from ..fitting import Learner, check_setting

_MOST_STEPS = int(np.iinfo(np.int32).max)


class SMOState(eqx.Module):
    """The dual variables with their residuals, and the certificate of the solution.

    With several classes all arrays have a leading axis of pairs of classes.
    """

    solution: DualSolution
    certificate: Certificate


class SMO(Learner):
    """Sequential minimal optimisation of the dual of a support vector machine.

    One step solves the problem of all rows to the tolerance, inside one compiled loop with a bounded cache of
    kernel rows (`algorithms.optimise.smo`). The support vectors become the rows of the batch, so there must
    be as many of both; those with coefficient 0 may be dropped afterwards (`energy.crop`). The state holds a
    certificate: duality gap, largest violation of the optimality conditions, numbers of support vectors.
    Several classes are one problem for every pair, solved one after the other in the same loop.

    Args:
        C: the bound of a variable of weight 1; a row of weight w has the bound C w. ∞ is a hard margin.
        tol: the violation to stop at.
        max_steps: the most steps, each on a pair of variables.
        cache_rows: kernel rows in memory; None for the limit of `_util.sizes`.
        most_rows: with several classes, the most rows of two of them, which bounds the size of the arrays
            of a pair; None for all rows.

    Platt (1998), Sequential minimal optimization; Fan, Chen and Lin (2005), Working set selection using
    second order information for training support vector machines.

    >>> from energax import fit
    >>> from energax.energies import SupportVectorClassifier
    >>> from energax.kernels import Linear
    >>> X = jnp.array([[-2.0], [-1.0], [1.0], [3.0]])
    >>> start = SupportVectorClassifier(Linear(), X, jnp.zeros((1, 4)), jnp.zeros(1))
    >>> found = fit(start, {"x": X, "y": jnp.array([0, 0, 1, 1])}, SMO(C=9.0), key=0)
    >>> found.status, found.energy.coefficients
    ('converged', Array([[ 0. , -0.5,  0.5,  0. ]], dtype=float32))
    """

    matmul_precision = "highest"

    C: Any = 1.0
    tol: Any = 1e-3
    max_steps: Any = _MOST_STEPS
    cache_rows: int | None = eqx.field(static=True, default=None)
    most_rows: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_setting("C", self.C, lambda c: c > 0, "a number > 0, or infinity")
        check_setting("tol", self.tol, lambda t: 0 < t < np.inf, "a number > 0")
        check_setting(
            "max_steps",
            self.max_steps,
            lambda s: is_whole(s) and 1 <= s <= _MOST_STEPS,
            "a whole number >= 1",
        )
        for name in ("cache_rows", "most_rows"):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name))

    def check(self, energy, data):
        if not energy.knows("dual_problem"):
            raise Unsuitable(
                f"SMO needs a kernel expansion such as SupportVectorClassifier, not {type(energy).__name__}. "
                "For other classifiers use Descent(Margin())."
            )
        self._check_rows(energy, number_of_rows(data))

    def _check_rows(self, energy, n):
        m = energy.coefficients.shape[-1]
        if n != m:
            raise Unsuitable(
                f"SMO needs all rows in one batch and one coefficient for each: the energy has {m}, the "
                f"batch {n} rows. Leave batch_size out, and start from as many support vectors as rows."
            )

    def _problem(self, energy, batch):
        # A weight of 0 is 0 · ∞ for a hard margin.
        bound = jnp.where(batch.weight > 0, self.C * batch.weight, 0).astype(energy.coefficients.dtype)
        return energy.dual_problem(batch.data, bound)

    def init(self, energy, batch, key, trainable):
        problem = self._problem(energy, batch)
        zero, problems = jnp.zeros_like(problem.targets), problem.targets.shape[:-2]
        none = jnp.zeros(problems, jnp.int32), jnp.zeros(problems, zero.dtype)
        start = DualSolution(zero, problem.targets, *none)
        return SMOState(start, (jax.vmap(certify) if problems else certify)(problem, start))

    def step(self, energy, state, batch, key, trainable):
        self._check_rows(energy, batch.n)
        problem = self._problem(energy, batch)
        options = {
            "tol": self.tol,
            "max_steps": self.max_steps,
            "cache_rows": self.cache_rows,
            "rows_are_cheap": batch.data["x"].shape[-1] <= SMO_CHEAP_COLUMNS,
        }
        kernel = energy.dual_kernel(batch.data)
        if problem.targets.ndim > 2:
            pairs = {"most_rows": self.most_rows} | options
            solution, found = solve_duals(*kernel, problem, state.solution, **pairs)
        else:
            solution = solve_dual(*kernel, problem, start=state.solution, **options)
            found = certify(problem, solution)
        data = {name: asarray(value) for name, value in batch.data.items()}
        new = energy.with_dual(data, solution.variables, found.intercept)
        return new, SMOState(solution, found), {"dual objective": found.dual_objective.sum()}

    def term_names(self, energy, state, batch, key, trainable):
        return ("dual objective",)

    def evaluate(self, energy, state, batch, key):
        """The mean loss of validation rows: Σ max_β β (t − f(x)), hinge or ε-insensitive."""
        problem = self._problem(energy, batch)
        outputs = energy.row_outputs(batch.data["x"]).reshape(batch.n, -1).T
        outputs = outputs[:, None] if problem.targets.ndim > 2 else outputs
        excess = problem.targets - outputs
        loss = jnp.where(excess > 0, problem.upper, problem.lower) * excess
        total = jnp.where(excess == 0, 0, loss).sum()
        return {"loss": total / jnp.maximum(batch.weight.sum(), 1e-30)}

    def converged(self, before, after, old, new):
        """Whether the objective stayed the same: there was no pair left to change."""
        return before == after
