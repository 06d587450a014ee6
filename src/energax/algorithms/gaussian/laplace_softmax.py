"""Laplace's approximation of k Gaussian processes with softmax likelihood, from their common kernel matrix.

p(f | y) ∝ Π_c N(f_c; 0, K) Π_i softmax(f_i)[y_i]^w_i, with f (k, n), is replaced by the Gaussian with the
same mode and curvature W = D − DRP⁻¹RᵀD, with D = diag(w π), P = diag(w), and R (kn, n) of k identities. So
(K + W⁻¹)⁻¹ = E − ER(RᵀER)⁻¹RᵀE, where E = (K + D⁻¹)⁻¹ has one block per class: k + 1 factors of n × n instead
of one of kn × kn. The functions have the names of those for two classes, in `laplace`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from .process import Factor, factor

_MAX_HALVINGS = 40


class SoftmaxCurvature(NamedTuple):
    """The factors that solve with K + W⁻¹, for probabilities π (k, n) and weights of the rows (n,).

    `factors` are those of B_c = I + D_c^½ K D_c^½, `common` that of S = Σ_c π_c^½ B_c⁻¹ π_c^½, with which
    RᵀER = w^½ S w^½. The eigenvalues of B_c are at least 1, and those of S at most 1.
    """

    root: np.ndarray  # π^½, (k, n)
    root_weight: np.ndarray  # w^½, (n,)
    factors: tuple[Factor, ...]
    common: Factor

    @property
    def log_determinant(self) -> float:
        """log|I + KW|."""
        return sum(each.log_determinant for each in self.factors) + self.common.log_determinant

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return (K + W⁻¹)⁻¹ right, for right (k, n)."""
        pairs = zip(self.factors, self.root, self.root_weight * right, strict=True)
        own = np.stack([root * _solve(each, root * one) for each, root, one in pairs])
        shared = _solve(self.common, own.sum(0))
        pairs = zip(self.factors, self.root, own, strict=True)
        less = [one - root * _solve(each, root * shared) for each, root, one in pairs]
        return self.root_weight * np.stack(less)


class SoftmaxMode(NamedTuple):
    """The mode of p(f | y), and Gaussian quantities there, each (k, n)."""

    f: np.ndarray
    weights: np.ndarray  # K⁻¹f = ∇ log p(y | f)
    curvature: SoftmaxCurvature
    log_evidence: float
    converged: bool


def _solve(matrix: Factor, right: np.ndarray) -> np.ndarray:
    return matrix.solve(right[:, None])[:, 0]


def _complete(lower: np.ndarray) -> np.ndarray:
    return np.tril(lower) + np.tril(lower, -1).T


