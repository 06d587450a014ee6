"""Limited-memory BFGS, compiled whole. Liu and Nocedal (1989)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree


def minimise(
    function: Any, start: Any, *, tol: float, max_iter: int, memory_size: int
) -> tuple[Any, Any, Any]:
    """The end of one run of L-BFGS: the place, the value there, and whether it is a minimum.

    Written out rather than taken from Optax for two reasons. Its zoom line search calls the
    function at half a dozen places, each compiled by itself; here it is three. And under `vmap` those
    calls run side by side, and batched factorisations that run side by side can wait for each other
    for ever on a CPU of few cores (jaxlib's LAPACK kernels wait inside the pool they need).
    """
    flat, unravel = ravel_pytree(start)
    target = lambda x: function(unravel(x))
    m, eps = memory_size, jnp.finfo(flat.dtype).eps
    nothing = jnp.zeros((m, flat.size), flat.dtype)

    def steepness(gradient):
        return jnp.max(jnp.abs(gradient), initial=0.0)

    def go_on(carry):
        gradient, stalled, i = carry[2], carry[-2], carry[-1]
        begun = (i <= max_iter) & (steepness(gradient) > tol) & (stalled < 3)
        return (i == 0) | begun

    def step(carry):
        x, value, gradient, moves, turns, stalled, i = carry
        direction = -_two_loops(gradient, moves, turns)
        slope = direction @ gradient
        downhill = slope < 0
        direction = jnp.where(downhill, direction, -gradient)
        slope = jnp.where(downhill, slope, -gradient @ gradient)
        # Round 0 stays where it is: it is there for the first value and gradient.
        length = jnp.where(i == 1, jnp.minimum(1.0, 1 / jnp.linalg.norm(gradient)), 1.0).astype(x.dtype)

        def too_long(search):
            length, there, k = search
            return (k < 30) & ~(there <= value + 1e-4 * length * slope)

        def shorter(search):
            length, _, k = search
            length = jnp.where(k == 0, length, length / 2)
            return length, target(x + length * direction), k + 1

        length, there, _ = jax.lax.while_loop(too_long, shorter, (length, jnp.full_like(value, jnp.nan), 0))
        better = there < value
        new = jnp.where(better, x + length * direction, x)
        there, new_gradient = jax.value_and_grad(target)(new)
        move, turn = new - x, new_gradient - gradient
        # Only pairs of positive curvature are kept (Li and Fukushima 2001): the direction stays downhill.
        keep = move @ turn > eps * jnp.sqrt((move @ move) * (turn @ turn))
        moves = jnp.where(keep, jnp.roll(moves, 1, 0).at[0].set(move), moves)
        turns = jnp.where(keep, jnp.roll(turns, 1, 0).at[0].set(turn), turns)
        still = (i > 0) & (value - there <= 10 * eps * jnp.maximum(1.0, jnp.abs(value)))
        return new, there, new_gradient, moves, turns, jnp.where(still, stalled + 1, 0), i + 1

    zero = jnp.zeros((), jnp.int32)
    unknown = jnp.full((), jnp.inf, jax.eval_shape(target, flat).dtype)
    carry = (flat, unknown, jnp.zeros_like(flat), nothing, nothing, zero, zero)
    x, value, gradient, _, _, stalled, _ = jax.lax.while_loop(go_on, step, carry)
    # Standing still is as far as this arithmetic goes if the parabola along the gradient has its
    # lowest point, ‖∇‖² / 2h below, within the rounding of the value; else it is a kink, say.
    squares = gradient @ gradient
    ahead = gradient / jnp.sqrt(jnp.maximum(squares, jnp.finfo(flat.dtype).tiny))
    reach = eps ** (1 / 3) * jnp.maximum(1.0, jnp.max(jnp.abs(x), initial=0.0))
    h = ahead @ (jax.grad(target)(x + reach * ahead) - gradient) / reach
    at_rest = squares <= 50 * eps * jnp.maximum(1.0, jnp.abs(value)) * h
    done = (steepness(gradient) <= tol) | ((stalled >= 3) & at_rest)
    return unravel(x), value, done & jnp.isfinite(value)


def _two_loops(gradient: Any, moves: Any, turns: Any) -> Any:
    """H⁻¹ ∇, with H⁻¹ made of the last pairs of moves and turns of the gradient, newest first."""
    curvature = jnp.sum(moves * turns, axis=1)
    rho = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 0)

    def back(q, pair):
        move, turn, r = pair
        alpha = r * (move @ q)
        return q - alpha * turn, alpha

    q, alphas = jax.lax.scan(back, gradient, (moves, turns, rho))
    squares = turns[0] @ turns[0]
    q = q * jnp.where(curvature[0] > 0, curvature[0] / jnp.where(squares > 0, squares, 1), 1)

    def forth(r_vector, pair):
        move, turn, r, alpha = pair
        return r_vector + (alpha - r * (turn @ r_vector)) * move, None

    return jax.lax.scan(forth, q, (moves, turns, rho, alphas), reverse=True)[0]
