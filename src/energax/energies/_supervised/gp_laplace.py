"""Gaussian processes of classes by Laplace's method, on the host: evidence, its gradient, predictions.

The signs of the classes decide the likelihood: those of one process, (n,), are for two classes, those of one
process per class, (k, n), for the softmax.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.blas import limit_blas
from ...algorithms.gaussian import laplace, laplace_softmax
from ...algorithms.gaussian.laplace import Mode, mean_sigmoid
from ...algorithms.gaussian.laplace_softmax import SoftmaxMode
from ...algorithms.gaussian.mean_softmax import mean_softmax
from ...kernels import Kernel
from ...programs import jit
from .gp_exact import cross_covariances

AnyMode = Mode | SoftmaxMode


@jit
def _pull_back(kernel: Kernel, X: Any, slope: Any) -> Any:
    """Σ_ij G_ij ∂K_ij / ∂ hyperparameters, a tree like the kernel."""
    _, pull = jax.vjp(lambda kernel: kernel.matrix(X), kernel)
    return pull(slope)[0]


def _numerics(sign: np.ndarray) -> Any:
    """The module with the functions for signs (n,), or (k, n)."""
    return laplace if sign.ndim == 1 else laplace_softmax


@limit_blas()
def fit_mode(kernel: Kernel, X: np.ndarray, sign: np.ndarray, weight: np.ndarray) -> AnyMode | None:
    """Return the mode of p(f | y); None if the kernel matrix has no finite answer.

    Args:
        kernel: k.
        X: the points, (n, d).
        sign: y = ±1, (n,), or +1 for the class of a row and −1 for the others, (k, n).
        weight: the weights of the rows, (n,).
    """
    with jax.enable_x64(True):
        return _numerics(sign).find_mode(np.asarray(kernel.matrix(X)), sign, weight)


@limit_blas()
def evidence_and_gradient(
    kernel: Kernel, X: np.ndarray, sign: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray] | None:
    """Return Laplace's log p(y | X) and its gradient in `kernel.theta`; None if there is no finite answer."""
    numerics = _numerics(sign)
    with jax.enable_x64(True):
        matrix = np.asarray(kernel.matrix(X))
        mode = numerics.find_mode(matrix, sign, weight)
        if mode is None:
            return None
        slope = _pull_back(kernel, X, numerics.evidence_slope(matrix, mode))
    parts = [np.ravel(leaf) for leaf in jax.tree.leaves(slope)]
    return mode.log_evidence, np.concatenate([np.zeros(0), *parts]) * np.exp(kernel.theta)


@limit_blas()
def latent_moments(
    kernel: Kernel, X: np.ndarray, points: np.ndarray, mode: AnyMode
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f at every row of X, (m,); of k functions (m, k) and (m, k, k)."""
    numerics, n_classes = _numerics(mode.f), mode.f.size // len(points)
    with jax.enable_x64(True):
        variance = np.asarray(kernel.diagonal(X))
        parts = [
            numerics.predict(cross, variance[rows], mode)
            for rows, cross in cross_covariances(kernel, X, points, n_classes)
        ]
    mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean, variance


def class_probabilities(kernel: Kernel, X: np.ndarray, points: np.ndarray, mode: AnyMode) -> np.ndarray:
    """Return p(y | x) of every row of X, (m, 2) or (m, k): the mean of σ(±f), or of softmax(f)."""
    mean, variance = latent_moments(kernel, X, points, mode)
    if mean.ndim > 1:
        return mean_softmax(mean, variance)
    positive = mean_sigmoid(mean, variance)
    return np.stack([1 - positive, positive], 1)
