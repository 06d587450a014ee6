"""Operations on distributions that depend on their family: powers, conditionals, modes, marginals.

The conditionals of energies are NumPyro distributions, or a `FiniteDistribution`. Every switch on a family
is in this file; a new family is added here.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._util.arrays import asarray
from ._util.linalg import cholesky, solve_lower
from ._util.xla import softplus
from .errors import Unsuitable
from .finite import draw
from .spaces import Binary, Space


class FiniteDistribution(eqx.Module):
    """A distribution over the listed values of a finite space, with NumPyro's method names."""

    log_probs: jax.Array
    space: Space = eqx.field(static=True)

    @property
    def probs(self) -> Any:
        return jnp.exp(self.log_probs)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        if not sample_shape:
            return self.space.at(jax.random.categorical(key, self.log_probs))
        return self.space.at(draw(key, self.log_probs, math.prod(sample_shape)).reshape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        index = jnp.zeros(jnp.shape(value)[: jnp.ndim(value) - len(self.space.shape)], int)
        flat = jnp.reshape(value, (*index.shape, -1)).astype(int)
        for i in range(self.space.size):
            index = index * self.space.values_per_coordinate + flat[..., i]
        return self.log_probs[index]

    @property
    def mean(self) -> Any:
        values = self.space.values().astype(self.log_probs.dtype)
        return jnp.tensordot(self.probs, values, axes=1)

    @property
    def mode(self) -> Any:
        return self.space.at(jnp.argmax(self.log_probs))


class ColumnsDistribution(eqx.Module):
    """Independent distributions of groups of columns of one vector, with NumPyro's method names.

    parts: the distributions. columns: the indices of the columns of each. shapes: of a value of each.
    """

    parts: tuple[Any, ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def split(self, vector: Any) -> list[Any]:
        """The columns of every part (…, d), in its shape."""
        each = zip(self.columns, self.shapes, strict=True)
        return [vector[..., np.array(c)].reshape(*vector.shape[:-1], *shape) for c, shape in each]

    def join(self, values: list[Any], dtype: Any = None) -> Any:
        """The vector with these values of all parts, the inverse of `split`."""
        lead = [v.shape[: v.ndim - len(shape)] for v, shape in zip(values, self.shapes, strict=True)]
        flat = [v.reshape(*n, -1) for v, n in zip(values, lead, strict=True)]
        dtype = jnp.result_type(float, *flat) if dtype is None else dtype
        order = np.argsort([c for each in self.columns for c in each])
        return jnp.concatenate([v.astype(dtype) for v in flat], axis=-1)[..., order]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        keys = jax.random.split(key, len(self.parts))
        return self.join([p.sample(k, sample_shape) for p, k in zip(self.parts, keys, strict=True)])

    def log_prob(self, value: Any) -> Any:
        each = zip(self.parts, self.split(value), strict=True)
        # x is a vector of real numbers; NumPyro's categorical distribution needs integers.
        return sum(p.log_prob(v.astype(jnp.int32) if is_discrete(p) else v) for p, v in each)

    @property
    def mean(self) -> Any:
        """The means; of categories that of their numbers."""
        return self.join([_mean(part) for part in self.parts])


def _mean(distribution: Any) -> Any:
    from numpyro import distributions as d

    base = _base(distribution)
    if isinstance(base, d.CategoricalLogits | d.CategoricalProbs):
        return base.probs @ jnp.arange(base.probs.shape[-1], dtype=base.probs.dtype)
    return distribution.mean


def _base(distribution: Any) -> Any:
    """The distribution inside all `Independent` wrappers."""
    from numpyro.distributions import Independent

    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    return distribution


def logits(distribution: Any) -> Any:
    """The logits of Bernoulli or categorical coordinates."""
    return _base(distribution).logits


def has_logits(distribution: Any) -> bool:
    """Whether the coordinates are Bernoulli or categorical."""
    from numpyro import distributions as d

    finite = (d.BernoulliLogits, d.BernoulliProbs, d.CategoricalLogits, d.CategoricalProbs)
    return isinstance(_base(distribution), finite)


def is_binary(distribution: Any) -> bool:
    """Whether the coordinates are Bernoulli."""
    from numpyro import distributions as d

    return isinstance(_base(distribution), d.BernoulliLogits | d.BernoulliProbs)


def is_discrete(distribution: Any) -> bool | None:
    """Whether the values are discrete; None for a distribution without a `support`."""
    return getattr(getattr(distribution, "support", None), "is_discrete", None)


def log_prob(distribution: Any, value: Any) -> Any:
    """log p of values, with the derivative value − σ(logit) of Bernoulli coordinates at every logit.

    That of NumPyro is 1 or 0 at a logit of exactly 0, where its formula has a kink.

    >>> from numpyro.distributions import Bernoulli
    >>> float(jax.grad(lambda logit: log_prob(Bernoulli(logits=logit), 1.0))(0.0))
    0.5
    """
    from numpyro import distributions as d

    base = _base(distribution)
    if not isinstance(base, d.BernoulliLogits):
        return distribution.log_prob(value)
    terms = value * base.logits - softplus(base.logits)
    return terms.sum(tuple(range(terms.ndim - len(distribution.event_shape), terms.ndim)))


def rsample(distribution: Any, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
    """Draws with a gradient in the parameters, where the distribution has such draws."""
    draw = getattr(distribution, "rsample", distribution.sample)
    return draw(key, sample_shape)


def rsample_and_log_prob(distribution: Any, key: Any, sample_shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Draws with a gradient, and log p of them, from one pass where the distribution offers it."""
    if hasattr(distribution, "sample_and_log_prob"):
        return distribution.sample_and_log_prob(key, sample_shape)
    draws = rsample(distribution, key, sample_shape)
    return draws, distribution.log_prob(draws)


def icdf(distribution: Any, probability: Any) -> Any:
    """The inverse of the cumulative distribution function of every coordinate, where the family has one."""
    return _base(distribution).icdf(probability)


def power(distribution: Any, exponent: Any) -> Any:
    """p^exponent, normalised, if it belongs to the family of p; else None.

    >>> from numpyro.distributions import Normal
    >>> float(power(Normal(3.0, 1.0), 0.25).scale)
    2.0
    """
    from numpyro import distributions as d

    if isinstance(distribution, FiniteDistribution):
        log_probs = jax.nn.log_softmax(exponent * distribution.log_probs)
        return FiniteDistribution(log_probs, distribution.space)
    if isinstance(distribution, d.Independent):
        base = power(distribution.base_dist, exponent)
        return None if base is None else base.to_event(distribution.reinterpreted_batch_ndims)
    # Logits are used where there are some: probabilities that underflowed to 0 have lost their ratio.
    if isinstance(distribution, d.BernoulliLogits):
        return d.BernoulliLogits(exponent * distribution.logits)
    if isinstance(distribution, d.BernoulliProbs):
        scores = exponent * (jnp.log(distribution.probs) - jnp.log1p(-distribution.probs))
        largest = jnp.finfo(scores.dtype).max
        return d.BernoulliLogits(jnp.clip(scores, -largest, largest))
    if isinstance(distribution, d.CategoricalLogits):
        return d.CategoricalLogits(exponent * distribution.logits)
    if isinstance(distribution, d.CategoricalProbs):
        return d.CategoricalLogits(exponent * jnp.log(distribution.probs))
    if type(distribution) is d.Normal:
        return d.Normal(distribution.loc, distribution.scale / jnp.sqrt(exponent))
    if type(distribution) is d.MultivariateNormal:
        return d.MultivariateNormal(distribution.loc, scale_tril=distribution.scale_tril / jnp.sqrt(exponent))
    if type(distribution) is d.MatrixNormal:
        rows = distribution.scale_tril_row / jnp.sqrt(exponent)
        return d.MatrixNormal(distribution.loc, rows, distribution.scale_tril_column)
    return None


def geometric_mean(p: Any, q: Any, weight: Any) -> Any:
    """p^weight · q^(1 − weight), normalised, for distributions of the same finite values; None if unknown.

    >>> from numpyro.distributions import Bernoulli
    >>> float(geometric_mean(Bernoulli(logits=2.0), Bernoulli(logits=-1.0), 0.5).logits)
    0.5
    """
    from numpyro import distributions as d

    logits = _logits_of_both(p, q)
    if logits is None:
        return None
    mean = weight * logits[0] + (1 - weight) * logits[1]
    if isinstance(p, FiniteDistribution):
        return FiniteDistribution(jax.nn.log_softmax(mean), p.space)
    family = d.BernoulliLogits if _is_bernoulli(_base(p)) else d.CategoricalLogits
    return family(mean).to_event(_event_ndim(p))


def log_overlap(p: Any, q: Any, weight: Any) -> Any:
    """log Σ p^weight q^(1 − weight) of every independent coordinate, of finite values; None if unknown.

    Coordinates are not summed: the difference of two weights is then exact to the rounding of each.

    >>> from numpyro.distributions import Bernoulli
    >>> float(log_overlap(Bernoulli(0.5), Bernoulli(0.5), 0.3))
    0.0
    """
    both = _logits_of_both(p, q)
    if both is None:
        return None
    first, second = both
    mean = weight * first + (1 - weight) * second
    total = softplus if _is_bernoulli(_base(p)) else lambda a: jax.nn.logsumexp(a, -1)
    return total(mean) - weight * total(first) - (1 - weight) * total(second)


def _logits_of_both(p: Any, q: Any) -> tuple[Any, Any] | None:
    """The logits of two distributions in the form of the first; None if they are of different forms."""
    if isinstance(p, FiniteDistribution):
        return p.log_probs, jnp.log(probabilities(q, p.space))
    first, second = _base(p), _base(q)
    for is_family in (_is_bernoulli, _is_categorical):
        if is_family(first) and is_family(second) and jnp.shape(first.logits) == jnp.shape(second.logits):
            return first.logits, second.logits
    return None


def _is_bernoulli(distribution: Any) -> bool:
    from numpyro import distributions as d

    return isinstance(distribution, d.BernoulliLogits | d.BernoulliProbs)


def _is_categorical(distribution: Any) -> bool:
    from numpyro import distributions as d

    return isinstance(distribution, d.CategoricalLogits | d.CategoricalProbs)


def _event_ndim(distribution: Any) -> int:
    """The number of axes that `Independent` wrappers made part of the event."""
    return len(distribution.event_shape) - len(_base(distribution).event_shape)


def draw_rest(distribution: Any, old: Any, key: Any, clamped: Any) -> Any:
    """An exact draw of the coordinates that are not clamped, given the clamped ones: p(x_a | x_b).

    `old` holds the clamped values, `clamped` is True where they are.
    """
    from numpyro import distributions as d

    if isinstance(distribution, FiniteDistribution):
        values = distribution.space.values()
        clash = ((values != old) & clamped).reshape(len(values), -1).any(1)
        allowed = FiniteDistribution(jnp.where(clash, -jnp.inf, distribution.log_probs), distribution.space)
        return allowed.sample(key).astype(old.dtype)
    if isinstance(distribution, ColumnsDistribution):
        keys = jax.random.split(key, len(distribution.parts))
        each = zip(
            distribution.parts, distribution.split(old), keys, distribution.split(clamped), strict=True
        )
        return distribution.join([draw_rest(*arguments) for arguments in each], old.dtype)
    base = _base(distribution)
    if isinstance(base, d.Distribution) and base.event_shape == ():
        # Independent coordinates: clamping some does not change the others.
        return jnp.where(clamped, old, distribution.sample(key).astype(old.dtype))
    if isinstance(distribution, d.MultivariateNormal):
        return jnp.where(clamped, old, _draw_normal_rest(distribution, old, key, clamped))
    raise Unsuitable(
        f"Gibbs cannot draw some coordinates given the others under {type(distribution).__name__}. "
        "Use NUTS, which moves any of them."
    )


def _draw_normal_rest(normal, old, key, clamped):
    """A draw of N(μ, Σ), corrected so that its clamped coordinates equal `old` (Matheron's rule)."""
    covariance = normal.covariance_matrix
    drawn = normal.sample(key)
    both = clamped[:, None] & clamped[None, :]
    observed = jnp.where(both, covariance, jnp.eye(old.shape[0], dtype=covariance.dtype))
    gap = jnp.where(clamped, old - drawn, 0)
    factor = cholesky(observed)
    white = solve_lower(factor, jnp.stack([gap], -1))
    onto = solve_lower(factor, jnp.where(clamped[:, None], covariance, 0))
    return drawn + (onto.T @ white)[:, 0]


def probabilities(distribution: Any, space: Space) -> Any:
    """The probability of every value of a finite space, (n_values,)."""
    if isinstance(distribution, FiniteDistribution):
        return distribution.probs
    log_probs = jax.vmap(distribution.log_prob)(space.values())
    # A distribution with batch axes has one log-probability per coordinate.
    return jnp.exp(log_probs.reshape(len(log_probs), -1).sum(1))


def marginals(distribution: Any, space: Space) -> Any:
    """The probabilities of every coordinate, (*shape, values_per_coordinate)."""
    if isinstance(space, Binary):
        on = asarray(distribution.mean).reshape(space.shape)
        return jnp.stack([1 - on, on], axis=-1)
    k = space.values_per_coordinate
    if not isinstance(distribution, FiniteDistribution):
        return _base(distribution).probs.reshape(*space.shape, k)
    probs = distribution.probs
    if space.size > 1:
        table, axes = probs.reshape((k,) * space.size), range(space.size)
        probs = jnp.stack([table.sum(tuple(a for a in axes if a != i)) for i in axes])
    return probs.reshape(*space.shape, k)


def mode(distribution: Any, space: Space) -> Any:
    """The most probable value, for a distribution over a finite space or a normal distribution."""
    from numpyro import distributions as d

    if isinstance(distribution, FiniteDistribution):
        return distribution.mode
    base = _base(distribution)
    if isinstance(base, (d.Normal, d.MultivariateNormal, d.LowRankMultivariateNormal, d.MatrixNormal)):
        return distribution.mean
    finite = (d.BernoulliLogits, d.BernoulliProbs, d.CategoricalLogits, d.CategoricalProbs)
    if space.is_finite and isinstance(base, finite):
        return jnp.argmax(marginals(distribution, space), -1).astype(space.jax_dtype)
    raise NotImplementedError(f"the mode of {type(distribution).__name__}")
