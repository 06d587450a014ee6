"""`Langevin`: steps along the gradient with Gaussian noise, adjusted by Metropolis and Hastings or not."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arrays import asarray
from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable
from ..finite import Assignments
from ..spaces import Space
from ._gibbs import knows_conditional
from ._sampler import Sampler


class Langevin(Sampler):
    """Langevin dynamics: u ← u − ε ∇e(u) + √(2ε) ξ, ξ ~ N(0, I).

    u is in ℝⁿ, and x = b(u) for the bijection b of its space.

    With `adjusted`, moves are accepted or rejected after Metropolis and Hastings (MALA), so that draws are
    unbiased for any ε. Without it draws have a bias that shrinks with ε, and only a `score` is needed. Finite
    variables are summed out (`free_energy`) and drawn given the real ones after each move.

    Args:
        step_size: ε; None tunes it in the warm-up so that `target_acceptance` of the moves are accepted.
        adjusted: whether moves are accepted or rejected.
        target_acceptance: the acceptance rate of the tuning.

    Roberts and Tweedie (1996), Exponential convergence of Langevin distributions and their discrete
    approximations; Roberts and Rosenthal (1998), Optimal scaling of discrete approximations to Langevin
    diffusions, for the acceptance rate.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> draws = sample(normal, 4000, method=Langevin(), key=0)
    >>> draws.verdict[:17], bool(abs(draws["x"].std() - 1) < 0.1)
    ('no problem found ', True)
    """

    step_size: Any = None
    adjusted: bool = eqx.field(static=True, default=True)
    target_acceptance: float = eqx.field(static=True, default=0.574)

    automatic = True
    priority = 10

    def __check_init__(self):
        size = self.step_size
        if isinstance(size, (int, float)) and not size > 0:
            raise BadInput("step_size", repr(size), "a number > 0, or None to tune it")
        if size is None and not self.adjusted:
            remedy = "Unadjusted moves have no acceptance rate to tune it by."
            raise BadInput("step_size", "None", "a number > 0", remedy)

    @property
    def label(self):
        return "Langevin (MALA)" if self.adjusted else "unadjusted Langevin"

    @property
    def caveat(self):
        return "" if self.adjusted else "biased by the step size, which diagnostics of chains do not show"

    def check(self, energy: Energy) -> None:
        real, finite, other = _split(energy)
        if not real or other:
            raise Unsuitable(
                f"Langevin needs real variables, but {type(energy).__name__} has {other or list(finite)} "
                "without a gradient. Use Gibbs."
            )
        if finite and not energy.knows("free_energy", frozenset(real)):
            Assignments(finite).check_size(
                "Langevin, which sums out finite variables,", "Use Gibbs, or give the energy `free_energy`."
            )

    # -- one move --------------------------------------------------------------------------------

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        size = 0.1 if self.step_size is None else self.step_size
        return self._move(energy, state, memory, key, clamped, size)

    def init_memory(self, energy, state, clamped=None):
        from blackjax.mcmc.mala import init

        real, _, _ = _split(energy)
        u = {n: s.bijection.inv(state[n]) for n, s in real.items()}
        if self._uses_score(energy, real):
            return u
        return init(u, _log_density(energy, state, clamped))

    def _uses_score(self, energy, real):
        """Return whether moves use the energy's own `score`, which need not be the gradient of its value."""
        return not self.adjusted and energy.knows("score") and len(real) == 1

    def _move(self, energy, state, memory, key, clamped, step_size):
        """Return (state, memory, info) after one move with this step size."""
        real, finite, _ = _split(energy)
        move_key, finite_key = jax.random.split(key)
        if self._uses_score(energy, real):
            ((name, space),) = real.items()
            arguments = (state, memory[name], move_key, clamped, step_size)
            position = memory = {name: _score_move(energy, name, space, *arguments)}
            info = {"divergent": ~jnp.isfinite(memory[name]).all()}
        else:
            log_density = _log_density(energy, state, clamped)
            memory, info = self._gradient_move(log_density, memory, move_key, step_size)
            position = memory.position
        moved = {n: _clamp(state[n], s.bijection(position[n]), clamped, n) for n, s in real.items()}
        return {**moved, **_draw_finite(energy, moved, finite, finite_key)}, memory, info

    def _gradient_move(self, log_density, memory, key, step_size):
        from blackjax.mcmc.diffusions import overdamped_langevin
        from blackjax.mcmc.mala import build_kernel

        if self.adjusted:
            memory, info = build_kernel()(key, memory, log_density, step_size)
            acceptance = info.acceptance_rate
            return memory, {"acceptance": jnp.where(jnp.isnan(acceptance), 0, acceptance)}
        diffuse = overdamped_langevin(jax.value_and_grad(log_density))
        memory = type(memory)(*diffuse(key, memory, step_size))
        return memory, {"divergent": ~jnp.isfinite(memory.logdensity)}

    # -- warm-up ---------------------------------------------------------------------------------

    def tune(self, energy, state, key, clamped, n):
        """Return the sampler and the state after `n` moves; the step size is tuned if none was given.

        Nesterov (2009), Primal-dual subgradient methods for convex problems: dual averaging.
        """
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        memory = self.init_memory(energy, state, clamped)
        if self.step_size is not None:
            move = lambda i, c: self._move(energy, *c, jax.random.fold_in(key, i), clamped, self.step_size)[
                :2
            ]
            return self, jax.lax.fori_loop(0, n, move, (state, memory))[0]
        init, update, final = dual_averaging_adaptation(self.target_acceptance)

        def adapt(i, carry):
            state, memory, tuning = carry
            size = jnp.exp(tuning.log_step_size)
            state, memory, info = self._move(energy, state, memory, jax.random.fold_in(key, i), clamped, size)
            return state, memory, update(tuning, info["acceptance"])

        start = asarray(0.1, jax.tree.leaves(memory.position)[0].dtype)
        state, _, tuning = jax.lax.fori_loop(0, n, adapt, (state, memory, init(start)))
        return eqx.tree_at(lambda s: s.step_size, self, final(tuning), is_leaf=lambda x: x is None), state


