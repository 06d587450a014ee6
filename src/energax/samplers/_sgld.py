"""`SGLD` and `SGHMC`: gradient steps with noise on minibatches, without rejection."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import POSITIVE_SCALAR, check_arguments
from .._util.arrays import asarray
from ..energy import Energy
from ..errors import Unsuitable, check_number, check_whole_number
from ._coordinates import (
    check_gradient,
    complete_state,
    from_unconstrained,
    log_density,
    to_unconstrained,
    unmoved_when_clamped,
)
from ._sampler import Sampler

#: The standard deviation of the starts of chains about the starting point of an energy, in ℝⁿ.
_START_SPREAD = 0.1


class StochasticGradient(Sampler):
    """The base class of samplers that follow the gradient of random minibatches.

    u is in ℝⁿ, and x = b(u) for the bijection b of its space. The gradient is that of `energy.subsample`, or
    of the energy itself without a batch size. Chains start near the `starting_point` of the energy, if it has
    one.

    Args:
        step_size: ε, the step of the first move.
        batch_size: rows of a minibatch, drawn anew for every move; None for all rows.
        decay: γ; the step of move t, counted from the start of the warm-up, is ε (1 + t / delay)^−γ.
        delay: moves until the step has decreased by the factor 2^−γ.
    """

    step_size: Any
    batch_size: int | None = eqx.field(static=True, default=None)
    decay: float = eqx.field(static=True, default=0.0, kw_only=True)
    delay: float = eqx.field(static=True, default=1000.0, kw_only=True)

    def __check_init__(self):
        check_arguments(self, step_size=POSITIVE_SCALAR)
        if self.batch_size is not None:
            check_whole_number("batch_size", self.batch_size)
        check_number("decay", self.decay, lambda v: 0 <= v <= 1, "a number from 0 to 1")
        check_number("delay", self.delay, lambda v: v > 0, "a number > 0")

    @property
    def caveat(self):
        rows = "all rows" if self.batch_size is None else f"minibatches of {self.batch_size} rows"
        if self.decay:
            return f"biased by the steps on {rows}, less by the later, smaller ones; all draws count equally"
        return f"biased by the step size on {rows}, which diagnostics of chains do not show"

    def check(self, energy: Energy) -> None:
        name = type(self).__name__
        check_gradient(energy, name)
        if self.batch_size is not None and not energy.knows("subsample"):
            raise Unsuitable(
                f"{name}(batch_size=) needs an energy with minibatches, such as that of Bayes(prior)(energy, "
                f"data), but {type(energy).__name__} has no `subsample`. Use {name} without batch_size, or "
                "Langevin."
            )

    def unmoved(self, spaces):
        return unmoved_when_clamped(spaces)

    # -- one move --------------------------------------------------------------------------------

    @abstractmethod
    def init_momentum(self, u: Any) -> Any:
        """Return the momentum of the first move; None for samplers without."""

    @abstractmethod
    def update(self, gradient: Any, u: Any, momentum: Any, key: Any, step_size: Any) -> tuple[Any, Any]:
        """Return (u, momentum) after one move; `gradient` is a function of u, that of log p."""

    def init_memory(self, energy, state, clamped=None):
        u = to_unconstrained(energy, state)
        return u, self.init_momentum(u), jnp.array(0, jnp.int32)

    def renew_memory(self, energy, state, memory, clamped=None):
        _, momentum, t = memory
        return to_unconstrained(energy, state), momentum, t

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        u, momentum, t = memory
        batch_key, noise_key, finite_key = jax.random.split(key, 3)
        batch = energy if self.batch_size is None else energy.subsample(batch_key, self.batch_size)
        factor = (1 + t / self.delay) ** -self.decay if self.decay else 1.0
        size = asarray(self.step_size * factor, u.dtype)
        gradient = jax.grad(log_density(batch, state, clamped))
        u, momentum = self.update(gradient, u, momentum, noise_key, size)
        state = complete_state(energy, state, u, finite_key, clamped)
        return state, (u, momentum, t + 1), {"divergent": ~jnp.isfinite(u).all()}

    def start(self, energy, given, key):
        if given or not energy.knows("starting_point"):
            return super().start(energy, given, key)
        u = to_unconstrained(energy, energy.starting_point())
        return from_unconstrained(energy, u + _START_SPREAD * jax.random.normal(key, u.shape, u.dtype))


class SGLD(StochasticGradient):
    """Stochastic gradient Langevin dynamics: u ← u − ε ∇ê(u) + √(2ε) ξ, ξ ~ N(0, I).

    ê is the energy of a random minibatch, n / m times that of its m rows plus the prior. The bias of the
    draws is of the order of ε: it is that of the step, and of the noise of the minibatch, whose variance is
    ε² times that of the gradient. A chain needs about 1 / (ε · curvature) moves to forget where it was.

    Args:
        step_size: ε; below the inverse of the largest curvature of the energy.
        batch_size: m; None for all rows.
        decay, delay: the step of move t is ε (1 + t / delay)^−decay.

    Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics; Vollmer, Zygalakis
    and Teh (2016), Exploration of the (non-)asymptotic bias and variance of stochastic gradient Langevin
    dynamics.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> draws = sample(normal, 4000, method=SGLD(0.05), key=0, thin=10)
    >>> bool(abs(draws["x"].std() - 1) < 0.1)
    True
    """

    def init_momentum(self, u):
        return None

    def update(self, gradient, u, momentum, key, step_size):
        from blackjax.sgmcmc.diffusions import overdamped_langevin

        return overdamped_langevin()(key, u, gradient(u), step_size), None


class SGHMC(StochasticGradient):
    """Stochastic gradient Hamiltonian Monte Carlo: a momentum v with friction α averages the minibatches.

    u ← u + ε v, then v ← (1 − α ε) v − ε ∇ê(u) + √(2 α ε) ξ, ξ ~ N(0, I).

    Args:
        step_size: ε; ε² is below the inverse of the largest curvature of the energy.
        batch_size: rows of a minibatch; None for all rows.
        friction: α; larger values damp the noise of minibatches, and move more slowly.
        decay, delay: the step of move t is ε (1 + t / delay)^−decay.

    Chen, Fox and Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> normal = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    >>> draws = sample(normal, 4000, method=SGHMC(0.2), key=0, thin=10)
    >>> bool(abs(draws["x"].std() - 1) < 0.1)
    True
    """

    friction: float = eqx.field(default=1.0, kw_only=True)

    def __check_init__(self):
        check_arguments(self, friction=POSITIVE_SCALAR)

    def init_momentum(self, u):
        return jnp.zeros_like(u)

    def step(self, energy, state, key, clamped=None):
        # A move from rest would only change the momentum.
        momentum_key, key = jax.random.split(key)
        u, rest, t = self.init_memory(energy, state, clamped)
        drawn = jax.random.normal(momentum_key, rest.shape, rest.dtype)
        return self.move(energy, state, (u, drawn, t), key, clamped)[0]

    def update(self, gradient, u, momentum, key, step_size):
        from blackjax.sgmcmc.diffusions import sghmc

        # The gradient at the new position makes the step semi-implicit, with a smaller bias.
        return sghmc(self.friction)(key, u, momentum, gradient(u + step_size * momentum), step_size)
