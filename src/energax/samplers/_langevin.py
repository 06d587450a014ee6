"""Langevin: downhill by the gradient, and as much noise as keeps the distribution."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable
from ..finite import Assignments
from ._gibbs import knows_conditional
from ._sampler import Sampler


class Langevin(Sampler):
    """u ← u − ε ∇e(u) + √(2ε) ξ, ξ ~ N(0, I), in ℝⁿ through the bijection of each space.

    With `adjusted` each move is accepted or refused after Metropolis and Hastings (MALA), and
    the draws are right for any ε; without, they are biased by an amount that shrinks with ε,
    but a score is all that is needed. Finite variables are summed out (`free_energy`) and drawn
    again given the real ones.

    Args:
        step_size: ε; None finds one in the warm-up, for which 57 % of the moves are accepted.
        adjusted: accept or refuse each move.

    Roberts and Tweedie (1996), Exponential convergence of Langevin distributions and their
    discrete approximations; Roberts and Rosenthal (1998) for the rate of acceptance.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> draws = sample(normal, 4000, method=Langevin(), key=0)
    >>> draws.verdict[:19], bool(abs(draws["x"].std() - 1) < 0.1)
    ('no sign of trouble ', True)
    """

    step_size: Any = None
    adjusted: bool = eqx.field(static=True, default=True)
    target_acceptance: float = eqx.field(static=True, default=0.574)

    def __check_init__(self):
        size = self.step_size
        if isinstance(size, (int, float)) and not size > 0:
            raise BadInput("step_size", repr(size), "a number > 0, or None to find one")
        if size is None and not self.adjusted:
            raise BadInput(
                "step_size", "None", "a number > 0", "Unadjusted moves have no rate of acceptance to tune by."
            )

    @property
    def label(self):
        return "Langevin (MALA)" if self.adjusted else "unadjusted Langevin"

    @property
    def caveat(self):
        return "" if self.adjusted else "biased by the step size, which no diagnostic of chains can see"

    def check(self, energy: Energy) -> None:
        real, finite, other = _kinds(energy)
        if not real or other:
            wrong = other or list(finite)
            raise Unsuitable(
                f"Langevin needs real variables, but {type(energy).__name__} has {wrong} without a gradient. "
                "Use Gibbs."
            )
        if finite and not energy.knows("free_energy", frozenset(real)):
            Assignments(finite).check_size(
                "Langevin, which sums out finite variables,", "Use Gibbs, or give the energy `free_energy`."
            )

    # -- one move --------------------------------------------------------------------------------

    def step(self, energy, state, key, clamped=None):
        size = 0.1 if self.step_size is None else self.step_size
        return self._move(energy, state, self.remember(energy, state, clamped), key, clamped, size)[0]

    def move(self, energy, state, memory, key, clamped=None):
        size = 0.1 if self.step_size is None else self.step_size
        return self._move(energy, state, memory, key, clamped, size)

    def remember(self, energy, state, clamped=None):
        from blackjax.mcmc.mala import init

        real, _, _ = _kinds(energy)
        u = {n: s.bijection.inv(state[n]) for n, s in real.items()}
        if self._by_score(energy, real):
            return u
        return init(u, self._log_density(energy, state, clamped))

    def _log_density(self, energy, state, clamped):
        """log p of the real variables in ℝⁿ, the held coordinates where they are."""
        real, _, _ = _kinds(energy)

        def log_density(u):
            x, total = {}, 0.0
            for name, space in real.items():
                value = space.bijection(u[name])
                log_det = space.bijection.log_abs_det_jacobian(u[name], value)
                stays = (clamped or {}).get(name)
                if stays is not None:
                    # In a coordinate that stays the target is flat: its walk has no say in what is accepted.
                    log_det = jnp.where(stays.all() if space.event_ndim else stays, 0, log_det)
                total = total + jnp.sum(log_det)
                x[name] = _hold(state[name], value, clamped, name)
            return total - free_energy(energy, x)

        return log_density

    def _by_score(self, energy, real):
        """An energy known through its score only has no other gradient."""
        return not self.adjusted and energy.knows("score") and len(real) == 1

    def _move(self, energy, state, memory, key, clamped, step_size):
        from blackjax.mcmc.diffusions import overdamped_langevin
        from blackjax.mcmc.mala import build_kernel

        real, finite, _ = _kinds(energy)
        move_key, finite_key = jax.random.split(key)
        if self._by_score(energy, real):
            (name,) = real
            old = memory[name]
            noise = jnp.sqrt(2 * step_size) * jax.random.normal(move_key, old.shape, old.dtype)
            slope = _pulled_back(real[name].bijection, old, energy.score(name, **state))
            new = old + step_size * slope + noise
            if old.shape == state[name].shape:  # else coordinates are constrained together, and none is held
                new = _hold(old, new, clamped, name)
            position = memory = {name: new}
            info = {"divergent": ~jnp.isfinite(new).all()}
        else:
            log_density = self._log_density(energy, state, clamped)
            if self.adjusted:
                memory, told = build_kernel()(move_key, memory, log_density, step_size)
                acceptance = told.acceptance_rate
                info = {"acceptance": jnp.where(jnp.isnan(acceptance), 0, acceptance)}
            else:
                diffuse = overdamped_langevin(jax.value_and_grad(log_density))
                memory = type(memory)(*diffuse(move_key, memory, step_size))
                info = {"divergent": ~jnp.isfinite(memory.logdensity)}
            position = memory.position
        moved = {n: _hold(state[n], s.bijection(position[n]), clamped, n) for n, s in real.items()}
        return {**moved, **_draw_finite(energy, moved, finite, finite_key)}, memory, info

    def tune(self, energy, state, key, clamped, n):
        """`n` moves; the step size by dual averaging, if none was given (Nesterov 2009)."""
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        memory = self.remember(energy, state, clamped)
        if self.step_size is not None:
            go = lambda i, c: self._move(energy, *c, jax.random.fold_in(key, i), clamped, self.step_size)[:2]
            return self, jax.lax.fori_loop(0, n, go, (state, memory))[0]
        init, update, final = dual_averaging_adaptation(self.target_acceptance)

        def adapt(i, carry):
            state, memory, tuning = carry
            size = jnp.exp(tuning.log_step_size)
            state, memory, info = self._move(energy, state, memory, jax.random.fold_in(key, i), clamped, size)
            return state, memory, update(tuning, info["acceptance"])

        start = jnp.asarray(0.1, jax.tree.leaves(memory.position)[0].dtype)
        state, _, tuning = jax.lax.fori_loop(0, n, adapt, (state, memory, init(start)))
        return eqx.tree_at(lambda s: s.step_size, self, final(tuning), is_leaf=lambda x: x is None), state


def _kinds(energy: Energy) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    spaces = energy.spaces
    real = {k: v for k, v in spaces.items() if v.is_real}
    finite = {k: v for k, v in spaces.items() if v.is_finite}
    return real, finite, [k for k in spaces if k not in real and k not in finite]


def _pulled_back(bijection: Any, u: Any, score: Any) -> Any:
    """∇_u log p(u) = (dx/du)ᵀ ∇_x log p(x) + ∇_u log |dx/du|, for x = bijection(u)."""
    x, pull = jax.vjp(bijection, u)
    stretch = jax.grad(lambda u: jnp.sum(bijection.log_abs_det_jacobian(u, bijection(u))))
    return pull(score.astype(x.dtype))[0] + stretch(u)


def _hold(old: Any, new: Any, clamped: Any, name: str) -> Any:
    mask = (clamped or {}).get(name)
    return new if mask is None else jnp.where(mask, old, new)


def _draw_finite(energy: Energy, real: dict[str, Any], finite: dict[str, Any], key: Any) -> dict[str, Any]:
    """All finite variables, exactly, given the real ones."""
    if not finite:
        return {}
    if len(finite) == 1:
        ((name, space),) = finite.items()
        if knows_conditional(energy, name, real):
            return {name: energy.conditional(name, **real).sample(key).astype(space.jax_dtype)}
    return Energy.draw(energy, key, **real)
