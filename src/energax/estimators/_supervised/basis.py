"""`BasisExpansion`: basis functions of every column, in front of any linear model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in

from ...algorithms.basis import BASES, LEAST
from ...errors import BadInput
from .._base import EnergyEstimator
from .._common.settings import WHOLE, number, one_of
from .._common.sklearn_errors import NotFitted, translate_sklearn_errors


class BasisExpansion(TransformerMixin, EnergyEstimator):
    """Basis functions φ_1(x_j), …, φ_m(x_j) of every column x_j, for curves by linear models.

    The functions are placed on the range of the column in `fit`. There is no constant among them: linear
    models have an intercept.

    Args:
        basis: "polynomial" (powers of x in units in which the range is [−1, 1]), "gaussian" (bumps),
            "sigmoid" (steps), "fourier" (sines and cosines) or "spline" (cubic B-splines, at least 4).
        n_basis: m, the number of functions for every column.
        width: of bumps and steps in units of their distance; of half a period of the Fourier basis in units
            of the range. Not for the others.

    Attributes:
        low_, high_: the ends of the range of every column, (n_features_in_,).

    Bishop (2006), Pattern recognition and machine learning, section 3.1.

    >>> from sklearn.pipeline import make_pipeline
    >>> from energax.estimators import BayesianRidge
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = make_pipeline(BasisExpansion("gaussian", 9), BayesianRidge()).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.999)
    True
    """

    _settings = {
        "basis": one_of(*BASES),
        "n_basis": WHOLE,
        "width": number(lambda value: 0 < value < np.inf, "a number > 0"),
    }

    low_: np.ndarray
    high_: np.ndarray

    def __init__(self, basis: str = "polynomial", n_basis: int = 10, *, width: float = 1.0):
        self.basis = basis
        self.n_basis = n_basis
        self.width = width

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _largest_arrays(self, n, d):
        return {"n_basis": (n * d * int(self.n_basis), "the basis functions")}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the range of every column.

        Args:
            X: a table (n_samples, n_features).
            y: ignored.
        """
        least = LEAST.get(self.basis, 1)
        if self.n_basis < least:
            raise BadInput("n_basis", repr(self.n_basis), f">= {least} for basis={self.basis!r}")
        X = self._check_X(X, reset=True)
        self.low_, self.high_ = X.min(0), X.max(0)
        self._functions = (self.basis, int(self.n_basis), float(self.width))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the basis functions, (n_samples, n_features · n_basis), those of a column side by side."""
        X = self._check_new_X(X)
        name, m, width = self._functions
        ends = zip(self.low_.astype(np.float64), self.high_.astype(np.float64), strict=True)
        tables = [BASES[name](X[:, j], low, high, m, width) for j, (low, high) in enumerate(ends)]
        return np.concatenate(tables, axis=1).astype(self.dtype_)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of `transform`: "age_gaussian0", …"""
        self._check_fitted()
        with translate_sklearn_errors("input_features", "one name for every column"):
            columns = _check_feature_names_in(self, input_features)
        name, m, _ = self._functions
        return np.array([f"{column}_{name}{i}" for column in columns for i in range(m)], dtype=object)

    def _check_fitted(self) -> None:
        if not hasattr(self, "low_"):
            raise NotFitted("This BasisExpansion is not fitted yet: call BasisExpansion.fit(X) first.")
