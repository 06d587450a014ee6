"""Linear-Gaussian chains as arrays: filtered, smoothed, drawn and forecast. No model is known here.

Everything moves in factors L of covariances LLᵀ, which are found by orthogonal reflections and
never as a difference of two covariances: so they cannot lose their sign, a variance of 10⁷ next to
one of 1 costs half the digits that it would in covariances, and noise of zero is a number like any.
Each function takes one sequence; `jax.vmap` makes many of them.

Kalman (1960); Rauch, Tung and Striebel (1965); Kailath, Sayed and Hassibi (2000), Linear
Estimation, ch. 12 (array algorithms); Särkkä and Svensson (2023), Bayesian Filtering and Smoothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._util.linalg import cholesky, gram, solve_lower


class System(NamedTuple):
    """z₁ ~ N(m, P), z_t = A z_{t−1} + b + N(0, Q), x_t = C z_t + d + N(0, R); P and Q by their factors.

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


class Filtered(NamedTuple):
    """What is known of z_t from x₁ … x_t, and of z_t from x₁ … x_{t−1}; the latter one step more."""

    mean: Any  # (steps, k)
    factor: Any  # (steps, k, k)
    predicted_mean: Any  # (steps + 1, k): the last is of the step that has not been seen
    predicted_factor: Any  # (steps + 1, k, k)
    log_likelihood: Any  # (steps,): log p(x_t | x₁ … x_{t−1})


class SmoothedStates(NamedTuple):
    """What is known of every z_t from the whole of x, and of z_t from z_{t+1} and x."""

    mean: Any  # (steps, k)
    factor: Any  # (steps, k, k)
    gain: Any  # G (steps − 1, k, k): E[z_t | z_{t+1}, x] moves by G with z_{t+1}
    rest: Any  # (steps − 1, k, k): the factor of Cov[z_t | z_{t+1}, x]

    @property
    def covariance(self) -> Any:
        """Cov[z_t | x], (steps, k, k)."""
        return gram(self.factor)

    @property
    def lag_one(self) -> Any:
        """Cov[z_{t+1}, z_t | x], (steps − 1, k, k)."""
        return gram(self.factor[1:]) @ self.gain.swapaxes(-1, -2)


class Forecast(NamedTuple):
    """Of steps that have not been seen: states, and what will be seen of them."""

    state_mean: Any  # (steps, k)
    state_covariance: Any  # (steps, k, k)
    mean: Any  # (steps, d)
    covariance: Any  # (steps, d, d)


# -- factors ---------------------------------------------------------------------------------------


def triangular(wide: Any) -> Any:
    """The lower L (n, n), its diagonal ≥ 0, with LLᵀ = MMᵀ for M (n, m), m ≥ n, by reflections.

    >>> triangular(jnp.array([[3.0, 4.0, 0.0], [3.0, 4.0, 2.0]])) + 0
    Array([[5., 0.],
           [5., 2.]], dtype=float32)
    """
    n, columns = wide.shape[0], jnp.arange(wide.shape[1])

    def reflect(i, matrix):
        row = jnp.where(columns >= i, matrix[i], 0)
        square = row @ row
        pivot, some = row[i], square > 0
        norm = jnp.sqrt(jnp.where(some, square, 1))
        # Away from zero, so that nothing cancels.
        axis = row.at[i].add(jnp.where(pivot < 0, -norm, norm))
        scale = jnp.where(some, 1 / (norm * (norm + jnp.abs(pivot))), 0)
        return matrix - jnp.outer(matrix @ axis, scale * axis)

    lower = jnp.tril(jax.lax.fori_loop(0, n, reflect, wide)[:, :n])
    return lower * jnp.where(jnp.diagonal(lower) < 0, -1, 1).astype(lower.dtype)


def seen_factors(covariance: Any, seen: Any) -> Any:
    """Factors of R over the coordinates seen at each step, and the identity elsewhere, (steps, d, d)."""
    both = seen[:, :, None] & seen[:, None, :]
    return cholesky(jnp.where(both, covariance, jnp.eye(covariance.shape[-1], dtype=covariance.dtype)))


def completion(covariance: Any, seen: Any) -> tuple[Any, Any]:
    """(M, S) of every step: noise e ~ N(0, R) of which some is seen has mean M e_seen, covariance S."""
    onto = jnp.where(seen[:, :, None], covariance, 0)  # (steps, seen, all)
    unit = jnp.where(seen[:, :, None], jnp.eye(seen.shape[1], dtype=covariance.dtype), 0)
    white = solve_lower(seen_factors(covariance, seen), jnp.concatenate([onto, unit], axis=-1))
    gain, inverse = jnp.split(white, 2, axis=-1)
    known = seen[:, :, None] | seen[:, None, :]
    left = jnp.where(known, 0, covariance - jnp.swapaxes(gain, -1, -2) @ gain)
    return jnp.swapaxes(gain, -1, -2) @ inverse, left


# -- the recursions ----------------------------------------------------------------------------------


