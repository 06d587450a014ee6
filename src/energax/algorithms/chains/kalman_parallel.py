"""The Kalman filter and smoother in ⌈log₂ steps⌉ parallel rounds, by associative scans.

Every stretch of the sequence is an element of the scan, and two neighbouring elements combine into one. This
is more work in total, and faster on accelerators, where a loop of small products waits at every step.
Covariances are computed as factors, as in `kalman`.

Särkkä and García-Fernández (2021), Temporal parallelization of Bayesian smoothers; Yaghoobi,
Corenflos, Hassan and Särkkä (2022), Parallel square-root statistical linear regression for inference
in nonlinear state space models.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.linalg import solve_lower
from .kalman import FilteredStates, SmoothedStates, System, backward_kernels, observed_factors, triangularise


def parallel_filter(system: System, x: Any, observed: Any = None) -> FilteredStates:
    """The same as `kalman_filter`, by an associative scan."""
    s, d = system, system.emission.shape[0]
    observed = jnp.ones(x.shape, bool) if observed is None else observed
    noises = observed_factors(s.emission_covariance, observed)

    def update(mean, factor, x, observed, noise):
        """(factor of the innovation, gain, whitened innovation, factor of z given x)."""
        emission = jnp.where(observed[:, None], s.emission, 0)
        zeros = jnp.zeros((factor.shape[0], d), x.dtype)
        both = triangularise(jnp.block([[noise, emission @ factor], [zeros, factor]]))
        innovation = jnp.where(observed, x - s.emission @ mean - s.emission_offset, 0)
        white = solve_lower(both[:d, :d], innovation[:, None])[:, 0]
        return both[:d, :d], both[d:, :d], white, both[d:, d:]

    def element(x, observed, noise, first):
        """p(z_t | z_{t−1}, x_t) = N(A z + b, UUᵀ), and the information (η, ZZᵀ) of x_t about z_{t−1}."""
        start = jnp.where(first, s.initial_mean, s.transition_offset)
        factor = jnp.where(first, s.initial_factor, s.transition_factor)
        transition = jnp.where(first, 0, s.transition)
        innovation_factor, gain, white, rest = update(start, factor, x, observed, noise)
        back = solve_lower(innovation_factor, jnp.where(observed[:, None], s.emission, 0) @ transition)
        k = len(start)
        information = triangularise(jnp.concatenate([back.T, jnp.zeros((k, k), x.dtype)], axis=1))
        return transition - gain @ back, start + gain @ white, rest, back.T @ white, information

    def combine(before, after):
        (A1, b1, U1, eta1, Z1), (A2, b2, U2, eta2, Z2) = before, after
        k = len(b1)
        eye, zeros = jnp.eye(k, dtype=b1.dtype), jnp.zeros((k, k), b1.dtype)
        both = triangularise(jnp.block([[U1.T @ Z2, eye], [Z2, zeros]]))
        inner, cross, rest = both[:k, :k], both[k:, :k], both[k:, k:]
        # I + UᵀZZᵀU = inner innerᵀ: later information reduces the covariance UUᵀ.
        narrow = solve_lower(inner, U1.T)
        kept = eye - narrow.T @ cross.T
        return (
            A2 @ kept @ A1,
            A2 @ kept @ (b1 + U1 @ (U1.T @ eta2)) + b2,
            triangularise(jnp.concatenate([A2 @ narrow.T, U2], axis=1)),
            A1.T @ (kept.T @ (eta2 - Z2 @ (Z2.T @ b1))) + eta1,
            triangularise(jnp.concatenate([A1.T @ rest, Z1], axis=1)),
        )

    elements = jax.vmap(element)(x, observed, noises, jnp.arange(len(x)) == 0)
    _, mean, factor, _, _ = jax.lax.associative_scan(jax.vmap(combine), elements)
    ahead = mean @ s.transition.T + s.transition_offset
    spread = jax.vmap(
        lambda f: triangularise(jnp.concatenate([s.transition @ f, s.transition_factor], axis=1))
    )
    means = jnp.concatenate([s.initial_mean[None], ahead])
    factors = jnp.concatenate([s.initial_factor[None], spread(factor)])
    innovation_factor, _, white, _ = jax.vmap(update)(means[:-1], factors[:-1], x, observed, noises)
    log_det = jnp.log(jnp.diagonal(innovation_factor, axis1=1, axis2=2)).sum(1)
    log_two_pi = jnp.log(asarray(2 * jnp.pi, x.dtype))
    log_p = -0.5 * ((white**2).sum(1) + log_two_pi * observed.sum(1).astype(x.dtype)) - log_det
    return FilteredStates(mean, factor, means, factors, log_p)


def parallel_smoother(system: System, filtered: FilteredStates) -> SmoothedStates:
    """The same as `kalman_smoother`, by an associative scan."""
    gain, rest = backward_kernels(system, filtered)
    shift = filtered.mean[:-1] - jnp.einsum("tij,tj->ti", gain, filtered.predicted_mean[1:-1])
    last = jnp.zeros_like(filtered.factor[-1:]), filtered.mean[-1:], filtered.factor[-1:]
    elements = [jnp.concatenate([a, b]) for a, b in zip((gain, shift, rest), last, strict=True)]

    def combine(after, before):
        (G2, g2, L2), (G1, g1, L1) = after, before
        return G1 @ G2, G1 @ g2 + g1, triangularise(jnp.concatenate([G1 @ L2, L1], axis=1))

    _, mean, factor = jax.lax.associative_scan(jax.vmap(combine), tuple(elements), reverse=True)
    return SmoothedStates(mean, factor, gain, rest)
