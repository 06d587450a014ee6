"""The Kalman filter and smoother in ⌈log₂ steps⌉ rounds instead of one step after the other.

What a stretch of the chain says is an element, and two neighbouring ones make one: so a scan that
associates does all steps side by side. It is more work in all, and wins on accelerators, where a
loop of small products waits at every turn. In factors, as everything in `_kalman`.

Särkkä and García-Fernández (2021), Temporal parallelization of Bayesian smoothers; Yaghoobi,
Corenflos, Hassan and Särkkä (2022), Parallel square-root statistical linear regression for inference
in nonlinear state space models.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.linalg import solve_lower
from .kalman import Filtered, SmoothedStates, System, backward_kernels, seen_factors, triangular


def parallel_filter(system: System, x: Any, seen: Any = None) -> Filtered:
    """What `kalman_filter` gives, by an associative scan."""
    s, d = system, system.emission.shape[0]
    seen = jnp.ones(x.shape, bool) if seen is None else seen
    noises = seen_factors(s.emission_covariance, seen)

    def updated(mean, factor, x, seen, noise):
        """(what is seen of it whitened: factor, gain, surprise) and the rest of the factor."""
        emission = jnp.where(seen[:, None], s.emission, 0)
        zeros = jnp.zeros((factor.shape[0], d), x.dtype)
        both = triangular(jnp.block([[noise, emission @ factor], [zeros, factor]]))
        surprise = jnp.where(seen, x - s.emission @ mean - s.emission_offset, 0)
        white = solve_lower(both[:d, :d], surprise[:, None])[:, 0]
        return both[:d, :d], both[d:, :d], white, both[d:, d:]

    def element(x, seen, noise, first):
        """z_t given z_{t−1} and x_t: N(A z + b, UUᵀ); and what x_t says of z_{t−1}: (η, ZZᵀ)."""
        start = jnp.where(first, s.initial_mean, s.transition_offset)
        factor = jnp.where(first, s.initial_factor, s.transition_factor)
        transition = jnp.where(first, 0, s.transition)
        seen_by, gain, white, rest = updated(start, factor, x, seen, noise)
        back = solve_lower(seen_by, jnp.where(seen[:, None], s.emission, 0) @ transition)
        k = len(start)
        said = triangular(jnp.concatenate([back.T, jnp.zeros((k, k), x.dtype)], axis=1))
        return transition - gain @ back, start + gain @ white, rest, back.T @ white, said

    def joined(before, after):
        (A1, b1, U1, eta1, Z1), (A2, b2, U2, eta2, Z2) = before, after
        k = len(b1)
        eye, zeros = jnp.eye(k, dtype=b1.dtype), jnp.zeros((k, k), b1.dtype)
        both = triangular(jnp.block([[U1.T @ Z2, eye], [Z2, zeros]]))
        inner, cross, rest = both[:k, :k], both[k:, :k], both[k:, k:]
        # I + UᵀZZᵀU = inner innerᵀ: how what is said later narrows what was said before.
        narrow = solve_lower(inner, U1.T)
        kept = eye - narrow.T @ cross.T
        return (
            A2 @ kept @ A1,
            A2 @ kept @ (b1 + U1 @ (U1.T @ eta2)) + b2,
            triangular(jnp.concatenate([A2 @ narrow.T, U2], axis=1)),
            A1.T @ (kept.T @ (eta2 - Z2 @ (Z2.T @ b1))) + eta1,
            triangular(jnp.concatenate([A1.T @ rest, Z1], axis=1)),
        )

    elements = jax.vmap(element)(x, seen, noises, jnp.arange(len(x)) == 0)
    _, mean, factor, _, _ = jax.lax.associative_scan(jax.vmap(joined), elements)
    ahead = mean @ s.transition.T + s.transition_offset
    spread = jax.vmap(lambda f: triangular(jnp.concatenate([s.transition @ f, s.transition_factor], axis=1)))
    means = jnp.concatenate([s.initial_mean[None], ahead])
    factors = jnp.concatenate([s.initial_factor[None], spread(factor)])
    seen_by, _, white, _ = jax.vmap(updated)(means[:-1], factors[:-1], x, seen, noises)
    log_det = jnp.log(jnp.diagonal(seen_by, axis1=1, axis2=2)).sum(1)
    log_two_pi = jnp.log(jnp.asarray(2 * jnp.pi, x.dtype))
    log_p = -0.5 * ((white**2).sum(1) + log_two_pi * seen.sum(1).astype(x.dtype)) - log_det
    return Filtered(mean, factor, means, factors, log_p)


def parallel_smoother(system: System, filtered: Filtered) -> SmoothedStates:
    """What `smoother` gives, by an associative scan."""
    gain, rest = backward_kernels(system, filtered)
    shift = filtered.mean[:-1] - jnp.einsum("tij,tj->ti", gain, filtered.predicted_mean[1:-1])
    last = jnp.zeros_like(filtered.factor[-1:]), filtered.mean[-1:], filtered.factor[-1:]
    elements = [jnp.concatenate([a, b]) for a, b in zip((gain, shift, rest), last, strict=True)]

    def joined(after, before):
        (G2, g2, L2), (G1, g1, L1) = after, before
        return G1 @ G2, G1 @ g2 + g1, triangular(jnp.concatenate([G1 @ L2, L1], axis=1))

    _, mean, factor = jax.lax.associative_scan(jax.vmap(joined), tuple(elements), reverse=True)
    return SmoothedStates(mean, factor, gain, rest)
