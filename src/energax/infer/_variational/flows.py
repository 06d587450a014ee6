"""Flows: distributions of u in ℝᴰ by an Equinox module, trained by Adam to a posterior."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...errors import BadInput
from .unconstrained import flatten_energy

_EVALUATION_DRAWS = 4000
_AT_ONCE = 100


def train_flow(row, key, energy, method, names):
    """Return the arrays of the trained flow of one row, its best draw, and its log-weights."""
    import optax

    objective, _, start = flatten_energy(energy, row, names)
    arrays, rest = eqx.partition(method.family, eqx.is_inexact_array)
    shape = eqx.filter_eval_shape(method.family.sample, jax.random.key(0)).shape
    if shape != start.shape:
        raise BadInput("family", f"a flow of shape {shape}", f"{start.shape}, one number per coordinate")
    train_key, new_key = jax.random.split(jax.random.key(method.seed))
    optimizer = optax.adam(optax.cosine_decay_schedule(method.learning_rate, method.max_iter))

    def log_weight(arrays, key):
        flow = eqx.combine(arrays, rest)
        if hasattr(flow, "sample_and_log_prob"):  # in one pass, without inverting the flow
            u, log_q = flow.sample_and_log_prob(key)
        else:
            u = flow.sample(key)
            log_q = flow.log_prob(u)
        return -objective(u) - log_q, u

    def step(carry, key):
        arrays, state = carry
        loss = lambda a: (
            -jax.vmap(lambda k: log_weight(a, k)[0])(jax.random.split(key, method.n_samples)).mean()
        )
        slope = jax.grad(loss)(arrays)
        finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(slope)]).all()
        slope = jax.tree.map(lambda g: jnp.where(finite, g, 0), slope)
        updates, state = optimizer.update(slope, state)
        return (optax.apply_updates(arrays, updates), state), None

    keys = jax.random.split(train_key, method.max_iter)
    (arrays, _), _ = jax.lax.scan(step, (arrays, optimizer.init(arrays)), keys)
    keys = jax.random.split(new_key, _EVALUATION_DRAWS)
    log_weights, u = jax.lax.map(lambda k: log_weight(arrays, k), keys, batch_size=_AT_ONCE)
    best = u[jnp.argmin(jax.lax.map(objective, u, batch_size=_AT_ONCE))]
    # Adam has no test of convergence: Pareto k̂ tells how near the flow is.
    converged = jnp.isfinite(log_weights).all()
    return {"flow": arrays, "center": best, "log_weights": log_weights, "converged": converged}


def draw_flow(flow: Any, arrays: Any, n: int, n_rows: int, key: Any) -> np.ndarray:
    """Return n draws of the flow of every row, (n, rows, D)."""
    _, rest = eqx.partition(flow, eqx.is_inexact_array)
    keys = jax.random.split(key, (n, n_rows))
    one = lambda k, a: eqx.combine(a, rest).sample(k)
    return np.asarray(jax.vmap(jax.vmap(one), (0, None))(keys, arrays))
