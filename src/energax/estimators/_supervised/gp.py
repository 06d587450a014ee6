"""Gaussian process regression."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from ..._util.arrays import asarray
from ...algorithms.gaussian.process import Factor
from ...algorithms.optimise.restarts import LocalMinimum, minimise_from_starts
from ...energies import GaussianProcess
from ...energies._supervised import gp_exact as exact
from ...errors import BadInput
from ...kernels import RBF, Kernel
from ...parameters import trainable_leaves
from ...programs import use_engine
from .._base import ConvergenceWarning, EnergyEstimator
from .._common.settings import (
    FINITE_NOT_NEGATIVE,
    FLAG,
    NONE,
    NUMBERS,
    RANDOM_STATE,
    WHOLE,
    Setting,
    instance,
    one_of,
    whole,
)
from .._common.table import drop_zero_weight
from .._common.targets import check_targets

#: The logarithms of hyperparameters stay in this interval, as in scikit-learn.
_BOUNDS = np.log([1e-5, 1e5])
#: The standard deviation of the logarithms of random starts.
_SPREAD = 1.5
#: Rows from which restarts pay for threads.
_PARALLEL_ROWS = 200
_SMALLEST_NOISE = 1e-300

KERNEL = instance(Kernel, "a kernel of energax.kernels", "Try 1.0 * RBF() + White().") | NONE
FREEZE = Setting(
    lambda value: all(isinstance(v, str) for v in (value if isinstance(value, list | tuple) else [value])),
    "names of hyperparameters that are not learned, as 'length_scale' or 'kernels.0.constant_value'",
)


class ProcessEstimator(EnergyEstimator):
    """What regression and classification by Gaussian processes share: hyperparameters by maximum evidence."""

    kernel_: Kernel

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        """64 bits for every input: the Cholesky factor of a smooth kernel has no digits left in float32."""
        with jax.enable_x64(True):
            yield

    def _start_kernel(self) -> tuple[Kernel, np.ndarray]:
        """Return the kernel to start from, and which of its hyperparameters are learned."""
        if self.kernel is None:
            return (1.0 * RBF()), np.zeros(2, bool)
        kernel = self.kernel.astype(np.float64)
        if kernel.n_dims not in (None, self.n_features_in_):
            found = f"{kernel.n_dims} length scales"
            raise BadInput("kernel", found, f"one, or one for each of the {self.n_features_in_} columns of X")
        trainable = trainable_leaves(kernel, self.freeze)
        pairs = zip(jax.tree.leaves(kernel), jax.tree.leaves(trainable), strict=True)
        flags = [np.full(leaf.size, flag) for leaf, flag in pairs]
        learned = np.concatenate([np.zeros(0, bool), *flags])
        return kernel, learned if self.optimizer else np.zeros_like(learned)

    def _maximise_evidence(self, value_and_gradient: Any, n_rows: int) -> Kernel:
        """Return the kernel with the hyperparameters of largest evidence, the best of all starts.

        `value_and_gradient(kernel)` is log p and its gradient in `kernel.theta`, or None.
        """
        kernel, learned = self._start_kernel()
        self.n_iter_, self.converged_ = 1, True
        if not learned.any():
            return kernel
        theta = kernel.theta

        def objective(free: np.ndarray) -> tuple[float, np.ndarray] | None:
            full = theta.copy()
            full[learned] = free
            found = value_and_gradient(kernel.with_theta(full))
            return None if found is None else (-found[0], -found[1][learned])

        first = theta[learned]
        bounds = np.stack([np.minimum(_BOUNDS[0], first), np.maximum(_BOUNDS[1], first)], 1)
        noise = self._generator().normal(size=(int(self.n_restarts_optimizer), len(first)))
        starts = [first, *np.clip(first + _SPREAD * noise, bounds[:, 0], bounds[:, 1])]
        options: dict[str, Any] = {"bounds": bounds, "max_iter": int(self.max_iter), "tol": float(self.tol)}
        parallel = len(starts) > 1 and n_rows >= _PARALLEL_ROWS
        # Threads share programs, of which only compiled ones may run in several at once.
        if parallel:
            with use_engine("xla"):
                objective(first)
                runs = minimise_from_starts(objective, starts, parallel=True, **options)
        else:
            runs = minimise_from_starts(objective, starts, **options)
        best: LocalMinimum = runs[0]
        self.n_iter_, self.converged_ = max(1, int(best.n_iter)), best.converged
        if not best.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: L-BFGS stopped after {best.n_iter} iterations "
                f"({best.message}). Raise max_iter (now {self.max_iter}) or tol, add White() to the kernel, "
                "or scale the columns of X.",
                ConvergenceWarning,
                stacklevel=4,
            )
        theta = theta.copy()
        theta[learned] = best.x
        return kernel.with_theta(theta)


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
        max_iter, tol: L-BFGS ends when the evidence changes relatively by less than `tol`.
        freeze: names of hyperparameters that are not learned.
        random_state: of the random starts.

    Attributes:
        kernel_: the kernel with the learned hyperparameters.
        energy_: the `GaussianProcess`.
        X_train_, y_train_: the training data, y as normalised.
        L_, alpha_: the Cholesky factor of K + αI, and (K + αI)⁻¹y.
        log_marginal_likelihood_value_: log p(y | X), of the normalised y.

    Rasmussen and Williams (2006), Gaussian processes for machine learning, algorithm 2.1.

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
        self.max_iter = max_iter
        self.tol = tol
        self.freeze = freeze
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _largest_arrays(self, n, d):
        return {"kernel": (4 * n * n, "the kernel matrix of all pairs of rows, its factor and its inverse")}

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
        y = check_targets(self, y, X)
        noise = self._check_alpha(X)
        X, y, noise, weight = drop_zero_weight(X, y, noise, weight=self._check_weight(sample_weight, X))
        noise = noise if weight is None else noise / weight
        self._y_mean, self._y_scale = self._normalisation(y, weight)
        self.y_train_ = (y - self._y_mean) / self._y_scale
        self.X_train_ = X
        targets = self._columns_of_y()
        with self._precision():
            self._noise = noise = self._make_definite(noise, targets)
            of_kernel = lambda kernel: exact.log_evidence_and_gradient(kernel, noise, X, targets)
            self.kernel_ = self._maximise_evidence(of_kernel, len(X))
            found: Any = exact.log_evidence(self.kernel_, noise, X, targets)
            self.L_, self.alpha_ = found.factor.lower, found.weights.reshape(y.shape)
            self.log_marginal_likelihood_value_ = found.value
            self.energy_ = GaussianProcess(self.kernel_, asarray(noise), X.shape[1], len(X))
        return self

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
            warnings.warn(
                f"{type(self).__name__}: the kernel matrix is singular within rounding, so {jitter:.1g} was "
                "added to its diagonal. Raise alpha, or add White() to the kernel.",
                ConvergenceWarning,
                stacklevel=4,
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
            weights = self.alpha_.reshape(len(self.alpha_), -1)
            mean = exact.predictive_mean(self.kernel_, X, self.X_train_, weights)
            mean = (mean.reshape(len(X), *targets) * self._y_scale + self._y_mean).astype(self.dtype_)
            if return_cov:
                covariance = exact.predictive_covariance(self.kernel_, X, self.X_train_, self._factor)
                return mean, np.multiply.outer(covariance, self._y_scale**2).astype(self.dtype_)
            if return_std:
                variance = exact.predictive_variance(self.kernel_, X, self.X_train_, self._factor)
                return mean, np.multiply.outer(np.sqrt(variance), self._y_scale).astype(self.dtype_)
        return mean

    @property
    def _factor(self) -> Factor:
        return Factor(self.L_, 0.0)

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
        X, y = self.X_train_, self._columns_of_y()
        with self._precision():
            if eval_gradient:
                found = exact.log_evidence_and_gradient(kernel, self._noise, X, y)
                return found if found is not None else (-np.inf, np.zeros(len(kernel.theta)))
            value = exact.log_evidence(kernel, self._noise, X, y, jitter=False)
            return -np.inf if value is None else value.value


def check_theta(theta: Any) -> np.ndarray:
    """Return logarithms of hyperparameters as a vector; raise if they are not numbers."""
    try:
        array = np.asarray(theta, np.float64)
    except (TypeError, ValueError):
        raise BadInput("theta", type(theta).__name__, "a vector of numbers") from None
    if array.ndim != 1 or not np.isfinite(array).all() or (np.abs(array) > 700).any():
        raise BadInput("theta", f"shape {array.shape}", "a vector of finite numbers between −700 and 700")
    return array
