"""`Langevin`: steps along the gradient with Gaussian noise, adjusted by Metropolis and Hastings or not."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FLAG, FRACTION, POSITIVE_SCALAR, check_arguments
from ..energy import Energy
from ..errors import BadInput
from ._adaptation import adapt_step_size, init_step_size
from ._coordinates import (
    check_gradient,
    complete_state,
    log_density,
    split_spaces,
    to_unconstrained,
    unmoved_when_clamped,
)
from ._sampler import TUNED, Sampler


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

    automatic_in_learning = True
    priority = 10

    def __check_init__(self):
        check_arguments(self, step_size=POSITIVE_SCALAR | TUNED, adjusted=FLAG, target_acceptance=FRACTION)
        if self.step_size is None and not self.adjusted:
            remedy = "Unadjusted moves have no acceptance rate to tune it by."
            raise BadInput("step_size", "None", "a number > 0", remedy)

    @property
    def label(self):
        return "Langevin (MALA)" if self.adjusted else "unadjusted Langevin"

    @property
    def caveat(self):
        return "" if self.adjusted else "biased by the step size, which diagnostics of chains do not show"

    def check(self, energy: Energy) -> None:
        check_gradient(energy, "Langevin")

    # -- one move --------------------------------------------------------------------------------

    def unmoved(self, spaces):
        return unmoved_when_clamped(spaces)

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def init_memory(self, energy, state, clamped=None):
        from blackjax.mcmc.mala import init

        u = to_unconstrained(energy, state)
        return u if self._uses_score(energy) else init(u, log_density(energy, state, clamped))

    def is_valid_start(self, memory):
        values = memory if isinstance(memory, jax.Array) else memory.logdensity
        return jnp.isfinite(values).all()

    def start_energy(self, memory):
        return jnp.zeros(()) if isinstance(memory, jax.Array) else -memory.logdensity

    def _uses_score(self, energy):
        """Return whether moves use the energy's own `score`, which need not be the gradient of its value."""
        real, _, _ = split_spaces(energy)
        return not self.adjusted and energy.knows("score") and len(real) == 1

    def move(self, energy, state, memory, key, clamped=None):
        size = 0.1 if self.step_size is None else self.step_size
        move_key, finite_key = jax.random.split(key)
        if self._uses_score(energy):
            u = memory = _score_move(energy, state, memory, move_key, size)
            info = {"divergent": ~jnp.isfinite(u).all()}
        else:
            log_p = log_density(energy, state, clamped)
            memory, info = self._gradient_move(log_p, memory, move_key, size)
            u = memory.position
        return complete_state(energy, state, u, finite_key, clamped), memory, info

    def _gradient_move(self, log_p, memory, key, step_size):
        from blackjax.mcmc.diffusions import overdamped_langevin
        from blackjax.mcmc.mala import build_kernel

        if self.adjusted:
            memory, info = build_kernel()(key, memory, log_p, step_size)
            acceptance = info.acceptance_rate
            return memory, {"acceptance": jnp.where(jnp.isnan(acceptance), 0, acceptance)}
        diffuse = overdamped_langevin(jax.value_and_grad(log_p))
        memory = type(memory)(*diffuse(key, memory, step_size))
        return memory, {"divergent": ~jnp.isfinite(memory.logdensity)}

    # -- warm-up ---------------------------------------------------------------------------------

    def init_tuning(self, energy, state, memory):
        if self.step_size is not None:
            return None
        return init_step_size(0.1, memory.position.dtype)

    def with_tuning(self, tuning):
        if tuning is None:
            return self
        return eqx.tree_at(lambda s: s.step_size, self, tuning.step_size, is_leaf=lambda x: x is None)

    def adapt(self, tuning, i, n, state, memory, info):
        if tuning is None:
            return None
        return adapt_step_size(tuning, self.target_acceptance, i, n, info["acceptance"])


def _score_move(energy, state, u, key, step_size):
    """Return u after one unadjusted move by the energy's own `score`."""
    real, _, _ = split_spaces(energy)
    ((name, space),) = real.items()
    v = u.reshape(space.chain_bijection.inverse_shape(space.shape))
    noise = jnp.sqrt(2 * step_size) * jax.random.normal(key, v.shape, v.dtype)
    slope = _unconstrained_score(space.chain_bijection, v, energy.score(name, **state))
    return jnp.ravel(v + step_size * slope + noise)


def _unconstrained_score(bijection: Any, u: Any, score: Any) -> Any:
    """Return ∇_u log p(u) = (dx/du)ᵀ ∇_x log p(x) + ∇_u log |dx/du|, for x = bijection(u)."""
    x, pull_back = jax.vjp(bijection, u)
    log_det_gradient = jax.grad(lambda u: jnp.sum(bijection.log_abs_det_jacobian(u, bijection(u))))
    return pull_back(score.astype(x.dtype))[0] + log_det_gradient(u)
