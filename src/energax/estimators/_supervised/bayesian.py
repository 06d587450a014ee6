"""`BayesianRidge` and `ARDRegression`: Bayesian linear regression, its precisions by the evidence."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import jax
import numpy as np

from ..._util.arrays import asarray
from ...algorithms.gaussian.evidence import (
    EvidenceMaximum,
    Hyperprior,
    maximise_evidence,
    maximise_relevance,
    predictive_variance,
)
from ...algorithms.gaussian.least_squares import ReducedRows, reduce_rows
from ...energies import BayesianLinear
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, NONE, WHOLE, number
from .._common.sklearn_errors import warn_user
from .linear_regression import POSITIVE
from .regressor import Regressor

_LEAST = np.finfo(np.float64).eps


class BayesianRegressor(Regressor):
    """The base of Bayesian linear regressors: posterior, predictive distribution, evidence."""

    _settings = {
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE,
        "alpha_1": FINITE_NOT_NEGATIVE,
        "alpha_2": FINITE_NOT_NEGATIVE,
        "lambda_1": FINITE_NOT_NEGATIVE,
        "lambda_2": FINITE_NOT_NEGATIVE,
        "compute_score": FLAG,
        "fit_intercept": FLAG,
    }

    coef_: np.ndarray
    sigma_: np.ndarray

    @contextlib.contextmanager
    def _precision(self):
        """64 bits: the precision matrix of the weights has the squared condition number of the table."""
        with jax.enable_x64(True):
            yield

    def _maximise(self, rows: ReducedRows, beta: float, prior: Hyperprior, **options: Any) -> EvidenceMaximum:
        """Return the maximum of the evidence."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: the targets, (n_samples,).
            sample_weight: how often every row counts, (n_samples,).
        """
        X, y, weight = self._check_rows(X, y, sample_weight)
        rows = reduce_rows(X, y, weight, center=bool(self.fit_intercept))
        variance = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
        prior = Hyperprior(*(float(getattr(self, n)) for n in ("alpha_1", "alpha_2", "lambda_1", "lambda_2")))
        options = {"max_iter": int(self.max_iter), "tol": float(self.tol), "score": bool(self.compute_score)}
        found = self._maximise(rows, 1 / (float(variance) + _LEAST), prior, **options)
        self._set_posterior(rows, found)
        if not found.converged:
            message = (
                f"{type(self).__name__} did not converge in {found.n_iter} iterations. "
                f"Raise max_iter (now {self.max_iter}) or tol, or scale the columns of X."
            )
            warn_user(message)
        return self

    def _set_posterior(self, rows: ReducedRows, found: EvidenceMaximum) -> None:
        """Set the fitted attributes: the posterior and the model whose prior it is."""
        d, dtype = len(found.mean), self.dtype_
        self.coef_, self.sigma_ = found.mean.astype(dtype), found.covariance.astype(dtype)
        self.alpha_, self.lambda_ = dtype.type(found.noise_precision), found.weight_precision.astype(dtype)
        self.intercept_ = dtype.type(rows.y_mean - rows.x_mean @ found.mean)
        self.X_offset_, self.scores_ = rows.x_mean.astype(dtype), found.scores
        self.n_iter_, self.converged_ = found.n_iter, found.converged
        with self._precision():
            self._set_energy(
                BayesianLinear(
                    asarray(np.asarray(found.weight_precision, np.float64)),
                    asarray(np.float64(found.noise_precision)),
                    d,
                    mean=asarray(found.mean),
                    gram=asarray(rows.columns.T @ rows.columns),
                    centre=asarray(rows.x_mean),
                    bias=asarray(np.float64(rows.y_mean)),
                )
            )

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return E[y | x] of every row, (n,); with `return_std` also the standard deviation of y, (n,)."""
        FLAG.check("return_std", return_std)
        mean = super().predict(X).astype(self.dtype_)
        if not return_std:
            return mean
        kept = self._kept_columns()
        rows = (self._check_new_X(X) - self.X_offset_)[:, kept]
        return mean, np.sqrt(predictive_variance(rows, self.sigma_, self.alpha_))

    def _kept_columns(self) -> Any:
        """The columns that `sigma_` is about."""
        return slice(None)


