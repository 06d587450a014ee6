"""A family of distributions from a fitted base to an energy, with the moves at each: for annealed methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import NONE, instance
from ..._util.arrays import asarray
from ..._util.keys import unrolled_threefry_key
from ...energy import Energy
from ...errors import EnergaxError
from ...programs import jit
from ...samplers import Sampler, default_sampler, knows_conditional, tune_sampler
from .._optimise.lbfgs import start_in
from .annealing_path import GeometricPath
from .pilot import fit_base, uniform_base
from .unconstrained import VECTOR, Standardised, as_scale

#: The fields that annealed methods share.
SAMPLER = instance(Sampler, "a sampler of energax.samplers") | NONE
DATA = instance(Mapping, "a dict from variable names to rows") | NONE

#: The β at which settings of the moves are tuned; between them they are interpolated.
_GRID = np.linspace(0, 1, 9)
_TUNED_CHAINS, _TUNED_MOVES = 4, 300


class Annealing(eqx.Module):
    """Distributions p_β ∝ q^(1 − β) exp(−β e) for β from 0 to 1, and moves that leave each invariant.

    Args:
        path: the energies.
        sampler: the moves.
        kept: the variables of a state. The others are summed out in weights and redrawn at every move.
        tuning: the tuning of the sampler, with a leading axis over the β of a grid; None without any.
    """

    path: GeometricPath
    sampler: Sampler
    kept: tuple[str, ...] = eqx.field(static=True)
    tuning: Any = None

    def start(self, n: int, key: Any) -> dict[str, Any]:
        """Return `n` exact draws of the base."""
        draws = jax.vmap(self.path.base.draw)(jax.random.split(key, n))
        return {name: draws[name] for name in self.kept}

    def log_ratios(self, states: dict[str, Any], before: Any, after: Any) -> Any:
        """Return log p̃_after − log p̃_before of every state, (n,)."""
        path = self.path.at(before)
        return jax.vmap(lambda state: path.log_ratio(after, state))(states)

    def move(self, states: dict[str, Any], beta: Any, key: Any, n_moves: int = 1) -> dict[str, Any]:
        """Return every state after moves that leave p_β invariant."""
        path = self.path.at(beta)
        first, second = jax.random.split(unrolled_threefry_key(key))
        whole = self.complete(states, beta, first)
        moved = self.sampler_at(path).advance(path, whole, n_moves, second)
        return {name: moved[name] for name in self.kept}

    def complete(self, states: dict[str, Any], beta: Any, key: Any) -> dict[str, Any]:
        """Return every state with its other variables drawn from p_β given it."""
        path = self.path.at(beta)
        hidden = [n for n in path.spaces if n not in self.kept]
        if not hidden:
            return states

        def draw(state, k):
            if len(hidden) == 1 and knows_conditional(path, hidden[0], state):
                value = path.conditional(hidden[0], **state).sample(k)
                return {**state, hidden[0]: value.astype(path.spaces[hidden[0]].jax_dtype)}
            return {**state, **Energy.draw(path, k, **state)}

        n = jax.tree.leaves(states)[0].shape[0]
        return jax.vmap(draw)(states, jax.random.split(key, n))

    def sampler_at(self, path: GeometricPath) -> Sampler:
        """Return the sampler with its settings at the β of a path."""
        sampler = self.sampler.for_energy(path)
        if self.tuning is None:
            return sampler
        position = jnp.clip(path.beta, 0, 1) * (len(_GRID) - 1)
        low = jnp.minimum(position.astype(int), len(_GRID) - 2)
        share = position - low
        between = lambda a: ((1 - share) * a[low] + share * a[low + 1]).astype(a.dtype)
        pick = lambda a: between(a) if eqx.is_inexact_array(a) else a[low]
        return sampler.with_tuning(jax.tree.map(pick, self.tuning))

    def constrain(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return draws of the path (n, …) as draws of the variables of the energy that was given."""
        energy = self.path.energy
        if not isinstance(energy, Standardised):
            return values
        rest = {n: v for n, v in values.items() if n != VECTOR}
        return {**jax.vmap(lambda v: energy.constrain(v)[0])(values[VECTOR]), **rest}


# -- which energies have such a family -----------------------------------------------------------


def annealing_reason(energy: Energy, sampler: Sampler | None) -> str | None:
    """Return why there is no such family for an energy, as a clause; None if there is one."""
    endless = [f"{n!r} in {s!r}" for n, s in energy.spaces.items() if not s.is_finite and not s.is_real]
    if endless:
        return f"starts from independent finite or real variables, which does not fit {', '.join(endless)}"
    try:
        _find_sampler(_trial_path(energy), sampler)
    except EnergaxError as error:
        return f"has no moves: {str(error).rstrip('.')}"
    return None


def _trial_path(energy: Energy) -> GeometricPath:
    """Return the path from a base that is not fitted, to ask which moves it supports."""
    real = {n: s for n, s in energy.spaces.items() if s.is_real}
    if real:
        rows = {n: np.asarray(start_in(s, None))[None] for n, s in real.items()}
        size = sum(value.size for value in rows.values())
        energy = Standardised(energy, as_scale(np.eye(size + 2, size)))
    return GeometricPath(uniform_base(energy), energy, asarray(0.5, jnp.zeros(()).dtype))


def _find_sampler(path: GeometricPath, sampler: Sampler | None) -> Sampler:
    if sampler is None:
        # Every move is one evaluation at another β: those of learners, not of NUTS.
        return default_sampler(path, in_learning=True)
    sampler.check(path)
    return sampler


# -- preparation ---------------------------------------------------------------------------------


def prepare(
    energy: Energy, key: Any, sampler: Sampler | None = None, data: Mapping[str, Any] | None = None
) -> Annealing:
    """Return the family from a base that is fitted to the energy, with moves that are tuned at each β."""
    pilot_key, tune_key = jax.random.split(key)
    energy, base = fit_base(energy, sampler, data, pilot_key)
    path = GeometricPath(base, energy, asarray(0.0, jnp.zeros(()).dtype))
    chosen = _find_sampler(path, sampler)
    found = Annealing(path, chosen, _kept(path))
    return Annealing(path, chosen, found.kept, _tune(found, asarray(_GRID, jnp.zeros(()).dtype), tune_key))


def _kept(path: GeometricPath) -> tuple[str, ...]:
    """Return the variables of a state, if as much as possible is summed out of the weights."""
    real = tuple(n for n, s in path.spaces.items() if s.is_real)
    if real:
        return real
    for hidden in reversed(path.spaces):
        rest = tuple(n for n in path.spaces if n != hidden)
        if rest and path.knows("free_energy", frozenset(rest)):
            return rest
    return tuple(path.spaces)


@jit
def _tune(annealing: Annealing, grid: Any, key: Any) -> Any:
    """Return the tuning of the sampler at every β of the grid, as means over a few chains."""

    def tune(beta, key):
        start_key, hidden_key, key = jax.random.split(key, 3)
        path = annealing.path.at(beta)
        sampler = annealing.sampler.for_energy(path)
        states = annealing.complete(annealing.start(_TUNED_CHAINS, start_key), beta, hidden_key)
        one = lambda state, k: tune_sampler(sampler, path, state, _TUNED_MOVES, k)
        tunings = jax.vmap(one)(states, jax.random.split(key, _TUNED_CHAINS))
        return jax.tree.map(lambda a: a.mean(0) if eqx.is_inexact_array(a) else a[0], tunings)

    return jax.vmap(tune)(grid, jax.random.split(key, len(grid)))
