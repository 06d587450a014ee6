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
from ...energy import Energy
from ...errors import BadInput, EnergaxError
from ...missing import is_masked
from ...programs import jit
from ...samplers import Sampler, default_sampler, knows_conditional, run_chains
from ...spaces import Binary, Space
from .annealing_path import Independent
from .unconstrained import Standardised, as_scale, flat_unconstrained

#: Chains of a pilot run over finite variables, and their sweeps; rates are means over the second half.
_CHAINS, _SWEEPS = 200, 200
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
            found = _pilot_rates(energy, pilot, _CHAINS, _SWEEPS, key)
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


@jit
def _pilot_rates(energy: Energy, sampler: Sampler, n_chains: int, n_sweeps: int, key: Any) -> dict[str, Any]:
    """Return the mean of p(coordinate | other variables) over the second half of chains from noise."""
    start_key, key = jax.random.split(key)
    starts = jax.vmap(lambda k: sampler.start(energy, {}, k))(jax.random.split(start_key, n_chains))
    first = n_sweeps // 2

    def sweep(t, state):
        return sampler.advance(energy, state, 1, jax.random.fold_in(unrolled_threefry_key(key), t))

    def count(t, carry):
        state, totals = sweep(t, carry[0]), carry[1]
        means = jax.vmap(lambda s: _marginal_rates(energy, s))(state)
        return state, jax.tree.map(lambda total, m: total + m.mean(0), totals, means)

    states = jax.lax.fori_loop(0, first, sweep, starts)
    zeros = jax.tree.map(jnp.zeros_like, _marginal_rates(energy, jax.tree.map(lambda a: a[0], states)))
    _, totals = jax.lax.fori_loop(first, n_sweeps, count, (states, zeros))
    return jax.tree.map(lambda total: total / (n_sweeps - first), totals)


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
