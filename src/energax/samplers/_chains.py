"""Programs of Markov chains: their start, and blocks of moves with a warm-up that tunes the sampler."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import WHOLE, check_arguments, instance
from .._util.arrays import asarray
from .._util.keys import as_key
from ..energy import Energy, checked_energy
from ..errors import BadInput, ConvergenceWarning, describe
from ..missing import is_masked, value_of
from ..programs import jit
from ._sampler import Sampler

#: Random starts of a chain, until the energy and its gradient are finite.
_STARTS = 20
#: How many times as large as the lowest energy of all chains that of a start may be, if another start is not.
#: Residuals in units of their standard deviation, which is e^u, differ by factors of some thousands.
_MOST_ENERGY = 1e6


class Moves(eqx.Module):
    """How chains move: `n_warmup` draws that are discarded first, `thin` moves for every draw."""

    n_warmup: int
    thin: int


# -- start -------------------------------------------------------------------------------------------------


def find_start(sampler: Sampler, energy: Energy, given: Any, keys: Any) -> Any:
    """Return (tuning, state, memory) of every chain at its start; raise if the energy is not finite there.

    A sampler that `can_start_impossible` gets a warning instead if the energy is +∞. A start is drawn again
    too if its energy is far above those of the other chains, where they have found a better place: recursions
    have parameters for which residuals grow with every step, and chains that start there do not come back.
    """
    carry, energies = _start(sampler, energy, given, keys)
    for attempt in range(1, _STARTS):
        bad = _is_bad(np.asarray(energies))
        if not bad.any():
            return carry
        other, found = _start(sampler, energy, given, _fold_keys(keys, np.uint32(attempt)))
        use = bad & (np.asarray(found) < energies)
        pick = lambda a, b, use=use: jnp.where(use.reshape(use.shape + (1,) * (a.ndim - 2)), b, a)
        carry, energies = jax.tree.map(pick, carry, other), np.where(use, found, energies)
    valid = np.isfinite(energies)
    if not np.all(valid):
        has_nan = any(np.isnan(a).any() for a in jax.tree.leaves(carry[2]) if a.dtype.kind == "f")
        if not sampler.can_start_impossible or has_nan:
            raise _bad_start(energy, given, carry[1], valid)
        message = (
            f"The energy of {np.sum(~valid)} of {valid.size} chains is infinite at {_STARTS} random starts. "
            f"Draws of {sampler.label} are right only if these chains have left such impossible values."
        )
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return carry


def _is_bad(energies: np.ndarray) -> np.ndarray:
    """Return which starts are drawn again, (rows, chains): impossible ones, and those far above others."""
    lowest = energies.min(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        far = energies - lowest > _MOST_ENERGY * np.maximum(1, np.abs(lowest))
    return far | ~np.isfinite(energies)


@jit
def _fold_keys(keys, attempt):
    return jax.vmap(jax.vmap(lambda k: jax.random.fold_in(k, attempt + 2**20)))(keys)


def _bad_start(energy: Energy, given: Any, states: dict[str, Any], valid: np.ndarray) -> BadInput:
    """Return the error of chains whose random starts all have an energy or a gradient that is not finite."""
    row, chain = (int(i[0]) for i in np.nonzero(~valid))
    real = [k for k in states if energy.spaces[k].is_real]
    state = {k: v[row, chain] for k, v in states.items()}
    fault = _fault(energy, {**{k: value_of(v)[row] for k, v in given.items()}, **state}, real)
    values = {k: np.asarray(state[k]) for k in real or states}
    shown = ", ".join(f"{k} = {np.array2string(v.ravel()[:4], precision=3)}" for k, v in values.items())
    found = f"{fault} at {_STARTS} random starts, the first at {shown}"
    remedy = "Look for logarithms of negative numbers or overflow there"
    if real:
        remedy += (
            ", or scale the variables so that such values are possible: chains start at b(u) with "
            "u ~ N(0, I) for the bijection b of each space"
        )
    return BadInput("energy", found, "finite numbers", f"{remedy}.")


def _fault(energy: Energy, values: dict[str, Any], real: list[str]) -> str:
    """Return what is not finite at these values: the energy, or the gradient in some variables."""
    value = float(checked_energy(energy, values))
    if not np.isfinite(value):
        return f"the value {'NaN' if np.isnan(value) else 'infinity' if value > 0 else '-infinity'}"
    of_real = lambda part: checked_energy(energy, {**values, **part})
    slope = jax.grad(of_real)({k: values[k] for k in real}) if real else {}
    wrong = [k for k, v in slope.items() if not np.isfinite(v).all()]
    return f"a gradient in {', '.join(wrong) or 'some variable'} that is NaN or infinite"


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
    impossible = ~sampler.is_valid_start(memory)
    return (tuning, state, memory), jnp.where(impossible, jnp.inf, sampler.start_energy(memory))


def _clamp(energy: Energy, row: dict[str, Any]) -> tuple[Energy, dict[str, Any]]:
    """Return the energy with the complete values of a row clamped, and masks of the partially given ones."""
    complete = {k: v for k, v in row.items() if not is_masked(v)}
    clamped = {k: asarray(v.observed) for k, v in row.items() if is_masked(v)}
    return (energy.given(**complete) if complete else energy), clamped


# -- moves -------------------------------------------------------------------------------------------------


@jit
def advance(sampler, energy, given, keys, carry, first, n, plan, one_by_one):
    """Return (carry, draws, info) of every chain after draws `first` to `first` + n, by row and chain.

    Chains run side by side, or one by one.
    """
    run = lambda row, key, carry: _run_chain(sampler, energy, row, key, carry, first, n, plan)
    if not one_by_one:
        return jax.vmap(lambda row, ks, cs: jax.vmap(lambda k, c: run(row, k, c))(ks, cs))(given, keys, carry)
    each_row = lambda rows: jax.lax.map(lambda chains: run(rows[0], *chains), rows[1:])
    return jax.lax.map(each_row, (given, keys, carry))


def _run_chain(sampler, energy, row, key, carry, first, n, plan):
    """Return (carry, draws, info) of one chain of one row.

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
            info = reduce_info(info)
        return carry, (carry[1], info)

    carry, (values, info) = jax.lax.scan(draw, carry, first + jnp.arange(n))
    return carry, values, info


def tune_sampler(sampler: Sampler, energy: Energy, state: dict[str, Any], n: int, key: Any) -> Any:
    """Return the tuning of the sampler after `n` moves of warm-up of one chain; None if it has none."""
    samplers = instance(Sampler, "a sampler", "Try NUTS().")
    check_arguments(locals(), sampler=samplers, energy=instance(Energy, "an energy"), n=WHOLE)
    names = set(state) if isinstance(state, dict) else set()
    if names != set(energy.spaces):
        raise BadInput("state", describe(state), f"a dict of {', '.join(energy.spaces)}")
    key = as_key(key)
    memory = sampler.init_memory(energy, state)
    tuning = sampler.init_tuning(energy, state, memory)
    if tuning is None:
        return None

    def move(i, carry):
        tuning, state, memory = carry
        moved = sampler.with_tuning(tuning).move(energy, state, memory, jax.random.fold_in(key, i))
        return sampler.adapt(tuning, i, n, *moved), *moved[:2]

    return jax.lax.fori_loop(0, n, move, (tuning, state, memory))[0]


def reduce_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return over the first axis the mean of rates, the sum of counts, and of flags whether any is set."""
    reduce = {"f": lambda a: a.mean(0), "i": lambda a: a.sum(0), "b": lambda a: a.any(0)}
    return {k: reduce[np.dtype(v.dtype).kind](v) for k, v in info.items()}
