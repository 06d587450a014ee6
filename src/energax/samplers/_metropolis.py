"""`MetropolisHastings` and `RandomWalk`: proposals that are accepted or rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import FRACTION, POSITIVE_SCALAR, VECTOR, check_arguments
from ..energy import Energy, checked_energy
from ..errors import BadInput, Unsuitable
from ._adaptation import WindowAdaptation
from ._coordinates import clamp, from_unconstrained, log_density, split_spaces, to_unconstrained
from ._sampler import TUNED, Sampler


class MetropolisHastings(Sampler):
    """Moves of any proposal q, accepted with probability min(1, e^(e(x) − e(x′)) q(x | x′) / q(x′ | x)).

    Args:
        proposal: a function (key, state) → state, of dicts with a value of every variable.
        log_ratio: a function (state, new state) → log q(state | new state) − log q(new state | state); None
            if the proposal is symmetric.

    Metropolis, Rosenbluth, Rosenbluth, Teller and Teller (1953), Equation of state calculations by fast
    computing machines; Hastings (1970), Monte Carlo sampling methods using Markov chains.

    >>> from energax.energies import RBM
    >>> def flip(key, state):
    ...     x, z = state["x"], state["z"]
    ...     flips = jax.random.bernoulli(key, 0.5, (x.size + z.size,))
    ...     return {"x": jnp.abs(x - flips[: x.size]), "z": jnp.abs(z - flips[x.size :])}
    >>> from energax import sample
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.full(2, jnp.log(3.0)), jnp.zeros(1))
    >>> bool(abs(sample(coins, 8000, method=MetropolisHastings(flip), key=0)["x"].mean() - 0.75) < 0.03)
    True
    """

    proposal: Callable[[Any, dict[str, Any]], dict[str, Any]] = eqx.field(static=True)
    log_ratio: Callable[[dict[str, Any], dict[str, Any]], Any] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not callable(self.proposal):
            raise BadInput("proposal", type(self.proposal).__name__, "a function (key, state) → state")
        if self.log_ratio is not None and not callable(self.log_ratio):
            raise BadInput(
                "log_ratio", type(self.log_ratio).__name__, "a function (state, new state) → number"
            )

    def check(self, energy: Energy) -> None:
        start = {k: jax.ShapeDtypeStruct(s.shape, s.jax_dtype) for k, s in energy.spaces.items()}
        try:
            new = jax.eval_shape(self.proposal, jax.random.key(0), start)
        except Exception as error:
            raise BadInput("proposal", f"an error, {error}", f"a state with {list(start)}") from error
        if not isinstance(new, dict) or {k: v.shape for k, v in new.items()} != {
            k: v.shape for k, v in start.items()
        }:
            raise BadInput("proposal", f"a result {new!r:.200}", f"a dict with the shapes {start!r:.200}")

    def unmoved(self, spaces):
        # A proposal for all coordinates is not one for some of them.
        return list(spaces)

    def init_memory(self, energy, state, clamped=None):
        return checked_energy(energy, state)

    def is_valid_start(self, memory):
        return jnp.isfinite(memory)

    def start_energy(self, memory):
        return memory

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        propose_key, accept_key = jax.random.split(key)
        new = self.proposal(propose_key, state)
        new = {k: jnp.asarray(new[k], state[k].dtype) for k in state}
        new_energy = checked_energy(energy, new)
        ratio = 0.0 if self.log_ratio is None else self.log_ratio(state, new)
        return _accept(accept_key, memory - new_energy + ratio, (state, memory), (new, new_energy))


def _accept(key: Any, log_ratio: Any, old: Any, new: Any) -> Any:
    """Return (state, memory, info): new ones with probability min(1, exp(log_ratio)), else the old ones."""
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    take = jnp.log(jax.random.uniform(key, dtype=log_ratio.dtype)) < log_ratio
    state, memory = jax.tree.map(lambda a, b: jnp.where(take, b, a), old, new)
    return state, memory, {"acceptance": jnp.exp(jnp.minimum(log_ratio, 0.0))}


class Walk(NamedTuple):
    """The memory of a random walk: the real variables in ℝⁿ, and the logarithm of their joint density."""

    position: Any
    log_p: Any


class RandomWalk(Sampler):
    """Metropolis moves by a normal step in ℝⁿ, u ← u + s L ξ, and a random change of discrete variables.

    The covariance LLᵀ and the scale s are tuned in the warm-up. One coordinate of every finite variable is
    replaced by another value; one count goes up or down by one. All changes are accepted or rejected
    together, so that for discrete variables beside real ones `Compound` is more efficient.

    Args:
        scale: s; None tunes it.
        covariance: LLᵀ in ℝⁿ, (d, d) or its diagonal (d,); None tunes it.
        target_acceptance: the acceptance rate of the tuning.

    Roberts, Gelman and Gilks (1997), Weak convergence and optimal scaling of random walk Metropolis
    algorithms, for the acceptance rate; Haario, Saksman and Tamminen (2001), An adaptive Metropolis
    algorithm.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> bool(abs(sample(normal, 8000, method=RandomWalk(), key=0)["x"].std() - 1) < 0.1)
    True
    """

    scale: Any = None
    covariance: Any = None
    target_acceptance: float = eqx.field(static=True, default=0.3)

    def __check_init__(self):
        tuned = {"scale": POSITIVE_SCALAR | TUNED, "covariance": VECTOR | TUNED}
        check_arguments(self, **tuned, target_acceptance=FRACTION)

    @property
    def label(self):
        return "random walk"

    def check(self, energy: Energy) -> None:
        stuck = [n for n, s in energy.spaces.items() if s.is_finite and s.values_per_coordinate < 2]
        if stuck:
            raise Unsuitable(f"RandomWalk needs variables with several values, not {stuck}. Use Gibbs.")

    def unmoved(self, spaces):
        return [n for n, s in spaces.items() if s.event_ndim]

    def init_memory(self, energy, state, clamped=None):
        if not split_spaces(energy)[0]:
            return Walk(jnp.zeros((0,)), -checked_energy(energy, state))
        u = to_unconstrained(energy, state)
        return Walk(u, _log_joint(energy, state, u, clamped))

    def is_valid_start(self, memory):
        return jnp.isfinite(memory.log_p)

    def start_energy(self, memory):
        return -memory.log_p

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        real_key, jump_key, accept_key = jax.random.split(key, 3)
        new = _jump(energy, state, jump_key, clamped)
        u = memory.position
        if u.size:
            u = u + self._step(u, real_key)
            moved = from_unconstrained(energy, u)
            new = {**new, **{k: clamp(state[k], v, clamped, k) for k, v in moved.items()}}
            log_p = _log_joint(energy, new, u, clamped)
        else:
            log_p = -checked_energy(energy, new)
        return _accept(accept_key, log_p - memory.log_p, (state, memory), (new, Walk(u, log_p)))

    def _step(self, u, key):
        """Return s L ξ."""
        covariance = jnp.ones_like(u) if self.covariance is None else jnp.asarray(self.covariance, u.dtype)
        noise = jax.random.normal(key, u.shape, u.dtype)
        root = jnp.sqrt(covariance) if covariance.ndim == 1 else jnp.linalg.cholesky(covariance)
        scale = 0.1 if self.scale is None else self.scale
        return scale * (root * noise if covariance.ndim == 1 else root @ noise)

    @property
    def _adaptation(self) -> WindowAdaptation:
        dense = self.covariance is None or np.ndim(self.covariance) == 2
        return WindowAdaptation(self.target_acceptance, dense, self.scale, self.covariance)

    def init_tuning(self, energy, state, memory):
        return self._adaptation.init(memory.position, 0.5) if memory.position.size else None

    def adapt(self, tuning, i, n, state, memory, info):
        if tuning is None:
            return None
        return self._adaptation.update(tuning, i, n, memory.position, info["acceptance"])

    def with_tuning(self, tuning):
        if tuning is None:
            return self
        values = (tuning.step_size, tuning.inverse_mass)
        return eqx.tree_at(lambda s: (s.scale, s.covariance), self, values, is_leaf=lambda x: x is None)


def _log_joint(energy: Energy, state: dict[str, Any], u: Any, clamped: Any) -> Any:
    """Return log p(u, discrete) = −e(b(u), discrete) + log |db/du|, of coordinates that are not clamped."""
    discrete = {k: v for k, v in state.items() if not energy.spaces[k].is_real}
    target = energy.given(**discrete) if discrete else energy
    return log_density(target, state, clamped)(u)


def _jump(energy: Energy, state: dict[str, Any], key: Any, clamped: Any) -> dict[str, Any]:
    """Return the state with one coordinate of every discrete variable changed; clamped ones stay."""
    new = dict(state)
    for i, (name, space) in enumerate(energy.spaces.items()):
        if space.is_real:
            continue
        where_key, value_key = jax.random.split(jax.random.fold_in(key, i))
        flat = state[name].reshape(-1)
        index = jax.random.randint(where_key, (), 0, flat.size)
        if space.is_finite:
            shift = jax.random.randint(value_key, (), 1, space.values_per_coordinate)
            value = (flat[index].astype(jnp.int32) + shift) % space.values_per_coordinate
        else:
            # Below zero the energy of a count is not defined; |x| = 1 is proposed from 0 as often as from 1.
            up = jax.random.bernoulli(value_key)
            value = flat[index] + jnp.where(up, 1, -1).astype(flat.dtype)
            value = jnp.where(value < 0, flat[index], value)
        changed = flat.at[index].set(value.astype(flat.dtype)).reshape(state[name].shape)
        new[name] = clamp(state[name], changed, clamped, name)
    return new
