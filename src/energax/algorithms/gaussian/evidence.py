"""Evidence maximisation of linear models with normal noise, on reduced rows. MacKay (1992).

p(y | X) = ∫ N(y; Xw, 1/β) N(w; 0, diag(1/α)) dw is maximised over β and α, one α for all weights or one for
each. At the maximum, with γ_j = 1 − α_j Σ_jj, α = γ / w² and β = (n − Σ γ) / ‖y − Xw‖², where w and Σ are the
mean and the covariance of the posterior. The prior densities of β and α are gamma distributions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from .least_squares import ReducedRows

_LOG_2PI = float(np.log(2 * np.pi))


class Hyperprior(NamedTuple):
    """Shapes and rates of the gamma distributions of β (`noise_`) and of α (`weight_`)."""

    noise_shape: float = 0.0
    noise_rate: float = 0.0
    weight_shape: float = 0.0
    weight_rate: float = 0.0

    def noise_precision(self, count: float, squares: float) -> float:
        """The update of β for a number of rows less γ and a sum of squared residuals."""
        return _ratio(count + 2 * self.noise_shape, squares + 2 * self.noise_rate)

    def weight_precision(self, count, squares):
        """The update of α for γ and the squared weights."""
        return _ratio(count + 2 * self.weight_shape, squares + 2 * self.weight_rate)

    def log_density(self, alpha, beta: float) -> float:
        """The logarithm of the densities at α and β, up to a constant."""
        weights = np.sum(_times_log(self.weight_shape, alpha) - self.weight_rate * alpha)
        return float(weights + _times_log(self.noise_shape, beta) - self.noise_rate * beta)


class EvidenceMaximum(NamedTuple):
    """The maximum of the evidence.

    Attributes:
        mean, covariance: of the posterior of w, (d,) and (d, d); for relevance only of the columns kept.
        weight_precision: α, a number or (d,).
        noise_precision: β.
        scores: the log evidence before every iteration and at the end, if it was asked for.
        n_iter: iterations.
        converged: whether the last change of the mean was below the tolerance.
    """

    mean: np.ndarray
    covariance: np.ndarray
    weight_precision: np.ndarray
    noise_precision: float
    scores: np.ndarray
    n_iter: int
    converged: bool


def _ratio(above, below):
    return above / np.maximum(below, np.finfo(np.float64).tiny ** 0.5)


def _times_log(shape: float, value):
    return shape * np.log(value) if shape else 0.0 * np.asarray(value)


def maximise_evidence(
    rows: ReducedRows,
    alpha: float,
    beta: float,
    prior: Hyperprior,
    *,
    max_iter: int,
    tol: float,
    score: bool = False,
) -> EvidenceMaximum:
    """Return the maximum with one α for all weights, from a start.

    In the axes of the singular value decomposition X = U S Vᵀ an iteration is O(d²).

    Args:
        rows: the data.
        alpha, beta: the start.
        prior: of α and β.
        max_iter: the most iterations.
        tol: converged when the weights change by less in total.
        score: whether to compute the log evidence at every iteration.
    """
    d = rows.columns.shape[1]
    u, s, vt = scipy.linalg.svd(rows.columns, full_matrices=len(rows.columns) < d)
    vt_full, vt = vt, vt[: len(s)]
    along = u.T[: len(s)] @ rows.target
    outside = float(((rows.target - u[:, : len(s)] @ along) ** 2).sum())
    padded = np.concatenate([s, np.zeros(d - len(s))])

    def posterior(alpha, beta):
        rotated = s * along / (s**2 + alpha / beta)
        return vt.T @ rotated, outside + float(((along - s * rotated) ** 2).sum())

    def evidence(alpha, beta, mean, squares):
        log_det = np.log(alpha + beta * padded**2).sum()
        fit = beta * squares + alpha * (mean**2).sum() + rows.total * (_LOG_2PI - np.log(beta))
        return prior.log_density(alpha, beta) + 0.5 * (d * np.log(alpha) - fit - log_det)

    scores, before, converged, n_iter = [], None, False, 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        mean, squares = posterior(alpha, beta)
        if score:
            scores.append(evidence(alpha, beta, mean, squares))
        gamma = (beta * s**2 / (alpha + beta * s**2)).sum()
        alpha = float(prior.weight_precision(gamma, (mean**2).sum()))
        beta = float(prior.noise_precision(rows.total - gamma, squares))
        converged = before is not None and bool(np.abs(mean - before).sum() < tol)
        before = mean
    mean, squares = posterior(alpha, beta)
    if score:
        scores.append(evidence(alpha, beta, mean, squares))
    covariance = (vt_full.T / (alpha + beta * padded**2)) @ vt_full
    return EvidenceMaximum(mean, covariance, np.asarray(alpha), beta, np.array(scores), n_iter, converged)


def maximise_relevance(
    rows: ReducedRows,
    beta: float,
    prior: Hyperprior,
    *,
    max_iter: int,
    tol: float,
    threshold: float,
    score: bool = False,
) -> EvidenceMaximum:
    """Return the maximum with one α for every weight; columns with α above `threshold` are dropped.

    An iteration is O(min(k, d)² d) with d columns that are left.

    Args:
        rows: the data.
        beta: the start of β; every α starts at 1.
        prior: of α and β.
        max_iter: the most iterations.
        tol: converged when the weights change by less in total.
        threshold: the α from which a weight is 0.
        score: whether to compute the log evidence at every iteration.
    """
    d = rows.columns.shape[1]
    alpha, kept = np.ones(d), np.ones(d, bool)
    scores, before, converged, n_iter = [], None, False, 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        mean, covariance, squares = _posterior(rows, alpha, beta, kept)
        if score:
            scores.append(_evidence(rows, alpha[kept], beta, mean[kept], covariance, squares, prior))
        gamma = 1 - alpha[kept] * np.diag(covariance)
        alpha[kept] = prior.weight_precision(gamma, mean[kept] ** 2)
        beta = float(prior.noise_precision(rows.total - gamma.sum(), squares))
        kept = alpha < threshold
        mean = np.where(kept, mean, 0)
        small = before is not None and bool(np.abs(mean - before).sum() < tol)
        converged, before = small or not kept.any(), mean
    mean, covariance, squares = _posterior(rows, alpha, beta, kept)
    if score:
        scores.append(_evidence(rows, alpha[kept], beta, mean[kept], covariance, squares, prior))
    return EvidenceMaximum(mean, covariance, alpha, beta, np.array(scores), n_iter, converged)


def _posterior(rows, alpha, beta, kept):
    """Return the mean (d,), the covariance of the kept weights, and the squared error at the mean."""
    columns, precision = rows.columns[:, kept], alpha[kept]
    scaled = np.sqrt(beta) * columns / np.sqrt(precision)  # in units in which the prior is N(0, 1)
    k, d = scaled.shape
    if k < d:  # the inverse of a k × k matrix, by Woodbury's identity
        half = scipy.linalg.solve_triangular(
            np.linalg.cholesky(np.eye(k) + scaled @ scaled.T), scaled, lower=True
        )
        inner = np.eye(d) - half.T @ half
    else:
        inner = scipy.linalg.inv(np.linalg.cholesky(np.eye(d) + scaled.T @ scaled))
        inner = inner.T @ inner
    covariance = inner / np.sqrt(precision) / np.sqrt(precision)[:, None]
    mean = np.zeros(len(kept))
    mean[kept] = beta * covariance @ (columns.T @ rows.target)
    return mean, covariance, float(((rows.target - columns @ mean[kept]) ** 2).sum())


def _evidence(rows, alpha, beta, mean, covariance, squares, prior):
    log_det = np.linalg.slogdet(covariance)[1] if len(alpha) else 0.0
    fit = beta * squares + alpha @ mean**2 + rows.total * (_LOG_2PI - np.log(beta))
    return prior.log_density(alpha, beta) + 0.5 * (np.log(alpha).sum() - fit + log_det)


def predictive_variance(rows: np.ndarray, covariance: np.ndarray, noise_precision: float) -> np.ndarray:
    """Return the variance of y for rows of inputs (n, d): xᵀΣx + 1/β."""
    return np.einsum("ij,ij->i", rows @ covariance, rows) + 1 / noise_precision
