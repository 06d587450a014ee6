"""`WindowAdaptation`: the step size and the mass matrix of a sampler, tuned in windows of the warm-up."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

#: Draws that the prior of a window's covariance counts for. Its variances are those of the window, but at
#: most 10⁻³, which is Stan's for all, and more than 0 for coordinates that did not move.
_PRIOR_COUNT, _PRIOR_VARIANCE, _LEAST_VARIANCE = 5.0, 1e-3, 1e-10


class StepSize(NamedTuple):
    """A step size so far, and the state of dual averaging that tunes it."""

    step_size: Any
    averaging: Any


def init_step_size(step_size: Any, dtype: Any) -> StepSize:
    """Return the first tuning of a step size."""
    size = jnp.asarray(step_size, dtype)
    return StepSize(size, _with_dtype(_dual_averaging(0.5)[0](size), dtype))


def adapt_step_size(tuning: StepSize, target: float, i: Any, n: int, acceptance: Any) -> StepSize:
    """Return the step size after move i of n: dual averaging towards an acceptance rate, at last its average.

    Nesterov (2009), Primal-dual subgradient methods for convex problems.
    """
    dtype = tuning.step_size.dtype
    averaging = _with_dtype(_dual_averaging(target)[1](tuning.averaging, acceptance), dtype)
    size = jnp.exp(jnp.where(i == n - 1, averaging.log_step_size_avg, averaging.log_step_size))
    return StepSize(size.astype(dtype), averaging)


def _dual_averaging(target: float) -> Any:
    """Return BlackJAX's (init, update, final) of dual averaging."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


class Tuning(NamedTuple):
    """The step size and the inverse mass matrix so far, and the statistics to improve them."""

    step: StepSize
    inverse_mass: Any  # (d,) or (d, d): about the covariance of u
    moments: Any  # of u in the present window

    @property
    def step_size(self) -> Any:
        return self.step.step_size


class WindowAdaptation(eqx.Module):
    """Stan's warm-up: dual averaging of the step size, and covariances of u from windows that double.

    The covariance of a window is mixed with a diagonal matrix, which counts for five draws. It has the
    variances of the window, at most 10⁻³: with 10⁻³ I, as in Stan, coordinates with a standard deviation of
    10⁻³ would have masses twenty times too small, and all others would move in steps for them. Fixed settings
    stay.

    Args:
        target_acceptance: the acceptance rate that the step size aims at.
        dense: whether the inverse mass matrix is a covariance, or the variances alone.
        step_size: the step size if it is fixed, else None.
        inverse_mass: the inverse mass matrix if it is fixed, else None.

    Carpenter et al. (2017), Stan: a probabilistic programming language; Hoffman and Gelman (2014), The
    No-U-Turn sampler, for dual averaging.
    """

    target_acceptance: float = eqx.field(static=True)
    dense: bool = eqx.field(static=True)
    step_size: Any = None
    inverse_mass: Any = None

    def init(self, u: Any, step_size: float) -> Tuning:
        """Return the first tuning, with this step size and the identity unless they are fixed."""
        size = step_size if self.step_size is None else self.step_size
        identity = jnp.eye(u.size, dtype=u.dtype) if self.dense else jnp.ones_like(u)
        mass = identity if self.inverse_mass is None else jnp.asarray(self.inverse_mass, u.dtype)
        return Tuning(init_step_size(size, u.dtype), mass, self._no_moments(u))

    def update(self, tuning: Tuning, i: Any, n: int, u: Any, acceptance: Any) -> Tuning:
        """Return the tuning after move i of n of the warm-up, which ended at u with this acceptance rate."""
        from blackjax.adaptation.window_adaptation import build_schedule

        in_window, is_end = build_schedule(n)[i].astype(bool)
        step = tuning.step
        if self.step_size is None:
            step = adapt_step_size(step, self.target_acceptance, i, n, acceptance)
        if self.inverse_mass is not None:
            return tuning._replace(step=step)
        moments = jax.tree.map(lambda a, b: jnp.where(in_window, a, b), self._add(tuning, u), tuning.moments)
        tuning = tuning._replace(step=step, moments=moments)
        return jax.lax.cond(is_end, self._end_window, lambda t: t, tuning)

    @property
    def _welford(self) -> Any:
        from blackjax.adaptation.mass_matrix import welford_algorithm

        return welford_algorithm(not self.dense)

    def _no_moments(self, u: Any) -> Any:
        mean, squares, count = self._welford[0](u.size)
        return mean.astype(u.dtype), squares.astype(u.dtype), jnp.asarray(count, u.dtype)

    def _add(self, tuning: Tuning, u: Any) -> Any:
        from blackjax.adaptation.mass_matrix import WelfordAlgorithmState

        return tuple(self._welford[1](WelfordAlgorithmState(*tuning.moments), u))

    def _end_window(self, tuning: Tuning) -> Tuning:
        """Return the tuning with the covariance of the window; dual averaging starts again at its average."""
        mean, squares, count = tuning.moments
        weight = 1 / (count + _PRIOR_COUNT)
        found = squares / jnp.maximum(count - 1, 1)
        variances = jnp.diagonal(found) if self.dense else found
        shift = weight * _PRIOR_COUNT * jnp.clip(variances, _LEAST_VARIANCE, _PRIOR_VARIANCE)
        spread = weight * count * found + (jnp.diag(shift) if self.dense else shift)
        step = tuning.step
        if self.step_size is None:
            step = init_step_size(jnp.exp(step.averaging.log_step_size_avg), mean.dtype)
        return Tuning(step, spread, self._no_moments(mean))


def _with_dtype(tree: Any, dtype: Any) -> Any:
    """Return the tree with its floating-point numbers in this dtype: a loop needs the same ones always."""
    convert = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(jnp.int32)
    return jax.tree.map(lambda a: convert(jnp.asarray(a)), tree)
