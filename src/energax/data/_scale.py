"""`ColumnScaler`: standardised columns, and the change of a density under scaling."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._util.columns import column_mean_std, log_scale_sum
from ..errors import BadInput


@dataclasses.dataclass(frozen=True)
class ColumnScaler:
    """u = (x − mean) / scale for every column; log p(x) = log p(u) − Σ log scale over the observed columns.

    >>> s = ColumnScaler.fit(np.array([[0.0], [4.0]]))
    >>> s.transform(np.array([[4.0]])).tolist(), s.log_det(np.array([[4.0]])).round(4).tolist()
    ([[1.0]], [-0.6931])
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, values: Any) -> ColumnScaler:
        """Return the scaler with mean and standard deviation of the observed values of every column."""
        values = np.asarray(values, np.float64)
        largest, smallest = np.fmax.reduce(values, axis=0), np.fmin.reduce(values, axis=0)
        flat = np.flatnonzero(~(largest > smallest))
        if flat.size:
            found = f"constant columns {flat[:5].tolist()}"
            raise BadInput("values", found, "columns that vary", "Drop them.")
        return cls(*column_mean_std(values))

    def transform(self, values: Any) -> np.ndarray:
        """Return u of every row."""
        power = np.frexp(self.scale)[1]  # scaled by a power of two, since 1e308 − (−1e308) overflows
        near = np.ldexp(np.asarray(values, np.float64), -power)
        return (near - np.ldexp(self.mean, -power)) / np.ldexp(self.scale, -power)

    def inverse_transform(self, values: Any) -> np.ndarray:
        """Return x of every row u."""
        return np.asarray(values) * self.scale + self.mean

    def log_det(self, values: Any) -> np.ndarray:
        """Return log |∂u/∂x| of every row, to be added to log p(u)."""
        return -log_scale_sum(np.asarray(values, np.float64), self.scale)
