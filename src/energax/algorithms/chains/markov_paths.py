"""Sequences of states of a Markov chain as arrays: encoding, counting, filtering, simulation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...errors import BadInput
from ...programs import jit


def encode_states(sequences, states, k):
    """(sequences as state numbers, the names of the states or None, the number of states)."""
    rows = [np.asarray(s) for s in sequences]
    for i, row in enumerate(rows):
        if row.ndim != 1 or not len(row):
            raise BadInput(f"sequences[{i}]", f"shape {row.shape}", "a 1-D sequence of one or more states")
        if row.dtype.kind not in "iuUO":
            hint = "With missing states, use fit(chain, {'x': Masked(…)}, EM())."
            raise BadInput(f"sequences[{i}]", f"dtype {row.dtype}", "whole numbers or names", hint)
    if not rows:
        raise BadInput("sequences", "none", "at least one sequence of states")
    if all(row.dtype.kind in "iu" for row in rows):
        largest = max(int(row.max()) for row in rows)
        k = (largest + 1 if states is None else len(states)) if k is None else k
        if largest >= k or min(int(row.min()) for row in rows) < 0:
            raise BadInput("sequences", f"states up to {largest}", f"whole numbers from 0 to {k - 1}")
        return [row.astype(np.int64) for row in rows], states, k
    names = tuple(sorted({s for row in rows for s in row.tolist()})) if states is None else tuple(states)
    numbers = {name: i for i, name in enumerate(names)}
    unknown = next((s for row in rows for s in row.tolist() if s not in numbers), None)
    if unknown is not None:
        raise BadInput("sequences", f"the state {unknown!r}", f"one of {', '.join(map(repr, names[:8]))}")
    if k is not None and k != len(names):
        raise BadInput("k", f"{k}", f"{len(names)}, the number of names")
    return [np.array([numbers[s] for s in row.tolist()]) for row in rows], names, len(names)


def count_transitions(rows, weight, k):
    """Weighted counts of first states (k,) and transitions (k, k) of complete sequences of any lengths."""
    first = np.bincount([row[0] for row in rows], weight, k)
    pairs = np.concatenate([row[:-1] * k + row[1:] for row in rows])
    each = np.repeat(weight, [len(row) - 1 for row in rows])
    return {"first": asarray(first), "pairs": asarray(np.bincount(pairs, each, k * k).reshape(k, k))}


def filter_states(initial, transition, value, observed):
    """(p(x_t | states observed up to t), p(observed state at t | those before)) of every step."""
    last = jnp.max(jnp.where(observed, jnp.arange(len(observed)), -1))

    def step(belief, args):
        t, state, is_observed = args
        ahead = jnp.where(t == 0, initial, belief @ transition)
        possible = jnp.where(is_observed, jnp.arange(len(initial)) == state, True)
        belief = jnp.where(possible, ahead, 0)
        # Past the last observed state the sum is 1 in value and gradient, so that no transition is counted.
        scale = jnp.where(t > last, 1, belief.sum())
        belief = belief / jnp.where(scale > 0, scale, 1)
        return belief, (belief, scale)

    inputs = (jnp.arange(len(observed)), value, observed)
    _, (beliefs, scales) = jax.lax.scan(step, jnp.zeros_like(initial), inputs)
    return beliefs, scales


def log_likelihood(initial, transition, value, observed):
    """log p(observed states) of one sequence, missing states summed out."""
    scales = filter_states(initial, transition, value, observed)[1]
    # An impossible step gives −∞ with gradient 0, not NaN.
    return jnp.where(scales > 0, jnp.log(jnp.where(scales > 0, scales, 1)), -jnp.inf).sum()


@jit
def simulate_paths(initial, transition, n_steps, keys):
    """Draw one path per key, (n, n_steps)."""

    def path(key):
        def step(state, key):
            row = jnp.where(state < 0, initial, transition[state])
            new = jax.random.categorical(key, jnp.log(row))
            return new, new

        return jax.lax.scan(step, -jnp.ones((), int), jax.random.split(key, n_steps))[1]

    return jax.vmap(path)(keys)
