"""Regressors: p(y | x) from one output, with any likelihood."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import ARRAYS, FUNCTION, NONE, VECTOR, WHOLE, check_arguments
from ..._util.arrays import asarray
from ..._util.methods import plain_method
from ...errors import BadInput
from ...nn import mlp, reinitialise
from ...spaces import Real
from .._latent.likelihoods import Gaussian, as_likelihood
from .predictor import Predictor


class Regressor(Predictor):
    """The base class of regressors: e(x, y) = −log p(y | f(x)), with any likelihood p.

    A subclass has a field or property `likelihood`, such as
    `Gaussian`, `StudentT`, `Poisson`, `Gamma` or `Bernoulli`, and implements `output`.
    """

    @abstractmethod
    def output(self, x: Any) -> Any:
        """f(x), the parameter of the likelihood, a number."""

    def predict(self, *, x):
        """E[y | x], a number."""
        return self.likelihood.mean(self.output(x))

    def __call__(self, *, x, y):
        return -self.likelihood.log_prob(self.output(x), y)

    def free_energy(self, *, x):
        """−log ∫ p(y | x) dy = 0."""
        return jnp.zeros((), self.output(x).dtype)

    def distribution(self, x):
        return self.likelihood.distribution(self.output(x))


class LinearModel(Regressor):
    """A generalised linear model: e(x, y) = −log p(y | wᵀx + b).

    The likelihood p is a free choice: `Gaussian(σ)` is linear regression, `StudentT(ν, σ)` its robust form,
    `Poisson()` and `Gamma(k)` have the logarithm as link, `Bernoulli()` is logistic regression of a y in
    {0, 1}. Learn it by `Descent(NegativeLogLikelihood(), optimizer)`; for `Gaussian` and `StudentT` also by
    `EM`, whose hidden variable is the scale of the noise of a row: its M-step is weighted least squares.

    Args:
        weight: w, (d,).
        bias: b, a number.
        likelihood: the distribution of y given wᵀx + b.

    Nelder and Wedderburn (1972), Generalized linear models; for Student-t noise Lange, Little and Taylor
    (1989), Robust statistical modeling using the t distribution.

    >>> line = LinearModel(jnp.array([2.0]), jnp.array(1.0), Gaussian(1.0))
    >>> line.predict(x=jnp.array([3.0]))
    Array(7., dtype=float32)
    """

    weight: jax.Array
    bias: jax.Array
    likelihood: Any = Gaussian(1.0)

    def __check_init__(self):
        check_arguments(self, weight=VECTOR, bias=ARRAYS)
        as_likelihood(self.likelihood, None)
        if jnp.ndim(self.weight) < 1 or jnp.ndim(self.bias) != jnp.ndim(self.weight) - 1:
            shapes = f"weight {jnp.shape(self.weight)}, bias {jnp.shape(self.bias)}"
            raise BadInput("weight, bias", shapes, "(d,) and (): one weight per column")

    def initialise(self, key, data, weight):
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return LinearModel(noise, jnp.zeros_like(self.bias), self.likelihood)

    @property
    def spaces(self):
        return {"x": Real(self.weight.shape[-1]), "y": self.likelihood.space()}

    def output(self, x):
        return self.weight @ x + self.bias

    # -- EM of scale mixtures of normal distributions ------------------------------------------------

    @plain_method
    def knows(self, what, names=None):
        if what in ("expectations", "statistics", "maximise", "recenter"):
            return hasattr(self.likelihood, "expected_precision")
        return super().knows(what, names)

    def expectations(self, data, temperature):
        """E[u | x, y] of every row, u the precision of its noise in units of 1/σ², and log p(y | x).

        There is no temperature: u is integrated out in closed form.
        """
        residual = self._residuals(data)
        rows = jnp.ones_like(residual)
        log_prob = self.likelihood.log_prob(jnp.zeros_like(residual), residual)
        return (self.likelihood.expected_precision(residual), rows), log_prob

    def _residuals(self, data):
        return asarray(data["y"]) - asarray(data["x"]) @ self.weight - self.bias

    def statistics(self, data, posterior):
        """(Σ u [x, 1, r][x, 1, r]ᵀ, the number of rows), with residuals r at the current parameters.

        Of residuals rather than of y: M-steps are then corrections, which lose no digits by subtraction.
        """
        precision, rows = posterior
        residual = self._residuals(data)
        columns = jnp.concatenate(
            [asarray(data["x"]), jnp.ones_like(residual)[:, None], residual[:, None]], axis=1
        )
        # Rows of weight 0 may hold anything.
        columns = jnp.where(precision[:, None] > 0, columns, 0)
        return columns.T @ (precision[:, None] * columns), rows.sum()

    def maximise(self, statistics, trainable=None):
        products, rows = statistics
        d = self.weight.shape[-1]
        learned = lambda name: trainable is None or bool(getattr(trainable, name))
        kept = [*(range(d) if learned("weight") else ()), *((d,) if learned("bias") else ())]
        step = jnp.zeros(d + 1, products.dtype)
        if kept:
            kept = jnp.array(kept)
            step = step.at[kept].set(_solve(products[jnp.ix_(kept, kept)], products[kept, d + 1]))
        new = LinearModel(self.weight + step[:d], self.bias + step[d], self.likelihood)
        scale = self.likelihood.scale
        if not eqx.is_array(scale) or not (trainable is None or trainable.likelihood.scale):
            return new
        move = jnp.concatenate([-step, jnp.ones(1, step.dtype)])
        # A perfect fit has no variance; a scale of 0 would have no density.
        variance = jnp.maximum(move @ products @ move / rows, jnp.finfo(step.dtype).tiny ** 0.5)
        return eqx.tree_at(lambda model: model.likelihood.scale, new, jnp.sqrt(variance).astype(scale.dtype))

    def recenter(self, statistics, reference):
        products, rows = statistics
        move = jnp.concatenate([self.weight - reference.weight, (self.bias - reference.bias)[None]])
        change = jnp.eye(len(move) + 1, dtype=products.dtype).at[:-1, -1].set(-move)
        return change.T @ products @ change, rows


def _solve(matrix: Any, right: Any) -> Any:
    """The least solution of a symmetric system, in units in which the diagonal is 1."""
    diagonal = jnp.diagonal(matrix)
    unit = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
    tolerance = 10 * len(diagonal) * jnp.finfo(matrix.dtype).eps
    inverse = jnp.linalg.pinv(unit[:, None] * matrix * unit, rtol=tolerance, hermitian=True)
    return unit * (inverse @ (unit * right))


class NeuralRegressor(Regressor):
    """A neural regressor: e(x, y) = −Σ_i log p(y_i | f(x)_i), with any network f and any likelihood p.

    Args:
        network: f, maps x (n_features,) to () or, for several targets, (n_outputs,).
        n_features: the number of inputs.
        n_outputs: the number of targets; None for one number y.
        likelihood: the distribution of y given f(x); `Gaussian(σ)` is least squares.

    Bishop (1994), Mixture density networks, section 2.

    >>> net = NeuralRegressor.random(4, key=0, width=8)
    >>> net.predict(x=jnp.ones(4)).shape, net.spaces["y"]
    ((), Real())
    """

    network: Callable[[Any], Any]
    n_features: int = eqx.field(static=True)
    n_outputs: int | None = eqx.field(static=True, default=None)
    likelihood: Any = Gaussian(1.0)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, n_features=WHOLE, n_outputs=WHOLE | NONE)
        as_likelihood(self.likelihood, None)

    @classmethod
    def random(
        cls,
        n_features: int,
        n_outputs: int | None = None,
        *,
        key: Any,
        likelihood: Any = None,
        **network: Any,
    ) -> NeuralRegressor:
        """A regressor with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        made = mlp(n_features, "scalar" if n_outputs is None else n_outputs, key=key, **network)
        return cls(made, n_features, n_outputs, Gaussian(1.0) if likelihood is None else likelihood)

    def initialise(self, key, data, weight):
        return eqx.tree_at(lambda e: e.network, self, reinitialise(self.network, key))

    @property
    def spaces(self):
        shape = () if self.n_outputs is None else (self.n_outputs,)
        return {"x": Real(self.n_features), "y": self.likelihood.space(*shape)}

    def output(self, x):
        return self.network(x)

    def __call__(self, *, x, y):
        return -self.likelihood.log_prob(self.output(x), y).sum()

    def free_energy(self, *, x):
        return jnp.zeros((), self.output(x).dtype)


class SquaredWeights(eqx.Module):
    """The penalty ½ Σ α_j w_j² of a linear model: `NegativeLogLikelihood(prior=SquaredWeights(α), n_rows=n)`.

    Args:
        alpha: a number, or one for every weight, (d,).
    """

    alpha: Any

    def __call__(self, energy: Any) -> Any:
        return 0.5 * jnp.sum(self.alpha * energy.weight**2)
