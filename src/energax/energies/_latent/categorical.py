"""Likelihoods of whole numbers from 0 to k − 1: categories, and grey values by a discretised logistic."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import is_whole
from ..._util.arrays import asarray
from ..._util.xla import softplus
from ...errors import BadInput
from ...spaces import Categorical as CategoricalSpace
from ...spaces import Positive, Space, parameter
from .likelihoods import Likelihood, check_positive


class Categorical(Likelihood):
    """A categorical likelihood: p(x_i = j) = softmax(outputs of coordinate i)_j, for x_i in 0 … k − 1.

    Args:
        k: the number of values of every coordinate.

    >>> Categorical(4).log_prob(jnp.zeros(8), jnp.array([0, 3]))          # −log 4
    Array([-1.3862944, -1.3862944], dtype=float32)
    """

    k: int = eqx.field(static=True)

    def __check_init__(self):
        check_n_values("k", self.k)

    @property
    def outputs_per_coordinate(self) -> int:
        return self.k

    def space(self, *shape: int) -> Space:
        return CategoricalSpace(self.k, *shape)

    def _logits(self, output: Any) -> Any:
        return output.reshape(*output.shape[:-1], -1, self.k)

    def log_prob(self, output: Any, x: Any) -> Any:
        log_p = jax.nn.log_softmax(self._logits(output))
        index = as_index(x)[..., None]
        return jnp.take_along_axis(log_p, index, axis=-1)[..., 0]

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Categorical as Choices

        return Choices(logits=self._logits(output)).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        return jax.nn.softmax(self._logits(output)) @ jnp.arange(self.k, dtype=output.dtype)


class DiscretisedLogistic(Likelihood):
    """A logistic density over grey values, summed over each of k steps: for x_i in 0 … k − 1.

        p(x_i) = σ((x_i + ½ − m_i) / s) − σ((x_i − ½ − m_i) / s),    m_i = (k − 1) output_i,

    where the first step starts at −∞ and the last one ends at ∞, so that the probabilities sum to 1. Unlike
    k categories, it knows that neighbouring values are alike.

    Args:
        k: the number of grey values.
        scale: s / (k − 1), one number or one per feature; fixed if it is a Python number, learned if it is an
            array.

    Salimans et al. (2017), PixelCNN++: improving the PixelCNN with discretized logistic mixture likelihood
    and other modifications; Kingma et al. (2016), Improved variational inference with inverse autoregressive
    flow.

    >>> DiscretisedLogistic(2).log_prob(jnp.array([0.5]), jnp.array([1]))          # −log 2
    Array([-0.6931472], dtype=float32)
    """

    k: int = eqx.field(static=True)
    scale: Any = parameter(Positive(), default=0.1)

    def __check_init__(self):
        check_n_values("k", self.k)
        check_positive("scale", self.scale)

    def space(self, *shape: int) -> Space:
        return CategoricalSpace(self.k, *shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        x = jnp.asarray(x, jnp.result_type(output))
        step = 1 / (self.k - 1)
        upper = (x * step + 0.5 * step - output) / self.scale
        width = step / jnp.asarray(self.scale, upper.dtype)
        lower = upper - width
        # log(σ(b) − σ(a)) = log σ(b) + log σ(−a) + log(1 − exp(a − b)), without a difference of near equals.
        inside = -softplus(-upper) - softplus(lower) + jnp.log(-jnp.expm1(-width))
        return jnp.where(x <= 0, -softplus(-upper), jnp.where(x >= self.k - 1, -softplus(lower), inside))

    def distribution(self, output: Any) -> Any:
        return DiscretisedLogisticDistribution(self, output)

    def mean(self, output: Any) -> Any:
        values = jnp.arange(self.k)
        log_p = jax.vmap(lambda v: self.log_prob(output, jnp.full(output.shape, v)))(values)
        return jnp.tensordot(values.astype(log_p.dtype), jnp.exp(log_p), axes=1)


class DiscretisedLogisticDistribution(eqx.Module):
    """Independent discretised logistic variables, with NumPyro's method names."""

    likelihood: DiscretisedLogistic
    output: Any

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        noise = jax.random.logistic(key, (*sample_shape, *self.output.shape), self.output.dtype)
        last = self.likelihood.k - 1
        value = (self.output + self.likelihood.scale * noise) * last
        return jnp.clip(jnp.round(value), 0, last).astype(int)

    def log_prob(self, value: Any) -> Any:
        log_p = self.likelihood.log_prob(self.output, value)
        return log_p.sum(tuple(range(log_p.ndim - self.output.ndim, log_p.ndim)))

    @property
    def mean(self) -> Any:
        return self.likelihood.mean(self.output)


def as_index(x: Any) -> Any:
    """x as integers: columns of mixed kinds are stored as real numbers."""
    x = asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.integer) else x.astype(jnp.int32)


def check_n_values(name: str, value: Any) -> None:
    if not is_whole(value) or value < 2:
        raise BadInput(name, repr(value), "a whole number >= 2")
