"""`HMC`, `MALA` and `NUTS`: Hamiltonian dynamics in unconstrained coordinates, with BlackJAX's kernels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import (
    FLAG,
    FRACTION,
    POSITIVE_SCALAR,
    VECTOR,
    Setting,
    check_arguments,
    is_whole,
)
from ..energy import Energy
from ._adaptation import WindowAdaptation
from ._coordinates import check_gradient, complete_state, log_density, to_unconstrained, unmoved_when_clamped
from ._sampler import TUNED, Sampler


class Hamiltonian(Sampler):
    """The base of samplers that follow the dynamics of H(u, p) = −log p(u) + ½ pᵀ M⁻¹ p.

    u are all real variables in ℝⁿ, x = b(u) for the bijection b of their spaces. Finite variables are summed
    out (`free_energy`) and drawn given the real ones after each move. A subclass has the fields `step_size`,
    `inverse_mass`, `target_acceptance` and `dense`.
    """

    step_size: eqx.AbstractVar[Any]
    inverse_mass: eqx.AbstractVar[Any]
    target_acceptance: eqx.AbstractVar[float]
    dense: eqx.AbstractVar[bool]

    is_compiled = True

    def __check_init__(self):
        tuned = {"step_size": POSITIVE_SCALAR | TUNED, "inverse_mass": VECTOR | TUNED}
        check_arguments(self, **tuned, target_acceptance=FRACTION, dense=FLAG)

    @abstractmethod
    def _kernel(
        self, key: Any, memory: Any, log_p: Any, step_size: Any, inverse_mass: Any
    ) -> tuple[Any, Any]:
        """Return BlackJAX's (state, info) after one move."""

    def check(self, energy: Energy) -> None:
        check_gradient(energy, type(self).__name__)

    def unmoved(self, spaces):
        return unmoved_when_clamped(spaces)

    def init_memory(self, energy, state, clamped=None):
        from blackjax.mcmc.hmc import init

        return init(to_unconstrained(energy, state), log_density(energy, state, clamped))

    def is_valid_start(self, memory):
        return jnp.isfinite(memory.logdensity) & jnp.isfinite(memory.logdensity_grad).all()

    def start_energy(self, memory):
        return -memory.logdensity

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        move_key, finite_key = jax.random.split(key)
        size = jnp.asarray(0.1 if self.step_size is None else self.step_size, memory.position.dtype)
        mass = jnp.ones_like(memory.position) if self.inverse_mass is None else self.inverse_mass
        log_p = log_density(energy, state, clamped)
        memory, info = self._kernel(move_key, memory, log_p, size, mass)
        state = complete_state(energy, state, memory.position, finite_key, clamped)
        acceptance = jnp.nan_to_num(info.acceptance_rate, nan=0.0)
        steps = info.num_integration_steps
        return (
            state,
            memory,
            {
                "acceptance": acceptance,
                "divergent": info.is_divergent,
                "n_steps": jnp.asarray(steps, jnp.int32),
            },
        )

    # -- warm-up -------------------------------------------------------------------------------------

    @property
    def _adaptation(self) -> WindowAdaptation:
        return WindowAdaptation(self.target_acceptance, self.dense, self.step_size, self.inverse_mass)

    def init_tuning(self, energy, state, memory):
        return self._adaptation.init(memory.position, 1.0)

    def adapt(self, tuning, i, n, state, memory, info):
        return self._adaptation.update(tuning, i, n, memory.position, info["acceptance"])

    def with_tuning(self, tuning):
        where = lambda s: (s.step_size, s.inverse_mass)
        values = (tuning.step_size, tuning.inverse_mass)
        return eqx.tree_at(where, self, values, is_leaf=lambda x: x is None)


