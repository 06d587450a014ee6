"""Input validation shared by all estimators: tables, weights, counts, and whether a model is fitted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError as _SklearnNotFitted
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ...errors import BadInput, check_memory, check_whole_number
from ...missing import Masked
from .columns import bad_column, check_no_dates
from .settings import Setting, check_settings
from .sklearn_errors import NotFitted, translate_sklearn_errors
from .table import drop_zero_weight

_PLAIN_DTYPES = tuple(map(np.dtype, (np.float32, np.float64, np.int32, np.int64)))


class InputValidation(BaseEstimator):
    """Validation of the arguments of `fit`, `predict` and other methods."""

    #: The valid values of every argument of the constructor.
    _settings: ClassVar[dict[str, Setting]] = {}
    #: Whether X may have missing values (NaN, masked arrays).
    _allow_nan: ClassVar[bool] = False
    #: Whether X may be a scipy.sparse array, which is converted to a dense one.
    _sparse: ClassVar[bool] = False
    #: Whether y may have several columns.
    _several_targets: ClassVar[bool] = False

    dtype_: np.dtype

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allow_nan
        tags.input_tags.sparse = self._sparse
        return tags

    @property
    def _dtype(self) -> Any:
        """The dtype of the computation: the argument `dtype`, or None for that of X."""
        dtype = getattr(self, "dtype", None)
        if dtype is None:
            return None
        if str(dtype) not in ("float32", "float64"):
            raise BadInput("dtype", repr(dtype), "'float32' or 'float64'")
        return np.dtype(str(dtype))

    # -- settings ----------------------------------------------------------------------------

    def _check_settings(self, *only: str) -> None:
        """Raise `BadInput` if an argument of the constructor is not valid, or one of those named."""
        check_settings(self, *only)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        """Return the numbers that a fit to (n, d) holds, and what they are, by the setting that decides."""
        return {}

    def _numbers_per_draw(self) -> int:
        """How many numbers `sample` holds for every row that it draws."""
        return getattr(self, "n_features_in_", 1)

    # -- tables ------------------------------------------------------------------------------

    def _check_X(
        self, X: Any, *, reset: bool, y: Any = None, min_rows: int = 1, allow_nan: bool | None = None
    ) -> Any:
        """Return X (or X, y) as dense arrays of finite numbers; raise `BadInput` if that is not possible.

        Args:
            X: the table: an array, a data frame, or a sparse array.
            reset: True in `fit`, which sets `dtype_`, `n_features_in_` and `feature_names_in_`; False
                checks X against them.
            y: labels, checked to be as many as the rows of X.
            min_rows: the least number of rows.
            allow_nan: whether missing values are allowed, by default `_allow_nan`.
        """
        allow_nan = self._allow_nan if allow_nan is None else allow_nan
        if not reset and y is None and self._can_skip_validation(X, min_rows):
            return np.ascontiguousarray(X, self._table_dtype(X))
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64 if X.dtype.kind != "f" else X.dtype), np.nan)
        if isinstance(X, Masked):
            X = X.to_nan()
        options = {
            "reset": reset,
            "dtype": [np.float64, np.float32],
            "ensure_all_finite": "allow-nan" if allow_nan else True,
            "accept_sparse": ["csr", "csc", "coo"] if self._sparse else False,
            "ensure_min_samples": min_rows,
        }
        expected = "finite numbers of shape (n_samples, n_features)" + (
            ", NaN for missing values" if allow_nan else ""
        )
        check_no_dates(X, expected)
        remedies = {"X contains NaN": self._missing_remedy()}
        with translate_sklearn_errors(
            "X" if y is None else "X, y", expected, lambda: bad_column(X), remedies
        ):
            if y is None:
                X = validate_data(self, X, **options)
            else:
                X, y = validate_data(self, X, y, **options, multi_output=self._several_targets)
        if scipy.sparse.issparse(X):
            numbers = X.shape[0] * X.shape[1]
            check_memory("X", X, numbers, "a dense table, which is made of a sparse one,", X.dtype.itemsize)
            X = X.toarray()
        if reset:
            self.dtype_ = np.dtype(self._dtype or X.dtype)
            for name, (numbers, what) in self._largest_arrays(*X.shape).items():
                check_memory(name, getattr(self, name), numbers, what, self.dtype_.itemsize)
        X = self._check_range(np.ascontiguousarray(X))
        return X if y is None else (X, y)

    def _missing_remedy(self) -> str:
        """Return what to do about missing values in X, where they are not allowed."""
        if is_classifier(self):
            return "Impute them, or use NaiveBayes or LinearDiscriminantAnalysis, which allow them."
        if is_regressor(self):
            return "Impute them first, for example by GaussianMixture(1).fit(X).impute(X)."
        return "Impute them, or use GaussianMixture, which allows them."

    def _check_new_X(self, X: Any, **options: Any) -> np.ndarray:
        """Return a table for a fitted model, validated by `_check_X`; raise `NotFitted` before `fit`."""
        self._check_fitted()
        return self._check_X(X, reset=False, **options)

    def _can_skip_validation(self, X: Any, min_rows: int) -> bool:
        """Return whether X is plainly valid: `validate_data` takes longer than predicting a few rows."""
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _PLAIN_DTYPES:
            return False
        valid_shape = X.shape[1] == getattr(self, "n_features_in_", 0) and X.shape[0] >= max(1, min_rows)
        if not valid_shape or hasattr(self, "feature_names_in_"):
            return False
        limit = self._largest_magnitude(self._table_dtype(X))
        return bool(-limit <= X.min() and X.max() <= limit)  # False if there is a NaN

    def _table_dtype(self, X: np.ndarray) -> np.dtype:
        """The dtype of a validated table: that of the model."""
        return self.dtype_

    @staticmethod
    def _largest_magnitude(dtype: np.dtype) -> float:
        """The magnitude up to which squares, and sums of many squares, are finite in this dtype."""
        return float(np.sqrt(np.finfo(dtype).max)) / 1e3

    def _check_range(self, X: np.ndarray) -> np.ndarray:
        """Return X in the dtype of the model's tables; raise if squares would overflow or underflow there."""
        dtype = self._table_dtype(X)
        limit = self._largest_magnitude(dtype)
        # Not the maximum of |X|, which would allocate a second table.
        high, low = np.fmax.reduce(X, None, initial=0.0), np.fmin.reduce(X, None, initial=0.0)
        largest = max(float(high), -float(low))
        if 0 < largest < 1 / limit:
            raise BadInput(
                "X",
                f"no value larger than {largest:.3g}",
                f"magnitudes above {1 / limit:.1g}, whose squares {dtype} can hold",
                "Scale the columns first (StandardScaler).",
            )
        if largest > limit:
            raise BadInput(
                "X",
                f"values as large as {largest:.3g}",
                f"magnitudes below {limit:.1g}, whose squares {dtype} can hold",
                "Scale the columns first (StandardScaler)"
                + (", or pass float64." if dtype == np.float32 and not self._dtype else "."),
            )
        return X.astype(dtype, copy=False)

    # -- weights, counts, state ----------------------------------------------------------------

    def _check_weight(self, sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
        """Return the weights of the rows in the dtype of the model; None if there are none."""
        if sample_weight is None:
            return None
        dtype = getattr(self, "dtype_", X.dtype)  # a model of words has no dtype_
        with translate_sklearn_errors("sample_weight", "one finite number >= 0 for each row, not all 0"):
            weight = _check_sample_weight(sample_weight, X, dtype=dtype, ensure_non_negative=True)
        if not np.isfinite(weight).all():  # scikit-learn does not check a single number
            raise BadInput("sample_weight", "NaN or infinity", "finite numbers >= 0")
        if not weight.any():
            raise BadInput("sample_weight", "only zeros", "at least one weight > 0")
        return weight

    def _drop_zero_weight(self, X: np.ndarray, sample_weight: Any) -> tuple[Any, Any]:
        """Return X and the validated weights, without the rows of weight 0."""
        X, weight = drop_zero_weight(X, weight=self._check_weight(sample_weight, X))
        return X, weight

    def _check_n_samples(self, n_samples: Any) -> int:
        """Return the argument of `sample` as an int; raise if the model is not fitted."""
        self._check_fitted()
        check_whole_number("n_samples", n_samples)
        check_memory("n_samples", n_samples, int(n_samples) * self._numbers_per_draw(), "the draws")
        return int(n_samples)

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self, "energy_")
        except _SklearnNotFitted:
            name = type(self).__name__
            raise NotFitted(f"This {name} is not fitted yet: call {name}.fit(X) first.") from None
