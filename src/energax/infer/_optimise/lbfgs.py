"""L-BFGS through the bijection of each space: the lowest energy of real hidden variables."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ..._util.keys import as_key
from ...energy import evaluated
from ...errors import ConvergenceWarning
from ...finite import Assignments
from .._method import Cost, Method, Minimum
from .._query import Question, map_rows, merged

_MOST_FINITE = 1024


class LBFGS(Method):
    """argmin over real hidden variables, moved in ℝⁿ by limited-memory BFGS.

    Missing real coordinates are moved too, the known ones stay. Finite hidden variables with
    few joint values are tried one by one. Of `n_starts` random starts the best end is kept:
    the answer is a local minimum, the global one if the energy has no other.

    Args:
        n_starts: starts, all run side by side; the first at the middle of every space.
        tol: stop where no coordinate of the gradient (in ℝⁿ) is above this.
        max_iter: iterations at most; reaching it warns.

    Liu and Nocedal (1989), On the limited memory BFGS method for large scale optimization.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import argmin
    >>> bowl = NeuralEnergy(lambda x: -x.sum(), 2, confinement=1.0)
    >>> argmin(bowl, {}, LBFGS())["x"].round(3)
    array([1., 1.], dtype=float32)
    """

    n_starts: int = eqx.field(static=True, default=1)
    tol: float = eqx.field(static=True, default=1e-4)
    max_iter: int = eqx.field(static=True, default=500)
    memory_size: int = eqx.field(static=True, default=10)
    seed: int = eqx.field(static=True, default=0)

    deterministic = True
    tasks = frozenset({"argmin"})

    @property
    def label(self):
        return "L-BFGS"

    def unsuitable(self, task, question):
        real, finite, other = _split(question)
        if other:
            return f"cannot move {other}: whole numbers without end have no gradient"
        if not real:
            return "needs a real hidden variable, to have a gradient"
        if any(name in question.partly for name in finite):
            return "moves missing coordinates of real variables only"
        stuck = [n for n in real if n in question.partly and question.spaces[n].event_ndim]
        if stuck:
            return f"cannot move single coordinates of {stuck}, which are constrained together"
        n = Assignments(finite).n
        if n > _MOST_FINITE:
            return (
                f"would be run for each of {n:,} joint values of {list(finite)}, more than {_MOST_FINITE:,}"
            )
        return None

    def why(self, task, question):
        real, _, _ = _split(question)
        return f"{', '.join(real)} {'is' if len(real) == 1 else 'are'} real and the energy has a gradient"

    def kind(self, task, question):
        return "estimate"

    def cost(self, task, question):
        _, finite, _ = _split(question)
        runs = question.n * self.n_starts * Assignments(finite).n
        return Cost(evaluations=runs * self.max_iter)

    def argmin(self, question, key):
        real, finite, _ = _split(question)
        size = sum(max(1, space.size) for space in real.values())
        width = 2 * (self.memory_size + 4) * size * self.n_starts * Assignments(finite).n
        key = as_key(self.seed) if key is None else key
        values, energy, converged = map_rows(
            _minimise,
            question.given,
            question.n,
            question.energy,
            self,
            tuple(real),
            tuple(finite),
            key=key,
            numbers_per_row=width,
        )
        if not converged.all():
            warnings.warn(
                f"L-BFGS: {int((~converged).sum())} of {question.n} rows did not reach a gradient below "
                f"{self.tol:g} in {self.max_iter} iterations, or stood still before, as at a kink of the "
                "energy. Raise max_iter or tol, or n_starts.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Minimum(
            question.answer(values),
            energy=question.answer(energy),
            method=self.label,
            converged=converged if question.many else bool(converged[0]),
        )


def _split(question: Question):
    """Sought variables: real, finite, and those that are neither."""
    sought = question.sought
    real = {k: v for k, v in sought.items() if v.is_real}
    finite = {k: v for k, v in sought.items() if v.is_finite}
    return real, finite, [k for k in sought if k not in real and k not in finite]


def start_in(space: Any, key: Any) -> Any:
    """A place in ℝⁿ to begin at: 0 for no key, standard normal for one."""
    shape = space.bijection.inverse_shape(space.shape)
    return jnp.zeros(shape) if key is None else jax.random.normal(key, shape)


def _minimise(row, key, energy, method, real, finite):
    spaces = energy.spaces
    choices = Assignments({n: spaces[n] for n in finite})

    def complete(u, index):
        moved = {n: spaces[n].bijection(u[n]) for n in real}
        return merged(row, {**moved, **choices.at(index)})

    def run(start_key, index, first):
        keys = dict(zip(real, jax.random.split(start_key, len(real)), strict=True))
        centre = {n: start_in(spaces[n], None) for n in real}
        away = {n: start_in(spaces[n], keys[n]) for n in real}
        start = jax.tree.map(lambda a, b: jnp.where(first, a, b), centre, away)
        return minimise(lambda u: evaluated(energy, complete(u, index)), start, method)

    starts = jax.random.split(key, method.n_starts)
    first = jnp.arange(method.n_starts) == 0
    over_starts = jax.vmap(run, (0, None, 0))
    us, values, converged = jax.vmap(over_starts, (None, 0, None))(starts, jnp.arange(choices.n), first)
    best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values).reshape(-1))
    u, value, done = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[best], (us, values, converged))
    answer = complete(u, best // method.n_starts)
    return {n: answer[n] for n in (*real, *finite)}, value, done


def minimise(function: Any, start: Any, method: LBFGS) -> tuple[Any, Any, Any]:
    """The end of one run of L-BFGS: the place, the value there, and whether it is a minimum.

    Written out rather than taken from Optax for two reasons. Its zoom line search calls the
    function at half a dozen places, each compiled by itself; here it is three. And under `vmap` those
    calls run side by side, and batched factorisations that run side by side can wait for each other
    for ever on a CPU of few cores (jaxlib's LAPACK kernels wait inside the pool they need).
    """
    flat, unravel = ravel_pytree(start)
    target = lambda x: function(unravel(x))
    m, eps = method.memory_size, jnp.finfo(flat.dtype).eps
    nothing = jnp.zeros((m, flat.size), flat.dtype)

    def steepness(gradient):
        return jnp.max(jnp.abs(gradient), initial=0.0)

    def go_on(carry):
        gradient, stalled, i = carry[2], carry[-2], carry[-1]
        begun = (i <= method.max_iter) & (steepness(gradient) > method.tol) & (stalled < 3)
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
    done = (steepness(gradient) <= method.tol) | ((stalled >= 3) & at_rest)
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