class NUTS(Hamiltonian):
    """The No-U-Turn sampler: trajectories that double until they turn back; a draw is one of their points.

    Trajectories of H(u, p) = −log p(u) + ½ pᵀ M⁻¹ p, simulated with a step size. The warm-up tunes the step
    size and the mass matrix M, so that only the number of draws is left to choose.

    Chains start at u ~ N(0, I). All may miss a mode that is far from there and apart from the others, which
    `ParallelTempering` and `TemperedSMC` find.

    Args:
        step_size: the step of the leapfrog integrator; None tunes it.
        inverse_mass: M⁻¹, about the covariance of u: (d,) or (d, d); None tunes it.
        target_acceptance: the acceptance rate of the tuning; higher values take smaller steps, which
            difficult shapes such as funnels need.
        dense: whether M⁻¹ is tuned as a full matrix, or as a diagonal. A matrix gives several times as many
            effective draws of linear models with few, correlated coefficients, and fewer where the
            curvature changes from place to place, as in funnels and Gaussian processes.
        max_doublings: a trajectory has at most 2^max_doublings steps.

    Hoffman and Gelman (2014), The No-U-Turn sampler; Betancourt (2017), A conceptual introduction to
    Hamiltonian Monte Carlo; Phan, Pradhan and Jankowiak (2019), for the iterative form.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> draws = sample(normal, 4000, method=NUTS(), key=0)
    >>> draws.verdict[:16], bool(abs(draws["x"].std() - 1) < 0.1)
    ('no problem found', True)
    """

    step_size: Any = None
    inverse_mass: Any = None
    target_acceptance: float = eqx.field(static=True, default=0.8)
    dense: bool = eqx.field(static=True, default=False)
    max_doublings: int = eqx.field(static=True, default=10)

    automatic = True
    priority = 5
    varies_in_length = True

    def __check_init__(self):
        # Steps are counted in 32 bits.
        few = Setting(lambda value: is_whole(value) and 1 <= value <= 30, "a whole number from 1 to 30")
        check_arguments(self, max_doublings=few)

    def _kernel(self, key, memory, log_p, step_size, inverse_mass):
        from blackjax.mcmc.nuts import build_kernel

        return build_kernel()(key, memory, log_p, step_size, inverse_mass, self.max_doublings)

    def move(self, energy, state, memory, key, clamped=None):
        state, memory, info = super().move(energy, state, memory, key, clamped)
        most = 2**self.max_doublings - 1
        return state, memory, {**info, "reached_max_steps": info["n_steps"] >= most}


class HMC(Hamiltonian):
    """Hamiltonian Monte Carlo: trajectories of a random number of leapfrog steps, accepted or rejected.

    The number of steps is uniform from 1 to `n_steps`: trajectories of equal length may return to where
    they started, again and again.

    Args:
        step_size: the step of the leapfrog integrator; None tunes it.
        inverse_mass: M⁻¹, about the covariance of u: (d,) or (d, d); None tunes it.
        target_acceptance: the acceptance rate of the tuning.
        dense: whether M⁻¹ is tuned as a full matrix, or as a diagonal.
        n_steps: the most steps of a trajectory.

    Duane, Kennedy, Pendleton and Roweth (1987), Hybrid Monte Carlo; Neal (2011), MCMC using Hamiltonian
    dynamics; Mackenzie (1989), An improved hybrid Monte Carlo method, for the random number of steps.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> bool(abs(sample(normal, 4000, method=HMC(n_steps=8), key=0)["x"].std() - 1) < 0.1)
    True
    """

    step_size: Any = None
    inverse_mass: Any = None
    target_acceptance: float = eqx.field(static=True, default=0.8)
    dense: bool = eqx.field(static=True, default=False)
    n_steps: int = eqx.field(static=True, default=16)

    varies_in_length = True

    def __check_init__(self):
        few = Setting(lambda value: is_whole(value) and 1 <= value < 2**30, "a whole number from 1 to 2³⁰")
        check_arguments(self, n_steps=few)

    def _kernel(self, key, memory, log_p, step_size, inverse_mass):
        from blackjax.mcmc.hmc import build_kernel

        key, length_key = jax.random.split(key)
        n = jax.random.randint(length_key, (), 1, self.n_steps + 1)
        return build_kernel()(key, memory, log_p, step_size, inverse_mass, n)


class MALA(Hamiltonian):
    """The Metropolis-adjusted Langevin algorithm: u ← u − ½ ε² M⁻¹ ∇e(u) + ε M^−½ ξ, accepted or rejected.

    It is Hamiltonian Monte Carlo with one leapfrog step, so that the warm-up tunes ε and M as there. A move
    costs one gradient. `Langevin` has the same move with M = I, and without rejection if asked.

    Args:
        step_size: ε; None tunes it.
        inverse_mass: M⁻¹, about the covariance of u: (d,) or (d, d); None tunes it.
        target_acceptance: the acceptance rate of the tuning.
        dense: whether M⁻¹ is tuned as a full matrix, or as a diagonal.

    Roberts and Tweedie (1996), Exponential convergence of Langevin distributions and their discrete
    approximations; Roberts and Rosenthal (1998), Optimal scaling of discrete approximations to Langevin
    diffusions, for the acceptance rate.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> bool(abs(sample(normal, 4000, method=MALA(), key=0)["x"].std() - 1) < 0.1)
    True
    """

    step_size: Any = None
    inverse_mass: Any = None
    target_acceptance: float = eqx.field(static=True, default=0.574)
    dense: bool = eqx.field(static=True, default=False)

    def _kernel(self, key, memory, log_p, step_size, inverse_mass):
        from blackjax.mcmc.hmc import build_kernel

        return build_kernel()(key, memory, log_p, step_size, inverse_mass, 1)
