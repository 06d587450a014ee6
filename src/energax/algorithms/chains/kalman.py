"""Linear-Gaussian state-space models as arrays: filter, smoother, samples and forecasts.

All functions compute with factors L of covariances LLᵀ, found by orthogonal reflections and never as a
difference of two covariances. So covariances stay positive semidefinite, a variance of 10⁷ next to one of 1
loses half as many digits, and noise of zero needs no special case. No model is known here. Each function
takes one sequence; use `jax.vmap` for many.

Kalman (1960); Rauch, Tung and Striebel (1965); Kailath, Sayed and Hassibi (2000), Linear
Estimation, ch. 12 (array algorithms); Särkkä and Svensson (2023), Bayesian Filtering and Smoothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.linalg import cholesky, gram, solve_lower


class System(NamedTuple):
    """z₁ ~ N(m, P), z_t = A z_{t−1} + b + N(0, Q), x_t = C z_t + d + N(0, R), with factors of P and Q.

    P and Q may be singular, R may not.
    """

    initial_mean: Any  # m (k,)
    initial_factor: Any  # of P (k, k)
    transition: Any  # A (k, k)
    transition_offset: Any  # b (k,)
    transition_factor: Any  # of Q (k, k)
    emission: Any  # C (d, k)
    emission_offset: Any  # d (d,)
    emission_covariance: Any  # R (d, d)


class FilteredStates(NamedTuple):
    """p(z_t | x₁ … x_t), and the predictions p(z_t | x₁ … x_{t−1}) up to one step after the last."""

    mean: Any  # (steps, k)
    factor: Any  # (steps, k, k)
    predicted_mean: Any  # (steps + 1, k): the last is the step after the sequence
    predicted_factor: Any  # (steps + 1, k, k)
    log_likelihood: Any  # (steps,): log p(x_t | x₁ … x_{t−1})


class SmoothedStates(NamedTuple):
    """p(z_t | x) of every step, and p(z_t | z_{t+1}, x) of every step but the last."""

    mean: Any  # (steps, k)
    factor: Any  # (steps, k, k)
    gain: Any  # G (steps − 1, k, k): dE[z_t | z_{t+1}, x] / dz_{t+1}
    rest: Any  # (steps − 1, k, k): the factor of Cov[z_t | z_{t+1}, x]

    @property
    def covariance(self) -> Any:
        """Cov[z_t | x], (steps, k, k)."""
        return gram(self.factor)

    @property
    def lag_one(self) -> Any:
        """Cov[z_{t+1}, z_t | x], (steps − 1, k, k)."""
        return gram(self.factor[1:]) @ self.gain.swapaxes(-1, -2)


class StateForecast(NamedTuple):
    """Means and covariances of the states and observations of the next steps."""

    state_mean: Any  # (steps, k)
    state_covariance: Any  # (steps, k, k)
    mean: Any  # (steps, d)
    covariance: Any  # (steps, d, d)


# -- factors ---------------------------------------------------------------------------------------


def triangularise(wide: Any) -> Any:
    """The lower triangular L (n, n), diagonal ≥ 0, with LLᵀ = MMᵀ for M (n, m), m ≥ n, by reflections.

    >>> triangularise(jnp.array([[3.0, 4.0, 0.0], [3.0, 4.0, 2.0]])) + 0
    Array([[5., 0.],
           [5., 2.]], dtype=float32)
    """
    n, columns = wide.shape[0], jnp.arange(wide.shape[1])

    def reflect(i, matrix):
        row = jnp.where(columns >= i, matrix[i], 0)
        square = row @ row
        pivot, nonzero = row[i], square > 0
        norm = jnp.sqrt(jnp.where(nonzero, square, 1))
        # The sign of the pivot is kept, which avoids cancellation.
        axis = row.at[i].add(jnp.where(pivot < 0, -norm, norm))
        scale = jnp.where(nonzero, 1 / (norm * (norm + jnp.abs(pivot))), 0)
        return matrix - jnp.outer(matrix @ axis, scale * axis)

    lower = jnp.tril(jax.lax.fori_loop(0, n, reflect, wide)[:, :n])
    return lower * jnp.where(jnp.diagonal(lower) < 0, -1, 1).astype(lower.dtype)


def observed_factors(covariance: Any, observed: Any) -> Any:
    """Factors of R over the observed coordinates of each step, the identity elsewhere, (steps, d, d)."""
    both = observed[:, :, None] & observed[:, None, :]
    return cholesky(jnp.where(both, covariance, jnp.eye(covariance.shape[-1], dtype=covariance.dtype)))


def completion(covariance: Any, observed: Any) -> tuple[Any, Any]:
    """(M, S) of every step: given its observed part, e ~ N(0, R) has mean M e_observed and covariance S."""
    onto = jnp.where(observed[:, :, None], covariance, 0)  # (steps, observed, all)
    unit = jnp.where(observed[:, :, None], jnp.eye(observed.shape[1], dtype=covariance.dtype), 0)
    white = solve_lower(observed_factors(covariance, observed), jnp.concatenate([onto, unit], axis=-1))
    gain, inverse = jnp.split(white, 2, axis=-1)
    known = observed[:, :, None] | observed[:, None, :]
    left = jnp.where(known, 0, covariance - jnp.swapaxes(gain, -1, -2) @ gain)
    return jnp.swapaxes(gain, -1, -2) @ inverse, left


# -- recursions over time --------------------------------------------------------------------------


def kalman_filter(system: System, x: Any, observed: Any = None) -> FilteredStates:
    """p(z_t | x₁ … x_t) and log p(x_t | x₁ … x_{t−1}) for x (steps, d).

    `observed` (steps, d) is False where a coordinate is missing; these are integrated out.

    >>> walk = System(*map(jnp.asarray, ([0.0], [[1.0]], [[1.0]], [0.0], [[1.0]], [[1.0]], [0.0], [[1.0]])))
    >>> [f"{m:.2f}" for m in kalman_filter(walk, jnp.array([[1.0], [2.0]])).mean[:, 0]]   # ½, ½ + ⅗ · 1½
    ['0.50', '1.40']
    """
    s, (d, k) = system, system.emission.shape
    complete = observed is None
    observed = jnp.ones(x.shape, bool) if complete else observed
    factors = observed_factors(s.emission_covariance, observed[:1] if complete else observed)
    factors = jnp.broadcast_to(factors, (len(x), d, d))
    log_two_pi = jnp.log(asarray(2 * jnp.pi, x.dtype))
    zeros = jnp.zeros((k, d), x.dtype)

    def step(before, args):
        (mean, factor), (x, observed, noise) = before, args
        emission = jnp.where(observed[:, None], s.emission, 0)
        # [x − E x, z − E z] = [[noise, C L], [0, L]] ξ; made lower triangular, it is x, then z given x.
        both = triangularise(jnp.block([[noise, emission @ factor], [zeros, factor]]))
        innovation = jnp.where(observed, x - s.emission @ mean - s.emission_offset, 0)
        white = solve_lower(both[:d, :d], innovation[:, None])[:, 0]
        log_det = jnp.log(jnp.diagonal(both)[:d]).sum()
        here = mean + both[d:, :d] @ white, both[d:, d:]
        log_p = -0.5 * (white @ white + log_two_pi * observed.sum().astype(x.dtype)) - log_det
        ahead = (
            s.transition @ here[0] + s.transition_offset,
            triangularise(jnp.concatenate([s.transition @ here[1], s.transition_factor], axis=1)),
        )
        return ahead, (*here, *ahead, log_p)

    first = (s.initial_mean, s.initial_factor)
    _, (mean, factor, *ahead, log_p) = jax.lax.scan(step, first, (x, observed, factors))
    means, factors = (jnp.concatenate([a[None], b]) for a, b in zip(first, ahead, strict=True))
    return FilteredStates(mean, factor, means, factors, log_p)


def backward_kernels(system: System, filtered: FilteredStates) -> tuple[Any, Any]:
    """(G, factor of Cov[z_t | z_{t+1}, x]) of every step but the last, for the backward recursions."""
    k = system.transition.shape[0]

    def kernel(factor):
        ahead = jnp.concatenate([system.transition @ factor, system.transition_factor], axis=1)
        # Where z_{t+1} has no variance its gain does not matter, but must be finite.
        size = jnp.sqrt(jax.lax.stop_gradient((ahead**2).sum(1)))
        eps, tiny = jnp.finfo(factor.dtype).eps, jnp.sqrt(jnp.finfo(factor.dtype).tiny)
        small = jnp.diag(eps * size + tiny)
        here = jnp.concatenate([factor, jnp.zeros((k, 2 * k), factor.dtype)], axis=1)
        both = triangularise(jnp.concatenate([jnp.concatenate([ahead, small], axis=1), here]))
        upper = both[:k, :k][::-1, ::-1].T  # lower triangular after reversing rows and columns
        gain = solve_lower(upper, both[k:, :k].T[::-1])[::-1].T
        return gain, both[k:, k:]

    return jax.vmap(kernel)(filtered.factor[:-1])


def kalman_smoother(system: System, filtered: FilteredStates) -> SmoothedStates:
    """p(z_t | x) and the dependence of neighbouring states, by the Rauch–Tung–Striebel recursion."""
    gain, rest = backward_kernels(system, filtered)

    def step(after, args):
        (mean, factor), (here, ahead, gain, rest) = after, args
        mean = here + gain @ (mean - ahead)
        factor = triangularise(jnp.concatenate([rest, gain @ factor], axis=1))
        return (mean, factor), (mean, factor)

    last = (filtered.mean[-1], filtered.factor[-1])
    inputs = (filtered.mean[:-1], filtered.predicted_mean[1:-1], gain, rest)
    _, (mean, factor) = jax.lax.scan(step, last, inputs, reverse=True)
    mean, factor = (jnp.concatenate([a, b[None]]) for a, b in zip((mean, factor), last, strict=True))
    return SmoothedStates(mean, factor, gain, rest)


def sample_path(system: System, filtered: FilteredStates, key: Any) -> Any:
    """A draw from p(z | x), (steps, k): the last state, then every state given the one after it.

    Carter and Kohn (1994), On Gibbs sampling for state space models.
    """
    gain, rest = backward_kernels(system, filtered)
    noise = jax.random.normal(key, filtered.mean.shape, filtered.mean.dtype)

    def step(after, args):
        here, ahead, gain, rest, noise = args
        z = here + gain @ (after - ahead) + rest @ noise
        return z, z

    last = filtered.mean[-1] + filtered.factor[-1] @ noise[-1]
    inputs = (filtered.mean[:-1], filtered.predicted_mean[1:-1], gain, rest, noise[:-1])
    path = jax.lax.scan(step, last, inputs, reverse=True)[1]
    return jnp.concatenate([path, last[None]])


def forecast(system: System, mean: Any, factor: Any, steps: int) -> StateForecast:
    """The next `steps` states and observations, where the first state is N(mean, LLᵀ)."""
    s = system

    def step(now, _):
        mean, factor = now
        ahead = (
            s.transition @ mean + s.transition_offset,
            triangularise(jnp.concatenate([s.transition @ factor, s.transition_factor], axis=1)),
        )
        return ahead, now

    _, (means, factors) = jax.lax.scan(step, (mean, factor), length=steps)
    covariance = gram(s.emission @ factors) + s.emission_covariance
    return StateForecast(means, gram(factors), means @ s.emission.T + s.emission_offset, covariance)


def simulate(system: System, steps: int, key: Any) -> tuple[Any, Any]:
    """Draw (z (steps, k), x (steps, d)) from the model."""
    s, (first, rest) = system, jax.random.split(key)
    moves = jax.random.normal(first, (steps, len(s.transition)), s.transition.dtype)

    def step(z, noise):
        new = s.transition @ z + s.transition_offset + s.transition_factor @ noise
        return new, new

    start = s.initial_mean + s.initial_factor @ moves[0]
    path = jax.lax.scan(step, start, moves[1:])[1]
    z = jnp.concatenate([start[None], path])
    return z, sample_observations(system, z, rest)


def sample_observations(system: System, z: Any, key: Any) -> Any:
    """Draw x (steps, d) given z."""
    noise = jax.random.normal(key, (len(z), system.emission.shape[0]), z.dtype)
    factor = cholesky(system.emission_covariance[None])[0]
    return z @ system.emission.T + system.emission_offset + noise @ factor.T
