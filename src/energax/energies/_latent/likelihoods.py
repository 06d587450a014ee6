"""Likelihoods of a decoder: p(x | outputs), with one output per feature."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..._util.xla import softplus
from ...errors import BadInput
from ...spaces import Binary, Positive, Real, Space, parameter


class Bernoulli(eqx.Module):
    """A Bernoulli likelihood: p(x_i = 1) = sigmoid(output_i), for binary x.

    >>> Bernoulli().log_prob(jnp.zeros(2), jnp.array([0.0, 1.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """

    def space(self, n_features: int) -> Space:
        return Binary(n_features)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        return x * output - softplus(output)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Bernoulli as Coins

        return Coins(logits=output).to_event(1)


class Gaussian(eqx.Module):
    """A Gaussian likelihood: x_i ~ N(output_i, σ_i²), for real x.

    Args:
        scale: σ, one number or one per feature; fixed if it is a Python number, learned if it is
            an array.

    >>> Gaussian(1.0).log_prob(jnp.zeros(1), jnp.zeros(1))          # −½ log 2π
    Array([-0.9189385], dtype=float32)
    """

    scale: Any = parameter(Positive(), default=1.0)

    def __check_init__(self):
        if isinstance(self.scale, int | float) and not self.scale > 0:
            raise BadInput("scale", repr(self.scale), "a number > 0")

    def space(self, n_features: int) -> Space:
        return Real(n_features)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        u = (x - output) / self.scale
        return -0.5 * u**2 - jnp.log(self.scale) - 0.5 * jnp.log(2 * jnp.pi)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Normal

        return Normal(output, self.scale).to_event(1)
