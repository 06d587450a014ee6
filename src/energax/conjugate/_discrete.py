"""Conjugate pairs of discrete observations: Bernoulli, categorical and Poisson."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln as log_gamma
from scipy.special import betaln, gammaln

from .._util.keys import as_key
from ..errors import BadInput
from ..spaces import Binary, Categorical, Count, Interval, Positive, Simplex, parameter
from ._pair import ConjugatePair, Rows, as_parameter, same_shapes


class _OneParameter(ConjugatePair):
    """A pair whose parameter is one variable, with a prior and a likelihood of NumPyro."""

    def _prior(self) -> Any:
        """p(θ), a NumPyro distribution."""
        raise NotImplementedError

    def _likelihood(self, value: Any) -> Any:
        """p(x | θ), a NumPyro distribution."""
        raise NotImplementedError

    @property
    def prior(self) -> Any:
        """The distribution of the parameter, a NumPyro distribution."""
        return self._prior()

    @property
    def _name(self) -> str:
        return next(name for name in self.spaces if name != "x")

    def __call__(self, **variables):
        value = variables[self._name]
        return -self._prior().log_prob(value) - self._likelihood(value).log_prob(variables["x"])

    def conditional(self, name, **given):
        if name == self._name and set(given) <= {"x"}:
            return self._prior_given(given)._prior()
        if name == "x":
            return self._likelihood(given[self._name]) if given else self.predictive
        raise BadInput("conditional", f"{name!r} given {sorted(given)}", f"{self._name!r} or 'x'")

    def draw(self, key, **given):
        first, second = jax.random.split(as_key(key))
        drawn = {}
        if self._name not in given:
            drawn[self._name] = self._prior_given(given)._prior().sample(first)
        if "x" not in given:
            value = given.get(self._name, drawn.get(self._name))
            drawn["x"] = self._likelihood(value).sample(second).astype(self.spaces["x"].jax_dtype)
        return drawn


def _independent(distribution: Any) -> Any:
    """The coordinates of a distribution as one event."""
    return distribution.to_event(len(distribution.batch_shape))


class BetaBernoulli(_OneParameter):
    """p ~ Beta(a, b), x ~ Bernoulli(p): after s ones and f zeros, p ~ Beta(a + s, b + f).

    x and p are numbers, or arrays of the shape of a and b. The predictive probability of a one is
    a / (a + b), and p(data) = B(a + s, b + f) / B(a, b) for every coordinate.

    Args:
        a, b: the parameters of the prior, pseudo-counts of ones and of zeros, positive.

    Bayes (1763), An essay towards solving a problem in the doctrine of chances.

    >>> coin = BetaBernoulli(1, 1)
    >>> coin.posterior([1, 1, 0, 1]).a.tolist(), round(coin.log_evidence([1, 1, 0, 1]), 4)   # log 1/20
    (4.0, -2.9957)
    """

    a: Any = parameter(Positive())
    b: Any = parameter(Positive())

    def __init__(self, a: Any, b: Any):
        self.a, self.b = same_shapes(a=as_parameter("a", a), b=as_parameter("b", b))

    @property
    def spaces(self):
        return {"p": Interval(0, 1, *self.a.shape), "x": Binary(*self.a.shape)}

    def _prior(self):
        from numpyro.distributions import Beta

        return _independent(Beta(self.a, self.b))

    def _likelihood(self, value):
        from numpyro.distributions import Bernoulli

        return _independent(Bernoulli(probs=value))

    @property
    def predictive(self):
        return self._likelihood(self.a / (self.a + self.b))

    def _after(self, x):
        return BetaBernoulli(self.a + x, self.b + (1 - x))

    def _update(self, rows: Rows):
        return BetaBernoulli(self.a + rows.sum(rows.value), self.b + rows.sum(1 - rows.value))

    def _log_normaliser(self):
        return float(betaln(np.asarray(self.a), np.asarray(self.b)).sum())

    def _log_base(self, rows):
        return 0.0


class DirichletCategorical(_OneParameter):
    """p ~ Dirichlet(α), x ~ Categorical(p): after counts n of the k values, p ~ Dirichlet(α + n).

    The predictive probability of a value is α / Σ α, and p(data) = B(α + n) / B(α).

    Args:
        alpha: α, pseudo-counts of the values, (k,), positive.

    Minka (2012), Estimating a Dirichlet distribution.

    >>> die = DirichletCategorical(np.ones(3))
    >>> die.posterior([0, 0, 2]).predictive.probs.tolist()
    [0.5, 0.166..., 0.333...]
    """

    alpha: Any = parameter(Positive())

    def __init__(self, alpha: Any):
        self.alpha = as_parameter("alpha", alpha)
        if self.alpha.ndim != 1 or len(self.alpha) < 2:
            raise BadInput("alpha", f"shape {self.alpha.shape}", "(k,): one number for each of k >= 2 values")

    @property
    def spaces(self):
        k = len(self.alpha)
        return {"p": Simplex(k), "x": Categorical(k)}

    def _prior(self):
        from numpyro.distributions import Dirichlet

        return Dirichlet(self.alpha)

    def _likelihood(self, value):
        from numpyro.distributions import Categorical as Choice

        return Choice(probs=value)

    @property
    def predictive(self):
        return self._likelihood(self.alpha / self.alpha.sum())

    def _after(self, x):
        return DirichletCategorical(self.alpha + jax.nn.one_hot(x, len(self.alpha), dtype=self.alpha.dtype))

    def _update(self, rows):
        counts = np.bincount(rows.value.astype(int), rows.weight, minlength=len(self.alpha))
        return DirichletCategorical(self.alpha + counts)

    def _log_normaliser(self):
        alpha = np.asarray(self.alpha, np.float64)
        return float(gammaln(alpha).sum() - gammaln(alpha.sum()))

    def _log_base(self, rows):
        return 0.0


@functools.cache
def _negative_binomial() -> type:
    """NumPyro's negative binomial distribution with all digits: JAX's `betaln` (0.10.2) has seven."""
    from numpyro import distributions

    class NegativeBinomial(distributions.GammaPoisson):
        def log_prob(self, value):
            shape, rate = self.concentration, self.rate
            ratio = log_gamma(shape + value) - log_gamma(shape) - log_gamma(value + jnp.ones_like(rate))
            return ratio + shape * jnp.log(rate) - (shape + value) * jnp.log1p(rate)

    return NegativeBinomial


class GammaPoisson(_OneParameter):
    """λ ~ Gamma(shape, rate), x ~ Poisson(λ): after n counts of sum s, λ ~ Gamma(shape + s, rate + n).

    x and λ are numbers, or arrays of the shape of the parameters. The predictive distribution is negative
    binomial, with mean shape / rate.

    Args:
        shape: the shape of the prior, a pseudo-count of events, positive.
        rate: its rate, a pseudo-count of observations, positive.

    Greenwood and Yule (1920), An inquiry into the nature of frequency distributions.

    >>> calls = GammaPoisson(2.0, 1.0).posterior([3, 5, 4])
    >>> calls.shape.tolist(), calls.rate.tolist(), calls.predictive.mean.tolist()
    (14.0, 4.0, 3.5)
    """

    shape: Any = parameter(Positive())
    rate: Any = parameter(Positive())

    def __init__(self, shape: Any, rate: Any):
        self.shape, self.rate = same_shapes(
            shape=as_parameter("shape", shape), rate=as_parameter("rate", rate)
        )

    @property
    def spaces(self):
        return {"rate": Positive(*self.rate.shape), "x": Count(*self.rate.shape)}

    def _prior(self):
        from numpyro.distributions import Gamma

        return _independent(Gamma(self.shape, self.rate))

    def _likelihood(self, value):
        from numpyro.distributions import Poisson

        return _independent(Poisson(value))

    @property
    def predictive(self):
        return _independent(_negative_binomial()(self.shape, self.rate))

    def _after(self, x):
        return GammaPoisson(self.shape + x, self.rate + jnp.ones_like(self.rate))

    def _update(self, rows):
        return GammaPoisson(self.shape + rows.sum(rows.value), self.rate + rows.sum())

    def _log_normaliser(self):
        shape, rate = np.asarray(self.shape, np.float64), np.asarray(self.rate, np.float64)
        return float((gammaln(shape) - shape * np.log(rate)).sum())

    def _log_base(self, rows):
        return -float(rows.sum(gammaln(rows.value + 1)).sum())
