"""Gaussian process regression."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from ..._util.arrays import asarray
from ...algorithms.gaussian.process import Factor
from ...energies import GaussianProcess
from ...energies._supervised import gp_exact as exact
from ...energies._supervised import gp_inducing as sparse
from ...errors import BadInput
from .._common.settings import (
    FINITE_NOT_NEGATIVE,
    FLAG,
    NONE,
    NUMBERS,
    RANDOM_STATE,
    WHOLE,
    Setting,
    one_of,
    whole,
)
from .._common.sklearn_errors import warn_user
from .._common.table import drop_zero_weight
from .._common.targets import check_target_columns
from .._mixture.kmeans import KMeans
from .process import FREEZE, KERNEL, ProcessEstimator, check_theta

_SMALLEST_NOISE = 1e-300


class GaussianProcessRegressor(RegressorMixin, ProcessEstimator):
    """Gaussian process regression: y = f(x) + noise, f ~ GP(0, k).

    p(f | X, y) is Gaussian, with mean K*(K + αI)⁻¹y. The hyperparameters of the kernel maximise the evidence
    log p(y | X), by L-BFGS on their logarithms, from the given values and from random ones, side by side.
    It computes in float64, and answers in the dtype of X.

    Args:
        kernel: k, of `energax.kernels`; None for RBF with length scale 1, which is not learned. Add `White()`
            to learn the variance of the noise.
        alpha: the variance of the noise that is not learned, one number, or one per row.
        optimizer: "fmin_l_bfgs_b", or None to keep the hyperparameters.
        n_restarts_optimizer: random starts beside the given one.
        normalize_y: whether to shift and scale y to mean 0 and variance 1.
        n_inducing: the number of inducing points, centers of k-means, which make the cost of n rows
            O(n · n_inducing²) instead of O(n³); None for an exact process. Add `White()` to the kernel.
        max_iter, tol: L-BFGS ends when the evidence changes relatively by less than `tol`.
        freeze: names of hyperparameters that are not learned.
        random_state: of the random starts, and of k-means.

    Attributes:
        kernel_: the kernel with the learned hyperparameters.
        energy_: the `GaussianProcess`.
        X_train_, y_train_: the training data, y as normalised.
        L_, alpha_: the Cholesky factor of K + αI, and (K + αI)⁻¹y; with inducing points those of K_mm, and
            the weights of the inducing points.
        inducing_points_: the inducing points, or None.
        log_marginal_likelihood_value_: log p(y | X), of the normalised y; with inducing points a lower bound.

    Rasmussen and Williams (2006), Gaussian processes for machine learning, algorithm 2.1; Titsias (2009),
    Variational learning of inducing variables in sparse Gaussian processes.

    >>> from energax.kernels import RBF, White
    >>> X = np.linspace(0, 6, 20)[:, None]
    >>> model = GaussianProcessRegressor(1.0 * RBF() + White(0.1)).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [20.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(std[1] > 10 * std[0])
    (True, True)
    """

    _settings: ClassVar[dict[str, Setting]] = {
        "kernel": KERNEL,
        "alpha": NUMBERS,
        "optimizer": one_of("fmin_l_bfgs_b") | NONE,
        "n_restarts_optimizer": whole(0),
        "normalize_y": FLAG,
        "n_inducing": WHOLE | NONE,
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE,
        "freeze": FREEZE | NONE,
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        kernel=None,
        *,
        alpha=1e-10,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        normalize_y=False,
        n_inducing=None,
        max_iter=200,
        tol=1e-9,
        freeze=None,
        random_state=None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.normalize_y = normalize_y
        self.n_inducing = n_inducing
        self.max_iter = max_iter
        self.tol = tol
        self.freeze = freeze
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _largest_arrays(self, n, d):
        if self.n_inducing is not None:
            m = min(n, int(self.n_inducing))
            return {"n_inducing": (6 * n * m, "the kernel matrices of all rows and inducing points")}
        return {"n_inducing": (4 * n * n, "the kernel matrix of all rows, its factor and its inverse")}

    # -- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the process.

        Args:
            X: a table (n_samples, n_features).
            y: numbers (n_samples,) or (n_samples, n_targets): several functions with the same kernel.
            sample_weight: the variance of the noise `alpha` of a row is divided by its weight, as if the row
                occurred so often.
        """
        X = self._check_X(X, reset=True).astype(np.float64)
        y = check_target_columns(self, y, X)
        noise = self._check_alpha(X)
        X, y, noise, weight = drop_zero_weight(X, y, noise, weight=self._check_weight(sample_weight, X))
        noise = noise if weight is None else noise / weight
        self._y_mean, self._y_scale = self._normalisation(y, weight)
        self.y_train_ = (y - self._y_mean) / self._y_scale
        self.X_train_ = X
        targets = self._columns_of_y()
        with self._precision():
            self.inducing_points_ = self._find_inducing_points()
            fit = self._fit_exact if self.inducing_points_ is None else self._fit_inducing
            fit(noise, targets)
            self.alpha_: np.ndarray = np.reshape(self.alpha_, (-1, *y.shape[1:]))
            self.energy_ = GaussianProcess(self.kernel_, asarray(self._noise), X.shape[1], len(X))
        return self

    def _fit_exact(self, noise: np.ndarray, y: np.ndarray) -> None:
        X = self.X_train_
        self._noise = noise = self._make_definite(noise, y)
        of_kernel = lambda kernel: exact.log_evidence_and_gradient(kernel, noise, X, y)
        self.kernel_ = self._maximise_evidence(of_kernel, len(X))
        found: Any = exact.log_evidence(self.kernel_, noise, X, y)
        self.L_, self.alpha_ = found.factor.lower, found.weights
        self.log_marginal_likelihood_value_ = found.value

    def _fit_inducing(self, noise: np.ndarray, y: np.ndarray) -> None:
        X, self._noise = self.X_train_, noise
        points: Any = self.inducing_points_
        of_kernel = lambda kernel: sparse.bound_and_gradient(kernel, points, noise, X, y)
        # XLA's factorisations on several threads can wait for each other on few cores.
        self.kernel_ = self._maximise_evidence(of_kernel, len(X), parallel=False)
        found = sparse.summarise(self.kernel_, points, noise, X, y)
        if not np.isfinite(found.bound):
            expected, remedy = "kernel matrices that are positive definite", "Raise alpha, or add White()."
            raise BadInput("kernel", f"{self.kernel_!r} with alpha={self.alpha!r}", expected, remedy)
        self.L_, self._noisy_root, self.alpha_ = found.root, found.noisy_root, found.weights
        self.log_marginal_likelihood_value_ = float(found.bound)

    def _find_inducing_points(self) -> np.ndarray | None:
        """Return the centers of k-means, or all rows if there are no more."""
        if self.n_inducing is None:
            return None
        if self.n_inducing >= len(self.X_train_):
            return self.X_train_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # any centers will do
            means = KMeans(int(self.n_inducing), n_init=1, max_iter=10, random_state=self._seed())
            return np.asarray(means.fit(self.X_train_).cluster_centers_, np.float64)

    def _make_definite(self, noise: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the noise, with jitter if the matrix of the first kernel is not positive definite."""
        kernel, _ = self._start_kernel()
        found = exact.log_evidence(kernel, noise, self.X_train_, targets)
        if found is None:
            raise BadInput(
                "kernel",
                f"{kernel!r}, whose matrix is not positive definite, also with 1e-4 of its mean added",
                "a positive definite matrix",
                "Raise alpha, add White() to the kernel, or scale the columns of X.",
            )
        jitter = found.factor.jitter
        if jitter:
            warn_user(
                f"{type(self).__name__}: the kernel matrix is singular within rounding, so {jitter:.1g} was "
                "added to its diagonal. Raise alpha, or add White() to the kernel."
            )
        return noise + jitter

    def _check_alpha(self, X: np.ndarray) -> np.ndarray:
        """Return the variance of the noise of every row, (n,), and > 0."""
        alpha = np.asarray(self.alpha, np.float64)
        valid = np.isfinite(alpha).all() and (alpha >= 0).all() and alpha.shape in ((), (1,), (len(X),))
        if not valid:
            found = f"{self.alpha!r}" if alpha.size < 4 else f"an array of shape {alpha.shape}"
            raise BadInput("alpha", found, f"a number >= 0, or one for each of {len(X)} rows")
        return np.maximum(np.broadcast_to(alpha, len(X)), _SMALLEST_NOISE)

    def _normalisation(self, y: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return what is subtracted from y, and by what it is divided."""
        if not self.normalize_y:
            return np.zeros(y.shape[1:]), np.ones(y.shape[1:])
        mean = np.average(y, axis=0, weights=weight)
        scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
        return mean, np.where(scale > 10 * np.finfo(float).eps * np.abs(mean), scale, 1.0)

    def _columns_of_y(self) -> np.ndarray:
        return self.y_train_.reshape(len(self.y_train_), -1)

    # -- predictions -------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the mean of f at every row, with its standard deviation or covariance if asked.

        As in scikit-learn, a `White` term of the kernel is part of f, hence of the standard deviation.

        Args:
            X: a table (m, n_features).
            return_std: also return the standard deviations, (m,) or (m, n_targets).
            return_cov: also return the covariance, (m, m) or (m, m, n_targets).
        """
        for name, value in {"return_std": return_std, "return_cov": return_cov}.items():
            FLAG.check(name, value)
        if return_std and return_cov:
            raise BadInput("return_std", "True, and return_cov too", "one of the two")
        X = self._check_new_X(X).astype(np.float64)
        targets = self.y_train_.shape[1:]
        with self._precision():
            points, module, root = self._posterior()
            mean = exact.predictive_mean(self.kernel_, X, points, self.alpha_.reshape(len(points), -1))
            mean = (mean.reshape(len(X), *targets) * self._y_scale + self._y_mean).astype(self.dtype_)
            if return_cov:
                covariance = module.predictive_covariance(self.kernel_, X, points, root)
                return mean, np.multiply.outer(covariance, self._y_scale**2).astype(self.dtype_)
            if return_std:
                variance = module.predictive_variance(self.kernel_, X, points, root)
                return mean, np.multiply.outer(np.sqrt(variance), self._y_scale).astype(self.dtype_)
        return mean

    def _posterior(self) -> tuple[np.ndarray, Any, Any]:
        """Return the points that predictions are made from, the module that makes them, and its factors."""
        if self.inducing_points_ is None:
            return self.X_train_, exact, Factor(self.L_, 0.0)
        found = sparse.Inducing(self.log_marginal_likelihood_value_, self.alpha_, self.L_, self._noisy_root)
        return self.inducing_points_, sparse, found

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw f at all rows together: (m, n_samples), or (m, n_targets, n_samples)."""
        n = self._check_n_samples(n_samples)
        RANDOM_STATE.check("random_state", random_state)
        mean, covariance = self.predict(X, return_cov=True)
        generator = check_random_state(random_state)
        means, covariances = mean.reshape(len(mean), -1), covariance.reshape(*covariance.shape[:2], -1)
        draws = [
            generator.multivariate_normal(m, covariances[..., t], n, check_valid="ignore").T
            for t, m in enumerate(means.T)
        ]
        return np.stack(draws, 1).reshape(*mean.shape, n).astype(self.dtype_)

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """Return log p(y | X), and with `eval_gradient` its gradient in theta.

        Args:
            theta: the logarithms of the hyperparameters, in the order of `kernel_.theta`; None for those
                that were learned.
            eval_gradient: whether to return (value, gradient).
            clone_kernel: ignored: kernels do not change.
        """
        self._check_fitted()
        FLAG.check("eval_gradient", eval_gradient)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        kernel = self.kernel_ if theta is None else self.kernel_.with_theta(check_theta(theta))
        X, y, points = self.X_train_, self._columns_of_y(), self.inducing_points_
        nothing = (-np.inf, np.zeros(len(kernel.theta)))
        with self._precision():
            if points is not None:
                found = sparse.bound_and_gradient(kernel, points, self._noise, X, y) or nothing
                return found if eval_gradient else found[0]
            if eval_gradient:
                return exact.log_evidence_and_gradient(kernel, self._noise, X, y) or nothing
            value = exact.log_evidence(kernel, self._noise, X, y, jitter=False)
            return -np.inf if value is None else value.value
