"""EM for linear-Gaussian state-space models: expected moments of the residuals, and the M-step from them.

A residual is r = y − W u at the present W, with u = (z, 1): of z_t given z_{t−1}, and of x_t given z_t.
Its moments are sums of squares of factors, which avoids cancellation. The M-step computes a change of W,
so that rounding errors shorten the step instead of spoiling W.

Shumway and Stoffer (1982); Ghahramani and Hinton (1996), Parameter estimation for linear dynamical
systems; for missing coordinates Little and Rubin, Statistical Analysis with Missing Data, ch. 8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._util.linalg import cholesky, gram, solve_lower
from ..chains.kalman import SmoothedStates, System, completion


class ResidualMoments(NamedTuple):
    """Expected Σ 1, Σ r rᵀ, Σ r uᵀ and Σ u uᵀ."""

    count: Any
    residual: Any
    cross: Any
    inputs: Any


class InitialMoments(NamedTuple):
    """Expected Σ 1, Σ (z₁ − m) and Σ (z₁ − m)(z₁ − m)ᵀ."""

    count: Any
    shift: Any
    scatter: Any


class Moments(NamedTuple):
    """The sufficient statistics of one sequence, or their sum over many."""

    first: InitialMoments
    transition: ResidualMoments
    emission: ResidualMoments


def sequence_length(observed: Any) -> Any:
    """The number of steps up to the last one with any observed coordinate."""
    return jnp.max(jnp.where(observed.any(1), jnp.arange(1, len(observed) + 1), 0))


def expected_moments(system: System, smoothed: SmoothedStates, x: Any, observed: Any) -> Moments:
    """The expected moments of one sequence given its smoothed states, without steps past its end."""
    s, length = system, sequence_length(observed)
    steps, dtype = jnp.arange(len(x)), smoothed.mean.dtype
    gap = smoothed.mean[0] - s.initial_mean
    started = (length > 0).astype(dtype)
    scatter = started * (jnp.outer(gap, gap) + smoothed.covariance[0])
    first = InitialMoments(started, started * gap, scatter)

    # z_t and z_{t−1} by common noise: z_{t−1} = … + G (z_t − E z_t) + rest ε.
    factor, before = smoothed.factor[1:], smoothed.gain @ smoothed.factor[1:]
    spread = jnp.concatenate([before, smoothed.rest], axis=2)
    move = smoothed.mean[1:] - smoothed.mean[:-1] @ s.transition.T - s.transition_offset
    own = jnp.concatenate([factor, jnp.zeros_like(smoothed.rest)], axis=2) - s.transition @ spread
    counts = (steps[1:] < length).astype(dtype)
    transition = _residual_moments(counts, move, own, smoothed.mean[:-1], spread)

    # Missing coordinates of x_t are expected from the observed ones; a step without any counts 0.
    onto, left = completion(s.emission_covariance, observed)
    innovation = jnp.where(observed, x - smoothed.mean @ s.emission.T - s.emission_offset, 0)
    error = jnp.einsum("tij,tj->ti", onto, innovation)
    counts = observed.any(1).astype(dtype)
    own = -onto @ s.emission @ smoothed.factor
    emission = _residual_moments(counts, error, own, smoothed.mean, smoothed.factor)
    left = jnp.einsum("t,tij->ij", counts, left)
    return Moments(first, transition, emission._replace(residual=emission.residual + left))


def _residual_moments(counts: Any, mean: Any, factor: Any, inputs: Any, input_factor: Any) -> ResidualMoments:
    """From E r and E z (steps, ·) and factors of both in common noise (steps, ·, noise)."""
    ones = jnp.ones((len(inputs), 1), inputs.dtype)
    inputs = jnp.concatenate([inputs, ones], axis=1)
    input_factor = jnp.pad(input_factor, ((0, 0), (0, 1), (0, 0)))
    pair = lambda a, b, fa, fb: (
        jnp.einsum("t,ti,tj->ij", counts, a, b) + jnp.einsum("t,tin,tjn->ij", counts, fa, fb)
    )
    return ResidualMoments(
        counts.sum(),
        pair(mean, mean, factor, factor),
        pair(mean, inputs, factor, input_factor),
        pair(inputs, inputs, input_factor, input_factor),
    )


def shift_residuals(r: ResidualMoments, step: Any) -> ResidualMoments:
    """The moments of the residuals at W + step, from those at W."""
    across = step @ r.cross.T
    residual = r.residual - across - across.T + step @ r.inputs @ step.T
    return ResidualMoments(r.count, residual, r.cross - step @ r.inputs, r.inputs)


def shift_initial(f: InitialMoments, step: Any) -> InitialMoments:
    """The moments about m + step, from those about m."""
    across = jnp.outer(step, f.shift)
    scatter = f.scatter - across - across.T + f.count * jnp.outer(step, step)
    return InitialMoments(f.count, f.shift - f.count * step, scatter)


def least_squares_step(r: ResidualMoments, free: np.ndarray) -> Any:
    """argmin_step Σ ‖r − step u‖² over the free columns of W; the other columns of the step are 0."""
    at = np.flatnonzero(free)
    step = jnp.zeros_like(r.cross)
    if not len(at):
        return step
    inputs, cross = r.inputs[np.ix_(at, at)], r.cross[:, at]
    size = jnp.sqrt(jnp.diagonal(inputs))
    size = jnp.where(size > 0, size, 1)
    eps = 10 * len(at) * jnp.finfo(inputs.dtype).eps
    factor = cholesky((inputs / jnp.outer(size, size) + eps * jnp.eye(len(at), dtype=inputs.dtype))[None])[0]
    white = solve_lower(factor, (cross / size).T)
    # Lᵀ y = white is a lower-triangular system after reversing rows and columns.
    solved = solve_lower(factor[::-1, ::-1].T, white[::-1])[::-1]
    return step.at[:, at].set(solved.T / size)


def covariance_estimate(scatter: Any, count: Any, old: Any, floor: float, diagonal: bool) -> Any:
    """scatter / count, symmetric, with `floor` · eps of its and the old diagonal added; old if count is 0."""
    eps = jnp.finfo(scatter.dtype).eps
    new = (scatter + scatter.T) / (2 * jnp.where(count > 0, count, 1))
    new = new + floor * eps * jnp.diag(jnp.diagonal(new) + jnp.diagonal(old))
    new = jnp.diag(jnp.diagonal(new)) if diagonal else new
    return jnp.where(count > 0, new, old)


def impute(system: System, smoothed: SmoothedStates, x: Any, observed: Any) -> tuple[Any, Any]:
    """E[x | observed entries] (steps, d), and its covariance (steps, d, d), zero for observed entries."""
    s = system
    onto, left = completion(s.emission_covariance, observed)
    expected = smoothed.mean @ s.emission.T + s.emission_offset
    mean = expected + jnp.einsum("tij,tj->ti", onto, jnp.where(observed, x - expected, 0))
    factor = (s.emission - onto @ s.emission) @ smoothed.factor
    known = observed[:, :, None] | observed[:, None, :]
    return jnp.where(observed, x, mean), jnp.where(known, 0, gram(factor) + left)
