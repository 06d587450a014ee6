"""Columns in units of their own: standardised in float64, before anything is rounded to the model's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BadInput
from .._base import EnergyEstimator

_ROWS_AT_ONCE = 1 << 14


class Standardised(EnergyEstimator):
    """A recipe whose energy is over u = (x − mean_) / scale_, in its `dtype`.

    Networks compute in float32 as a rule, which cannot tell two time stamps of the same day apart;
    their distance from the mean, in standard deviations, it can.
    """

    #: Of every column, (d,) float64.
    mean_: np.ndarray
    scale_: np.ndarray

    def _table_dtype(self, X: np.ndarray) -> np.dtype:
        return X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)

    def _settle_units(self, X: np.ndarray, weight: np.ndarray | None) -> None:
        self.mean_, self.scale_ = moments(X, weight)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        """u of every row, in the model's dtype."""
        U = np.empty(X.shape, self.dtype_)
        limit = self._largest(self.dtype_)
        for start in range(0, len(X), _ROWS_AT_ONCE):  # else two more tables, in float64
            u = (X[start : start + _ROWS_AT_ONCE] - self.mean_) / self.scale_
            far = np.abs(u) > limit
            if far.any():
                i, j = np.argwhere(far)[0]
                raise BadInput(
                    "X",
                    f"{X[start + i, j]:.3g} in row {start + i}, column {j}, "
                    f"{abs(u[i, j]):.1g} standard deviations from the mean of what was fitted",
                    f"at most {limit:.0g}, whose square {self.dtype_} can hold",
                    "Look at that value, or leave out its row.",
                )
            U[start : start + _ROWS_AT_ONCE] = u
        return U

    def _in_units_of_X(self, U: Any) -> np.ndarray:
        return np.asarray(U) * self.scale_ + self.mean_

    def _log_units(self, X: np.ndarray) -> np.ndarray:
        """log |∂x/∂u| = Σ log scale over the known columns of every row, (n,)."""
        return ((~np.isnan(X)) @ np.log(self.scale_)).astype(self.dtype_)


def moments(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, over what is known; a constant column has scale 1.

    >>> moments(np.array([[1e9, 5.0], [1e9 + 2, np.nan]]), None)
    (array([1.e+09, 5.e+00]), array([1., 1.]))
    """
    w = np.ones(len(X)) if weight is None else np.asarray(weight, float)
    w = np.where(np.isnan(X), 0.0, w[:, None])
    total = w.sum(0)
    w /= np.where(total > 0, total, 1.0)
    known = np.nan_to_num(X.astype(float, copy=False))
    # Brought near 1 by a power of two, which rounds nothing: the square of 1e-200 is not a number.
    power = np.frexp(np.maximum(known.max(0), -known.min(0)))[1]
    known = np.ldexp(known, -power)
    mean = (w * known).sum(0)
    mean += (w * (known - mean)).sum(0)  # a long sum is not that of its numbers to the last digit
    spread = np.sqrt((w * (known - mean) ** 2).sum(0))
    # Less than the rounding of its mean is no spread.
    spread = np.where(spread > 8 * np.finfo(X.dtype).eps * np.abs(mean), np.ldexp(spread, power), 1.0)
    return np.ldexp(mean, power), spread
