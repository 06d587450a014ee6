"""`run_chains`: Markov chains in parallel, with start, warm-up and thinning, for one example or for rows."""

from __future__ import annotations

import contextlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from .._util.sizes import CHAIN_NUMBERS, chains_one_by_one, map_chunks
from .._util.threads import map_in_threads
from ..energy import Energy
from ..errors import BadInput
from ..missing import is_masked
from ..programs import jit, use_engine
from ._draws import Draws
from ._sampler import Sampler

#: Random starts of a chain, until the energy and its gradient are finite.
_STARTS = 20


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
        warmup: moves of each chain that are discarded; rounded up to a multiple of `thin`.
        thin: moves for every draw that is kept.

    >>> from energax.energies import RBM
    >>> from energax.samplers import Gibbs
    >>> import jax.numpy as jnp
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> run_chains(Gibbs(), rbm, 100, key=jax.random.key(0), warmup=10)["x"].shape
    (100, 3)
    """
    given, rows = given or {}, n_rows or 1
    plan = Moves(n_draws=-(-n // n_chains), n_warmup=-(-warmup // thin), thin=thin)
    size = sum(max(1, s.size) for s in energy.spaces.values())
    chunk = min(rows, CHAIN_NUMBERS.rows(n_chains * (plan.n_draws + plan.n_warmup) * size))
    keys = jax.random.split(key, (rows, n_chains))
    run = lambda part: _run_rows(sampler, energy, part[0], part[1], plan)
    values, info = map_chunks(run, (given, keys), chunk)
    fixed = {k: np.asarray(v.observed) for k, v in given.items() if is_masked(v)}
    if n_rows is None:
        values, info, fixed = jax.tree.map(lambda a: a[0], (values, info, fixed))
    else:
        values = {k: np.moveaxis(v, 0, 2) for k, v in values.items()}
        info = _reduce_info(info)
    return Draws(values, method=sampler.label, info=info, caveat=sampler.caveat, fixed=fixed, n=n)


class Moves(eqx.Module):
    """How many moves chains make: `n_warmup` + `n_draws` draws of `thin` moves each, the first discarded."""

    n_draws: int
    n_warmup: int
    thin: int


def _run_rows(sampler: Sampler, energy: Energy, given: Any, keys: Any, plan: Moves) -> Any:
    """Return the draws and the info of all chains of some rows, (rows, chains, draws, …)."""
    carry = _find_start(sampler, energy, given, keys)
    one_by_one = sampler.varies_in_length and chains_one_by_one(keys.size)
    run = lambda part: _advance(sampler, energy, given, part[0], part[1], plan, one_by_one)
    with use_engine("xla") if sampler.is_compiled else contextlib.nullcontext():
        # Chains are independent, so that threads can share them: XLA runs a loop of small steps on one core.
        return map_in_threads(run, (keys, carry), 1) if one_by_one else run((keys, carry))


# -- start -------------------------------------------------------------------------------------------------


def _find_start(sampler: Sampler, energy: Energy, given: Any, keys: Any) -> Any:
    """Return (tuning, state, memory) of every chain at its start; raise if the energy is not finite there."""
    carry, valid = _start(sampler, energy, given, keys)
    for attempt in range(1, _STARTS):
        if np.all(valid):
            return carry
        other, is_valid = _start(sampler, energy, given, _fold_all(keys, attempt))
        use = np.asarray(is_valid) & ~np.asarray(valid)
        pick = lambda a, b, use=use: jnp.where(use.reshape(use.shape + (1,) * (a.ndim - 2)), b, a)
        carry, valid = jax.tree.map(pick, carry, other), np.asarray(valid) | use
    if not np.all(valid):
        raise _bad_start(energy, carry[1], np.asarray(valid))
    return carry


def _fold_all(keys: Any, attempt: int) -> Any:
    return _fold_keys(keys, np.uint32(attempt))


@jit
def _fold_keys(keys, attempt):
    return jax.vmap(jax.vmap(lambda k: jax.random.fold_in(k, attempt + 2**20)))(keys)


def _bad_start(energy: Energy, states: dict[str, Any], valid: np.ndarray) -> BadInput:
    """Return the error of chains whose random starts all have an energy or a gradient that is not finite."""
    row, chain = (int(i[0]) for i in np.nonzero(~valid))
    values = {k: np.asarray(v[row, chain]) for k, v in states.items() if not energy.spaces[k].is_finite}
    shown = ", ".join(f"{k} = {np.array2string(v.ravel()[:4], precision=3)}" for k, v in values.items())
    found = (
        f"an energy or a gradient that is NaN or infinite at {_STARTS} random starts, the first at {shown}"
    )
    remedy = (
        "Chains start at b(u) with u ~ N(0, I) for the bijection b of each space. Look for logarithms of "
        "negative numbers or overflow there, or scale the variables so that such values are possible."
    )
    return BadInput("energy", found, "finite numbers", remedy)


@jit
def _start(sampler, energy, given, keys):
    one_row = lambda row, ks: jax.vmap(lambda k: _start_chain(sampler, energy, row, k))(ks)
    return jax.vmap(one_row)(given, keys)


def _start_chain(sampler, energy, row, key):
    target, clamped = _clamp(energy, row)
    sampler = sampler.for_energy(target)
    state = sampler.start(target, {}, jax.random.split(key)[0])
    for name, value in row.items():
        if is_masked(value):
            state[name] = value.fill(state[name].astype(value.value.dtype))
    memory = sampler.init_memory(target, state, clamped)
    tuning = sampler.init_tuning(target, state, memory)
    return (tuning, state, memory), sampler.is_valid_start(memory)


def _clamp(energy: Energy, row: dict[str, Any]) -> tuple[Energy, dict[str, Any]]:
    """Return the energy with the complete values of a row clamped, and masks of the partially given ones."""
    complete = {k: v for k, v in row.items() if not is_masked(v)}
    clamped = {k: asarray(v.observed) for k, v in row.items() if is_masked(v)}
    return (energy.given(**complete) if complete else energy), clamped


# -- moves -------------------------------------------------------------------------------------------------


@jit
def _advance(sampler, energy, given, keys, carry, plan, one_by_one):
    """Return the draws and the info of every chain: side by side, or one by one."""
    run = lambda row, key, carry: _run_chain(sampler, energy, row, key, carry, plan)
    if not one_by_one:
        return jax.vmap(lambda row, ks, cs: jax.vmap(lambda k, c: run(row, k, c))(ks, cs))(given, keys, carry)
    each_row = lambda rows: jax.lax.map(lambda chains: run(rows[0], *chains), rows[1:])
    return jax.lax.map(each_row, (given, keys, carry))


def _run_chain(sampler, energy, row, key, carry, plan):
    """Return the draws and the info of one chain of one row, without those of the warm-up.

    Warm-up and draws are one loop, so that the move is compiled once.
    """
    target, clamped = _clamp(energy, row)
    sampler = sampler.for_energy(target)
    key = jax.random.split(key)[1]
    n_warmup = plan.n_warmup * plan.thin

    def move(carry, i):
        tuning, state, memory = carry
        arguments = state, memory, jax.random.fold_in(key, i), clamped
        state, memory, info = sampler.with_tuning(tuning).move(target, *arguments)
        if n_warmup:
            adapt = lambda t: sampler.adapt(t, i, n_warmup, state, memory, info)
            tuning = jax.lax.cond(i < n_warmup, adapt, lambda t: t, tuning)
        return (tuning, state, memory), info

    def draw(carry, i):
        if plan.thin == 1:
            carry, info = move(carry, i)
        else:
            carry, info = jax.lax.scan(move, carry, i * plan.thin + jnp.arange(plan.thin))
            info = _reduce_info(info)
        return carry, (carry[1], info)

    _, (values, info) = jax.lax.scan(draw, carry, jnp.arange(plan.n_warmup + plan.n_draws))
    return jax.tree.map(lambda a: a[plan.n_warmup :], (values, info))


def _reduce_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return over the first axis the mean of rates, the sum of counts, and of flags whether any is set."""
    reduce = {"f": lambda a: a.mean(0), "i": lambda a: a.sum(0), "b": lambda a: a.any(0)}
    return {k: reduce[np.dtype(v.dtype).kind](v) for k, v in info.items()}
