"""Gaussian processes of two classes by Laplace's method, on the host: evidence, its gradient, predictions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.blas import limit_blas
from ...algorithms.gaussian.laplace import Mode, evidence_slope, find_mode, mean_sigmoid, predict
from ...kernels import Kernel
from ...programs import jit
from .gp_exact import cross_covariances


@jit
def _pull_back(kernel: Kernel, X: Any, slope: Any) -> Any:
    """Σ_ij G_ij ∂K_ij / ∂ hyperparameters, a tree like the kernel."""
    _, pull = jax.vjp(lambda kernel: kernel.matrix(X), kernel)
    return pull(slope)[0]


@limit_blas()
def fit_mode(kernel: Kernel, X: np.ndarray, sign: np.ndarray, weight: np.ndarray) -> Mode | None:
    """Return the mode of p(f | y), y = ±1; None if the kernel matrix has no finite answer."""
    with jax.enable_x64(True):
        return find_mode(np.asarray(kernel.matrix(X)), sign, weight)


@limit_blas()
def evidence_and_gradient(
    kernel: Kernel, X: np.ndarray, sign: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray] | None:
    """Return Laplace's log p(y | X) and its gradient in `kernel.theta`; None if there is no finite answer."""
    with jax.enable_x64(True):
        matrix = np.asarray(kernel.matrix(X))
        mode = find_mode(matrix, sign, weight)
        if mode is None:
            return None
        slope = _pull_back(kernel, X, evidence_slope(matrix, mode))
    parts = [np.ravel(leaf) for leaf in jax.tree.leaves(slope)]
    return mode.log_evidence, np.concatenate([np.zeros(0), *parts]) * np.exp(kernel.theta)


@limit_blas()
def latent_moments(
    kernel: Kernel, X: np.ndarray, points: np.ndarray, mode: Mode
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f at every row of X."""
    with jax.enable_x64(True):
        variance = np.asarray(kernel.diagonal(X))
        parts = [predict(cross, variance[rows], mode) for rows, cross in cross_covariances(kernel, X, points)]
    mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean, variance


def positive_probability(kernel: Kernel, X: np.ndarray, points: np.ndarray, mode: Mode) -> np.ndarray:
    """Return p(y = +1 | x) of every row of X: the mean of σ(f)."""
    return mean_sigmoid(*latent_moments(kernel, X, points, mode))
