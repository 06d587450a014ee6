"""Paths of a Markov chain as arrays: counted, filtered, simulated. No model is known here."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...errors import BadInput


def numbered(sequences, states, k):
    """Sequences of names as sequences of numbers, the names, and how many there are."""
    rows = [np.asarray(s) for s in sequences]
    for i, row in enumerate(rows):
        if row.ndim != 1 or not len(row):
            raise BadInput(f"sequences[{i}]", f"shape {row.shape}", "one state or more, in a row")
        if row.dtype.kind not in "iuUO":
            hint = "Where states are missing, fit(chain, {'x': Masked(…)}, EM())."
            raise BadInput(f"sequences[{i}]", f"dtype {row.dtype}", "whole numbers, or names", hint)
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
    odd = next((s for row in rows for s in row.tolist() if s not in numbers), None)
    if odd is not None:
        raise BadInput("sequences", f"the state {odd!r}", f"one of {', '.join(map(repr, names[:8]))}")
    if k is not None and k != len(names):
        raise BadInput("k", f"{k}", f"{len(names)}, as there are names")
    return [np.array([numbers[s] for s in row.tolist()]) for row in rows], names, len(names)


def counted(rows, weight, k):
    """Weighted first states and transitions of complete sequences of any lengths."""
    first = np.bincount([row[0] for row in rows], weight, k)
    pairs = np.concatenate([row[:-1] * k + row[1:] for row in rows])
    each = np.repeat(weight, [len(row) - 1 for row in rows])
    return {"first": jnp.asarray(first), "pairs": jnp.asarray(np.bincount(pairs, each, k * k).reshape(k, k))}


def filtered(initial, transition, value, seen):
    """(p(x_t | what is seen up to t), p(what is seen at t | before)) for every step, scaled."""
    last = jnp.max(jnp.where(seen, jnp.arange(len(seen)), -1))

    def step(belief, args):
        t, state, here = args
        ahead = jnp.where(t == 0, initial, belief @ transition)
        agrees = jnp.where(here, jnp.arange(len(initial)) == state, True)
        kept = jnp.where(agrees, ahead, 0)
        # Past the last state that is seen nothing is learned, not even of what would follow.
        scale = jnp.where(t > last, 1, kept.sum())
        belief = kept / jnp.where(scale > 0, scale, 1)
        return belief, (belief, scale)

    inputs = (jnp.arange(len(seen)), value, seen)
    _, (beliefs, scales) = jax.lax.scan(step, jnp.zeros_like(initial), inputs)
    return beliefs, scales


def log_likelihood(initial, transition, value, seen):
    """log p(what is seen of one sequence), the missing states summed out."""
    scales = filtered(initial, transition, value, seen)[1]
    # An impossible step is −∞, and its gradient 0, not NaN.
    return jnp.where(scales > 0, jnp.log(jnp.where(scales > 0, scales, 1)), -jnp.inf).sum()


@eqx.filter_jit
def simulated(initial, transition, n_steps, keys):
    def path(key):
        def step(state, key):
            row = jnp.where(state < 0, initial, transition[state])
            new = jax.random.categorical(key, jnp.log(row))
            return new, new

        return jax.lax.scan(step, -jnp.ones((), int), jax.random.split(key, n_steps))[1]

    return jax.vmap(path)(keys)