class BayesianRidge(BayesianRegressor):
    """Bayesian linear regression: y = wᵀx + b + N(0, 1/α), w ~ N(0, 1/λ), α and λ by the evidence.

    The rows are reduced to d + 1 by one pass over the table; all else takes O(d³).

    Args:
        max_iter: the most iterations of the evidence maximisation.
        tol: converged when the weights change by less in total.
        alpha_1, alpha_2: shape and rate of the gamma prior of α.
        lambda_1, lambda_2: shape and rate of the gamma prior of λ.
        alpha_init: the start of α; None is 1 / the variance of y.
        lambda_init: the start of λ; None is 1.
        compute_score: whether to compute the log evidence at every iteration.
        fit_intercept: whether b is learned; else it is 0.

    Attributes:
        coef_, sigma_: the mean, (n_features,), and the covariance of the posterior of w.
        intercept_: b.
        alpha_, lambda_: the precisions of the noise and of the weights.
        scores_: the log evidence, with `compute_score`.
        n_iter_, converged_: iterations, and whether the last change was below `tol`.
        energy_: the model whose prior is the posterior: `energax.log_prob(energy_, {"y": y}, given={"x": X})`
            is the predictive density of new rows.

    MacKay (1992), Bayesian interpolation.

    >>> X = np.arange(10.0)[:, None]
    >>> model = BayesianRidge().fit(X, 2 * X[:, 0] + np.tile([-0.1, 0.1], 5))
    >>> mean, std = model.predict([[20.0]], return_std=True)
    >>> mean.round(1), std.round(2)
    (array([40.1]), array([0.21]))
    """

    _settings = {**BayesianRegressor._settings, "alpha_init": POSITIVE | NONE, "lambda_init": POSITIVE | NONE}

    def __init__(
        self,
        *,
        max_iter: int = 300,
        tol: float = 1e-3,
        alpha_1: float = 1e-6,
        alpha_2: float = 1e-6,
        lambda_1: float = 1e-6,
        lambda_2: float = 1e-6,
        alpha_init: float | None = None,
        lambda_init: float | None = None,
        compute_score: bool = False,
        fit_intercept: bool = True,
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.alpha_1 = alpha_1
        self.alpha_2 = alpha_2
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.alpha_init = alpha_init
        self.lambda_init = lambda_init
        self.compute_score = compute_score
        self.fit_intercept = fit_intercept

    def _maximise(self, rows, beta, prior, **options):
        beta = beta if self.alpha_init is None else float(self.alpha_init)
        alpha = 1.0 if self.lambda_init is None else float(self.lambda_init)
        return maximise_evidence(rows, alpha, beta, prior, **options)


class ARDRegression(BayesianRegressor):
    """Bayesian linear regression with one precision for every weight: automatic relevance determination.

    y = wᵀx + b + N(0, 1/α), w_j ~ N(0, 1/λ_j). The evidence drives λ_j of columns that do not help to
    infinity; columns with λ_j above a threshold are dropped.

    Args:
        max_iter: the most iterations of the evidence maximisation.
        tol: converged when the weights change by less in total.
        alpha_1, alpha_2: shape and rate of the gamma prior of α.
        lambda_1, lambda_2: shape and rate of the gamma prior of every λ_j.
        compute_score: whether to compute the log evidence at every iteration.
        threshold_lambda: the λ_j from which a column is dropped.
        fit_intercept: whether b is learned; else it is 0.

    Attributes:
        coef_: the mean of the posterior of w, (n_features,).
        sigma_: its covariance for the columns that are kept (lambda_ < threshold_lambda).
        intercept_: b.
        alpha_, lambda_: the precisions of the noise and of the weights, (n_features,).
        scores_: the log evidence, with `compute_score`.
        n_iter_, converged_: iterations, and whether the last change was below `tol`.
        energy_: the model whose prior is the posterior.

    MacKay (1994), Bayesian nonlinear modeling for the prediction competition; Tipping (2001), Sparse Bayesian
    learning and the relevance vector machine.

    >>> X = np.stack([np.arange(10.0), np.cos(np.arange(10.0))], axis=1)
    >>> ARDRegression().fit(X, 2 * X[:, 0] + 1).coef_.round(3)
    array([2., 0.])
    """

    _settings = {**BayesianRegressor._settings, "threshold_lambda": number(lambda v: v > 0, "a number > 0")}
    _min_rows = 2

    def __init__(
        self,
        *,
        max_iter: int = 300,
        tol: float = 1e-3,
        alpha_1: float = 1e-6,
        alpha_2: float = 1e-6,
        lambda_1: float = 1e-6,
        lambda_2: float = 1e-6,
        compute_score: bool = False,
        threshold_lambda: float = 1e4,
        fit_intercept: bool = True,
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.alpha_1 = alpha_1
        self.alpha_2 = alpha_2
        self.lambda_1 = lambda_1
        self.lambda_2 = lambda_2
        self.compute_score = compute_score
        self.threshold_lambda = threshold_lambda
        self.fit_intercept = fit_intercept

    def _maximise(self, rows, beta, prior, **options):
        self._kept_below = float(self.threshold_lambda)
        return maximise_relevance(rows, beta, prior, threshold=self._kept_below, **options)

    def _kept_columns(self):
        return self.lambda_ < self._kept_below
