"""`Lasso`: linear regression with a penalty on absolute weights, and the elastic net."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..._util.arrays import asarray
from ...algorithms.gaussian.active_set import finish_elastic_net
from ...algorithms.gaussian.least_squares import elastic_net_gap, reduce_rows
from ...energies import Gaussian
from ...energies._supervised.regression import SquaredWeights
from ...learn import NegativeLogLikelihood, Proximal
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, WHOLE, number
from .._common.sklearn_errors import warn_user
from .linear_regression import LinearRegressor

_STEPS = 10  # of the learner in an epoch


class Lasso(LinearRegressor):
    """Linear regression with an L1 penalty, which sets weights to 0; also the elastic net.

    ‖y − Xw − b‖² / 2n + α ρ Σ |w_j| + ½ α (1 − ρ) ‖w‖², minimised by accelerated proximal gradients
    (`energax.learn.Proximal`) on rows that are reduced to d + 1. The signs of the weights that they find give
    the exact minimum, by linear systems.

    Args:
        alpha: α, the strength of the penalty.
        l1_ratio: ρ, the part of the penalty that is L1: 1 is the lasso, less is the elastic net.
        fit_intercept: whether b is learned, without a penalty; else it is 0.
        max_iter: the most steps.
        tol: proximal gradients stop when the conditions of a minimum are violated by at most `tol` times the
            largest slope at w = 0. The fit has converged if they did, or if the duality gap is at most `tol`
            times the mean square of y.

    Attributes:
        coef_, intercept_: w, (n_features,), and b.
        dual_gap_: a bound on the objective minus its minimum.
        n_iter_, converged_: epochs of ten steps, and whether the fit converged.
        energy_: the fitted model; its likelihood has the scale of the residuals.

    Tibshirani (1996), Regression shrinkage and selection via the lasso; Zou and Hastie (2005),
    Regularization and variable selection via the elastic net.

    >>> X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> Lasso(alpha=0.5).fit(X, 3 * X[:, 0] + 0.2 * X[:, 1]).coef_.round(6)
    array([2.5, 0. ])
    """

    _settings = {
        "alpha": FINITE_NOT_NEGATIVE,
        "l1_ratio": number(lambda value: 0 <= value <= 1, "a number from 0 to 1"),
        "fit_intercept": FLAG,
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE,
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 10_000,
        tol: float = 1e-8,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: the targets, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,).
        """
        X, y, weight = self._check_rows(X, y, sample_weight)
        rows = reduce_rows(X, y, weight, center=bool(self.fit_intercept))
        # In units in which all columns have the same length the curvatures are most alike.
        length = np.sqrt((rows.columns**2).sum(0))
        length = np.where(length > 0, length, 1.0)
        l1 = float(self.alpha) * float(self.l1_ratio) * rows.total
        l2 = float(self.alpha) * (1 - float(self.l1_ratio)) * rows.total
        # The learner takes the mean over the k reduced rows; for sums, penalties and slopes are divided by k.
        k, columns = len(rows.target), rows.columns / length
        steepest = float(np.abs(columns.T @ rows.target).max(initial=0.0)) / k
        rounding = 10 * np.finfo(self.dtype_).eps
        convert = lambda value: asarray(np.asarray(value, self.dtype_))
        with self._precision():
            smooth = NegativeLogLikelihood(prior=SquaredWeights(convert(l2 / k / length**2)), n_rows=1.0)
            tol = convert(max(float(self.tol), rounding) * steepest)
            learner = Proximal(smooth, convert(l1 / k / length), tol=tol, n_steps=_STEPS)
            start = self._linear_model(np.zeros(X.shape[1]), 0.0, Gaussian(1.0))
            data = {"x": columns.astype(self.dtype_), "y": rows.target.astype(self.dtype_)}
            epochs = -(-int(self.max_iter) // _STEPS) + 1  # the last one finds that nothing changes
            options: dict[str, Any] = {"epochs": epochs, "freeze": "bias"}
            result = self._learn(start, data, learner, validated=True, **options)
            found: Any = result.energy
            near = np.asarray(found.weight, np.float64)
            exact = finish_elastic_net(columns, rows.target, near, l1 / length, l2 / length**2)
            self._set_linear(exact / length, rows)
        self.dual_gap_ = elastic_net_gap(rows, exact / length, l1, l2) / rows.total
        self._check_converged(self.dual_gap_, float(rows.target @ rows.target) / rows.total)
        return self

    def _check_converged(self, gap: float, scale: float) -> None:
        """Set `converged_`; warn if the gap is not small relative to ½ ‖y‖² / n."""
        self.converged_ = gap <= max(float(self.tol), 1e-12) * scale or self.converged_
        if not self.converged_:
            message = (
                f"Lasso did not converge: the duality gap is {gap:.3g} after max_iter={self.max_iter} steps. "
                "Raise max_iter or tol, or scale the columns of X."
            )
            warn_user(message)
