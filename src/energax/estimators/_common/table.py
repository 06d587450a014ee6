"""Tables on their way to a model: missing values, rows of weight 0, binary values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BadInput
from ...missing import Masked, any_nan, is_masked


def mask_missing(X: np.ndarray) -> Any:
    """Return X, as a `Masked` if some values are NaN."""
    return Masked.from_nan(X) if any_nan(X) else X


def drop_zero_weight(*columns: Any, weight: np.ndarray | None) -> tuple[Any, ...]:
    """Return (*columns, weight) without the rows of weight 0.

    >>> drop_zero_weight(np.array([5, 6, 7]), weight=np.array([1.0, 0.0, 2.0]))
    (array([5, 7]), array([1., 2.]))
    """
    if weight is None or weight.all():
        return *columns, weight
    kept = weight > 0
    return *(column[kept] for column in columns), weight[kept]


def check_no_empty_column(x: Any) -> Any:
    """Return x; raise if all values of a column are missing."""
    if is_masked(x) and not (has_values := x.observed.any(0)).all():
        column = int(np.argmin(has_values))
        raise BadInput(
            "X", f"only missing values in column {column}", "some observed ones", "Drop the column."
        )
    return x


def is_binary(X: np.ndarray) -> np.ndarray:
    """Return which values are 0, 1 or missing.

    >>> is_binary(np.array([0.0, 1.0, np.nan, 0.5])).tolist()
    [True, True, True, False]
    """
    return (X == 0) | (X == 1) | np.isnan(X)


def check_binary(X: np.ndarray, remedy: str = "Set binarize= to a threshold.") -> np.ndarray:
    """Return X; raise unless all values are 0, 1 or missing."""
    other = ~is_binary(X)
    if other.any():
        i, j = np.argwhere(other)[0]
        raise BadInput("X", f"{X[i, j]:g} in row {i}, column {j}", "zeros and ones", remedy)
    return X


def check_unit_interval(X: np.ndarray) -> np.ndarray:
    """Return X; raise unless all values are from 0 to 1, or missing."""
    outside = ~((X >= 0) & (X <= 1) | np.isnan(X))
    if outside.any():
        i, j = np.argwhere(outside)[0]
        expected = "zeros and ones, or probabilities between them"
        raise BadInput("X", f"{X[i, j]:g} in row {i}, column {j}", expected, "Set binarize= to a threshold.")
    return X


def binarize(X: np.ndarray, threshold: float | None) -> np.ndarray:
    """Return X with values above the threshold as 1 and others as 0; NaN stays NaN.

    Without a threshold, X must be binary already.

    >>> binarize(np.array([[0.2, 0.9, np.nan]]), 0.5)
    array([[ 0.,  1., nan]])
    """
    if threshold is not None:
        X = np.where(np.isnan(X), X, threshold < X).astype(X.dtype)
    return check_binary(X)
