"""Scaling that keeps the books: a density of scaled data is a density of the data, times a Jacobian."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..errors import BadInput


@dataclasses.dataclass(frozen=True)
class Standardised:
    """u = (x − mean) / scale, by column; log p(x) = log p(u) − Σ log scale, over the known columns.

    >>> s = Standardised.fit(np.array([[0.0], [4.0]]))
    >>> s.transform(np.array([[4.0]])).tolist(), s.log_det(np.array([[4.0]])).round(4).tolist()
    ([[1.0]], [-0.6931])
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, values: Any) -> Standardised:
        """Mean and standard deviation of the known values of every column."""
        values = np.asarray(values, np.float64)
        mean = np.nanmean(values, axis=0)
        # Centred first: the standard deviation of 1e9 ± 1 must not drown in 1e18.
        scale = np.sqrt(np.nanmean((values - mean) ** 2, axis=0))
        flat = np.flatnonzero(~(scale > 0))
        if flat.size:
            found = f"constant columns {flat[:5].tolist()}"
            raise BadInput("values", found, "columns that vary", "Drop them.")
        return cls(mean, scale)

    def transform(self, values: Any) -> np.ndarray:
        return (np.asarray(values, np.float64) - self.mean) / self.scale

    def inverse_transform(self, values: Any) -> np.ndarray:
        return np.asarray(values) * self.scale + self.mean

    def log_det(self, values: Any) -> np.ndarray:
        """log |∂u/∂x| of every row: what to add to log p(u). A missing value has no density to scale."""
        known = ~np.isnan(np.asarray(values, np.float64))
        return -(known * np.log(self.scale)).sum(axis=1)
