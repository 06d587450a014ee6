"""`EpsilonInsensitive`: the noise of support vector regression as a likelihood."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import POSITIVE_SCALAR, WEIGHT_SCALAR, check_arguments
from ...spaces import Positive, Real, Space, parameter


class EpsilonInsensitive(eqx.Module):
    """p(y | output) ∝ exp(−C max(0, |y − output| − ε)): uniform within ε, exponential beyond.

    Args:
        C: the rate of the tails.
        epsilon: ε >= 0, the half-width of the flat part.

    Pontil, Mukherjee and Girosi (2000), On the noise model of support vector machine regression.

    >>> EpsilonInsensitive(1.0, 0.0).log_prob(jnp.zeros(1), jnp.zeros(1))  # −log 2, a Laplace distribution
    Array([-0.6931472], dtype=float32)
    """

    C: Any = parameter(Positive(), default=1.0)
    epsilon: Any = 0.1

    def __check_init__(self):
        check_arguments(self, C=POSITIVE_SCALAR, epsilon=WEIGHT_SCALAR)

    def space(self, *shape: int) -> Space:
        return Real(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        return _InsensitiveNoise(output, self.C, self.epsilon).log_prob(x)

    def mean(self, output: Any) -> Any:
        return output

    def distribution(self, output: Any) -> Any:
        return _InsensitiveNoise(output, self.C, self.epsilon)


class _InsensitiveNoise(eqx.Module):
    """The distribution of y about `mean`, with NumPyro's method names."""

    mean: Any
    rate: Any
    epsilon: Any

    @property
    def mode(self) -> Any:
        return self.mean

    @property
    def variance(self) -> Any:
        """Of a mixture of the flat part and the two tails."""
        flat, e, s = self._flat, self.epsilon, 1 / self.rate
        return flat * e**2 / 3 + (1 - flat) * (e**2 + 2 * e * s + 2 * s**2)

    @property
    def _flat(self) -> Any:
        """The probability of |y − mean| ≤ ε."""
        return self.epsilon * self.rate / (self.epsilon * self.rate + 1)

    def log_prob(self, value: Any) -> Any:
        excess = jnp.maximum(jnp.abs(value - self.mean) - self.epsilon, 0)
        return -self.rate * excess - jnp.log(2 * (self.epsilon + 1 / self.rate))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        mean = jnp.asarray(self.mean)
        first, second, third = jax.random.split(key, 3)
        shape, dtype = (*sample_shape, *mean.shape), mean.dtype
        inside = jax.random.uniform(first, shape, dtype) < self._flat
        position = jax.random.uniform(second, shape, dtype, -1, 1)
        beyond = self.epsilon + jax.random.exponential(third, shape, dtype) / self.rate
        noise = jnp.where(inside, self.epsilon * position, jnp.sign(position) * beyond)
        return (mean + noise).astype(dtype)
