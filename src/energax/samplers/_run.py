"""`run_chains`: Markov chains in parallel, with start, warm-up and thinning, for one example or for rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .._util.arrays import asarray
from .._util.sizes import CHAIN_NUMBERS, map_chunks
from ..energy import Energy
from ..missing import is_masked
from ..programs import jit
from ._draws import Draws
from ._sampler import Sampler


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
    """Return `n` draws of hidden variables and missing coordinates from `n_chains` chains.

    Every chain has a random start, and is warmed up and tuned by itself.

    Args:
        sampler: the kernel.
        energy: the energy.
        n: the number of draws, over all chains; of every row, if there are rows.
        key: a JAX key.
        given: arrays by name with a leading axis of rows, `Masked` where coordinates are missing.
        n_rows: the number of rows; None for one example, whose draws have no axis of rows.
        n_chains: chains that run in parallel.
        warmup: moves of each chain that are discarded.
        thin: moves for every draw that is kept.

    >>> from energax.energies import RBM
    >>> from energax.samplers import Gibbs
    >>> import jax.numpy as jnp
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> run_chains(Gibbs(), rbm, 100, key=jax.random.key(0), warmup=10)["x"].shape
    (100, 3)
    """
    n_draws = -(-n // n_chains)
    given = given or {}
    rows = n_rows or 1
    size = sum(max(1, s.size) for s in energy.spaces.values())
    chunk = min(rows, CHAIN_NUMBERS.rows(n_chains * n_draws * size))
    keys = jax.random.split(key, (rows, n_chains))
    run = lambda rows: _run_rows(sampler, energy, rows[0], rows[1], n_draws, warmup, thin)
    values, info = map_chunks(run, (given, keys), chunk)
    fixed = {k: np.asarray(v.observed) for k, v in given.items() if is_masked(v)}
    if n_rows is None:
        values, info, fixed = jax.tree.map(lambda a: a[0], (values, info, fixed))
    else:
        values = {k: np.moveaxis(v, 0, 2) for k, v in values.items()}
        info = _reduce_info(info)
    return Draws(values, method=sampler.label, info=info, caveat=sampler.caveat, fixed=fixed, n=n)


def _reduce_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the mean of acceptance rates over the first axis, and of flags whether any is set."""
    return {k: v.mean(0) if k == "acceptance" else v.any(0) for k, v in info.items()}


@jit
def _run_rows(sampler, energy, given, keys, n_draws, warmup, thin):
    one_row = lambda row, ks: jax.vmap(lambda k: _run(sampler, energy, row, k, n_draws, warmup, thin))(ks)
    return jax.vmap(one_row)(given, keys)


def _run(sampler, energy, row, key, n_draws, warmup, thin):
    """Return the draws and the info of one chain of one row."""
    partially_observed = {k: v for k, v in row.items() if is_masked(v)}
    complete = {k: v for k, v in row.items() if not is_masked(v)}
    target = energy.given(**complete) if complete else energy
    clamped = {k: asarray(v.observed) for k, v in partially_observed.items()}
    start_key, tune_key, run_key = jax.random.split(key, 3)
    state = sampler.start(target, {}, start_key)
    for name, value in partially_observed.items():
        state[name] = value.fill(state[name].astype(value.value.dtype))
    tuned, state = sampler.tune(target, state, tune_key, clamped, warmup)

    def move(carry, k):
        state, memory, info = tuned.move(target, *carry, k, clamped)
        return (state, memory), info

    def draw(carry, k):
        carry, info = jax.lax.scan(move, carry, jax.random.split(k, thin))
        return carry, (carry[0], _reduce_info(info))

    carry = (state, tuned.init_memory(target, state, clamped))
    _, (values, info) = jax.lax.scan(draw, carry, jax.random.split(run_key, n_draws))
    return values, info
