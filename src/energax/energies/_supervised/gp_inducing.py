"""Gaussian process regression with inducing points: O(nm²) operations and O(nm) numbers.

The m values of f at the inducing points Z stand for f. With Q = K_nm K_mm⁻¹ K_mn, the evidence has the lower
bound log N(y; 0, Q + Λ) − ½ tr(Λ⁻¹(K_nn − Q)), in which the best distribution of the m values is already
inserted; with Z = X it is the evidence. Λ is the noise: `alpha`, and the `White` terms of the kernel.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.blas import limit_blas
from ...algorithms.gaussian.process import add_jitter
from ...kernels import Kernel
from ...programs import jit
from .gp_exact import cross_covariances


class Inducing(NamedTuple):
    """The bound, and the posterior of f through the inducing points."""

    bound: Any
    weights: Any  # (m, t): E[f(x)] = k(x, Z) weights
    root: Any  # L, LLᵀ = K_mm
    noisy_root: Any  # L_B, L_B L_Bᵀ = I + L⁻¹ K_mn Λ⁻¹ K_nm L⁻ᵀ


def _solve(factor: Any, right: Any, transpose: bool = False) -> Any:
    return jax.scipy.linalg.solve_triangular(factor, right, lower=True, trans=int(transpose))


def _summarise(kernel: Kernel, points: Any, noise: Any, X: Any, y: Any) -> Inducing:
    # k(x, x) without the White terms, whose part of the diagonal is noise.
    variance = jax.vmap(lambda x: kernel.matrix(x[None], x[None])[0, 0])(X)
    scale = noise + kernel.diagonal(X) - variance
    inner = kernel.matrix(points, points)
    root = jnp.linalg.cholesky(add_jitter(inner, jnp.diagonal(inner)))
    onto = _solve(root, kernel.matrix(points, X))
    scaled = onto / jnp.sqrt(scale)
    noisy_root = jnp.linalg.cholesky(jnp.eye(len(points), dtype=X.dtype) + scaled @ scaled.T)
    white = y / jnp.sqrt(scale)[:, None]
    projected = _solve(noisy_root, scaled @ white)
    n, t = y.shape
    log_determinant = 2 * jnp.log(jnp.diagonal(noisy_root)).sum() + jnp.log(scale).sum()
    rest = ((variance - (onto**2).sum(0)) / scale).sum()
    squares = (white**2).sum() - (projected**2).sum()
    bound = -0.5 * (squares + t * (log_determinant + n * math.log(2 * math.pi) + rest))
    weights = _solve(root, _solve(noisy_root, projected, True), True)
    return Inducing(bound, weights, root, noisy_root)


@jit
def _compiled(kernel: Kernel, points: Any, noise: Any, X: Any, y: Any) -> Inducing:
    return _summarise(kernel, points, noise, X, y)


@jit
def _compiled_gradient(kernel: Kernel, points: Any, noise: Any, X: Any, y: Any) -> tuple[Any, Any]:
    return jax.value_and_grad(lambda kernel: _summarise(kernel, points, noise, X, y).bound)(kernel)


@limit_blas()
def summarise(
    kernel: Kernel, points: np.ndarray, noise: np.ndarray, X: np.ndarray, y: np.ndarray
) -> Inducing:
    """Return the bound of log p(y | X) and the posterior of f through the inducing points.

    Args:
        kernel: k.
        points: Z, (m, d).
        noise: the variances of the noise beside that of `White` terms, (n,).
        X: the rows, (n, d).
        y: the values, (n, t).

    Titsias (2009), Variational learning of inducing variables in sparse Gaussian processes.
    """
    with jax.enable_x64(True):
        return Inducing(*map(np.asarray, _compiled(kernel, points, noise, X, y)))


@limit_blas()
def bound_and_gradient(
    kernel: Kernel, points: np.ndarray, noise: np.ndarray, X: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray] | None:
    """Return the bound and its gradient in `kernel.theta`; None where a matrix is not positive definite."""
    with jax.enable_x64(True):
        value, slope = _compiled_gradient(kernel, points, noise, X, y)
    gradient = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)]) * np.exp(kernel.theta)
    return (float(value), gradient) if np.isfinite(value) and np.isfinite(gradient).all() else None


@limit_blas()
def predictive_variance(kernel: Kernel, X: np.ndarray, points: np.ndarray, found: Inducing) -> np.ndarray:
    """Return Var[f(X)] of every row, (m,); rounding below 0 is cut off."""
    from scipy.linalg import solve_triangular

    with jax.enable_x64(True):
        variance = np.array(kernel.diagonal(X))
        for rows, cross in cross_covariances(kernel, X, points):
            half = solve_triangular(found.root, cross.T, lower=True)
            noisy = solve_triangular(found.noisy_root, half, lower=True)
            variance[rows] += (noisy**2).sum(0) - (half**2).sum(0)
    return np.maximum(variance, 0)


@limit_blas()
def predictive_covariance(kernel: Kernel, X: np.ndarray, points: np.ndarray, found: Inducing) -> np.ndarray:
    """Return the covariance of f at all rows of X, (m, m)."""
    from scipy.linalg import solve_triangular

    with jax.enable_x64(True):
        half = solve_triangular(found.root, np.asarray(kernel.matrix(X, points)).T, lower=True)
        noisy = solve_triangular(found.noisy_root, half, lower=True)
        return np.asarray(kernel.matrix(X)) - half.T @ half + noisy.T @ noisy
