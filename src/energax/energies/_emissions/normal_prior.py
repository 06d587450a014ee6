"""What is believed of Gaussians before any data: a prior mean and a prior scatter."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ...batch import count_epsilon
from ...spaces import fixed


class NormalPrior(eqx.Module):
    """Pseudo-data for the M-step of k Gaussians: it turns maximum likelihood into a posterior mode.

        μ = (λ μ₀ + Σ r x) / (λ + Σ r),    Σ = (S₀ + λ (μ − μ₀)(μ − μ₀)ᵀ + Σ r (x − μ)(x − μ)ᵀ) / (c₀ + Σ r).

    Args:
        mean, weight: μ₀, broadcast to (k, d), and λ, to (k,).
        scatter: S₀, broadcast to what the covariance keeps of a scatter: (k, d, d), (d, d), (k, d) or (k,).
        count: c₀, broadcast to the same; where a scatter is a sum over coordinates, so is this count.
        recentre: whether the scatter is taken about the new means, as the M-step has it. Some
            programs leave it about the means of the E-step; the fixed points are the same.

    Gauvain and Lee (1994), Maximum a posteriori estimation for multivariate Gaussian mixture observations
    of Markov chains.
    """

    mean: Any = fixed(default=0.0)
    weight: Any = fixed(default=0.0)
    scatter: Any = fixed(default=0.0)
    count: Any = fixed(default=0.0)
    recentre: bool = eqx.field(static=True, default=True)

    def maximum(self, means: Any, covariance: Any, statistics: Any, means_move: bool) -> tuple[Any, Any]:
        """(new means, new covariance) from statistics that are centred at `means`."""
        count, first = statistics["count"], statistics["first"]
        eps = count_epsilon(count)
        weight = jnp.broadcast_to(jnp.asarray(self.weight, count.dtype), count.shape)
        toward = jnp.asarray(self.mean, means.dtype) - means
        step = (first + weight[:, None] * toward) / (count + weight + eps)[:, None]
        step = step if means_move else jnp.zeros_like(step)
        scale = step**2 + jnp.finfo(count.dtype).eps * (means + step) ** 2
        scatter = statistics["scatter"]
        if self.recentre:
            scatter = covariance.shifted(scatter, count, first, -step)
        # λ rows at μ₀, seen from the new means.
        none = jnp.zeros_like(scatter)
        pulled = covariance.shifted(none, weight, jnp.zeros_like(step), toward - step)
        scatter = scatter + pulled + jnp.asarray(self.scatter, scatter.dtype)
        extra = jnp.asarray(self.count, scatter.dtype)
        seen = covariance.shifted(none, count, jnp.zeros_like(step), jnp.ones_like(step))
        # `maximise` divides by what was seen; to that the prior adds.
        return means + step, covariance.maximise(
            scatter * ((seen + eps) / (seen + extra + eps)), count, scale
        )
