"""One run of annealed chains along a schedule, forwards or backwards."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...programs import jit
from .annealing import Annealing


class Run(NamedTuple):
    """Chains from the base to the model: their schedule, log-weights (n_chains,), last states and trials.

    highest_trial: the largest log mean weight of the trial runs.
    """

    annealing: Annealing
    knots: np.ndarray
    n_steps: int
    log_weights: np.ndarray
    states: dict[str, Any]
    highest_trial: float


def run_schedule(
    annealing: Annealing, knots: np.ndarray, n_steps: int, states: dict[str, Any], key: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the change of log-weights in every piece, (n_pieces, n_chains), and the last states.

    knots: β at the ends of the pieces, which have equal numbers of steps. From 1 to 0 it is the reverse.
    """
    dtype = jnp.zeros(()).dtype
    pieces, states = _run(annealing, asarray(knots, dtype), asarray(n_steps, np.int32), states, key)
    return np.asarray(pieces, float), states


@jit
def _run(annealing, knots, n_steps, states, key):
    n_pieces = knots.shape[0] - 1
    n = jax.tree.leaves(states)[0].shape[0]

    def beta_at(t):
        # Pieces have equal lengths in t: a search for the piece, as in jnp.interp, is 14 more loops a step.
        position = t.astype(knots.dtype) * n_pieces / n_steps.astype(knots.dtype)
        piece = jnp.minimum(position.astype(int), n_pieces - 1)
        return knots[piece] + (position - piece) * (knots[piece + 1] - knots[piece])

    def step(t, carry):
        states, pieces = carry
        before, after = beta_at(t), beta_at(t + 1)
        # Sums of pieces, not of all steps: a float32 sum of ten thousand small numbers loses digits.
        pieces = pieces.at[t * n_pieces // n_steps].add(annealing.log_ratios(states, before, after))
        return annealing.move(states, after, jax.random.fold_in(key, t)), pieces

    states, pieces = jax.lax.fori_loop(0, n_steps, step, (states, jnp.zeros((n_pieces, n), knots.dtype)))
    return pieces, states


@jit
def draw_base(annealing: Annealing, n_chains: int, key: Any) -> dict[str, Any]:
    """Return exact draws of the base."""
    return annealing.start(n_chains, key)


def move_at_end(annealing: Annealing, states: dict[str, Any], n_moves: int, key: Any) -> dict[str, Any]:
    """Return the states after `n_moves` moves at β = 1."""
    return _move_at_end(annealing, states, asarray(n_moves, np.int32), key)


@jit
def _move_at_end(annealing, states, n_moves, key):
    one = jnp.ones(())
    move = lambda t, states: annealing.move(states, one, jax.random.fold_in(key, t))
    return jax.lax.fori_loop(0, n_moves, move, states)


def resample(states: dict[str, Any], log_weights: np.ndarray, key: Any) -> dict[str, Any]:
    """Return as many states, drawn by their weights (systematic resampling)."""
    from blackjax.smc.resampling import systematic

    weights = jax.nn.softmax(asarray(log_weights - log_weights.max(), jnp.zeros(()).dtype))
    index = np.asarray(systematic(key, weights, len(log_weights)))
    return jax.tree.map(lambda a: a[index], states)
