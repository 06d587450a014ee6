"""Minimisation of a smooth function plus weighted absolute values, by accelerated proximal gradients.

f(x) + Σ_j l1_j |x_j|. Beck and Teboulle (2009), A fast iterative shrinkage-thresholding algorithm for linear
inverse problems; with the restarts of O'Donoghue and Candès (2015), Adaptive restart for accelerated gradient
schemes, which make it linear where f is strongly convex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

_MAX_HALVINGS = 30  # of the step size, in one iteration
_GROWTH = 1.5  # of the step size at a restart, where the curvature may have become smaller


class State(NamedTuple):
    """One iteration.

    Attributes:
        x: the point, (d,).
        ahead: the point from which the next step is taken.
        momentum: the number t of Nesterov's sequence.
        step_size: one over the curvature that was found.
        value: f(x) + Σ l1 |x|.
        violation: by how much x fails to be a minimum (`violations`), the largest over the coordinates.
    """

    x: Any
    ahead: Any
    momentum: Any
    step_size: Any
    value: Any
    violation: Any


def shrink(x: Any, by: Any) -> Any:
    """Return sign(x) max(|x| − by, 0), the minimum of ½ (z − x)² + by |z| over z.

    >>> shrink(jnp.array([3.0, -0.5]), 1.0)
    Array([ 2., -0.], dtype=float32)
    """
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - by, 0)


def violations(x: Any, gradient: Any, l1: Any) -> Any:
    """Return the distance of −∇f from the slopes of l1 |x|, coordinate by coordinate; 0 at a minimum.

    >>> violations(jnp.array([0.0, 2.0]), jnp.array([0.5, -0.75]), 1.0)
    Array([0.  , 0.25], dtype=float32)
    """
    return jnp.where(x == 0, jnp.maximum(jnp.abs(gradient) - l1, 0), jnp.abs(gradient + l1 * jnp.sign(x)))


def init(smooth: Callable[[Any], Any], x: Any, l1: Any) -> State:
    """Return the state at x, (d,), with a step size from the curvature along the gradient."""
    value, gradient = jax.value_and_grad(smooth)(x)
    length = jnp.linalg.norm(gradient)
    tiny = jnp.finfo(x.dtype).tiny
    direction = gradient / jnp.maximum(length, tiny)
    distance = jnp.finfo(x.dtype).eps ** 0.5 * jnp.maximum(1.0, jnp.linalg.norm(x))
    curvature = jnp.linalg.norm(jax.grad(smooth)(x + distance * direction) - gradient) / distance
    step_size = jnp.where(curvature > 0, 1 / jnp.maximum(curvature, tiny**0.5), 1.0).astype(x.dtype)
    total = value + jnp.sum(l1 * jnp.abs(x))
    return State(x, x, jnp.ones((), x.dtype), step_size, total, violations(x, gradient, l1).max(initial=0.0))


def step(smooth: Callable[[Any], Any], state: State, l1: Any) -> State:
    """Return the state after one proximal gradient step; the step size is halved while it is too long."""
    gradient = jax.grad(smooth)(state.ahead)

    def move(step_size):
        new = shrink(state.ahead - step_size * gradient, step_size * l1)
        value, slope = jax.value_and_grad(smooth)(new)
        change = new - state.ahead
        # By gradients: differences of values are lost in rounding near the minimum.
        too_long = change @ (slope - gradient) > change @ change / step_size
        return step_size, new, value, slope, too_long | ~jnp.isfinite(value)

    def is_too_long(search):
        return search[0][-1] & (search[1] < _MAX_HALVINGS)

    def shorten(search):
        return move(search[0][0] / 2), search[1] + 1

    found, _ = jax.lax.while_loop(is_too_long, shorten, (move(state.step_size), 0))
    step_size, new, value, slope, _ = found
    # Momentum that points away from where the step goes is dropped.
    restart = (state.ahead - new) @ (new - state.x) > 0
    momentum = (1 + jnp.sqrt(1 + 4 * state.momentum**2)) / 2
    ahead = new + (state.momentum - 1) / momentum * (new - state.x)
    total = value + jnp.sum(l1 * jnp.abs(new))
    return State(
        new,
        jnp.where(restart, new, ahead),
        jnp.where(restart, 1.0, momentum).astype(new.dtype),
        jnp.where(restart, _GROWTH, 1.0).astype(new.dtype) * step_size,
        total,
        violations(new, slope, l1).max(initial=0.0),
    )


class Minimum(NamedTuple):
    """A minimum with its certificate.

    Attributes:
        x: the point, a tree like the start.
        value: f(x) + Σ l1 |x|.
        violation: the largest distance of −∇f(x) from the slopes of l1 |x|.
        n_iter: iterations.
        converged: whether the violation is at most `tol`.
    """

    x: Any
    value: Any
    violation: Any
    n_iter: Any
    converged: Any


def minimise(smooth: Callable[[Any], Any], x0: Any, l1_weights: Any, tol: float, max_iter: int) -> Minimum:
    """Return a minimum of smooth(x) + Σ l1_weights |x|, from x0, any tree of arrays.

    Args:
        smooth: a function with a gradient; convex, for the result to be the minimum.
        x0: the start.
        l1_weights: a tree like x0, or a number for all coordinates; 0 for those without a penalty.
        tol: the largest violation of the conditions of a minimum.
        max_iter: the most iterations.

    >>> distance = lambda x: 0.5 * jnp.sum((x - jnp.array([3.0, 0.5])) ** 2)
    >>> found = minimise(distance, jnp.zeros(2), 1.0, tol=1e-5, max_iter=100)
    >>> found.x.round(4), bool(found.converged)
    (Array([2., 0.], dtype=float32), True)
    """
    flat, unravel = ravel_pytree(x0)
    like_x0: bool = jax.tree.structure(l1_weights) == jax.tree.structure(x0)  # type: ignore[operator]
    if like_x0:
        broadcast = jax.tree.map(lambda weight, x: jnp.broadcast_to(weight, jnp.shape(x)), l1_weights, x0)
        l1 = ravel_pytree(broadcast)[0].astype(flat.dtype)
    else:
        l1 = jnp.broadcast_to(jnp.asarray(l1_weights, flat.dtype), flat.shape)
    target = lambda x: smooth(unravel(x))

    def is_running(carry):
        state, i = carry
        return (state.violation > tol) & (i < max_iter)

    advance = lambda carry: (step(target, carry[0], l1), carry[1] + 1)
    state, i = jax.lax.while_loop(is_running, advance, (init(target, flat, l1), jnp.zeros((), jnp.int32)))
    return Minimum(unravel(state.x), state.value, state.violation, i, state.violation <= tol)
