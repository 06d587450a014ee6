"""One step of Newton's method: a direction from a dense Hessian, and a line search.

Nocedal and Wright (2006), Numerical optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import proximal

_MAX_HALVINGS = 30  # of the step, in the line search
_MAX_DAMPINGS = 25  # of the Hessian, each ten times the one before
_MAX_INNER = 1000  # proximal gradient steps on a quadratic model


class Step(NamedTuple):
    """A new point, what the function returned there besides its value, and the predicted decrease."""

    x: Any
    aux: Any
    decrease: Any


def step(function: Callable[[Any], Any], x: Any, here: Any, gradient: Any, hessian: Any) -> Step:
    """Return x − t H⁻¹∇ with the first t of 1, ½, ¼, … that decreases the function sufficiently.

    Where no t does, x is unchanged: the function has its minimum there, up to rounding.

    Args:
        function: x to (value, anything else).
        x, here, gradient, hessian: the point (p,), and the function and the derivatives of its value there.

    >>> f = lambda x: ((x**2).sum() - x[0], None)
    >>> step(f, jnp.ones(2), f(jnp.ones(2)), jnp.array([1.0, 2.0]), 2 * jnp.eye(2)).x.round(4)
    Array([0.5, 0. ], dtype=float32)
    """
    direction = newton_direction(gradient, hessian)
    slope = gradient @ direction
    return line_search(function, x, here, direction, slope)


def proximal_step(
    function: Callable[[Any], Any], x: Any, here: Any, gradient: Any, hessian: Any, l1_weights: Any
) -> Step:
    """Return x + t d, where d minimises ∇·d + ½ dᵀHd + Σ l1_weights |x + d|, and t is as in `step`.

    Lee, Sun and Saunders (2014), Proximal Newton-type methods for minimizing composite functions.

    >>> f = lambda x: (((x - 3) ** 2).sum() / 2, None)
    >>> zero = jnp.zeros(1)
    >>> step = proximal_step(f, zero, f(zero), jnp.array([-3.0]), jnp.eye(1), jnp.ones(1))
    >>> step.x.round(4)
    Array([2.], dtype=float32)
    """
    penalty = lambda x: l1_weights @ jnp.abs(x)
    direction = _proximal_direction(x, gradient, hessian, l1_weights)
    slope = gradient @ direction + penalty(x + direction) - penalty(x)
    return line_search(function, x, here, direction, slope, penalty)


def _proximal_direction(x: Any, gradient: Any, hessian: Any, l1_weights: Any) -> Any:
    """The minimum of the quadratic model plus the L1 norm, found where the Hessian has a diagonal of 1."""
    matrix, scale = unit_diagonal(hessian)
    matrix = matrix + jnp.finfo(x.dtype).eps ** (2 / 3) * jnp.eye(x.size, dtype=x.dtype)
    start, weights = x / scale, l1_weights * scale
    slope = gradient * scale - matrix @ start  # of the model at 0
    model = lambda u: u @ (matrix @ u) / 2 + slope @ u
    total = lambda u: model(u) + weights @ jnp.abs(u)
    residual = proximal.violations(start, gradient * scale, weights).max()
    found = proximal.minimise(model, start, weights, 1e-3 * residual, _MAX_INNER).x
    # With the signs of the minimum, it is the solution of a linear system.
    active = (found != 0) | (weights == 0)
    both = active & active[:, None]
    right = jnp.where(active, -slope - weights * jnp.sign(found), 0)
    exact = solve_damped(jnp.where(both, matrix, jnp.eye(x.size, dtype=x.dtype)), right)
    return jnp.where(total(exact) <= total(found), exact, found) * scale - x


def newton_direction(gradient: Any, hessian: Any) -> Any:
    """−(H + τ diag H)⁻¹ ∇ with the least τ of t, 10 t, … that makes the matrix positive definite.

    The first is t = ε^⅔, and its effect is corrected by iterative refinement. A singular H, such as that of a
    softmax without a penalty, then gives a step that is nearly 0 where the gradient is.
    """
    scaled, scale = unit_diagonal(hessian)
    return -scale * solve_damped(scaled, scale * gradient)


def unit_diagonal(hessian: Any) -> tuple[Any, Any]:
    """(D H D with a diagonal of ones, the diagonal of D): units in which all coordinates curve alike."""
    # Not `jnp.diagonal`, which is many operations.
    diagonal = jnp.abs((hessian * jnp.eye(hessian.shape[0], dtype=hessian.dtype)).sum(0))
    scale = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1)), 1)
    return hessian * scale * scale[:, None], scale


def solve_damped(matrix: Any, right: Any) -> Any:
    """(A + τI)⁻¹ b for a symmetric A whose diagonal is about 1; τ as in `newton_direction`."""
    p, dtype = right.shape[0], right.dtype
    identity = jnp.eye(p, dtype=dtype)

    def is_indefinite(attempt):
        i, _, factor = attempt
        return (i < _MAX_DAMPINGS) & ~jnp.isfinite(factor[-1]).all()

    def raise_damping(attempt):
        i, damping, _ = attempt
        factor = jax.lax.linalg.cholesky(matrix + damping * identity, symmetrize_input=False)
        return i + 1, 10 * damping, factor

    least = jnp.asarray(jnp.finfo(dtype).eps ** (2 / 3), dtype)
    start = (jnp.zeros((), jnp.int32), least, jnp.full((p, p), jnp.nan, dtype))
    n_dampings, _, factor = jax.lax.while_loop(is_indefinite, raise_damping, start)

    def solve(right):
        half = jax.lax.linalg.triangular_solve(factor, right[:, None], left_side=True, lower=True)
        whole = jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
        return whole[:, 0]

    # An indefinite matrix must stay damped.
    refine = lambda _, found: found + solve(right - matrix @ found)
    return jax.lax.fori_loop(0, jnp.where(n_dampings == 1, 3, 1), refine, jnp.zeros_like(right))


def line_search(
    function: Callable[[Any], Any],
    x: Any,
    here: Any,
    direction: Any,
    slope: Any,
    extra: Callable[[Any], Any] = lambda x: 0.0,
) -> Step:
    """Halve the step until function + extra decreases by 1e-4 of what the slope predicts (Armijo).

    A rise within rounding error is accepted, so that the last steps of full length are taken.
    """
    value, aux = here
    total = value + extra(x)
    slack = 4 * jnp.finfo(value.dtype).eps * jnp.abs(total)

    def is_too_long(search):
        k, _, _, found, length = search
        return (k < _MAX_HALVINGS) & ~(found <= total + 1e-4 * length * slope + slack)

    def shorten(search):
        k, _, _, _, length = search
        length = jnp.where(k == 0, length, length / 2)
        new = x + length * direction
        found, aux = function(new)
        return k + 1, new, aux, found + extra(new), length

    start = (jnp.zeros((), jnp.int32), x, aux, jnp.full_like(total, jnp.nan), jnp.ones((), x.dtype))
    _, new, new_aux, found, _ = jax.lax.while_loop(is_too_long, shorten, start)
    better = found <= total + slack
    new, aux = jax.tree.map(lambda new, old: jnp.where(better, new, old), (new, new_aux), (x, aux))
    return Step(new, aux, jnp.where(better, -slope, 0))
