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
        largest, smallest = np.fmax.reduce(values, axis=0), np.fmin.reduce(values, axis=0)
        flat = np.flatnonzero(~(largest > smallest))
        if flat.size:
            found = f"constant columns {flat[:5].tolist()}"
            raise BadInput("values", found, "columns that vary", "Drop them.")
        # Brought near 1 by a power of two, which rounds nothing: squares of 1e200 and 1e-200 are not numbers.
        power = np.frexp(np.maximum(np.abs(largest), np.abs(smallest)))[1]
        near = np.ldexp(values, -power)
        mean = np.nanmean(near, axis=0)
        # Centred first: the standard deviation of 1e9 ± 1 must not drown in 1e18.
        scale = np.sqrt(np.nanmean((near - mean) ** 2, axis=0))
        return cls(np.ldexp(mean, power), np.ldexp(scale, power))

    def transform(self, values: Any) -> np.ndarray:
        power = np.frexp(self.scale)[1]  # as in `fit`: 1e308 less −1e308 is not a number
        near = np.ldexp(np.asarray(values, np.float64), -power)
        return (near - np.ldexp(self.mean, -power)) / np.ldexp(self.scale, -power)

    def inverse_transform(self, values: Any) -> np.ndarray:
        return np.asarray(values) * self.scale + self.mean

    def log_det(self, values: Any) -> np.ndarray:
        """log |∂u/∂x| of every row: what to add to log p(u). A missing value has no density to scale."""
        known = ~np.isnan(np.asarray(values, np.float64))
        return -(known * np.log(self.scale)).sum(axis=1)
