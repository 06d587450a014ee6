"""`SinhSoftplus`: the coordinates in which Markov chains move positive numbers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform

#: Up to about this number x is near to softplus(u), and from there it grows as exp(u / SCALE).
SCALE = 4.0


class SinhSoftplus(ParameterFreeTransform):
    """x = s sinh(softplus(u) / s), s = 4: about exp(u) for small x, u up to s, and (s / 2) exp(u / s) above.

    With the logarithm the necks of hierarchical models diverge more often; with softplus a Cauchy tail of x
    is one of u, from which chains do not come back.
    """

    domain = constraints.real
    codomain = constraints.positive
    sign = 1

    def __call__(self, x: Any) -> Any:
        return SCALE * jnp.sinh(jax.nn.softplus(x) / SCALE)

    def _inverse(self, y: Any) -> Any:
        v = SCALE * jnp.arcsinh(y / SCALE)
        return v + jnp.log(-jnp.expm1(-v))

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        t = jax.nn.softplus(x) / SCALE
        log_cosh = t + jax.nn.softplus(-2 * t) - math.log(2)
        return log_cosh - jax.nn.softplus(-x)
