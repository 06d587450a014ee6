"""A prior over the means and covariances of Gaussians, as pseudo-data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..._util.arrays import asarray
from ...batch import count_epsilon
from ...spaces import fixed


class NormalPrior(eqx.Module):
    """A conjugate prior of k Gaussians: with it the M-step finds the posterior mode (MAP).

        μ = (λ μ₀ + Σ r x) / (λ + Σ r),    Σ = (S₀ + λ (μ − μ₀)(μ − μ₀)ᵀ + Σ r (x − μ)(x − μ)ᵀ) / (c₀ + Σ r).

    Args:
        mean, weight: μ₀, broadcast to (k, d), and λ, to (k,).
        scatter: S₀, broadcast to the scatter of the covariance: (k, d, d), (d, d), (k, d) or (k,).
        count: c₀, broadcast to the same; where a scatter is a sum over coordinates, so is this count.
        recentre: whether the scatter is taken about the new means, as the M-step requires. Some
            programs take it about the means of the E-step; the fixed points are the same.

    Gauvain and Lee (1994), Maximum a posteriori estimation for multivariate Gaussian mixture observations
    of Markov chains.

    >>> from energax.energies import Gaussians
    >>> prior = NormalPrior(mean=0.0, weight=1.0)
    >>> g = Gaussians(jnp.zeros((1, 1)), jnp.ones((1, 1, 1)), prior=prior)
    >>> statistics = g.statistics({"x": jnp.array([[4.0]])}, jnp.ones((1, 1)))
    >>> g.maximise(statistics).means.round(3)                                     # (1·0 + 4) / (1 + 1)
    Array([[2.]], dtype=float32)
    """

    mean: Any = fixed(default=0.0)
    weight: Any = fixed(default=0.0)
    scatter: Any = fixed(default=0.0)
    count: Any = fixed(default=0.0)
    recentre: bool = eqx.field(static=True, default=True)

    def maximum(self, means: Any, covariance: Any, statistics: Any, means_trainable: bool) -> tuple[Any, Any]:
        """(new means, new covariance) from statistics that are centred at `means`."""
        count, first = statistics["count"], statistics["first"]
        eps = count_epsilon(count)
        weight = jnp.broadcast_to(asarray(self.weight, count.dtype), count.shape)
        offset = asarray(self.mean, means.dtype) - means
        step = (first + weight[:, None] * offset) / (count + weight + eps)[:, None]
        step = step if means_trainable else jnp.zeros_like(step)
        scale = step**2 + jnp.finfo(count.dtype).eps * (means + step) ** 2
        scatter = statistics["scatter"]
        if self.recentre:
            scatter = covariance.recenter_scatter(scatter, count, first, -step)
        # The scatter of λ rows at μ₀ about the new means.
        zeros = jnp.zeros_like(scatter)
        prior_scatter = covariance.recenter_scatter(zeros, weight, jnp.zeros_like(step), offset - step)
        scatter = scatter + prior_scatter + asarray(self.scatter, scatter.dtype)
        # `maximise` divides by the count of the data; this factor makes it that of data and prior.
        prior_count = asarray(self.count, scatter.dtype)
        counts = covariance.recenter_scatter(zeros, count, jnp.zeros_like(step), jnp.ones_like(step))
        scatter = scatter * ((counts + eps) / (counts + prior_count + eps))
        return means + step, covariance.maximise(scatter, count, scale)
