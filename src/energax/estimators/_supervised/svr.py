"""`SVR`: support vector regression."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..._util.arrays import asarray
from ...energies import EpsilonInsensitive, SupportVectorRegressor
from .._common.settings import FINITE_NOT_NEGATIVE
from .regressor import Regressor
from .svm_base import POSITIVE, SupportVectorMachine


class SVR(SupportVectorMachine, Regressor):
    """Support vector regression: the flattest function of a kernel within ε of most targets.

    min ½ wᵀw + C Σ_i weight_i max(0, |y_i − wᵀφ(x_i) − b| − ε), solved in its dual by sequential minimal
    optimisation, with a certificate. Everything is computed in float64; predictions have the dtype of X.

    Args:
        kernel, degree, gamma, coef0: as in `SVC`.
        tol: the largest violation of the optimality conditions to stop at.
        C: the price of an error beyond ε.
        epsilon: ε, the error that costs nothing.
        cache_size: megabytes for rows of the kernel matrix.
        verbose: whether to show a progress bar.
        max_iter: the most steps, each on a pair of variables; -1 for no limit.

    Attributes:
        support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_: as in `SVC`, with one function.
        dual_objective_, duality_gap_, kkt_violation_, n_at_bound_: the certificate, as in `SVC`.
        n_iter_: the number of steps; converged_: whether `tol` was reached.
        energy_: the fitted model, for functions such as `energax.sample`.
        fit_: details of the fit.

    Drucker et al. (1997), Support vector regression machines.

    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = SVR(C=10.0).fit(X, np.sin(X[:, 0]))
    >>> bool(np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.11)
    True
    """

    _settings: ClassVar = {
        **SupportVectorMachine._settings,
        "C": POSITIVE,
        "epsilon": FINITE_NOT_NEGATIVE,
    }
    random_state: ClassVar = 0
    learner: ClassVar = None

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
        cache_size: float = 1000,
        verbose: int | bool = False,
        max_iter: int = -1,
    ):
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the regression.

        Args:
            X: a table (n_samples, n_features), or the kernel matrix if kernel="precomputed".
            y: the targets, (n_samples,).
            sample_weight: the weights of the rows, which multiply C, (n_samples,).
        """
        X, y, _ = self._check_rows(X, y, None)
        weight = self._check_weight(sample_weight, X)
        weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        X = X.astype(np.float64)
        if self._is_precomputed:
            self._check_gram(X)
        self._set_kernel(X)
        with self._precision():
            self._fit_targets(X, y.astype(np.float64), weight)
        return self

    def _fit_targets(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
        rows, members = self._model_rows(X), np.flatnonzero(weight > 0)
        own = rows[members] if self.kernel_ is not None else rows[np.ix_(members, members)]
        noise = EpsilonInsensitive(asarray(np.float64(self.C)), asarray(np.float64(self.epsilon)))

        def expansion(support, coefficients, intercept):
            vectors = None if self.kernel_ is None else asarray(support)
            parts = asarray(coefficients), asarray(np.float64(intercept))
            return SupportVectorRegressor(self.kernel_, vectors, *parts, noise)

        start = lambda padded: expansion(padded, np.zeros(len(padded)), 0.0)
        coefficients = np.zeros(len(X))
        coefficients[members], intercept, certificate = self._solve(start, own, y[members], weight[members])
        self.support_ = np.flatnonzero(coefficients).astype(np.int32)
        self.support_vectors_ = X[self.support_] if not self._is_precomputed else np.zeros((0, 0))
        self.n_support_ = np.array([len(self.support_)], np.int32)
        self.dual_coef_, self.intercept_ = coefficients[None, self.support_], intercept.reshape(1)
        self._record(certificate)
        self.n_iter_ = int(self.n_iter_[0])
        self.energy_ = expansion(self.support_vectors_, coefficients[self.support_], intercept)

    @property
    def coef_(self) -> np.ndarray:
        """w, for a linear kernel: (1, n_features)."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear"):
            raise AttributeError("coef_ exists only for kernel='linear'.")
        self._check_fitted()
        return self.dual_coef_ @ self.support_vectors_

    def predict(self, X: Any) -> np.ndarray:
        """Return f of every row, (n,)."""
        return self._outputs(X)
