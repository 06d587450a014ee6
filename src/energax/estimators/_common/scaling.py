"""Estimators that standardise the columns of X in float64, before X is rounded to the model's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._util.columns import column_mean_std, log_scale_sum
from ..._util.sizes import HOST_NUMBERS, slices
from ...errors import BadInput
from .._base import EnergyEstimator


class StandardisingEstimator(EnergyEstimator):
    """An estimator whose model is over u = (x − mean_) / scale_, in its `dtype`.

    Networks compute in float32 by default, which cannot distinguish two time stamps of the same day; the
    standardised values it can.
    """

    #: The mean of every column, (d,) float64.
    mean_: np.ndarray
    #: The standard deviation of every column, (d,) float64; 1 for a constant column.
    scale_: np.ndarray

    def _table_dtype(self, X: np.ndarray) -> np.dtype:
        return X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)

    def _fit_scaling(self, X: np.ndarray, weight: np.ndarray | None) -> None:
        """Set `mean_` and `scale_`."""
        self.mean_, self.scale_ = mean_and_scale(X, weight)

    def _standardise(self, X: np.ndarray) -> np.ndarray:
        """Return u of every row, in the model's dtype."""
        U = np.empty(X.shape, self.dtype_)
        limit = self._largest_magnitude(self.dtype_)
        # In chunks, since the intermediate results are float64.
        for rows in slices(len(X), max(1, HOST_NUMBERS // X.shape[1])):
            u = (X[rows] - self.mean_) / self.scale_
            too_large = np.abs(u) > limit
            if too_large.any():
                i, j = np.argwhere(too_large)[0]
                raise BadInput(
                    "X",
                    f"{X[rows][i, j]:.3g} in row {rows.start + i}, column {j}, "
                    f"{abs(u[i, j]):.1g} standard deviations from the mean of the training data",
                    f"at most {limit:.0g}, whose square {self.dtype_} can hold",
                    "Check that value, or leave out its row.",
                )
            U[rows] = u
        return U

    def _unstandardise(self, U: Any) -> np.ndarray:
        """Return the rows u in the units of X."""
        return np.asarray(U) * self.scale_ + self.mean_

    def _log_scale_sum(self, X: np.ndarray) -> np.ndarray:
        """log |∂x/∂u| = Σ log scale over the observed columns of every row, (n,)."""
        return log_scale_sum(X, self.scale_).astype(self.dtype_)


def mean_and_scale(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the observed values of every column; 1 for a constant column.

    >>> mean_and_scale(np.array([[1e9, 5.0], [1e9 + 2, np.nan]]), None)
    (array([1.e+09, 5.e+00]), array([1., 1.]))
    """
    mean, scale = column_mean_std(X, weight)
    # A deviation below the rounding error of the mean is that of a constant column.
    return mean, np.where(scale > 8 * np.finfo(X.dtype).eps * np.abs(mean), scale, 1.0)