def _split(energy: Energy) -> tuple[dict[str, Space], dict[str, Space], list[str]]:
    """Return the real variables, the finite ones, and the names of the others."""
    spaces = energy.spaces
    real = {k: v for k, v in spaces.items() if v.is_real}
    finite = {k: v for k, v in spaces.items() if v.is_finite}
    return real, finite, [k for k in spaces if k not in real and k not in finite]


def _log_density(energy: Energy, state: dict[str, Any], clamped: Any) -> Any:
    """Return log p of the real variables as a function of u; clamped coordinates keep their value."""
    real, _, _ = _split(energy)

    def log_density(u):
        x, total = {}, 0.0
        for name, space in real.items():
            value = space.bijection(u[name])
            log_det = space.bijection.log_abs_det_jacobian(u[name], value)
            fixed = (clamped or {}).get(name)
            if fixed is not None:
                # The target is constant in clamped coordinates, so that they do not affect acceptance.
                log_det = jnp.where(fixed.all() if space.event_ndim else fixed, 0, log_det)
            total = total + jnp.sum(log_det)
            x[name] = _clamp(state[name], value, clamped, name)
        return total - free_energy(energy, x)

    return log_density


def _score_move(energy, name, space, state, u, key, clamped, step_size):
    """Return u after one unadjusted move by the energy's own `score`."""
    noise = jnp.sqrt(2 * step_size) * jax.random.normal(key, u.shape, u.dtype)
    slope = _unconstrained_score(space.bijection, u, energy.score(name, **state))
    new = u + step_size * slope + noise
    # With another shape coordinates are constrained together, and none is clamped.
    return _clamp(u, new, clamped, name) if u.shape == state[name].shape else new


def _unconstrained_score(bijection: Any, u: Any, score: Any) -> Any:
    """Return ∇_u log p(u) = (dx/du)ᵀ ∇_x log p(x) + ∇_u log |dx/du|, for x = bijection(u)."""
    x, pull_back = jax.vjp(bijection, u)
    log_det_gradient = jax.grad(lambda u: jnp.sum(bijection.log_abs_det_jacobian(u, bijection(u))))
    return pull_back(score.astype(x.dtype))[0] + log_det_gradient(u)


def _clamp(old: Any, new: Any, clamped: Any, name: str) -> Any:
    """Return `new` with the clamped coordinates of `old`."""
    mask = (clamped or {}).get(name)
    return new if mask is None else jnp.where(mask, old, new)


def _draw_finite(energy: Energy, real: dict[str, Any], finite: dict[str, Any], key: Any) -> dict[str, Any]:
    """Return an exact draw of all finite variables given the real ones."""
    if not finite:
        return {}
    if len(finite) == 1:
        ((name, space),) = finite.items()
        if knows_conditional(energy, name, real):
            return {name: energy.conditional(name, **real).sample(key).astype(space.jax_dtype)}
    return Energy.draw(energy, key, **real)
