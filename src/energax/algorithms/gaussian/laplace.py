"""Laplace's approximation of a Gaussian process with logistic likelihood, from its kernel matrix.

p(f | y) ∝ N(f; 0, K) Π σ(s_i f_i)^w_i, with s_i = ±1, is replaced by the Gaussian with the same mode and
curvature. Newton's method works with B = I + W^½ K W^½, whose eigenvalues are at least 1, instead of K⁻¹.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf, expit, log_expit

from .process import Factor, factor

_MAX_HALVINGS = 20


class Mode(NamedTuple):
    """The mode of p(f | y), and Gaussian quantities there, each (n,)."""

    f: np.ndarray
    weights: np.ndarray  # K⁻¹f
    slope: np.ndarray  # ∇ log p(y | f), equal to K⁻¹f at the mode
    curvature: np.ndarray  # W = −∇∇ log p(y | f)
    factor: Factor  # of B = I + W^½ K W^½
    log_evidence: float
    converged: bool


def _likelihood(f: np.ndarray, sign: np.ndarray, weight: np.ndarray) -> tuple[Any, ...]:
    """log p(y | f), its gradient, and minus its second derivative."""
    p = expit(f)
    slope = weight * ((sign + 1) / 2 - p)
    return float(weight @ log_expit(sign * f)), slope, weight * p * (1 - p)


def find_mode(
    kernel: np.ndarray,
    sign: np.ndarray,
    weight: np.ndarray,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Mode | None:
    """Return the mode of p(f | y) by Newton's method; None if the kernel matrix has no finite answer.

    Args:
        kernel: K, (n, n) float64.
        sign: +1 or −1 for the two classes, (n,).
        weight: the weights of the rows, (n,).
        start: the weights K⁻¹f to start from; zeros if None.
        tol: stop if ½fᵀK⁻¹f − log p(y | f) decreases by no more.
        max_iter: the most steps.

    Rasmussen and Williams (2006), algorithm 3.1.
    """
    n = len(sign)
    a = np.zeros(n) if start is None else start
    f = kernel @ a
    log_p, slope, curvature = _likelihood(f, sign, weight)
    objective = 0.5 * a @ f - log_p
    converged = False
    for _ in range(max_iter):
        root = np.sqrt(curvature)
        found = _factor_b(kernel, root)
        if found is None or not np.isfinite(objective):
            return None
        b = curvature * f + slope
        target = b - root * found.solve((root * (kernel @ b))[:, None])[:, 0]
        step, length = target - a, 1.0
        for _ in range(_MAX_HALVINGS):  # Newton's full step nearly always decreases the objective
            new = a + length * step
            new_f = kernel @ new
            new_log_p, new_slope, new_curvature = _likelihood(new_f, sign, weight)
            new_objective = 0.5 * new @ new_f - new_log_p
            if new_objective <= objective + 1e-12 * abs(objective):
                break
            length /= 2
        converged = objective - new_objective <= tol
        a, f, log_p, slope, curvature, objective = (
            new, new_f, new_log_p, new_slope, new_curvature, new_objective
        )  # fmt: skip
        if converged:
            break
    found = _factor_b(kernel, np.sqrt(curvature))
    if found is None:
        return None
    return Mode(f, a, slope, curvature, found, -objective - 0.5 * found.log_determinant, converged)


def _factor_b(kernel: np.ndarray, root: np.ndarray) -> Factor | None:
    matrix = root[:, None] * kernel * root
    matrix[np.diag_indices_from(matrix)] += 1
    return factor(matrix, jitter=False)


def evidence_slope(kernel: np.ndarray, mode: Mode) -> np.ndarray:
    """Return G with ∂ log evidence = Σ_ij G_ij ∂K_ij, the change of the mode included.

    Rasmussen and Williams (2006), algorithm 5.1, for all hyperparameters at once.
    """
    root = np.sqrt(mode.curvature)
    half = mode.factor.whiten(root[:, None] * kernel)  # L⁻¹ W^½ K
    variance = np.diagonal(kernel) - (half**2).sum(0)  # of f, at every point
    third = -mode.curvature * (1 - 2 * expit(mode.f))  # ∂³ log p(y | f) / ∂f³
    by_mode = 0.5 * variance * third
    inverse = mode.factor.inverse()
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    reduced = root[:, None] * inverse * root  # (K + W⁻¹)⁻¹
    along = by_mode - reduced @ (kernel @ by_mode)
    return 0.5 * np.outer(mode.weights, mode.weights) - 0.5 * reduced + np.outer(along, mode.slope)


def predict(kernel: np.ndarray, variance: np.ndarray, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f at new points, from k of these (m, n) and their variances (m,)."""
    root = np.sqrt(mode.curvature)
    half = mode.factor.whiten(root[:, None] * kernel.T)
    # K⁻¹f, not ∇ log p(y | f): their difference is small, but not its product with kernels of large variance.
    return kernel @ mode.weights, np.maximum(variance - (half**2).sum(0), 0)


# -- probabilities -----------------------------------------------------------------------------------------

#: The scales of the error functions that approximate σ, and the points where the sum equals it.
_SCALES = np.array([0.41, 0.40, 0.37, 0.44, 0.39])
_POINTS = np.array([0.0, 0.6, 2.0, 3.5, 4.5, np.inf])


@functools.cache
def _coefficients() -> np.ndarray:
    """c_j such that Σ_j c_j Φ(√2 λ_j f) ≈ σ(f), by least squares."""
    with np.errstate(invalid="ignore"):
        table = (erf(np.outer(_POINTS, _SCALES)) + 1) / 2
    return np.linalg.lstsq(table, expit(_POINTS), rcond=None)[0]


def mean_sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return E[σ(f)] for f ~ N(mean, variance), elementwise, within 2e-4.

    σ is replaced by a sum of five error functions, whose means are known, as in scikit-learn.

    Williams and Barber (1998), Bayesian classification with Gaussian processes, appendix A.

    >>> mean_sigmoid(np.array([0.0, 2.0]), np.array([1.0, 0.0])).round(3)
    array([0.5  , 0.881])
    """
    c = _coefficients()
    inner = mean[..., None] * _SCALES / np.sqrt(1 + 2 * _SCALES**2 * variance[..., None])
    return np.clip(0.5 * (erf(inner) @ c + c.sum()), 0, 1)
