"""What a linear-Gaussian chain is learned from: moments of its residuals, and the best fit to them.

A residual is r = y − W u at the present W, with u = (z, 1): of z_t about z_{t−1}, and of x_t about
z_t. Its moments are sums of squares of factors, so they have no digits to lose, and the M-step is
a step away from W: one that is taken badly, in poor precision, is a small step and no wrong one.

Shumway and Stoffer (1982); Ghahramani and Hinton (1996), Parameter estimation for linear dynamical
systems; for missing coordinates Little and Rubin, Statistical Analysis with Missing Data, ch. 8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..._util.linalg import cholesky, gram, solve_lower
from ..chains.kalman import SmoothedStates, System, completion


class Residuals(NamedTuple):
    """Σ 1, Σ r rᵀ, Σ r uᵀ and Σ u uᵀ, expected."""

    count: Any
    residual: Any
    cross: Any
    inputs: Any


class First(NamedTuple):
    """Σ 1, Σ (z₁ − m) and Σ (z₁ − m)(z₁ − m)ᵀ, expected."""

    count: Any
    shift: Any
    scatter: Any


class Moments(NamedTuple):
    """All that one sequence, or the sum of many, says of the parameters."""

    first: First
    transition: Residuals
    emission: Residuals


def real_steps(seen: Any) -> Any:
    """How many steps a sequence has: up to the last of which anything is seen."""
    return jnp.max(jnp.where(seen.any(1), jnp.arange(1, len(seen) + 1), 0))


def expected_moments(system: System, smoothed: SmoothedStates, x: Any, seen: Any) -> Moments:
    """The moments of one sequence, given what is known of its states. What is past its end is no part."""
    s, length = system, real_steps(seen)
    steps, dtype = jnp.arange(len(x)), smoothed.mean.dtype
    gap = smoothed.mean[0] - s.initial_mean
    begun = (length > 0).astype(dtype)
    first = First(begun, begun * gap, begun * (jnp.outer(gap, gap) + smoothed.covariance[0]))

    # z_t and z_{t−1} by common noise: z_{t−1} = … + G (z_t − E z_t) + rest ε.
    factor, before = smoothed.factor[1:], smoothed.gain @ smoothed.factor[1:]
    spread = jnp.concatenate([before, smoothed.rest], axis=2)
    move = smoothed.mean[1:] - smoothed.mean[:-1] @ s.transition.T - s.transition_offset
    own = jnp.concatenate([factor, jnp.zeros_like(smoothed.rest)], axis=2) - s.transition @ spread
    counts = (steps[1:] < length).astype(dtype)
    transition = _residuals(counts, move, own, smoothed.mean[:-1], spread)

    # What is missing of x_t is expected from the rest of it; where all is, the step says nothing.
    onto, left = completion(s.emission_covariance, seen)
    surprise = jnp.where(seen, x - smoothed.mean @ s.emission.T - s.emission_offset, 0)
    error = jnp.einsum("tij,tj->ti", onto, surprise)
    counts = seen.any(1).astype(dtype)
    emission = _residuals(counts, error, -onto @ s.emission @ smoothed.factor, smoothed.mean, smoothed.factor)
    left = jnp.einsum("t,tij->ij", counts, left)
    return Moments(first, transition, emission._replace(residual=emission.residual + left))


def _residuals(counts: Any, mean: Any, factor: Any, inputs: Any, input_factor: Any) -> Residuals:
    """From E r and E z (steps, ·) and factors of both in common noise (steps, ·, noise)."""
    ones = jnp.ones((len(inputs), 1), inputs.dtype)
    inputs = jnp.concatenate([inputs, ones], axis=1)
    input_factor = jnp.pad(input_factor, ((0, 0), (0, 1), (0, 0)))
    pair = lambda a, b, fa, fb: (
        jnp.einsum("t,ti,tj->ij", counts, a, b) + jnp.einsum("t,tin,tjn->ij", counts, fa, fb)
    )
    return Residuals(
        counts.sum(),
        pair(mean, mean, factor, factor),
        pair(mean, inputs, factor, input_factor),
        pair(inputs, inputs, input_factor, input_factor),
    )


def moved(r: Residuals, step: Any) -> Residuals:
    """The same moments about W + step."""
    across = step @ r.cross.T
    residual = r.residual - across - across.T + step @ r.inputs @ step.T
    return Residuals(r.count, residual, r.cross - step @ r.inputs, r.inputs)


def moved_first(f: First, step: Any) -> First:
    """The same moments about m + step."""
    across = jnp.outer(step, f.shift)
    scatter = f.scatter - across - across.T + f.count * jnp.outer(step, step)
    return First(f.count, f.shift - f.count * step, scatter)


def best_step(r: Residuals, free: np.ndarray) -> Any:
    """argmin_step Σ ‖r − step u‖² over the columns of W that are free, the others 0."""
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
    # Lᵀ y = white, as a lower triangle read from the other end.
    solved = solve_lower(factor[::-1, ::-1].T, white[::-1])[::-1]
    return step.at[:, at].set(solved.T / size)


def spread_of(scatter: Any, count: Any, old: Any, floor: float, diagonal: bool) -> Any:
    """scatter / count, symmetric, at least `floor` times machine precision of what it was; or the old."""
    eps = jnp.finfo(scatter.dtype).eps
    new = (scatter + scatter.T) / (2 * jnp.where(count > 0, count, 1))
    new = new + floor * eps * jnp.diag(jnp.diagonal(new) + jnp.diagonal(old))
    new = jnp.diag(jnp.diagonal(new)) if diagonal else new
    return jnp.where(count > 0, new, old)


def completed(system: System, smoothed: SmoothedStates, x: Any, seen: Any) -> tuple[Any, Any]:
    """E[x | what is seen of it] (steps, d), and Cov (steps, d, d): zero where it is seen."""
    s = system
    onto, left = completion(s.emission_covariance, seen)
    expected = smoothed.mean @ s.emission.T + s.emission_offset
    mean = expected + jnp.einsum("tij,tj->ti", onto, jnp.where(seen, x - expected, 0))
    factor = (s.emission - onto @ s.emission) @ smoothed.factor
    known = seen[:, :, None] | seen[:, None, :]
    return jnp.where(seen, x, mean), jnp.where(known, 0, gram(factor) + left)
