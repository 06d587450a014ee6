"""`Regressor`: targets and predictions of all regressors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...errors import BadInput, describe
from ...programs import jit_to_numpy
from .._base import EnergyEstimator
from .._common.sklearn_errors import translate_sklearn_errors
from .._common.table import drop_zero_weight


class Regressor(RegressorMixin, EnergyEstimator):
    """The base of regressors: one real target y for every row of X, and `score`, which is R².

    A subclass implements `fit`, which starts with `_check_rows`; `energy_` is a model of y given x with the
    method `predict`, E[y | x].
    """

    _sparse = True
    #: The least number of rows: a line goes through one, a variance needs two.
    _min_rows = 1

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._several_targets
        return tags

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool = True
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return the table, the targets and the weights in one dtype, without rows of weight 0."""
        if y is None:
            expected = f"targets: {type(self).__name__} requires y to be passed, but the target y is None"
            raise BadInput("y", "None", expected)
        columns = check_targets(y).shape[1:]
        if not self._several_targets and len(columns) == 1 and columns[0] > 1:
            remedy = "Fit one model per target: sklearn.multioutput.MultiOutputRegressor."
            raise BadInput(
                "y", f"{columns[0]} targets", "one number for each row: shape (n_samples,)", remedy
            )
        X, y = self._check_X(X, reset=reset, y=y, min_rows=self._min_rows)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        weight = self._check_weight(sample_weight, X)
        y = self._check_target_range(check_targets(y))
        return drop_zero_weight(X, y, weight=weight)

    def _check_target_range(self, y: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
        """Return y in this dtype, by default that of the model; raise if squares would overflow there."""
        dtype = self.dtype_ if dtype is None else dtype
        limit = self._largest_magnitude(dtype)
        largest = float(np.abs(y).max(initial=0.0))
        if largest > limit:
            expected = f"magnitudes below {limit:.1g}, whose squares {dtype} can hold"
            raise BadInput("y", f"values as large as {largest:.3g}", expected, "Scale y first.")
        return y.astype(dtype)

    def predict(self, X: Any) -> np.ndarray:
        """Return E[y | x] of every row, (n,)."""
        X = self._check_new_X(X)
        with self._precision():
            return map_table(lambda rows: predict_rows(self.energy_, rows), X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)², weighted."""
        predicted, y, weight = self._predict_for_score(X, y, sample_weight)
        return float(r2_score(y, predicted, sample_weight=weight))

    def _predict_for_score(self, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return the predictions, the validated targets and the validated weights."""
        predicted = self.predict(X)
        if predicted.ndim == 1:
            expected = "one number for each row"
        else:
            expected = f"numbers of shape (n_samples, {predicted.shape[1]}), as in fit"
            if np.shape(y)[1:] != predicted.shape[1:]:
                raise BadInput("y", f"shape {np.shape(y)}", expected)
        with translate_sklearn_errors("y", expected):
            y = column_or_1d(y) if predicted.ndim == 1 else check_array(y, dtype=None)
            check_consistent_length(predicted, y)
        y = check_targets(y)
        return predicted, y, self._check_weight(sample_weight, predicted)


def check_targets(y: Any) -> np.ndarray:
    """Return targets as an array of finite numbers; raise if one is missing, infinite or not a number.

    >>> check_targets([1, 2.5]).tolist()
    [1.0, 2.5]
    """
    expected = "one finite number for each row"
    try:
        array = np.asarray(y)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInput("y", describe(y), expected) from None
    if array.dtype.kind not in "biuf":
        remedy = "Complex data not supported." if array.dtype.kind == "c" else ""
        raise BadInput("y", describe(y), expected, remedy)
    finite = np.isfinite(array)
    if not finite.all():
        i = int(np.argwhere(~finite)[0][0]) if array.ndim else 0
        found = "NaN" if np.isnan(array).any() else "infinity"
        raise BadInput("y", f"{found} in row {i}", expected, "Leave out the rows without a target.")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


@jit_to_numpy
def predict_rows(energy: Any, X: Any) -> Any:
    return jax.vmap(lambda x: energy.predict(x=x))(asarray(X))
