"""Means and standard deviations of columns with missing values, in float64."""

from __future__ import annotations

import numpy as np


def column_mean_std(X: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the observed values of every column, (d,) float64 each.

    Args:
        X: a table (n, d), NaN where values are missing.
        weight: the weights of the rows, (n,); None is 1 each.

    >>> column_mean_std(np.array([[1e9, 5.0], [1e9 + 2, np.nan]]))
    (array([1.e+09, 5.e+00]), array([1., 0.]))
    """
    w = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
    w = np.where(np.isnan(X), 0.0, w[:, None])
    total = w.sum(0)
    w /= np.where(total > 0, total, 1.0)
    values = np.nan_to_num(X.astype(np.float64, copy=False))
    # Scaled to about 1 by a power of two, which is exact: squares of 1e200 and 1e-200 are not finite or 0.
    power = np.frexp(np.maximum(values.max(0), -values.min(0)))[1]
    values = np.ldexp(values, -power)
    mean = (w * values).sum(0)
    mean += (w * (values - mean)).sum(0)  # corrects the rounding error of a long sum
    deviation = np.sqrt((w * (values - mean) ** 2).sum(0))
    return np.ldexp(mean, power), np.ldexp(deviation, power)


def log_scale_sum(X: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return Σ log scale over the observed columns of every row, (n,).

    This is log |∂x/∂u| of u = (x − mean) / scale. A missing value has no density to rescale.

    >>> log_scale_sum(np.array([[1.0, np.nan]]), np.array([np.e, 5.0]))
    array([1.])
    """
    return (~np.isnan(X)) @ np.log(scale)
