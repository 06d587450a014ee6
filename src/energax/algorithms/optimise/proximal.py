"""Minima of a smooth function plus a weighted L1 norm, by accelerated proximal gradient steps.

Beck and Teboulle (2009), A fast iterative shrinkage-thresholding algorithm; with the restarts of O'Donoghue
and Candès (2015), Adaptive restart for accelerated gradient schemes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_MAX_DOUBLINGS = 60  # of the Lipschitz constant, in one iteration


class _State(NamedTuple):
    x: Any
    ahead: Any  # the extrapolated point, at which the next gradient is taken
    momentum: Any
    lipschitz: Any
    residual: Any  # the largest entry of the gradient mapping; 0 at a minimum
    iteration: Any


def soft_threshold(x: Any, threshold: Any) -> Any:
    """sign(x) max(|x| − threshold, 0), the proximal operator of threshold · |x|.

    >>> soft_threshold(jnp.array([3.0, -0.5, -2.0]), 1.0)
    Array([ 2.,  0., -1.], dtype=float32)
    """
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)


def minimise(
    smooth: Callable[[Any], Any], x0: Any, l1_weights: Any, tol: Any, max_iter: Any
) -> tuple[Any, Any, Any]:
    """Minimise smooth(x) + Σ l1_weights |x|: (the last point, its value, whether it is a minimum).

    Args:
        smooth: a differentiable function of a vector (p,).
        x0: the first point, (p,).
        l1_weights: one weight >= 0 for every coordinate, or one for all.
        tol: the largest entry of the gradient mapping L (x − prox(x − ∇/L)) at a minimum.
        max_iter: the most iterations.

    >>> x, value, converged = minimise(lambda x: ((x - jnp.array([3.0, 0.5])) ** 2).sum() / 2,
    ...                                jnp.zeros(2), 1.0, 1e-6, 100)
    >>> x, bool(converged)
    (Array([2., 0.], dtype=float32), True)
    """
    weights = jnp.broadcast_to(jnp.asarray(l1_weights, x0.dtype), x0.shape)
    value_and_gradient = jax.value_and_grad(smooth)

    def is_running(state: _State) -> Any:
        return (state.iteration < max_iter) & (state.residual > tol)

    def iterate(state: _State) -> _State:
        ahead = state.ahead
        value, gradient = value_and_gradient(ahead)
        new, lipschitz = _backtrack(smooth, ahead, value, gradient, weights, state.lipschitz)
        residual = lipschitz * jnp.max(jnp.abs(new - ahead), initial=0.0)
        # Momentum that points uphill is dropped.
        uphill = (ahead - new) @ (new - state.x) > 0
        momentum = jnp.where(uphill, 1.0, state.momentum).astype(new.dtype)
        following = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        next_ahead = new + jnp.where(uphill, 0, (momentum - 1) / following) * (new - state.x)
        return _State(new, next_ahead, following, lipschitz, residual, state.iteration + 1)

    one = jnp.ones((), x0.dtype)
    start = _State(x0, x0, one, one, jnp.full_like(one, jnp.inf), jnp.zeros((), jnp.int32))
    found = jax.lax.while_loop(is_running, iterate, start)
    value = smooth(found.x) + weights @ jnp.abs(found.x)
    return found.x, value, found.residual <= tol


def _backtrack(
    smooth: Callable[[Any], Any], x: Any, value: Any, gradient: Any, weights: Any, lipschitz: Any
) -> tuple[Any, Any]:
    """(prox(x − ∇/L), L), with L doubled until the parabola of curvature L is above the function there."""
    slack = 4 * jnp.finfo(x.dtype).eps * jnp.abs(value)

    def step(lipschitz):
        return soft_threshold(x - gradient / lipschitz, weights / lipschitz)

    def is_too_long(search):
        k, new, found, lipschitz = search
        move = new - x
        bound = value + gradient @ move + lipschitz / 2 * move @ move + slack
        return (k == 0) | ((k < _MAX_DOUBLINGS) & ~(found <= bound))

    def double(search):
        k, _, _, lipschitz = search
        lipschitz = jnp.where(k == 0, lipschitz, 2 * lipschitz)
        new = step(lipschitz)
        return k + 1, new, smooth(new), lipschitz

    start = (jnp.zeros((), jnp.int32), x, value, lipschitz)
    _, new, _, lipschitz = jax.lax.while_loop(is_too_long, double, start)
    return new, lipschitz
