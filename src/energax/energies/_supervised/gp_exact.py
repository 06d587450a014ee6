"""Exact Gaussian process regression on the host: evidence, its gradient in the hyperparameters, predictions.

The same mathematics as the energy `GaussianProcess`, for large data sets: kernel matrices and the backward
pass through them are XLA's, factors and inverses LAPACK's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.blas import limit_blas
from ..._util.sizes import pad_size
from ...algorithms.gaussian.process import Evidence, Factor, evidence, evidence_slope
from ...kernels import Kernel
from ...programs import jit


@jit
def _covariance(kernel: Kernel, X: Any, noise: Any) -> Any:
    matrix = kernel.matrix(X)
    return matrix + jnp.eye(len(X), dtype=matrix.dtype) * noise


@jit
def _pull_back(kernel: Kernel, X: Any, inverse: Any, weights: Any) -> Any:
    """∂ log p / ∂ hyperparameters, a tree like the kernel."""
    _, pull = jax.vjp(lambda kernel: kernel.matrix(X), kernel)
    return pull(evidence_slope(inverse, weights))[0]


@limit_blas()
def log_evidence(kernel: Kernel, noise: Any, X: Any, y: Any, *, jitter: bool = True) -> Evidence | None:
    """Return log p(y | X) of columns y (n, t), with K⁻¹y and the factor; None if K is not definite.

    Args:
        kernel: k.
        noise: the variances of the noise, (n,).
        X: the points, (n, d).
        y: the values, (n, t): t functions with the same kernel.
        jitter: whether a matrix that is singular by rounding gets a small number added to its diagonal.
    """
    with jax.enable_x64(True):
        covariance = np.asarray(_covariance(kernel, X, noise))
    return evidence(covariance, y, jitter=jitter)


@limit_blas()
def log_evidence_and_gradient(kernel: Kernel, noise: Any, X: Any, y: Any) -> tuple[float, np.ndarray] | None:
    """Return log p(y | X) and its gradient in `kernel.theta`, the logarithms of the hyperparameters.

    With G = ∂ log p / ∂K = ½ (ααᵀ − K⁻¹), α = K⁻¹y, the gradient is Σ_ij G_ij ∂K_ij/∂θ: one backward pass
    through the kernel, whatever the number of hyperparameters, and no array of n² × hyperparameters.

    Rasmussen and Williams (2006), equation 5.9.
    """
    found = log_evidence(kernel, noise, X, y, jitter=False)
    if found is None:
        return None
    with jax.enable_x64(True):
        slope = _pull_back(kernel, X, found.factor.inverse(), found.weights)
    parts = [np.ravel(leaf) for leaf in jax.tree.leaves(slope)]
    # ∂/∂ log h = h ∂/∂h
    return found.value, np.concatenate([np.zeros(0), *parts]) * np.exp(kernel.theta)


# -- predictions -------------------------------------------------------------------------------------------

#: Numbers of a chunk of cross-covariances.
_CHUNK_NUMBERS = 2**23


def cross_covariances(
    kernel: Kernel, X: np.ndarray, points: np.ndarray, n_functions: int = 1
) -> Iterator[tuple[slice, Any]]:
    """Yield slices of the rows of X, and k of these rows and all points; few different shapes.

    The chunks leave room for arrays of their shape for each of `n_functions` functions.
    """
    numbers_per_row = max(1, n_functions * len(points))
    size = pad_size(max(1, min(len(X), _CHUNK_NUMBERS // numbers_per_row)))
    for start in range(0, len(X), size):
        rows = X[start : start + size]
        padded = np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), 0)])
        yield slice(start, start + len(rows)), np.asarray(kernel.matrix(padded, points))[: len(rows)]


@limit_blas()
def predictive_mean(kernel: Kernel, X: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return E[f(X)], (m, t), from the weights K⁻¹y of the training points."""
    with jax.enable_x64(True):
        parts = [cross @ weights for _, cross in cross_covariances(kernel, X, points)]
    return np.concatenate(parts)


@limit_blas()
def predictive_variance(kernel: Kernel, X: np.ndarray, points: np.ndarray, factor: Factor) -> np.ndarray:
    """Return Var[f(X)] of every row, (m,); rounding below 0 is cut off."""
    with jax.enable_x64(True):
        variance = np.array(kernel.diagonal(X))
        for rows, cross in cross_covariances(kernel, X, points):
            variance[rows] -= (factor.whiten(cross.T) ** 2).sum(0)
    return np.maximum(variance, 0)


@limit_blas()
def predictive_covariance(kernel: Kernel, X: np.ndarray, points: np.ndarray, factor: Factor) -> np.ndarray:
    """Return the covariance of f at all rows of X, (m, m)."""
    with jax.enable_x64(True):
        white = factor.whiten(np.asarray(kernel.matrix(X, points)).T)
        return np.asarray(kernel.matrix(X)) - white.T @ white