def _likelihood(f: np.ndarray, sign: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log p(y | f), its gradient, and the probabilities of the classes."""
    log_p = log_softmax(f, 0)
    p = np.exp(log_p)
    return float(weight @ log_p.sum(0, where=sign > 0)), weight * ((sign + 1) / 2 - p), p


def _curvature(kernel: np.ndarray, p: np.ndarray, weight: np.ndarray) -> SoftmaxCurvature | None:
    """Return the factors; None if a matrix is not finite or not definite."""
    root, root_weight = np.sqrt(p), np.sqrt(weight)
    total, factors = np.zeros_like(kernel), []
    for one in root:
        scale = one * root_weight
        matrix = scale[:, None] * kernel * scale
        matrix[np.diag_indices_from(matrix)] += 1
        found = factor(matrix, jitter=False)
        if found is None:
            return None
        factors.append(found)
        total += one[:, None] * _complete(found.inverse()) * one
    common = factor(total, jitter=False)
    return None if common is None else SoftmaxCurvature(root, root_weight, tuple(factors), common)


def find_mode(
    kernel: np.ndarray,
    sign: np.ndarray,
    weight: np.ndarray,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> SoftmaxMode | None:
    """Return the mode of p(f | y) by Newton's method; None if the kernel matrix has no finite answer.

    Args:
        kernel: K, (n, n) float64, the same for all classes.
        sign: +1 for the class of a row, −1 for the others, (k, n).
        weight: the weights of the rows, (n,).
        tol: stop after a step from which Σ_c ½f_cᵀK⁻¹f_c − log p(y | f) could decrease by no more.
        max_iter: the most steps from f = 0. A step is halved until this objective, which is convex, decreases
            in proportion, so that Newton's method converges for any kernel.

    Rasmussen and Williams (2006), algorithm 3.3, with weights.
    """
    if not np.isfinite(kernel).all():
        return None
    a = f = np.zeros(sign.shape)
    log_p, slope, p = _likelihood(f, sign, weight)
    objective = -log_p
    converged = False
    for _ in range(max_iter):
        curvature = _curvature(kernel, p, weight)
        if curvature is None or not np.isfinite(objective):
            return None
        b = weight * p * (f - (p * f).sum(0)) + slope  # Wf + ∇ log p
        step, length = b - curvature.solve(b @ kernel) - a, 1.0
        step_f = step @ kernel
        decrease = float(((slope - a) * step_f).sum())  # in the direction of the step, at its start
        for _ in range(_MAX_HALVINGS):  # the full step is nearly always taken
            new, new_f = a + length * step, f + length * step_f
            new_log_p, new_slope, new_p = _likelihood(new_f, sign, weight)
            new_objective = 0.5 * float((new * new_f).sum()) - new_log_p
            if new_objective <= objective - 1e-4 * length * decrease + 1e-12 * abs(objective):
                break
            length /= 2
        converged = 0.5 * decrease <= tol
        a, f, slope, p, objective = new, new_f, new_slope, new_p, new_objective
        if converged:
            break
    curvature = _curvature(kernel, p, weight)
    if curvature is None:
        return None
    return SoftmaxMode(f, a, curvature, -objective - 0.5 * curvature.log_determinant, converged)


def evidence_slope(kernel: np.ndarray, mode: SoftmaxMode) -> np.ndarray:
    """Return G with ∂ log evidence = Σ_ij G_ij ∂K_ij, the change of the mode included.

    With a = K⁻¹f, which is ∇ log p(y | f), M = (K + W⁻¹)⁻¹ and s = −½ ∂ log|I + KW| / ∂f at the mode,
    G = Σ_c ½ a_c a_cᵀ − ½ M_cc + (s − MKs)_c a_cᵀ. The likelihood mixes only the classes of one row, so of
    the covariance V = K − KMK of f at the mode, s needs only the block (k, k) of each row, and of this block
    only its diagonal and its product with π: s_l = −½ w π_l (V_ll − Σ_c π_c V_cc − 2 (Vπ)_l + 2 πᵀVπ).

    The analogue of Rasmussen and Williams (2006), algorithm 5.1, for several classes.
    """
    curvature, diagonal = mode.curvature, np.diagonal(kernel)
    p = curvature.root**2
    reduced, mixed, halves = np.zeros_like(kernel), np.zeros_like(kernel), []
    variance = np.empty_like(p)  # of f_c alone, as if the classes were independent given D
    for c, (found, root) in enumerate(zip(curvature.factors, curvature.root, strict=True)):
        scale = root * curvature.root_weight
        variance[c] = diagonal - (found.whiten(scale[:, None] * kernel) ** 2).sum(0)
        inverse = _complete(found.inverse())
        onto = curvature.common.whiten(root[:, None] * inverse * scale)
        reduced += scale[:, None] * inverse * scale - onto.T @ onto  # M_cc
        halves.append(onto @ kernel)
        mixed += halves[c] * p[c]
    with_p = p * variance + np.stack([(half * mixed).sum(0) for half in halves])  # (Vπ)_l
    variance = variance + np.stack([(half**2).sum(0) for half in halves])  # V_ll
    bracket = variance - (variance * p).sum(0) - 2 * with_p + 2 * (with_p * p).sum(0)
    by_mode = -0.5 * curvature.root_weight**2 * p * bracket
    along = by_mode - curvature.solve(by_mode @ kernel)
    return 0.5 * mode.weights.T @ mode.weights - 0.5 * reduced + along.T @ mode.weights


def predict(kernel: np.ndarray, variance: np.ndarray, mode: SoftmaxMode) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (m, k) and covariance (m, k, k) of f at new points.

    Args:
        kernel: k of these and the old points, (m, n).
        variance: k of each new point with itself, (m,).
        mode: the mode of f at the old points.

    Rasmussen and Williams (2006), algorithm 3.4.
    """
    curvature = mode.curvature
    own, halves = [], []
    for found, root in zip(curvature.factors, curvature.root, strict=True):
        right = (root * curvature.root_weight)[:, None] * kernel.T
        solved = found.solve(right)
        own.append(np.maximum(variance - (right * solved).sum(0), 0))
        halves.append(curvature.common.whiten(root[:, None] * solved))
    half = np.stack(halves, 2).transpose(1, 2, 0)  # (m, k, n)
    covariance = half @ half.transpose(0, 2, 1)
    classes = np.arange(len(own))
    covariance[:, classes, classes] += np.stack(own, 1)
    # K⁻¹f, not ∇ log p(y | f): their difference is small, but not its product with kernels of large variance.
    return kernel @ mode.weights.T, covariance
