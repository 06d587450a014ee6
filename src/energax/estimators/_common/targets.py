"""Targets of regressors: numbers, one column or several."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ...errors import BadInput
from .sklearn_errors import translate_sklearn_errors


def check_target_columns(estimator: Any, y: Any, X: np.ndarray) -> np.ndarray:
    """Return y as finite float64 numbers, (n,) or (n, t), one row for each of X."""
    if y is None:
        name = type(estimator).__name__
        expected = f"numbers: {name} requires y to be passed, but the target y is None"
        raise BadInput("y", "None", expected)
    expected = "finite numbers of shape (n_samples,) or (n_samples, n_targets)"
    with translate_sklearn_errors("y", expected):
        values = np.asarray(y)
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise BadInput("y", "NaN", expected, "Leave out the rows without a target.")
    with translate_sklearn_errors("y", expected):
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=estimator)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
    if y.ndim not in (1, 2):
        raise BadInput("y", f"shape {y.shape}", "shape (n_samples,) or (n_samples, n_targets)")
    limit = float(np.sqrt(np.finfo(np.float64).max)) / 1e3
    if np.abs(y).max(initial=0) > limit:
        raise BadInput("y", f"values as large as {np.abs(y).max():.3g}", f"magnitudes below {limit:.1g}")
    return y
