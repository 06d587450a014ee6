"""Limited-memory BFGS in one compiled loop. Liu and Nocedal (1989)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

_MAX_HALVINGS = 30  # of the step, in the line search
_MAX_STALLED = 3  # iterations without progress


class _State(NamedTuple):
    """One iteration: the point, its value and gradient, and the last steps and changes of the gradient."""

    x: Any
    value: Any
    gradient: Any
    steps: Any  # (memory_size, d), the newest first
    changes: Any  # (memory_size, d)
    stalled: Any
    iteration: Any


def minimise(
    function: Callable[[Any], Any], start: Any, *, tol: float, max_iter: int, memory_size: int
) -> tuple[Any, Any, Any]:
    """Run L-BFGS from `start`, any tree of arrays: (the last point, its value, whether it is a minimum).

    Optax's L-BFGS is not used for two reasons. Its zoom line search calls the function at half a
    dozen places, each compiled separately; here it is three. And under `vmap` these calls run side
    by side, where batched factorisations can wait for each other forever on a CPU of few cores
    (jaxlib's LAPACK kernels wait inside the thread pool they need).
    """
    flat, unravel = ravel_pytree(start)
    target = lambda x: function(unravel(x))

    def is_running(state: _State) -> Any:
        steep = _largest(state.gradient) > tol
        more = (state.iteration <= max_iter) & steep & (state.stalled < _MAX_STALLED)
        return (state.iteration == 0) | more

    memory = jnp.zeros((memory_size, flat.size), flat.dtype)
    zero = jnp.zeros((), jnp.int32)
    unknown = jnp.full((), jnp.inf, jax.eval_shape(target, flat).dtype)
    state = _State(flat, unknown, jnp.zeros_like(flat), memory, memory, zero, zero)
    state = jax.lax.while_loop(is_running, lambda state: _step(target, state), state)
    stationary = (state.stalled >= _MAX_STALLED) & _is_stationary(target, state)
    converged = (_largest(state.gradient) <= tol) | stationary
    return unravel(state.x), state.value, converged & jnp.isfinite(state.value)


def _largest(gradient: Any) -> Any:
    return jnp.max(jnp.abs(gradient), initial=0.0)


def _step(target: Callable[[Any], Any], state: _State) -> _State:
    """One iteration. Iteration 0 does not move: it computes the first value and gradient."""
    x, value, gradient, steps, changes, stalled, i = state
    eps = jnp.finfo(x.dtype).eps
    direction = -_two_loop_recursion(gradient, steps, changes)
    slope = direction @ gradient
    downhill = slope < 0
    direction = jnp.where(downhill, direction, -gradient)
    slope = jnp.where(downhill, slope, -gradient @ gradient)
    length = jnp.where(i == 1, jnp.minimum(1.0, 1 / jnp.linalg.norm(gradient)), 1.0).astype(x.dtype)
    length, new_value = _line_search(target, x, value, direction, slope, length)
    new = jnp.where(new_value < value, x + length * direction, x)
    new_value, new_gradient = jax.value_and_grad(target)(new)
    step, change = new - x, new_gradient - gradient
    # Only pairs of positive curvature are kept (Li and Fukushima 2001), so directions point downhill.
    keep = step @ change > eps * jnp.sqrt((step @ step) * (change @ change))
    steps = jnp.where(keep, jnp.roll(steps, 1, 0).at[0].set(step), steps)
    changes = jnp.where(keep, jnp.roll(changes, 1, 0).at[0].set(change), changes)
    no_progress = (i > 0) & (value - new_value <= 10 * eps * jnp.maximum(1.0, jnp.abs(value)))
    stalled = jnp.where(no_progress, stalled + 1, 0)
    return _State(new, new_value, new_gradient, steps, changes, stalled, i + 1)


def _line_search(
    target: Callable[[Any], Any], x: Any, value: Any, direction: Any, slope: Any, length: Any
) -> tuple[Any, Any]:
    """(length, value there): the length is halved until the value decreases sufficiently (Armijo)."""

    def is_too_long(search):
        length, new_value, k = search
        return (k < _MAX_HALVINGS) & ~(new_value <= value + 1e-4 * length * slope)

    def shorten(search):
        length, _, k = search
        length = jnp.where(k == 0, length, length / 2)
        return length, target(x + length * direction), k + 1

    start = (length, jnp.full_like(value, jnp.nan), 0)
    length, new_value, _ = jax.lax.while_loop(is_too_long, shorten, start)
    return length, new_value


def _is_stationary(target: Callable[[Any], Any], state: _State) -> Any:
    """Whether a point without progress is a minimum within rounding, and not a kink, for example.

    A parabola along the gradient with curvature h has its minimum ‖∇‖² / 2h below the value; this must
    be within the rounding error of the value.
    """
    x, gradient = state.x, state.gradient
    eps = jnp.finfo(x.dtype).eps
    squares = gradient @ gradient
    direction = gradient / jnp.sqrt(jnp.maximum(squares, jnp.finfo(x.dtype).tiny))
    distance = eps ** (1 / 3) * jnp.maximum(1.0, jnp.max(jnp.abs(x), initial=0.0))
    h = direction @ (jax.grad(target)(x + distance * direction) - gradient) / distance
    return squares <= 50 * eps * jnp.maximum(1.0, jnp.abs(state.value)) * h


def _two_loop_recursion(gradient: Any, steps: Any, changes: Any) -> Any:
    """H⁻¹ ∇, with H⁻¹ from the last pairs of steps and changes of the gradient, the newest first."""
    curvature = jnp.sum(steps * changes, axis=1)
    rho = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 0)

    def backward(q, pair):
        step, change, r = pair
        alpha = r * (step @ q)
        return q - alpha * change, alpha

    q, alphas = jax.lax.scan(backward, gradient, (steps, changes, rho))
    squares = changes[0] @ changes[0]
    q = q * jnp.where(curvature[0] > 0, curvature[0] / jnp.where(squares > 0, squares, 1), 1)

    def forward(q, pair):
        step, change, r, alpha = pair
        return q + (alpha - r * (change @ q)) * step, None

    return jax.lax.scan(forward, q, (steps, changes, rho, alphas), reverse=True)[0]
