"""Sequential minimal optimisation: the dual of support vector machines, by pairs of variables.

The dual  min ½ aᵀQa + pᵀa  subject to  yᵀa = δ, 0 ≤ a ≤ C,  with Q_ij = y_i y_j k(x_i, x_j), is solved for
the signed variables β = y a, which need no signs in the quadratic term:

    min ½ βᵀKβ − tᵀβ   subject to   Σ β = δ,   lower ≤ β ≤ upper,

with t = −y p, and [lower, upper] = [0, C] where y = 1, [−C, 0] where y = −1. Classification has one variable
for every row, with t = y; regression has two, with t = z ∓ ε. The residuals r = t − Kβ are the negative
gradient. β is optimal if no r of a variable that may grow is above that of one that may shrink: the largest
of the former minus the smallest of the latter is the *violation*.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._util.sizes import SMO_ROWS, SMO_WORKING_SET
from ...programs import interpreted
from .smo_cache import RowCache, empty_cache

#: The least curvature of a step: a kernel that is not positive semi-definite may have a negative one.
_LEAST_CURVATURE = 1e-12
#: A working set is optimised until its violation is this fraction of that of all variables.
_INNER_FRACTION = 0.1
#: But not below this fraction of `tol`, which leaves room for a violation by the other variables. With 0.5
#: instead, 2400 free variables take 7 % more steps.
_INNER_TOL = 0.8
#: The most steps in one working set, per variable.
_INNER_STEPS = 20
#: Variables of a working set, if the cache of kernel rows is smaller.
_LEAST_WORKING_SET = 64
#: A larger working set is taken, if one has fewer places per free variable than the inverse of this.
_FREE_FRACTION = 1.0
#: With more free variables per place of the largest working set all variables are optimised together.
_MOST_FREE = 1.0
#: The largest working set, per `SMO_WORKING_SET`, if all rows fit into memory. Sets that hold all free
#: variables take fewer steps, and steps on all variables cost more. CPU, n = 5000, time with it and without:
#: 0.79 to 0.82 on four kinds of data with C = 10 and 2200 to 2400 free, 0.73 with C = 100 and 2800 free.
_LARGE = 3
_UNROLLED = 16  # blocks that are compared with each other before the maximum of one is taken


class BoxDual(NamedTuple):
    """min ½ bᵀKb − Σ t β, where b = Σ_c β_c: c variables for each of n rows, so all arrays are (c, n)."""

    targets: Any
    lower: Any
    upper: Any


class DualSolution(NamedTuple):
    """The variables (c, n), their residuals t − Kβ (c, n), the number of steps, and the violation."""

    variables: Any
    residuals: Any
    n_steps: Any
    violation: Any


class Certificate(NamedTuple):
    """How far a solution is from the optimum, and what it consists of."""

    intercept: Any
    #: ½ βᵀKβ − tᵀβ, which is minimised.
    dual_objective: Any
    #: The objective of the primal problem plus `dual_objective`; 0 at the optimum.
    duality_gap: Any
    #: The largest violation of the conditions of Karush, Kuhn and Tucker.
    violation: Any
    n_support: Any
    n_at_bound: Any
    n_steps: Any


def solve_dual(
    rows: Callable[[Any], Any],
    block: Callable[[Any], Any],
    diagonal: Any,
    problem: BoxDual,
    *,
    tol: Any = 1e-3,
    max_steps: Any = jnp.iinfo(jnp.int32).max,
    cache_rows: int | None = None,
    rows_are_cheap: bool = False,
    start: DualSolution | None = None,
) -> DualSolution:
    """Return the solution of the dual, with a violation of at most `tol`, inside one compiled loop.

    A step changes the pair (i, j) where i violates most and j promises the largest decrease with it. Up to
    `SMO_WORKING_SET` variables are optimised together. Of more, the outer loop chooses a working set: the
    largest violators of both kinds, then free variables. A step costs only the size of the working set,
    whose block of the kernel matrix is computed. This is what makes it fast in XLA: a step on all of 5000
    variables takes 16 µs, one in a working set of 1024 takes 3. Whole kernel rows are needed only for the
    variables that have changed. They come from a cache of `cache_rows` rows; those missing are computed as
    matrix products. If more variables are free than a working set holds, and `cache_rows` allows the whole
    matrix, the last steps are on all variables: sets that exclude each other's variables take twice the
    steps.

    Args:
        rows: maps indices (m,) to rows of the kernel matrix, (m, n).
        block: maps indices (q,) to the kernel matrix of these rows with each other, (q, q).
        diagonal: of the kernel matrix, (n,).
        problem: the targets and bounds; rows with lower = upper = 0 are padding.
        tol: the violation to stop at.
        max_steps: the most steps.
        cache_rows: kernel rows in memory; None for the limit of `_util.sizes`.
        rows_are_cheap: compute rows again instead of keeping them. Zeros in 200 MB take 100 ms on a CPU.
        start: a solution to continue from; None for β = 0.

    Platt (1998), Sequential minimal optimization. Fan, Chen and Lin (2005), Working set selection using
    second order information for training support vector machines. Joachims (1999), Making large-scale SVM
    learning practical, for working sets.

    >>> import numpy as np
    >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
    >>> K, t = jnp.asarray(x @ x.T), jnp.array([[-1.0, -1.0, 1.0, 1.0]])
    >>> box = BoxDual(t, jnp.minimum(9 * t, 0), jnp.maximum(9 * t, 0))
    >>> solve_dual(lambda i: K[i], lambda i: K[i][:, i], jnp.diagonal(K), box).variables
    Array([[ 0. , -0.5,  0.5,  0. ]], dtype=float32)
    """
    targets = problem.targets
    n_variables, n = targets.size, targets.shape[1]
    if start is None:
        start = DualSolution(jnp.zeros_like(targets), targets, jnp.zeros((), jnp.int32), 0)
    start = start._replace(violation=violation(problem, start.variables, start.residuals), n_steps=0)
    if cache_rows is None:
        cache_rows = SMO_ROWS.rows(n * targets.dtype.itemsize)
    capacity = min(n, max(_LEAST_WORKING_SET, cache_rows))
    if n_variables <= min(SMO_WORKING_SET, capacity):
        return _solve_whole(block, diagonal, problem, tol, max_steps, start)
    most = min(capacity, n_variables // 2)
    sizes = sorted({min(size, most) for size in (SMO_WORKING_SET // 2, SMO_WORKING_SET, 2 * SMO_WORKING_SET)})
    kernel = rows, block, diagonal
    slots = _LEAST_WORKING_SET if rows_are_cheap else capacity
    if capacity == n and n_variables > _LARGE * SMO_WORKING_SET:
        sizes.append(_LARGE * SMO_WORKING_SET)
    whole_fits = capacity == n
    found = _solve_by_working_sets(kernel, problem, tol, max_steps, start, sizes, slots, whole_fits)
    if not whole_fits:
        return found
    last = _solve_whole(block, diagonal, problem, tol, max_steps - found.n_steps, found)
    return last._replace(n_steps=found.n_steps + last.n_steps)


def violation(problem: BoxDual, variables: Any, residuals: Any) -> Any:
    """The largest residual of a variable that may grow minus the smallest of one that may shrink."""
    most, least = _extremes(problem, variables, residuals)
    return most - least


def _extremes(problem: BoxDual, variables: Any, residuals: Any) -> tuple[Any, Any]:
    most = jnp.max(jnp.where(variables < problem.upper, residuals, -jnp.inf))
    return most, jnp.min(jnp.where(variables > problem.lower, residuals, jnp.inf))


# -- all variables at once -------------------------------------------------------------------------------


def _solve_whole(block, diagonal, problem, tol, max_steps, start):
    """Solve a problem whose kernel matrix is computed at once."""
    c, n = problem.targets.shape
    index = jnp.arange(n, dtype=jnp.int32)

    def run(start):
        flat = jax.tree.map(jnp.ravel, (start.residuals, start.variables, problem.lower, problem.upper))
        found = _optimise(block(index), jnp.tile(diagonal, c), *flat, tol, max_steps)
        variables, residuals, n_steps = found
        variables, residuals = variables.reshape(c, n), residuals.reshape(c, n)
        after = violation(problem, variables, residuals)
        return DualSolution(variables, residuals, n_steps, after)

    is_done = lambda start: start._replace(n_steps=jnp.zeros((), jnp.int32))
    return lax.cond((start.violation > tol) & (jnp.asarray(max_steps) > 0), run, is_done, start)


def _optimise(matrix, diagonal, residuals, variables, lower, upper, tol, max_steps):
    """(variables, residuals, steps) after steps on pairs, until the violation is at most `tol`; all (q,).

    The kernel matrix is of q rows, or of q / c if there are c variables for each of them.
    """
    n = len(matrix)

    def row_of(i):
        return jnp.tile(lax.dynamic_index_in_dim(matrix, i % n, keepdims=False), len(diagonal) // n)

    def step(state):
        n_steps, residuals, variables, _ = state
        largest, i = _max_and_argmax(jnp.where(variables < upper, residuals, -jnp.inf))
        row = row_of(i)
        # Where the pair (i, j) moves by s, the objective falls by s · slope − ½ s² · curvature.
        slope = largest - residuals
        curvature = jnp.maximum(diagonal[i] + diagonal - 2 * row, _LEAST_CURVATURE)
        can_fall = (variables > lower) & (slope > tol)
        gain, j = _max_and_argmax(jnp.where(can_fall, slope * slope / curvature, -jnp.inf))
        runs = gain > -jnp.inf
        room_i, room_j = upper[i] - variables[i], variables[j] - lower[j]
        size = jnp.minimum(slope[j] / curvature[j], jnp.minimum(room_i, room_j))
        size = jnp.where(runs, size, 0)
        # Bounds are set exactly: a variable next to its bound would be counted as free.
        at_i = jnp.where(runs & (size >= room_i), upper[i], variables[i] + size)
        variables = variables.at[i].set(at_i)
        at_j = jnp.where(runs & (size >= room_j), lower[j], variables[j] - size)
        variables = variables.at[j].set(at_j)
        residuals = residuals - size * (row - row_of(j))
        n_steps = n_steps + runs.astype(jnp.int32)
        return n_steps, residuals, variables, runs & (n_steps < max_steps)

    start = (jnp.zeros((), jnp.int32), residuals, variables, jnp.asarray(max_steps) > 0)
    n_steps, residuals, variables, _ = lax.while_loop(lambda state: state[-1], step, start)
    return variables, residuals, n_steps


def _max_and_argmax(values: Any) -> tuple[Any, Any]:
    """The largest of (q,) and its index.

    XLA's argmax compares one number after another on a CPU. Comparing whole blocks first is one vectorised
    loop: a step on 1024 variables takes 3.4 µs instead of 15.9.
    """
    n = values.shape[0]
    if interpreted() or n % _UNROLLED or n == _UNROLLED:
        i = jnp.argmax(values).astype(jnp.int32)
        return values[i], i
    blocks = values.reshape(_UNROLLED, n // _UNROLLED)
    most, block = blocks[0], jnp.zeros(n // _UNROLLED, jnp.int32)
    for k in range(1, _UNROLLED):
        higher = blocks[k] > most
        most, block = jnp.where(higher, blocks[k], most), jnp.where(higher, k, block)
    column = jnp.argmax(most).astype(jnp.int32)
    return most[column], block[column] * (n // _UNROLLED) + column


# -- working sets ----------------------------------------------------------------------------------------


class _Progress(NamedTuple):
    residuals: Any  # (c, n)
    variables: Any  # (c, n)
    cache: RowCache
    n_steps: Any
    violation: Any
    inner_fraction: Any


def _solve_by_working_sets(kernel, problem, tol, max_steps, start, sizes, capacity, whole_fits):
    rows, block, diagonal = kernel
    c, n = problem.targets.shape
    lower, upper = problem.lower.ravel(), problem.upper.ravel()

    def improve(size, state):
        """(The indices of a working set of this size, the changes of its variables, its steps), padded."""
        variables, residuals = state.variables.ravel(), state.residuals.ravel()
        # The largest set is for the free variables; those that should become free are few by then.
        share = size // (16 if size == _LARGE * SMO_WORKING_SET else 4)
        chosen = _choose_working_set(variables, residuals, lower, upper, size, share)
        kernel_rows = (chosen % n).astype(jnp.int32)
        inner_tol = jnp.maximum(_INNER_TOL * tol, state.inner_fraction * state.violation)
        most_steps = jnp.minimum(_INNER_STEPS * size, max_steps - state.n_steps)
        after, _, n_steps = _optimise(
            block(kernel_rows),
            diagonal[kernel_rows],
            residuals[chosen],
            variables[chosen],
            lower[chosen],
            upper[chosen],
            inner_tol,
            most_steps,
        )
        is_changed = after != variables[chosen]
        short = (0, max(sizes) - size)
        return *(jnp.pad(array, short) for array in (chosen, after, is_changed)), n_steps

    def step(state):
        n_free = count_free(state)
        branch = sum((n_free > _FREE_FRACTION * size).astype(jnp.int32) for size in sizes[:-1])
        branches = [functools.partial(improve, size) for size in sizes]
        chosen, after, is_changed, n_steps = lax.switch(branch, branches, state)
        flat = state.variables.ravel()
        weights = jnp.where(is_changed, after - flat[chosen], 0)
        cache, change = state.cache.weighted_sum((chosen % n).astype(jnp.int32), weights, rows)
        at = jnp.where(is_changed, chosen, flat.size)
        variables = flat.at[at].set(after, mode="drop").reshape(c, n)
        residuals = state.residuals - change
        total = state.n_steps + n_steps
        after = violation(problem, variables, residuals)
        # If no variable outside violated more, this set is (nearly) the right one: solve it to `tol`.
        is_right = after < 2 * _INNER_FRACTION * state.violation
        fraction = jnp.where(is_right, 0, _INNER_FRACTION)
        return _Progress(residuals, variables, cache, total, after, fraction.astype(after.dtype))

    def is_running(state):
        runs = (state.violation > tol) & (state.n_steps < max_steps)
        return runs & (count_free(state) <= _MOST_FREE * sizes[-1]) if whole_fits else runs

    def count_free(state):
        return jnp.sum((state.variables > problem.lower) & (state.variables < problem.upper))

    cache = empty_cache(capacity, n, start.residuals.dtype)
    zero = jnp.zeros((), jnp.int32)
    fraction = jnp.asarray(_INNER_FRACTION, start.residuals.dtype)
    first = _Progress(start.residuals, start.variables, cache, zero, start.violation, fraction)
    last = lax.while_loop(is_running, step, first)
    return DualSolution(last.variables, last.residuals, last.n_steps, last.violation)


def _choose_working_set(variables, residuals, lower, upper, size, share):
    """The indices of a `share` that should grow, one that should shrink, then free ones, `size` in all.

    The free variables have to move with the others. With half of the set for them, twelve working sets of
    1024 variables instead of fourteen solved 5000 rows with C = 1, and 21 instead of 37 with C = 10.
    """
    can_grow, can_fall = variables < upper, variables > lower
    most = jnp.max(jnp.where(can_grow, residuals, -jnp.inf))
    least = jnp.min(jnp.where(can_fall, residuals, jnp.inf))
    # Ranks are float32, for which XLA has a fast `top_k`; they are relative to the middle, so that the
    # largest violation is exact to seven digits.
    excess = (residuals - (most + least) / 2).astype(jnp.float32)
    none, excluded = jnp.float32(-1e30), jnp.float32(-jnp.inf)
    grow = jnp.where(can_grow, excess, none)
    fall = jnp.where(can_fall, -excess, none)
    first = lax.top_k(grow, share)[1]
    taken = jnp.zeros(variables.shape, bool).at[first].set(True)
    second = lax.top_k(jnp.where(taken, excluded, fall), share)[1]
    taken = taken.at[second].set(True)
    bonus = jnp.where(can_grow & can_fall, jnp.float32(2), 0)
    # Violations in [−1, 1] and a bonus of 2 for free variables.
    rank = jnp.maximum(grow, fall) / jnp.maximum(jnp.max(jnp.abs(excess)), jnp.float32(1e-30))
    rank = jnp.where(can_grow | can_fall, rank + bonus, none)
    third = lax.top_k(jnp.where(taken, excluded, rank), size - 2 * share)[1]
    return jnp.concatenate([first, second, third])


# -- the certificate ---------------------------------------------------------------------------------------


def certify(problem: BoxDual, solution: DualSolution) -> Certificate:
    """Return the intercept, the duality gap and the violation of a solution.

    The primal problem is  min ½ wᵀw + Σ_i max_{lower ≤ β ≤ upper} β (t_i − wᵀφ(x_i) − b), whose second
    term is the hinge loss for classes, and the ε-insensitive one for numbers.
    """
    variables, residuals = solution.variables, solution.residuals
    lower, upper = problem.lower, problem.upper
    is_free = (variables > lower) & (variables < upper)
    n_free = jnp.sum(is_free, dtype=jnp.int32)
    most, least = _extremes(problem, variables, residuals)
    middle = jnp.where(jnp.isfinite(most + least), (most + least) / 2, 0)
    mean = jnp.sum(jnp.where(is_free, residuals, 0)) / jnp.maximum(n_free, 1)
    intercept = jnp.where(n_free > 0, mean, middle)
    # βᵀKβ = βᵀ(t − r).
    squared_norm = jnp.sum(variables * (problem.targets - residuals))
    objective = 0.5 * squared_norm - jnp.sum(variables * problem.targets)
    excess = residuals - intercept
    bound = jnp.where(excess > 0, upper, lower)
    finite = jnp.isfinite(bound)
    loss = jnp.sum(jnp.where(finite & (excess != 0), jnp.where(finite, bound, 0) * excess, 0))
    # Without a bound a loss must be 0: w is scaled until it is.
    short = jnp.max(jnp.where(finite, 0, jnp.abs(excess)))
    primal = 0.5 * squared_norm / jnp.maximum(1 - short, 0) ** 2 + loss
    n_support = jnp.sum(variables != 0, dtype=jnp.int32)
    n_at_bound = jnp.sum((variables != 0) & ~is_free, dtype=jnp.int32)
    return Certificate(
        intercept,
        objective,
        jnp.maximum(primal + objective, 0),
        jnp.maximum(most - least, 0),
        n_support,
        n_at_bound,
        solution.n_steps,
    )
