"""`ProcessEstimator`: the base of estimators by Gaussian processes, which maximises the evidence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ...algorithms.optimise.restarts import LocalMinimum, minimise_from_starts
from ...errors import BadInput
from ...kernels import RBF, Kernel
from ...parameters import trainable_leaves
from ...programs import use_engine
from .._base import EnergyEstimator
from .._common.settings import NONE, Setting, instance
from .._common.sklearn_errors import warn_user

#: The logarithms of hyperparameters stay in this interval, as in scikit-learn.
_BOUNDS = np.log([1e-5, 1e5])
#: The standard deviation of the logarithms of random starts.
_SPREAD = 1.5
#: Rows from which restarts pay for threads.
_PARALLEL_ROWS = 200

KERNEL = instance(Kernel, "a kernel of energax.kernels", "Try 1.0 * RBF() + White().") | NONE
FREEZE = Setting(
    lambda value: all(isinstance(v, str) for v in (value if isinstance(value, list | tuple) else [value])),
    "names of hyperparameters that are not learned, as 'length_scale' or 'kernels.0.constant_value'",
)


class ProcessEstimator(EnergyEstimator):
    """The base of estimators by Gaussian processes: hyperparameters by maximum evidence."""

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

    def _maximise_evidence(self, value_and_gradient: Any, n_rows: int, parallel: bool = True) -> Kernel:
        """Return the kernel with the hyperparameters of largest evidence, the best of all starts.

        `value_and_gradient(kernel)` is log p and its gradient in `kernel.theta`, or None. `parallel`: whether
        it may run on several threads.
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
        parallel = parallel and len(starts) > 1 and n_rows >= _PARALLEL_ROWS
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
            warn_user(
                f"{type(self).__name__} did not converge: L-BFGS stopped after {best.n_iter} iterations "
                f"({best.message}). Raise max_iter (now {self.max_iter}) or tol, add White() to the kernel, "
                "or scale the columns of X."
            )
        theta = theta.copy()
        theta[learned] = best.x
        return kernel.with_theta(theta)


def check_theta(theta: Any) -> np.ndarray:
    """Return logarithms of hyperparameters as a vector; raise if they are not numbers."""
    try:
        array = np.asarray(theta, np.float64)
    except (TypeError, ValueError):
        raise BadInput("theta", type(theta).__name__, "a vector of numbers") from None
    if array.ndim != 1 or not np.isfinite(array).all() or (np.abs(array) > 700).any():
        raise BadInput("theta", f"shape {array.shape}", "a vector of finite numbers between −700 and 700")
    return array
