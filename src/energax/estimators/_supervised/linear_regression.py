"""`LinearRegression` and `Ridge`: least squares, robust regression, and the penalty on squared weights."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
import scipy.optimize

from ..._util.arrays import asarray
from ...algorithms.gaussian.least_squares import ReducedRows, reduce_rows, solve_least_squares, solve_ridge
from ...energies import Gaussian, LinearModel, NeuralRegressor, StudentT
from ...errors import BadInput
from ...learn import EM
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, WHOLE, number, one_of
from .preconditioner import center_columns
from .regressor import Regressor

POSITIVE = number(lambda value: 0 < value < np.inf, "a number > 0")


class LinearRegressor(Regressor):
    """The base of regressors whose prediction is a function of wᵀx + b: `coef_` and `intercept_`."""

    #: The fits are not random: the key of `_learn` is a constant.
    random_state = 0

    def _set_linear(self, coef: np.ndarray, rows: ReducedRows) -> None:
        """Set the fitted model: weights, the intercept of centred rows, and the scale of the residuals."""
        residual = rows.target - rows.columns @ coef
        scale = np.sqrt(residual @ residual / rows.total)
        intercept = rows.y_mean - rows.x_mean @ coef
        self._set_energy(self._linear_model(coef, intercept, Gaussian(self._scale(scale))))

    def _scale(self, scale: Any) -> Any:
        """Return the scale of the noise; at least the rounding error, since 0 would have no density."""
        return asarray(np.maximum(scale, np.finfo(self.dtype_).tiny ** 0.5).astype(self.dtype_))

    def _linear_model(self, coef: Any, intercept: Any, likelihood: Any) -> LinearModel:
        convert = lambda value: asarray(np.asarray(value, self.dtype_))
        return LinearModel(convert(coef), convert(intercept), likelihood)

    def _fit_each_target(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Fit every target of y (n, t) by itself, and set the model of all."""
        parts = []
        for column in y.T:
            self._fit_target(X, np.ascontiguousarray(column), weight)
            parts.append(self.energy_)
        with self._precision():
            join = lambda *leaves: asarray(np.stack(leaves)) if eqx.is_array(leaves[0]) else leaves[0]
            joined = jax.tree.map(join, *parts)
            network = eqx.nn.Linear(X.shape[1], len(parts), key=self._key())
            network = eqx.tree_at(lambda n: (n.weight, n.bias), network, (joined.weight, joined.bias))
            self._set_energy(NeuralRegressor(network, X.shape[1], len(parts), joined.likelihood))

    def _fit_target(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Fit one target y (n,), and set its model."""
        raise NotImplementedError

    @property
    def _line(self) -> Any:
        """The weight and the bias of the fitted model."""
        self._check_fitted()
        return getattr(self.energy_, "network", self.energy_)

    @property
    def coef_(self) -> np.ndarray:
        """w, (n_features,), or (n_targets, n_features)."""
        return np.asarray(self._line.weight)

    @property
    def intercept_(self) -> Any:
        """b, a number, or (n_targets,)."""
        return np.asarray(self._line.bias)[()]


class LinearRegression(LinearRegressor):
    """Linear regression by maximum likelihood: y = wᵀx + b + noise.

    Normal noise is least squares, in closed form. With more columns than rows, or columns that depend on
    each other, w is the least of all solutions. Student-t noise is robust: the weight of a row in least
    squares falls with its residual, and EM finds both.

    Args:
        fit_intercept: whether b is learned; else it is 0.
        tol: singular values of X below `tol` times the largest count as 0. With Student-t noise, EM stops
            when the mean log-likelihood changes by less than a ten-thousandth of it.
        positive: whether weights are constrained to be >= 0 (only normal noise).
        noise: "normal" or "student-t".
        df: ν, the degrees of freedom of Student-t noise: the smaller, the heavier the tails.
        max_iter: the most iterations of EM.

    Attributes:
        coef_, intercept_: w, (n_features,), and b; for several targets (n_targets, n_features), (n_targets,).
        rank_, singular_: the rank of the (centred) table and its singular values; not for `positive`.
        n_iter_: iterations of EM; 1 with normal noise.
        energy_: the fitted model, for functions such as `energax.log_prob`; its likelihood has the scale of
            the noise, one number or one per target.

    Legendre (1805); for Student-t noise Lange, Little and Taylor (1989), Robust statistical modeling using
    the t distribution.

    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([1.0, 3.0, 5.0, 7.0])
    >>> model = LinearRegression().fit(X, y)
    >>> model.coef_.round(6), round(float(model.intercept_), 6)
    (array([2.]), 1.0)
    """

    _several_targets = True
    _settings = {
        "fit_intercept": FLAG,
        "tol": FINITE_NOT_NEGATIVE,
        "positive": FLAG,
        "noise": one_of("normal", "student-t"),
        "df": POSITIVE,
        "max_iter": WHOLE,
    }

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        positive: bool = False,
        noise: str = "normal",
        df: float = 4.0,
        max_iter: int = 1000,
    ):
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.positive = positive
        self.noise = noise
        self.df = df
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: the targets, (n_samples,) or (n_samples, n_targets), each of which is fitted by itself.
            sample_weight: the weights of the rows, (n_samples,).
        """
        if self.positive and self.noise != "normal":
            raise BadInput("positive", "True with Student-t noise", "False", "Or use noise='normal'.")
        X, y, weight = self._check_rows(X, y, sample_weight)
        (self._fit_target if y.ndim == 1 else self._fit_each_target)(X, y, weight)
        return self

    def _fit_target(self, X, y, weight):
        rows = reduce_rows(X, y, weight, center=bool(self.fit_intercept))
        if self.positive:
            coef = scipy.optimize.nnls(rows.columns, rows.target)[0]
        else:
            coef, self.rank_, self.singular_ = solve_least_squares(rows, float(self.tol))
        self.n_iter_ = 1
        with self._precision():
            self._set_linear(coef, rows)
            if self.noise == "student-t":
                self._learn_robust(X, y, weight)

    def _learn_robust(self, X: np.ndarray, y: np.ndarray, weight: Any) -> None:
        """Continue from least squares with Student-t noise, on centred columns."""
        centre, table = center_columns(X, weight) if self.fit_intercept else (np.zeros(X.shape[1]), X)
        start = self.energy_
        bias = start.bias + start.weight @ asarray(centre.astype(self.dtype_))
        noise = StudentT(float(self.df), start.likelihood.scale)
        energy, learner = LinearModel(start.weight, bias, noise), EM(tol=1e-4 * float(self.tol))
        options: dict[str, Any] = {"epochs": int(self.max_iter), "tolerance": True, "validated": True}
        freeze = None if self.fit_intercept else "bias"
        result = self._learn(energy, {"x": table, "y": y}, learner, weights=weight, freeze=freeze, **options)
        found: Any = result.energy
        coef = np.asarray(found.weight, np.float64)
        model = self._linear_model(coef, np.asarray(found.bias, np.float64) - coef @ centre, found.likelihood)
        self.fit_ = dataclasses.replace(result, energy=model)
        self._set_energy(model)


class Ridge(LinearRegressor):
    """Linear regression with a penalty on squared weights: ‖y − Xw − b‖² + α ‖w‖², in closed form.

    It is the mode of the posterior with normal noise of precision β and a normal prior of the weights of
    precision αβ (`energax.energies.BayesianLinear`).

    Args:
        alpha: α; 0 is least squares.
        fit_intercept: whether b is learned, without a penalty; else it is 0.

    Attributes:
        coef_, intercept_: w, (n_features,), and b; for several targets (n_targets, n_features), (n_targets,).
        energy_: the fitted model; its likelihood has the scale of the residuals.

    Hoerl and Kennard (1970), Ridge regression: biased estimation for nonorthogonal problems.

    >>> X, y = np.array([[-1.0], [1.0]]), np.array([-2.0, 2.0])
    >>> Ridge(alpha=2.0).fit(X, y).coef_                                # 4 / (2 + 2)
    array([1.])
    """

    _several_targets = True
    _settings = {"alpha": FINITE_NOT_NEGATIVE, "fit_intercept": FLAG}

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True):
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: the targets, (n_samples,) or (n_samples, n_targets), each of which is fitted by itself.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X, y, weight = self._check_rows(X, y, sample_weight)
        (self._fit_target if y.ndim == 1 else self._fit_each_target)(X, y, weight)
        return self

    def _fit_target(self, X, y, weight):
        rows = reduce_rows(X, y, weight, center=bool(self.fit_intercept))
        if self.alpha > 0:
            coef = solve_ridge(rows, float(self.alpha))
        else:
            coef = solve_least_squares(rows, max(X.shape) * np.finfo(np.float64).eps)[0]
        with self._precision():
            self._set_linear(coef, rows)
