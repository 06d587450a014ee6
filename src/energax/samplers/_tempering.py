"""`ParallelTempering`: replicas of a chain at higher temperatures that exchange their states."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import NONE, check_arguments, instance, number
from ..energy import Energy, checked_energy
from ..errors import BadInput, check_memory, check_whole_number
from ..spaces import fixed
from ._hamiltonian import NUTS
from ._sampler import Sampler

_FIRST_WINDOW = 25  # moves before the temperatures change for the first time


class Replicas(NamedTuple):
    """The memory: states of all replicas and memories of their sampler, coldest first; a count of moves."""

    states: dict[str, Any]
    memories: Any
    n_moves: Any


class Ladder(NamedTuple):
    """The tuning: inverse temperatures, rejected swaps in so many moves, and tunings of replicas."""

    betas: Any
    rejected: Any
    count: Any
    tunings: Any


class ParallelTempering(Sampler):
    """Replicas at temperatures 1 = T₁ < … < T_K, moved by a sampler, that exchange states with neighbours.

    Replica k has the density ∝ exp(−e / T_k). A swap of the states of neighbours is accepted with probability
    min(1, exp((β_k − β_{k+1}) (e_k − e_{k+1}))), β = 1/T. Hot replicas cross barriers between modes, and
    swaps bring the modes to the replica at T = 1, whose states are the draws. Pairs (1,2), (3,4), …
    and (2,3), (4,5), … take turns. The warm-up moves the temperatures so that all pairs reject equally often.

    Args:
        sampler: the moves of every replica, such as `NUTS()`, `RandomWalk()` or `Gibbs()`.
        n_temperatures: K.
        max_temperature: T_K. It must be high enough that a chain at T_K crosses all barriers.

    Swendsen and Wang (1986), Replica Monte Carlo simulation of spin-glasses; Geyer (1991), Markov chain Monte
    Carlo maximum likelihood; Syed, Bouchard-Côté, Deligiannidis and Doucet (2022), Non-reversible parallel
    tempering, for the order of swaps and the choice of temperatures.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> from energax.samplers import RandomWalk
    >>> wells = NeuralEnergy(lambda x: 20 * (x[0]**2 - 1)**2, 1)          # wells at -1 and 1
    >>> draws = sample(wells, 4000, method=ParallelTempering(RandomWalk()), key=0)
    >>> bool(abs((draws["x"] > 0).mean() - 0.5) < 0.1)
    True
    """

    sampler: Sampler = NUTS()
    n_temperatures: int = eqx.field(static=True, default=8)
    max_temperature: float = eqx.field(static=True, default=30.0)
    ladder: Ladder | None = fixed(default=None)

    is_compiled = True
    keeps_memory = True  # the states of the hot replicas

    def __check_init__(self):
        if not isinstance(self.sampler, Sampler):
            raise BadInput("sampler", type(self.sampler).__name__, "a sampler, such as NUTS()")
        check_whole_number("n_temperatures", self.n_temperatures, 2)
        check_memory("n_temperatures", self.n_temperatures, self.n_temperatures, "one number for each", 4)
        hottest = number(lambda value: 1 < value < np.inf, "a number > 1")
        ladder = instance(Ladder, "a Ladder of its warm-up") | NONE
        check_arguments(self, max_temperature=hottest, ladder=ladder)

    @property
    def label(self):
        return f"parallel tempering of {self.sampler.label}"

    @property
    def varies_in_length(self):  # type: ignore[override]
        return self.sampler.varies_in_length

    @property
    def can_start_impossible(self):  # type: ignore[override]
        return self.sampler.can_start_impossible

    def check(self, energy: Energy) -> None:
        self.sampler.check(energy / 2.0)

    def unmoved(self, spaces):
        return self.sampler.unmoved(spaces)

    def for_energy(self, energy):
        return eqx.tree_at(lambda s: s.sampler, self, self.sampler.for_energy(energy))

    def _betas(self, energy: Energy, state: dict[str, Any]) -> Any:
        """Return the inverse temperatures, (K,), at first a geometric sequence."""
        if self.ladder is not None:
            return self.ladder.betas
        dtype = checked_energy(energy, state).dtype
        return jnp.geomspace(1.0, 1 / self.max_temperature, self.n_temperatures, dtype=dtype)

    # -- one move ------------------------------------------------------------------------------------

    def init_memory(self, energy, state, clamped=None):
        copies = {k: jnp.broadcast_to(v, (self.n_temperatures, *v.shape)) for k, v in state.items()}
        betas = self._betas(energy, state)
        return Replicas(copies, self._memories(energy, copies, betas, clamped), jnp.zeros((), jnp.int32))

    def _memories(self, energy, states, betas, clamped):
        one = lambda state, beta: self.sampler.init_memory(energy / (1 / beta), state, clamped)
        return jax.vmap(one)(states, betas)

    def _renewed(self, energy, states, betas, memories, clamped):
        one = lambda s, beta, memory: self.sampler.renew_memory(energy / (1 / beta), s, memory, clamped)
        return jax.vmap(one)(states, betas, memories)

    def renew_memory(self, energy, state, memory, clamped=None):
        # The state may have come from elsewhere, as by a swap in a tempering of temperings.
        states = jax.tree.map(lambda all, first: all.at[0].set(first), memory.states, state)
        betas = self._betas(energy, state)
        memories = self._renewed(energy, states, betas, memory.memories, clamped)
        return Replicas(states, memories, memory.n_moves)

    def exchange_memories(self, memories, order):
        return memories  # the hot replicas keep their temperatures

    def is_valid_start(self, memory):
        valid = jax.vmap(self.sampler.is_valid_start, axis_size=self.n_temperatures)(memory.memories)
        return valid.all()

    def step(self, energy, state, key, clamped=None):
        # Without a memory there is nothing to swap with: copies of the state are no draws of hot replicas.
        cold = self.sampler
        if self.ladder is not None:
            cold = cold.with_tuning(jax.tree.map(lambda a: a[0], self.ladder.tunings))
        return cold.step(energy, state, key, clamped)

    def move(self, energy, state, memory, key, clamped=None):
        move_key, swap_key = jax.random.split(key)
        betas, tunings = self._betas(energy, state), None if self.ladder is None else self.ladder.tunings

        def move_replica(beta, tuning, state, memory, key):
            sampler = self.sampler if self.ladder is None else self.sampler.with_tuning(tuning)
            return sampler.move(energy / (1 / beta), state, memory, key, clamped)

        keys = jax.random.split(move_key, self.n_temperatures)
        replicas = betas, tunings, memory.states, memory.memories, keys
        states, memories, info = jax.vmap(move_replica)(*replicas)
        order, rejection = _swap(energy, states, betas, memory.n_moves, swap_key)
        states = jax.tree.map(lambda a: a[order], states)
        memories = self.sampler.exchange_memories(memories, order)
        memories = self._renewed(energy, states, betas, memories, clamped)
        memory = Replicas(states, memories, memory.n_moves + 1)
        cold = {k: v[0] for k, v in info.items()}
        info = {**cold, **{f"replica {k}": v for k, v in info.items()}, "swap rejection": rejection}
        return {k: v[0] for k, v in states.items()}, memory, info

    # -- warm-up -------------------------------------------------------------------------------------

    def init_tuning(self, energy, state, memory):
        betas = self._betas(energy, state)
        one = lambda beta, s, m: self.sampler.init_tuning(energy / (1 / beta), s, m)
        tunings = jax.vmap(one)(betas, memory.states, memory.memories)
        return Ladder(
            betas, jnp.zeros(self.n_temperatures - 1, betas.dtype), jnp.zeros_like(betas[0]), tunings
        )

    def with_tuning(self, tuning):
        return eqx.tree_at(lambda s: s.ladder, self, tuning, is_leaf=lambda x: x is None)

    def adapt(self, tuning, i, n, state, memory, info):
        own = {k.removeprefix("replica "): v for k, v in info.items() if k.startswith("replica ")}
        one = lambda t, s, m, f: self.sampler.adapt(t, i, n, s, m, f)
        tunings = jax.vmap(one)(tuning.tunings, memory.states, memory.memories, own)
        rejected, count = tuning.rejected + info["swap rejection"], tuning.count + 1
        # Windows double, so that the temperatures settle; the last quarter of the warm-up keeps them.
        is_end = (count >= _FIRST_WINDOW) & ((i + 1) % jnp.maximum(count, 1) == 0) & (i < 0.75 * n)
        is_end = is_end & (count >= (i + 1) / 2)
        betas = jnp.where(is_end, _equalise(tuning.betas, rejected / count), tuning.betas)
        zero = jnp.where(is_end, 0.0, 1.0)
        return Ladder(betas, rejected * zero, count * zero, tunings)


def _swap(energy: Energy, states: dict[str, Any], betas: Any, n_moves: Any, key: Any) -> tuple[Any, Any]:
    """Return which replica's state each one takes, (K,), and how probably pairs reject, (K − 1,)."""
    k = betas.shape[0]
    energies = jax.vmap(lambda s: checked_energy(energy, s))(states)
    log_ratio = (betas[:-1] - betas[1:]) * (energies[:-1] - energies[1:])
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    uniform = jax.random.uniform(key, (k - 1,), betas.dtype)
    has_turn = jnp.arange(k - 1) % 2 == n_moves % 2
    take = has_turn & (jnp.log(uniform) < log_ratio)
    up = jnp.concatenate([take, jnp.zeros(1, bool)])
    down = jnp.concatenate([jnp.zeros(1, bool), take])
    order = jnp.arange(k) + up.astype(int) - down.astype(int)
    return order, -jnp.expm1(jnp.minimum(log_ratio, 0.0))


def _equalise(betas: Any, rejection: Any) -> Any:
    """Return inverse temperatures between the same ends, with equal sums of rejections between neighbours.

    The rejections are spread evenly over log β between their two temperatures.
    """
    barrier = jnp.concatenate([jnp.zeros(1, betas.dtype), jnp.cumsum(rejection + 1e-3)])
    even = jnp.linspace(0.0, 1.0, betas.shape[0], dtype=betas.dtype) * barrier[-1]
    found = jnp.exp(jnp.interp(even, barrier, jnp.log(betas)))
    return found.at[0].set(betas[0]).at[-1].set(betas[-1])
