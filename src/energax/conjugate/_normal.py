"""Conjugate pairs of normal observations with unknown mean and variance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, multigammaln

from .._util.keys import as_key
from ..errors import BadInput
from ..spaces import Positive, PositiveDefinite, Real, is_concrete, parameter
from ._pair import ConjugatePair, Rows, as_parameter, same_shapes


class NormalInverseGamma(ConjugatePair):
    """σ² ~ InverseGamma(shape, scale), μ ~ N(mean, σ² / count), x ~ N(μ, σ²).

    After n observations with mean x̄ and scatter S about it, with c the count and m the mean of the prior:
    the count is c + n, the mean (c m + n x̄) / (c + n), the shape grows by n / 2, and the scale by
    S / 2 + c n (x̄ − m)² / (2 (c + n)). The predictive distribution is Student's t with 2 · shape degrees of
    freedom. All are numbers, or arrays of one shape, for independent variables.

    Args:
        mean: the mean of the prior of μ.
        count: the number of observations that this mean is worth, positive.
        shape, scale: the parameters of the prior of σ², positive.

    Raiffa and Schlaifer (1961), Applied statistical decision theory.

    >>> prior = NormalInverseGamma(mean=0.0, count=1.0, shape=1.0, scale=1.0)
    >>> after = prior.posterior([1.0, 3.0])
    >>> after.mean.round(3).tolist(), after.scale.round(3).tolist(), after.predictive.df.tolist()
    (1.333, 3.333, 4.0)
    """

    mean: Any
    count: Any = parameter(Positive())
    shape: Any = parameter(Positive())
    scale: Any = parameter(Positive())

    def __init__(self, mean: Any, count: Any, shape: Any, scale: Any):
        given = {"count": count, "shape": shape, "scale": scale}
        checked = {name: as_parameter(name, value) for name, value in given.items()}
        mean = as_parameter("mean", mean, positive=False)
        self.mean, self.count, self.shape, self.scale = same_shapes(mean=mean, **checked)

    @property
    def spaces(self):
        size = self.mean.shape
        return {"mean": Real(*size), "variance": Positive(*size), "x": Real(*size)}

    def __call__(self, *, mean, variance, x):
        from numpyro.distributions import InverseGamma, Normal

        log_p = InverseGamma(self.shape, self.scale).log_prob(variance)
        log_p += Normal(self.mean, jnp.sqrt(variance / self.count)).log_prob(mean)
        return -(log_p + Normal(mean, jnp.sqrt(variance)).log_prob(x)).sum()

    @property
    def predictive(self):
        from numpyro.distributions import StudentT

        scale = jnp.sqrt(self.scale * (self.count + 1) / (self.shape * self.count))
        return _event(StudentT(2 * self.shape, self.mean, scale))

    def conditional(self, name, **given):
        """p(name | given): of x given both others, of the mean and of the variance given any others."""
        from numpyro.distributions import InverseGamma, Normal, StudentT

        if name == "x" and {"mean", "variance"} <= set(given):
            return _event(Normal(given["mean"], jnp.sqrt(given["variance"])))
        if name == "x" and not given:
            return self.predictive
        prior = self._prior_given(given)
        if name == "mean" and "variance" in given:
            return _event(Normal(prior.mean, jnp.sqrt(given["variance"] / prior.count)))
        if name == "mean":
            scale = jnp.sqrt(prior.scale / (prior.shape * prior.count))
            return _event(StudentT(2 * prior.shape, prior.mean, scale))
        if name == "variance" and "mean" in given:
            scale = prior.scale + 0.5 * prior.count * (given["mean"] - prior.mean) ** 2
            return _event(InverseGamma(prior.shape + 0.5, scale))
        if name == "variance":
            return _event(InverseGamma(prior.shape, prior.scale))
        raise BadInput("conditional", f"{name!r} given {sorted(given)}", "'mean' or 'variance'")

    def draw(self, key, **given):
        return _draw_in_order(self, key, given)

    def _after(self, x):
        gap = (x - self.mean) ** 2
        scale = self.scale + 0.5 * self.count * gap / (self.count + 1)
        mean = self.mean + (x - self.mean) / (self.count + 1)
        return NormalInverseGamma(mean, self.count + 1, self.shape + 0.5, scale)

    def _update(self, rows: Rows):
        n = rows.sum()
        mean = rows.sum(rows.value) / np.where(n > 0, n, 1)
        scatter = rows.sum((rows.value - mean) ** 2)
        count = self.count + n
        gap = self.count * n / count * (mean - self.mean) ** 2
        middle = (self.count * self.mean + n * mean) / count
        return NormalInverseGamma(middle, count, self.shape + n / 2, self.scale + (scatter + gap) / 2)

    def _log_normaliser(self):
        count, shape, scale = (np.asarray(v, np.float64) for v in (self.count, self.shape, self.scale))
        return float((gammaln(shape) - shape * np.log(scale) - 0.5 * np.log(count)).sum())

    def _log_base(self, rows):
        return -0.5 * float(rows.sum().sum()) * float(np.log(2 * np.pi))


class NormalInverseWishart(ConjugatePair):
    """Σ ~ InverseWishart(dof, scale), μ ~ N(mean, Σ / count), x ~ N(μ, Σ), for vectors x of d numbers.

    After n observations with mean x̄ and scatter S about it, with c the count and m the mean of the prior:
    the count is c + n, the mean (c m + n x̄) / (c + n), the degrees of freedom grow by n, and the scale by
    S + c n / (c + n) (x̄ − m)(x̄ − m)ᵀ. The predictive distribution is the multivariate Student's t with
    dof − d + 1 degrees of freedom.

    Args:
        mean: the mean of the prior of μ, (d,).
        count: the number of observations that this mean is worth, positive.
        dof: the degrees of freedom of the prior of Σ, larger than d − 1.
        scale: its scale, (d, d), positive definite; the mean of Σ is scale / (dof − d − 1).

    Gelman et al. (2013), Bayesian data analysis, section 3.6.

    >>> prior = NormalInverseWishart(np.zeros(2), 1.0, 4.0, np.eye(2))
    >>> after = prior.posterior([[1.0, 0.0], [3.0, 2.0]])
    >>> after.mean.round(3).tolist(), after.dof.tolist()
    ([1.333, 0.667], 6.0)
    """

    mean: Any
    count: Any = parameter(Positive())
    dof: Any = parameter(Positive())
    scale: Any = parameter(PositiveDefinite())

    def __init__(self, mean: Any, count: Any, dof: Any, scale: Any):
        self.mean = as_parameter("mean", mean, positive=False)
        if self.mean.ndim != 1:
            raise BadInput("mean", f"shape {self.mean.shape}", "(d,): a vector")
        d = len(self.mean)
        self.count, self.dof = as_parameter("count", count, shape=()), as_parameter("dof", dof, shape=())
        self.scale = as_parameter("scale", scale, positive=False, shape=(d, d))
        if is_concrete(self.dof) and float(self.dof) <= d - 1:
            raise BadInput("dof", f"{float(self.dof):g}", f"a number > {d - 1}, for vectors of {d} numbers")
        if is_concrete(self.scale):
            PositiveDefinite(d).check(self.scale, "scale", missing=False)

    @property
    def spaces(self):
        d = len(self.mean)
        return {"mean": Real(d), "covariance": PositiveDefinite(d), "x": Real(d)}

    def __call__(self, *, mean, covariance, x):
        from numpyro.distributions import MultivariateNormal

        log_p = self._covariance_prior().log_prob(covariance)
        log_p += MultivariateNormal(self.mean, covariance / self.count).log_prob(mean)
        return -(log_p + MultivariateNormal(mean, covariance).log_prob(x))

    def _covariance_prior(self):
        from numpyro.distributions import InverseWishart

        return InverseWishart(self.dof, scale_matrix=jnp.asarray(self.scale))

    @property
    def predictive(self):
        from numpyro.distributions import MultivariateStudentT

        dof = self.dof - len(self.mean) + 1
        factor = jnp.linalg.cholesky(self.scale * (self.count + 1) / (self.count * dof))
        return MultivariateStudentT(dof, self.mean, factor)

    def conditional(self, name, **given):
        """p(name | given): of x given both others, of the mean and of the covariance given any others."""
        from numpyro.distributions import InverseWishart, MultivariateNormal, MultivariateStudentT

        if name == "x" and {"mean", "covariance"} <= set(given):
            return MultivariateNormal(given["mean"], given["covariance"])
        if name == "x" and not given:
            return self.predictive
        prior = self._prior_given(given)
        if name == "mean" and "covariance" in given:
            return MultivariateNormal(prior.mean, given["covariance"] / prior.count)
        if name == "mean":
            dof = prior.dof - len(self.mean) + 1
            return MultivariateStudentT(
                dof, prior.mean, jnp.linalg.cholesky(prior.scale / (prior.count * dof))
            )
        if name == "covariance" and "mean" in given:
            gap = given["mean"] - prior.mean
            scale = prior.scale + prior.count * jnp.outer(gap, gap)
            return InverseWishart(prior.dof + 1, scale_matrix=scale)
        if name == "covariance":
            return prior._covariance_prior()
        raise BadInput("conditional", f"{name!r} given {sorted(given)}", "'mean' or 'covariance'")

    def draw(self, key, **given):
        return _draw_in_order(self, key, given)

    def _after(self, x):
        gap = x - self.mean
        scale = self.scale + self.count / (self.count + 1) * jnp.outer(gap, gap)
        mean = self.mean + gap / (self.count + 1)
        return NormalInverseWishart(mean, self.count + 1, self.dof + 1, scale)

    def _update(self, rows: Rows):
        weight = rows.weight[:, 0]
        if (rows.weight != weight[:, None]).any():
            found, remedy = "missing values", "Leave those rows out, or use NormalInverseGamma."
            raise BadInput("data", found, "complete rows", remedy)
        n = weight.sum()
        mean = weight @ rows.value / (n if n > 0 else 1)
        centred = rows.value - mean
        count, gap = self.count + n, mean - self.mean
        scale = self.scale + (centred * weight[:, None]).T @ centred
        scale = scale + self.count * n / count * np.outer(gap, gap)
        middle = (self.count * self.mean + n * mean) / count
        return NormalInverseWishart(middle, count, self.dof + n, (scale + scale.T) / 2)

    def _log_normaliser(self):
        d, dof = len(self.mean), float(self.dof)
        log_det = float(np.linalg.slogdet(np.asarray(self.scale, np.float64))[1])
        return float(
            multigammaln(dof / 2, d) + dof / 2 * (d * np.log(2) - log_det) - d / 2 * np.log(float(self.count))
        )

    def _log_base(self, rows):
        # Each of d coordinates has the same weight.
        return -0.5 * float(rows.weight.sum()) * float(np.log(2 * np.pi))


def _event(distribution: Any) -> Any:
    """The coordinates of a distribution as one event."""
    return distribution.to_event(len(distribution.batch_shape))


def _draw_in_order(pair: Any, key: Any, given: dict[str, Any]) -> dict[str, Any]:
    """One exact draw of the hidden variables, each given those before: the variance, the mean, x."""
    mean, spread, x = pair.spaces
    drawn: dict[str, Any] = {}
    for name, one in zip((spread, mean, x), jax.random.split(as_key(key), 3), strict=True):
        if name not in given:
            drawn[name] = pair.conditional(name, **given, **drawn).sample(one)
    return drawn
