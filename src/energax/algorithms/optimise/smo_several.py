"""Several dual problems over the same rows, one after the other: the pairs of classes of a classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .smo import BoxDual, Certificate, DualSolution, certify, solve_dual
from .smo_cache import compact


def solve_duals(
    rows: Callable[[Any], Any],
    block: Callable[[Any], Any],
    diagonal: Any,
    problems: BoxDual,
    starts: DualSolution,
    *,
    most_rows: int | None = None,
    **options: Any,
) -> tuple[DualSolution, Certificate]:
    """Return the solutions of several problems and their certificates, inside one compiled loop.

    The arrays of problems and solutions are (p, c, n) and (p,). A row whose bounds are all 0 takes no part in
    a problem, which costs only what its other rows cost.

    Args:
        rows, block, diagonal: the kernel of all n rows, as in `solve_dual`.
        most_rows: the most rows that take part in a problem, the size of its arrays; None for n. A problem
            with more is not solved: its objective is NaN.
        options: further arguments of `solve_dual`.
    """
    n = problems.targets.shape[-1]
    size = n if most_rows is None else min(n, most_rows)

    def solve_one(args):
        problem, start = args
        index, count = compact((problem.lower != problem.upper).any(0))
        own, is_own = index[:size], jnp.arange(size, dtype=count.dtype) < count
        take = lambda a: jnp.where(is_own, a[:, own], 0) if a.ndim else a
        solution = solve_dual(
            lambda i: jnp.take(rows(own[i]), own, axis=1),
            lambda i: block(own[i]),
            diagonal[own],
            jax.tree.map(take, problem),
            start=jax.tree.map(take, start),
            **options,
        )
        place = jnp.where(is_own, own, n)  # an index out of range is dropped
        put = lambda a, values: a.at[:, place].set(values, mode="drop")
        solution = solution._replace(
            variables=put(start.variables, solution.variables),
            residuals=put(start.residuals, solution.residuals),
        )
        found = certify(problem, solution)
        objective = jnp.where(count > size, jnp.nan, found.dual_objective)
        return solution, found._replace(dual_objective=objective)

    return lax.map(solve_one, (problems, starts))
