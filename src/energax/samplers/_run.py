"""Chains side by side: starts, warm-up, thinning, for one example or for rows."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..energy import Energy
from ..missing import is_masked
from ._draws import Draws
from ._sampler import Sampler

_BUDGET = 2**26  # numbers that the rows of one compiled call may leave behind


def run_chains(
    sampler: Sampler,
    energy: Energy,
    n: int,
    *,
    key: Any,
    given: dict[str, Any] | None = None,
    n_rows: int | None = None,
    n_chains: int = 4,
    warmup: int = 500,
    thin: int = 1,
) -> Draws:
    """`n` draws of what is not given, from `n_chains` chains (of every row, if there are rows).

    `given` holds rows: arrays with a leading axis, `Masked` where coordinates are missing;
    these are drawn too. Every chain starts anywhere, and is warmed up (and tuned) by itself.
    """
    n_draws = -(-n // n_chains)
    given = given or {}
    rows = n_rows or 1
    size = sum(max(1, s.size) for s in energy.spaces.values())
    chunk = max(1, min(rows, _BUDGET // (n_chains * n_draws * size)))
    keys = jax.random.split(key, (rows, n_chains))
    parts = []
    for start in range(0, rows, chunk):
        # The last chunk begins early, so that it is as large as the others and not compiled again.
        begin = min(start, rows - chunk)
        some, their_keys = jax.tree.map(lambda a: a[begin : begin + chunk], (given, keys))  # noqa: B023
        out = _chains(sampler, energy, some, their_keys, n_draws, warmup, thin)
        parts.append(jax.tree.map(lambda a: np.asarray(a[start - begin :]), out))  # noqa: B023
    values, info = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    if n_rows is None:
        values, info = jax.tree.map(lambda a: a[0], (values, info))
    else:
        values = {k: np.moveaxis(v, 0, 2) for k, v in values.items()}
        info = {k: v.mean(0) if k == "acceptance" else v.any(0) for k, v in info.items()}
    fixed = {k: np.asarray(v.observed) for k, v in given.items() if is_masked(v)}
    if n_rows is None:
        fixed = {k: v[0] for k, v in fixed.items()}
    return Draws(values, method=sampler.label, info=info, caveat=sampler.caveat, fixed=fixed, n=n)


@eqx.filter_jit
def _chains(sampler, energy, given, keys, n_draws, warmup, thin):
    one_row = lambda row, ks: jax.vmap(lambda k: _chain(sampler, energy, row, k, n_draws, warmup, thin))(ks)
    return jax.vmap(one_row)(given, keys)


def _chain(sampler, energy, row, key, n_draws, warmup, thin):
    partly = {k: v for k, v in row.items() if is_masked(v)}
    complete = {k: v for k, v in row.items() if not is_masked(v)}
    target = energy.given(**complete) if complete else energy
    clamped = {k: jnp.asarray(v.observed) for k, v in partly.items()}
    start_key, tune_key, run_key = jax.random.split(key, 3)
    state = sampler.start(target, {}, start_key)
    for name, value in partly.items():
        state[name] = value.fill(state[name].astype(value.value.dtype))
    tuned, state = sampler.tune(target, state, tune_key, clamped, warmup)

    def draw(carry, k):
        def move(carry, k):
            state, memory = carry
            state, memory, info = tuned.move(target, state, memory, k, clamped)
            return (state, memory), info

        carry, info = jax.lax.scan(move, carry, jax.random.split(k, thin))
        info = {k: v.mean(0) if k == "acceptance" else v.any(0) for k, v in info.items()}
        return carry, (carry[0], info)

    carry = (state, tuned.remember(target, state, clamped))
    _, (values, info) = jax.lax.scan(draw, carry, jax.random.split(run_key, n_draws))
    return values, info
