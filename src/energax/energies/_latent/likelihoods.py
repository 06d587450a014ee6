"""Likelihoods of a decoder or a regressor: p(x | outputs), with one output per coordinate of x.

A likelihood has `space(*shape)`, `log_prob(output, x)` coordinate by coordinate, `mean(output)` and
`distribution(output)`. Those with several outputs per coordinate are in `categorical.py` and `columns.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import POSITIVE, with_methods
from ..._util.xla import softplus
from ...errors import BadInput, EnergaxError, check_memory, describe
from ...spaces import Binary, Count, Positive, Real, Space, parameter


class Likelihood(eqx.Module):
    """The base of likelihoods: p(x | output), with `outputs_per_coordinate` numbers for each coordinate of x.

    A subclass defines `space`, `log_prob`, `distribution` and `mean`. Outputs are one vector, those of the
    first coordinate first.

    >>> Bernoulli().n_outputs(3), Bernoulli().n_features(3)
    (3, 3)
    """

    @property
    def outputs_per_coordinate(self) -> int:
        return 1

    @abstractmethod
    def space(self, *shape: int) -> Space:
        """The space of x of this shape."""

    @abstractmethod
    def log_prob(self, output: Any, x: Any) -> Any:
        """log p(x_i | output) of every coordinate, so that a mask can drop terms."""

    @abstractmethod
    def distribution(self, output: Any) -> Any:
        """p(x | output), a distribution over the whole of x."""

    @abstractmethod
    def mean(self, output: Any) -> Any:
        """E[x | output]; of categories that of their numbers."""

    def n_outputs(self, n_features: int) -> int:
        """The number of outputs for a vector x of this length."""
        return n_features * self.outputs_per_coordinate

    def n_features(self, n_outputs: int) -> int:
        """The length of x for this number of outputs."""
        d, rest = divmod(n_outputs, self.outputs_per_coordinate)
        if rest:
            found = f"{n_outputs} outputs"
            expected = f"a multiple of {self.outputs_per_coordinate}, the outputs per feature"
            raise BadInput("network", found, f"{expected} of {type(self).__name__}")
        return d


class Bernoulli(Likelihood):
    """A Bernoulli likelihood: p(x_i = 1) = sigmoid(output_i), for binary x.

    >>> Bernoulli().log_prob(jnp.zeros(2), jnp.array([0.0, 1.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """

    def space(self, *shape: int) -> Space:
        return Binary(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        return x * output - softplus(output)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Bernoulli as Coins

        return Coins(logits=output).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        return jax.nn.sigmoid(output)


class Gaussian(Likelihood):
    """A Gaussian likelihood: x_i ~ N(output_i, σ_i²), for real x.

    Args:
        scale: σ, one number or one per feature; fixed if it is a Python number, learned if it is
            an array.

    >>> Gaussian(1.0).log_prob(jnp.zeros(1), jnp.zeros(1))          # −½ log 2π
    Array([-0.9189385], dtype=float32)
    """

    scale: Any = parameter(Positive(), default=1.0)

    def __check_init__(self):
        check_positive("scale", self.scale)

    def space(self, *shape: int) -> Space:
        return Real(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        u = (x - output) / self.scale
        return -0.5 * u**2 - jnp.log(self.scale) - 0.5 * jnp.log(2 * jnp.pi)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Normal

        return Normal(output, self.scale).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        return output

    def expected_precision(self, residual: Any) -> Any:
        """1: the normal distribution as a scale mixture has one scale."""
        return jnp.ones_like(residual)


class StudentT(Likelihood):
    """A Student-t likelihood: x_i ~ output_i + σ t_ν, for real x with outliers.

    It is a scale mixture of normal distributions: x_i ~ N(output_i, σ² / u), u ~ Gamma(ν/2, ν/2).

    Args:
        df: ν, the degrees of freedom; small ν have heavy tails.
        scale: σ; as for `df`, fixed if it is a Python number, learned if it is an array.

    Lange, Little and Taylor (1989), Robust statistical modeling using the t distribution.

    >>> StudentT(1.0).log_prob(jnp.zeros(1), jnp.zeros(1))          # −log π, the Cauchy distribution
    Array([-1.14472...], dtype=float32)
    """

    df: Any = parameter(Positive(), default=4.0)
    scale: Any = parameter(Positive(), default=1.0)

    def __check_init__(self):
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    def space(self, *shape: int) -> Space:
        return Real(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        u, df = (x - output) / self.scale, jnp.asarray(self.df, jnp.result_type(output))
        constant = jax.lax.lgamma((df + 1) / 2) - jax.lax.lgamma(df / 2) - 0.5 * jnp.log(df * jnp.pi)
        return constant - jnp.log(self.scale) - 0.5 * (df + 1) * jnp.log1p(u**2 / df)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import StudentT as Student

        return Student(self.df, output, self.scale).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        """The centre, which is the mean for ν > 1."""
        return output

    def expected_precision(self, residual: Any) -> Any:
        """E[u | x] of the scale mixture, the weight of a row in least squares."""
        return (self.df + 1) / (self.df + (residual / self.scale) ** 2)


class Poisson(Likelihood):
    """A Poisson likelihood: x_i ~ Poisson(exp(output_i)), for counts.

    >>> Poisson().log_prob(jnp.zeros(1), jnp.ones(1))               # log of 1/e
    Array([-1.], dtype=float32)
    """

    def space(self, *shape: int) -> Space:
        return Count(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        x = jnp.asarray(x, jnp.result_type(output))
        return x * output - jnp.exp(output) - jax.lax.lgamma(x + 1)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Poisson as Counts

        return Counts(jnp.exp(output)).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        return jnp.exp(output)


class Gamma(Likelihood):
    """A gamma likelihood with mean exp(output_i) and standard deviation in proportion to it, for x > 0.

    x_i ~ Gamma(k, k exp(−output_i)); the coefficient of variation is 1 / √k.

    Args:
        concentration: k; fixed if it is a Python number, learned if it is an array.

    >>> Gamma(1.0).log_prob(jnp.zeros(1), jnp.ones(1)).round(4)     # the exponential distribution
    Array([-1.], dtype=float32)
    """

    concentration: Any = parameter(Positive(), default=1.0)

    def __check_init__(self):
        check_positive("concentration", self.concentration)

    def space(self, *shape: int) -> Space:
        return Positive(*shape)

    def log_prob(self, output: Any, x: Any) -> Any:
        """Coordinate by coordinate, so that a mask can drop terms."""
        k = jnp.asarray(self.concentration, jnp.result_type(output))
        log_rate = jnp.log(k) - output
        return k * log_rate - jax.lax.lgamma(k) + (k - 1) * jnp.log(x) - x * jnp.exp(log_rate)

    def distribution(self, output: Any) -> Any:
        from numpyro.distributions import Gamma as Gammas

        return Gammas(self.concentration, self.concentration * jnp.exp(-output)).to_event(jnp.ndim(output))

    def mean(self, output: Any) -> Any:
        return jnp.exp(output)


def as_likelihood(likelihood: Any, default: Any) -> Any:
    """Return the likelihood, or the default for None; raise if it is not one."""
    if likelihood is None:
        return default
    remedy = "Try energies.Gaussian()."
    needed = with_methods("space", "log_prob", expected="a likelihood of energax.energies", remedy=remedy)
    needed.check("likelihood", likelihood)
    return likelihood


def output_size(network: Any, n_in: int) -> int:
    """Return the length of the output of a network for n_in numbers; raise if it is no vector."""
    check_memory("network", n_in, n_in, "its input", 4)
    given = jax.ShapeDtypeStruct((n_in,), jnp.zeros(()).dtype)
    try:
        shape = jax.tree.leaves(eqx.filter_eval_shape(network, given))[0].shape
    except EnergaxError:
        raise
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        found = f"{describe(network)}, which fails for {n_in} numbers ({str(error).splitlines()[0]:.80})"
        raise BadInput("network", found, f"a network of {n_in} inputs") from error
    if len(shape) != 1:
        raise BadInput("network", f"an output of shape {shape}", "(d,): one number per feature")
    return shape[0]


def n_outputs_of(likelihood: Any, n_features: int) -> int:
    """The outputs of a network for x of this length; one each for a likelihood of another class."""
    return likelihood.n_outputs(n_features) if isinstance(likelihood, Likelihood) else n_features


def n_features_of(likelihood: Any, n_outputs: int) -> int:
    """The length of x for this number of outputs of a network."""
    return likelihood.n_features(n_outputs) if isinstance(likelihood, Likelihood) else n_outputs


def check_positive(name: str, value: Any) -> None:
    POSITIVE.check(name, value)