def kalman_filter(system: System, x: Any, seen: Any = None) -> Filtered:
    """p(z_t | x₁ … x_t) and log p(x_t | x₁ … x_{t−1}) for x (steps, d).

    `seen` (steps, d) is False where a coordinate is missing; such a one is integrated out.

    >>> walk = System(*map(jnp.asarray, ([0.0], [[1.0]], [[1.0]], [0.0], [[1.0]], [[1.0]], [0.0], [[1.0]])))
    >>> [f"{m:.2f}" for m in kalman_filter(walk, jnp.array([[1.0], [2.0]])).mean[:, 0]]   # ½, ½ + ⅗ · 1½
    ['0.50', '1.40']
    """
    s, (d, k) = system, system.emission.shape
    whole = seen is None
    seen = jnp.ones(x.shape, bool) if whole else seen
    factors = seen_factors(s.emission_covariance, seen[:1] if whole else seen)
    factors = jnp.broadcast_to(factors, (len(x), d, d))
    log_two_pi = jnp.log(jnp.asarray(2 * jnp.pi, x.dtype))
    zeros = jnp.zeros((k, d), x.dtype)

    def step(before, args):
        (mean, factor), (x, seen, noise) = before, args
        emission = jnp.where(seen[:, None], s.emission, 0)
        # [x − E x, z − E z] = [[noise, C L], [0, L]] ξ, and lower triangular it is x first, then z given x.
        both = triangular(jnp.block([[noise, emission @ factor], [zeros, factor]]))
        surprise = jnp.where(seen, x - s.emission @ mean - s.emission_offset, 0)
        white = solve_lower(both[:d, :d], surprise[:, None])[:, 0]
        log_det = jnp.log(jnp.diagonal(both)[:d]).sum()
        here = mean + both[d:, :d] @ white, both[d:, d:]
        log_p = -0.5 * (white @ white + log_two_pi * seen.sum().astype(x.dtype)) - log_det
        ahead = (
            s.transition @ here[0] + s.transition_offset,
            triangular(jnp.concatenate([s.transition @ here[1], s.transition_factor], axis=1)),
        )
        return ahead, (*here, *ahead, log_p)

    first = (s.initial_mean, s.initial_factor)
    _, (mean, factor, *ahead, log_p) = jax.lax.scan(step, first, (x, seen, factors))
    means, factors = (jnp.concatenate([a[None], b]) for a, b in zip(first, ahead, strict=True))
    return Filtered(mean, factor, means, factors, log_p)


def backward_kernels(system: System, filtered: Filtered) -> tuple[Any, Any]:
    """(G, factor of Cov[z_t | z_{t+1}, x]) of every step but the last: what goes back in time."""
    k = system.transition.shape[0]

    def kernel(factor):
        ahead = jnp.concatenate([system.transition @ factor, system.transition_factor], axis=1)
        # Where z_{t+1} cannot vary its gain is of no account, but must be a number.
        size = jnp.sqrt(jax.lax.stop_gradient((ahead**2).sum(1)))
        eps, tiny = jnp.finfo(factor.dtype).eps, jnp.sqrt(jnp.finfo(factor.dtype).tiny)
        small = jnp.diag(eps * size + tiny)
        here = jnp.concatenate([factor, jnp.zeros((k, 2 * k), factor.dtype)], axis=1)
        both = triangular(jnp.concatenate([jnp.concatenate([ahead, small], axis=1), here]))
        upper = both[:k, :k][::-1, ::-1].T  # a lower triangle again, from the other end
        gain = solve_lower(upper, both[k:, :k].T[::-1])[::-1].T
        return gain, both[k:, k:]

    return jax.vmap(kernel)(filtered.factor[:-1])


def smoother(system: System, filtered: Filtered) -> SmoothedStates:
    """p(z_t | all of x), and how neighbours hang together: the Rauch–Tung–Striebel recursion."""
    gain, rest = backward_kernels(system, filtered)

    def step(after, args):
        (mean, factor), (here, ahead, gain, rest) = after, args
        mean = here + gain @ (mean - ahead)
        factor = triangular(jnp.concatenate([rest, gain @ factor], axis=1))
        return (mean, factor), (mean, factor)

    last = (filtered.mean[-1], filtered.factor[-1])
    inputs = (filtered.mean[:-1], filtered.predicted_mean[1:-1], gain, rest)
    _, (mean, factor) = jax.lax.scan(step, last, inputs, reverse=True)
    mean, factor = (jnp.concatenate([a, b[None]]) for a, b in zip((mean, factor), last, strict=True))
    return SmoothedStates(mean, factor, gain, rest)


def posterior_path(system: System, filtered: Filtered, key: Any) -> Any:
    """One draw of z given x, (steps, k): forwards by the filter, backwards by drawing.

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


def forecast(system: System, mean: Any, factor: Any, steps: int) -> Forecast:
    """The next `steps` states, from N(mean, LLᵀ) of the first of them, and what will be seen."""
    s = system

    def step(now, _):
        mean, factor = now
        ahead = (
            s.transition @ mean + s.transition_offset,
            triangular(jnp.concatenate([s.transition @ factor, s.transition_factor], axis=1)),
        )
        return ahead, now

    _, (means, factors) = jax.lax.scan(step, (mean, factor), length=steps)
    seen = gram(s.emission @ factors) + s.emission_covariance
    return Forecast(means, gram(factors), means @ s.emission.T + s.emission_offset, seen)


def simulate(system: System, steps: int, key: Any) -> tuple[Any, Any]:
    """(z (steps, k), x (steps, d)), drawn from the model."""
    s, (first, rest) = system, jax.random.split(key)
    moves = jax.random.normal(first, (steps, len(s.transition)), s.transition.dtype)

    def step(z, noise):
        new = s.transition @ z + s.transition_offset + s.transition_factor @ noise
        return new, new

    start = s.initial_mean + s.initial_factor @ moves[0]
    path = jax.lax.scan(step, start, moves[1:])[1]
    z = jnp.concatenate([start[None], path])
    return z, emitted(system, z, rest)


def emitted(system: System, z: Any, key: Any) -> Any:
    """x (steps, d) drawn given z."""
    noise = jax.random.normal(key, (len(z), system.emission.shape[0]), z.dtype)
    factor = cholesky(system.emission_covariance[None])[0]
    return z @ system.emission.T + system.emission_offset + noise @ factor.T
