"""`PoissonRegressor`: a generalised linear model of counts."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
import optax
from sklearn.metrics import d2_tweedie_score

from ..._util.arrays import asarray
from ...energies import LinearModel, Poisson
from ...energies._supervised.regression import SquaredWeights
from ...errors import BadInput
from ...learn import Descent, NegativeLogLikelihood
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, WHOLE
from .._common.table import drop_zero_weight
from .linear_regression import LinearRegressor
from .preconditioner import center_columns, precondition


class PoissonRegressor(LinearRegressor):
    """Poisson regression of counts, or of rates: y ~ Poisson(exp(wᵀx + b)).

    mean (exp(η) − y η) + ½ α ‖w‖², η = wᵀx + b, minimised by L-BFGS, preconditioned so that columns may have
    any offset and scale. For rates pass y divided by the exposure, and the exposure as `sample_weight`.

    Args:
        alpha: α, the strength of the penalty.
        fit_intercept: whether b is learned, without a penalty; else it is 0.
        max_iter: the most iterations.
        tol: converged when the objective changes by less than 1e-8 times this.

    Attributes:
        coef_, intercept_: w, (n_features,), and b.
        n_iter_, converged_: iterations, and whether the fit converged.
        energy_: the fitted model, for functions such as `energax.log_prob`.

    Nelder and Wedderburn (1972), Generalized linear models.

    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 4.0])
    >>> PoissonRegressor(alpha=0).fit(X, y).predict([[3.0]]).round(3)         # doubles at every step
    array([8.])
    """

    _settings = {
        "alpha": FINITE_NOT_NEGATIVE,
        "fit_intercept": FLAG,
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE,
    }

    def __init__(
        self, *, alpha: float = 1.0, fit_intercept: bool = True, max_iter: int = 500, tol: float = 1e-4
    ):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: counts or rates >= 0, (n_samples,), not all 0.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X, y, weight = self._check_rows(X, y, sample_weight)
        if (y < 0).any():
            i = int(np.argmax(y < 0))
            raise BadInput("y", f"{y[i]:g} in row {i}", "counts or rates >= 0")
        mean = float(np.average(y, weights=weight))
        if mean == 0:
            raise BadInput("y", "only zeros", "at least one count > 0: the maximum is at minus infinity")
        zero = np.zeros(X.shape[1])
        centre, table = center_columns(X, weight) if self.fit_intercept else (zero, X)
        convert = lambda value: asarray(np.asarray(value, self.dtype_))
        with self._precision():
            prior = SquaredWeights(convert(self.alpha))
            # The curvature of the loss is that of the columns times the mean count.
            optimizer = precondition(optax.lbfgs(), table, weight, float(self.alpha) / mean)
            tol = 1e-8 * float(self.tol)
            learner = Descent(NegativeLogLikelihood(prior=prior, n_rows=1.0), optimizer, tol=tol)
            start = self._linear_model(zero, np.log(mean) if self.fit_intercept else 0.0, Poisson())
            options: dict[str, Any] = {"epochs": int(self.max_iter), "tolerance": True, "validated": True}
            freeze = None if self.fit_intercept else "bias"
            data = {"x": table, "y": y}
            result = self._learn(start, data, learner, weights=weight, freeze=freeze, **options)
            found: Any = result.energy
            coef = np.asarray(found.weight, np.float64)
            bias = np.asarray(found.bias, np.float64) - coef @ centre
            model: LinearModel = self._linear_model(coef, bias, Poisson())
        self.fit_ = dataclasses.replace(result, energy=model)
        self._set_energy(model)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D² = 1 − deviance / deviance of the mean; for equal y 1 if they are predicted, else 0."""
        predicted, y, weight = self._predict_for_score(X, y, sample_weight)
        if (y < 0).any():
            raise BadInput("y", "numbers < 0", "counts or rates >= 0")
        predicted, y, weight = drop_zero_weight(predicted, y, weight=weight)
        if np.ptp(y) == 0:  # the deviance of the mean is 0
            return float(np.allclose(predicted, y, rtol=1e-6, atol=0))
        return float(d2_tweedie_score(y, predicted, sample_weight=weight, power=1))
