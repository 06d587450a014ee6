"""The base of annealed methods: independent variables with the rates or moments of a pilot run or data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ..._util.keys import unrolled_threefry_key
from ...distributions import marginals
from ...energy import Energy, checked_energy
from ...errors import BadInput, EnergaxError
from ...missing import is_masked
from ...programs import jit
from ...samplers import Sampler, default_sampler, knows_conditional, run_chains
from ...spaces import Binary, Space
from .annealing_path import Independent
from .unconstrained import Standardised, as_scale, flat_unconstrained

#: Chains of a pilot run over finite variables, the sweeps of its first block, and the most of all blocks.
_CHAINS, _SWEEPS, _MOST_SWEEPS = 200, 100, 3100
#: Chains have settled if their mean energy falls by less than this share of its spread in a block.
_SETTLED = 0.1
#: Draws of a pilot run with real variables.
_DRAWS: dict[str, Any] = {"n": 2048, "n_chains": 32, "warmup": 500, "thin": 4}
#: How much wider than the draws the base of real variables is: weights are bounded if its tails are wide.
_WIDEN = 1.2


def fit_base(
    energy: Energy, sampler: Sampler | None, data: Mapping[str, Any] | None, key: Any
) -> tuple[Energy, Independent]:
    """Return the energy in standardised coordinates, and a base of independent variables near it.

    Finite coordinates have the rates of `data`, else of chains of the energy itself that start from noise.
    Real variables become one vector that is standard normal in the base.
    """
    real = [n for n, s in energy.spaces.items() if s.is_real]
    finite = [n for n, s in energy.spaces.items() if s.is_finite]
    given = _check_data(energy, data)
    pilot = _pilot_sampler(energy, sampler)
    if real:
        draws: dict[str, Any] = dict(given)
        if set(given) < set(energy.spaces):
            drawn = run_chains(pilot, energy, key=key, **_DRAWS)
            draws = {**drawn, **given}
        energy = Standardised(energy, as_scale(flat_unconstrained(energy, draws), _WIDEN))
        rates = {n: _rates_of_rows(draws[n], energy.spaces[n]) for n in finite}
    else:
        rates = {n: _rates_of_rows(v, energy.spaces[n]) for n, v in given.items()}
        if set(rates) < set(finite):
            found = _pilot_rates(energy, pilot, key)
            rates = {**{n: np.asarray(v, float) for n, v in found.items()}, **rates}
    logits = {n: _logits(rates[n], energy.spaces[n]) for n in finite}
    return energy, Independent(logits, tuple(energy.spaces.items()))


def uniform_base(energy: Energy) -> Independent:
    """Return the base in which all values of finite variables are equally probable."""
    finite = {n: s for n, s in energy.spaces.items() if s.is_finite}
    equal = {
        n: np.full((*s.shape, s.values_per_coordinate), 1 / s.values_per_coordinate)
        for n, s in finite.items()
    }
    logits = {n: _logits(equal[n], s) for n, s in finite.items()}
    return Independent(logits, tuple(energy.spaces.items()))


def _check_data(energy: Energy, data: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Return complete rows by name."""
    if data is None:
        return {}
    if not isinstance(data, Mapping) or not set(data) <= set(energy.spaces):
        raise BadInput("data", f"{data!r:.60}", f"rows by name, of some of {list(energy.spaces)}")
    rows = {n: energy.spaces[n].check(v, n) for n, v in data.items()}
    for name, value in rows.items():
        if is_masked(value) or np.ndim(value) != energy.spaces[name].ndim + 1:
            raise BadInput(f"data[{name!r}]", "one value or missing values", "complete rows")
    return {n: np.asarray(v) for n, v in rows.items()}


def _pilot_sampler(energy: Energy, sampler: Sampler | None) -> Sampler:
    """Return the sampler of the caller if it supports the energy itself, else the default one."""
    try:
        if sampler is not None:
            sampler.check(energy)
            return sampler
    except EnergaxError:
        pass
    return default_sampler(energy, in_learning=True)


def _rates_of_rows(rows: Any, space: Space) -> np.ndarray:
    """Return the frequencies of every coordinate, (*shape, k)."""
    hits = np.stack([np.asarray(rows) == value for value in range(space.values_per_coordinate)], -1)
    return hits.mean(0)


def _logits(rates: np.ndarray, space: Space) -> Any:
    """Return logits (*shape) of a binary space, else (*shape, k), of rates kept away from 0 and 1."""
    k = space.values_per_coordinate
    # As if every value had been drawn half a time in a run of as many chains: a base that excluded a value
    # would exclude it from log Z.
    smooth = (rates * _CHAINS + 0.5) / (_CHAINS + 0.5 * k)
    logs = np.log(smooth)
    logs = logs[..., 1] - logs[..., 0] if isinstance(space, Binary) else logs
    return asarray(logs, jnp.zeros(()).dtype)


def _pilot_rates(energy: Energy, sampler: Sampler, key: Any) -> dict[str, Any]:
    """Return the rates of chains from noise in their last block; blocks double until the chains settle.

    They have settled if their mean energy did not fall. Before, they are in the basins of noise, and an
    annealed run from a base of such rates misses most of Z.
    """
    states = _start_pilot(energy, sampler, _CHAINS, key)
    first, length, before = 0, _SWEEPS, np.inf
    while True:
        block = (asarray(first, np.int32), asarray(length, np.int32))
        states, rates, energies = _run_pilot(energy, sampler, *block, states, key)
        now = np.asarray(energies, float)
        first, length = first + length, 2 * length
        if now.mean() > before - _SETTLED * now.std() or first + length > _MOST_SWEEPS:
            return rates
        before = now.mean()


@jit
def _start_pilot(energy: Energy, sampler: Sampler, n_chains: int, key: Any) -> dict[str, Any]:
    keys = jax.random.split(jax.random.fold_in(key, 2**20), n_chains)
    return jax.vmap(lambda k: sampler.start(energy, {}, k))(keys)


@jit
def _run_pilot(energy, sampler, first, n_sweeps, states, key):
    """Return the states after a block of sweeps, the means of its rates, and the energies at its end."""

    def sweep(t, carry):
        states, totals = carry
        states = sampler.advance(energy, states, 1, jax.random.fold_in(unrolled_threefry_key(key), first + t))
        means = jax.vmap(lambda state: _marginal_rates(energy, state))(states)
        return states, jax.tree.map(lambda total, m: total + m.mean(0), totals, means)

    zeros = jax.tree.map(jnp.zeros_like, _marginal_rates(energy, jax.tree.map(lambda a: a[0], states)))
    states, totals = jax.lax.fori_loop(0, n_sweeps, sweep, (states, zeros))
    energies = jax.vmap(lambda state: checked_energy(energy, state))(states)
    return states, jax.tree.map(lambda total: total / n_sweeps, totals), energies


def _marginal_rates(energy: Energy, state: dict[str, Any]) -> dict[str, Any]:
    """Return p(coordinate | all other variables) where it is known, else the coordinate as one-hot."""
    found = {}
    for name, space in energy.spaces.items():
        others = {k: v for k, v in state.items() if k != name}
        if knows_conditional(energy, name, others):
            found[name] = marginals(energy.conditional(name, **others), space)
        else:
            found[name] = jax.nn.one_hot(state[name].astype(int), space.values_per_coordinate)
    return found
