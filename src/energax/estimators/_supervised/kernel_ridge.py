"""Kernel ridge regression, in the dual."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.base import RegressorMixin

from ..._util.arrays import asarray
from ...energies import GaussianProcess
from ...energies._supervised import gp_exact as exact
from ...errors import BadInput
from .._base import EnergyEstimator
from .._common.kernels import KERNEL_OR_NAME, named_kernel
from .._common.settings import FINITE_NOT_NEGATIVE, NONE, NUMBERS, WHOLE, Setting, number
from .._common.sklearn_errors import warn_user
from .._common.table import drop_zero_weight
from .._common.targets import check_target_columns

_SMALLEST = 1e-300


class KernelRidge(RegressorMixin, EnergyEstimator):
    """Ridge regression in the space of a kernel: f(x) = Σ_i a_i k(x, x_i), a = (K + αI)⁻¹y.

    f minimises Σ_i w_i (y_i − f(x_i))² + α‖f‖², and is the posterior mean of a Gaussian process whose noise
    has variance α/w_i. It computes in float64, and answers in the dtype of X.

    Args:
        alpha: α >= 0, one number, or one per target.
        kernel: "linear", "rbf", "poly", or a kernel of `energax.kernels`.
        gamma: γ of rbf exp(−γ‖x − y‖²) and poly (γxᵀy + c)^p; None for 1 / n_features.
        degree, coef0: p and c of poly.

    Attributes:
        dual_coef_: a, (n_samples,) or (n_samples, n_targets).
        X_fit_: the training rows.
        energy_: the `GaussianProcess` of which f is the posterior mean (of the first target's α).

    Saunders, Gammerman and Vovk (1998), Ridge regression learning algorithm in dual variables.

    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = KernelRidge(alpha=1e-3, kernel="rbf", gamma=1.0).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.999)
    True
    """

    _sparse = True
    _settings: ClassVar[dict[str, Setting]] = {
        "alpha": NUMBERS,
        "kernel": KERNEL_OR_NAME,
        "gamma": number(lambda value: 0 < value < np.inf, "a number > 0") | NONE,
        "degree": WHOLE,
        "coef0": FINITE_NOT_NEGATIVE,
    }

    def __init__(self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1.0):
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _largest_arrays(self, n, d):
        return {"kernel": (3 * n * n, "the kernel matrix of all pairs of rows and its factor")}

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        """64 bits for every input: the factor of a smooth kernel has no digits left in float32."""
        with jax.enable_x64(True):
            yield

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the weights of the training rows.

        Args:
            X: a table (n_samples, n_features).
            y: numbers (n_samples,) or (n_samples, n_targets).
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True).astype(np.float64)
        y = check_target_columns(self, y, X)
        alphas = self._check_alpha(y)
        X, y, weight = drop_zero_weight(X, y, weight=self._check_weight(sample_weight, X))
        per_row = np.ones(len(X)) if weight is None else 1 / weight.astype(np.float64)
        settings = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        kernel = named_kernel(self.kernel, X.shape[1], **settings)
        targets = y.reshape(len(y), -1)
        coefficients = np.empty_like(targets)
        with self._precision():
            kernel = kernel.astype(np.float64)
            for alpha in np.unique(alphas):
                columns = alphas == alpha
                found = exact.log_evidence(kernel, alpha * per_row, X, targets[:, columns])
                coefficients[:, columns] = self._checked(found).weights
            noise = np.maximum(alphas[0] * per_row, _SMALLEST)
            self.energy_ = GaussianProcess(kernel, asarray(noise), X.shape[1], len(X))
        self.X_fit_, self.dual_coef_ = X, coefficients.reshape(y.shape)
        return self

    def _check_alpha(self, y: np.ndarray) -> np.ndarray:
        """Return α of every target."""
        n = 1 if y.ndim == 1 else y.shape[1]
        alpha = np.asarray(self.alpha, np.float64)
        if not (np.isfinite(alpha).all() and (alpha >= 0).all() and alpha.shape in ((), (1,), (n,))):
            found = f"{self.alpha!r}" if alpha.size < 4 else f"an array of shape {alpha.shape}"
            raise BadInput("alpha", found, f"a number >= 0, or one for each of {n} targets")
        return np.broadcast_to(alpha, n)

    def _checked(self, found: Any) -> Any:
        if found is None:
            expected = "a kernel whose matrix is positive definite"
            raise BadInput("kernel", repr(self.kernel), expected, "Raise alpha, or scale the columns of X.")
        if found.factor.jitter:
            warn_user(
                "KernelRidge: the kernel matrix is singular within rounding, so "
                f"{found.factor.jitter:.1g} was added to its diagonal. Raise alpha."
            )
        return found

    def predict(self, X: Any) -> np.ndarray:
        """Return f at every row, (m,) or (m, n_targets)."""
        X = self._check_new_X(X).astype(np.float64)
        with self._precision():
            weights = self.dual_coef_.reshape(len(self.dual_coef_), -1)
            mean = exact.predictive_mean(self.energy_.kernel, X, self.X_fit_, weights)
        return mean.reshape(len(X), *self.dual_coef_.shape[1:]).astype(self.dtype_)
