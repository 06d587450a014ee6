"""Gaussian processes: evidence, posterior and draws, from kernel matrices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import lapack

from ..._util.linalg import cholesky, solve_lower

_LOG_2PI = math.log(2 * math.pi)
#: The largest number added to the diagonal of a kernel matrix, relative to its mean.
_MAX_JITTER = 1e-4


def noisy_covariance(kernel: Any, noise: Any, observed: Any) -> Any:
    """Return the covariance (n, n) of y = f + noise; unobserved coordinates are independent of variance 1."""
    n = len(kernel)
    both = observed[:, None] & observed
    identity = jnp.eye(n, dtype=kernel.dtype)
    diagonal = jnp.where(observed, jnp.broadcast_to(noise, (n,)), 1).astype(kernel.dtype)
    return jnp.where(both, kernel, 0) + identity * diagonal


def log_normal(covariance: Any, y: Any, observed: Any) -> Any:
    """Return log N(y; 0, covariance) of the observed coordinates.

    `covariance` is that of `noisy_covariance`, in which the other coordinates add nothing.
    """
    factor = cholesky(covariance)
    white = solve_lower(factor, jnp.where(observed, y, 0)[:, None])[:, 0]
    return -0.5 * (white @ white + observed.sum() * _LOG_2PI) - jnp.log(jnp.diagonal(factor)).sum()


def condition(kernel: Any, noise: Any, y: Any, observed: Any) -> tuple[Any, Any]:
    """Return mean (n,) and covariance (n, n) of f given the observed coordinates of y = f + noise."""
    factor = cholesky(noisy_covariance(kernel, noise, observed))
    onto = solve_lower(factor, jnp.where(observed[:, None], kernel, 0))
    white = solve_lower(factor, jnp.where(observed, y, 0)[:, None])[:, 0]
    return onto.T @ white, kernel - onto.T @ onto


def add_jitter(covariance: Any, scale: Any) -> Any:
    """Return the covariance plus the rounding error of matrices with diagonal `scale`, to be factored."""
    n = len(covariance)
    jitter = 10 * n * jnp.finfo(covariance.dtype).eps * jax.lax.stop_gradient(jnp.mean(scale))
    return covariance + jitter * jnp.eye(n, dtype=covariance.dtype)


# -- on the host -------------------------------------------------------------------------------------------
#
# SciPy's LAPACK has the inverse of a symmetric matrix from its factor (potri), which XLA has not: with it the
# evidence and its gradient take a third of the operations. Measured for n = 3000 in float64 on 2 cores:
# 1.1 s, and 4 s by XLA's Cholesky, triangular solve and product.


class Factor(NamedTuple):
    """A Cholesky factor LLᵀ = K + jitter·I, in the lower triangle, and the jitter that it took."""

    lower: np.ndarray
    jitter: float

    @property
    def log_determinant(self) -> float:
        return 2 * float(np.log(np.diagonal(self.lower)).sum())

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return (LLᵀ)⁻¹ right, for right sides (n, m)."""
        return lapack.dpotrs(self.lower, right, lower=1)[0]

    def whiten(self, right: np.ndarray) -> np.ndarray:
        """Return L⁻¹ right, for right sides (n, m)."""
        return lapack.dtrtrs(self.lower, right, lower=1)[0]

    def inverse(self) -> np.ndarray:
        """Return (LLᵀ)⁻¹; only its lower triangle is set."""
        return lapack.dpotri(self.lower, lower=1)[0]


def factor(covariance: np.ndarray, *, jitter: bool = True) -> Factor | None:
    """Return the Cholesky factor of a symmetric float64 matrix; None if it is not positive definite.

    With `jitter`, a matrix that is singular by rounding gets the smallest of 1e-10, 1e-9, … 1e-4 of the mean
    of its diagonal added. Only the lower triangle is read.
    """
    scale = float(np.mean(np.diagonal(covariance)))
    steps = [0.0, *(10.0**-k * scale for k in range(10, 3, -1))] if jitter else [0.0]
    if not np.isfinite(scale):
        return None
    for added in steps:
        matrix = np.array(covariance.T, order="F")  # a copy, which LAPACK overwrites; it is symmetric
        if added:
            matrix[np.diag_indices_from(matrix)] += added
        lower, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return Factor(lower, added)
    return None


class Evidence(NamedTuple):
    """log N(y; 0, K) summed over the columns of y, and what its gradient is made of."""

    value: float
    weights: np.ndarray  # K⁻¹y, (n, t)
    factor: Factor


def evidence(covariance: np.ndarray, y: np.ndarray, *, jitter: bool = True) -> Evidence | None:
    """Return the log-density of columns y (n, t) under N(0, covariance); None if it is not definite.

    Rasmussen and Williams (2006), algorithm 2.1.
    """
    found = factor(covariance, jitter=jitter)
    if found is None:
        return None
    weights = found.solve(y)
    n, t = y.shape
    value = -0.5 * float((y * weights).sum()) - 0.5 * t * (found.log_determinant + n * _LOG_2PI)
    return Evidence(value, weights, found)


def evidence_slope(inverse: Any, weights: Any) -> Any:
    """Return ∂ log p / ∂K = ½ Σ_t ααᵀ − t/2 K⁻¹, given the lower triangle of K⁻¹.

    The slope is for symmetric changes of K: lower triangle doubled, upper zero, so that the inverse need not
    be completed.
    """
    n, t = weights.shape
    full = weights @ weights.T - t * inverse
    rows = jnp.arange(n)
    return jnp.where(rows[:, None] > rows, full, jnp.where(rows[:, None] == rows, 0.5 * full, 0))
