"""Class-conditional Gaussians: moments of classes, shrinkage, and the directions that separate classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from ..._util.sizes import HOST_PRODUCT_NUMBERS, slices


class ClassMoments(NamedTuple):
    """The weight (k,), mean (k, d) and maximum-likelihood covariance (k, d, d) of every class."""

    weight: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def pooled(self) -> np.ndarray:
        """The covariance about the means of the classes, (d, d)."""
        return np.tensordot(self.weight / self.weight.sum(), self.covariances, axes=1)


def class_moments(X: np.ndarray, index: np.ndarray, weight: np.ndarray, k: int) -> ClassMoments:
    """Return the moments of k classes of rows, each about its own mean, in float64.

    Args:
        X: the rows, (n, d).
        index: the class of every row, (n,).
        weight: the weights of the rows, (n,).
        k: the number of classes.

    >>> moments = class_moments(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]), np.ones(3), 2)
    >>> moments.means.ravel().tolist(), moments.covariances.ravel().tolist(), moments.pooled.tolist()
    ([1.0, 5.0], [1.0, 0.0], [[0.6666666666666666]])
    """
    d = X.shape[1]
    total, means, covariances = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index, minlength=k))
    for z in range(k):
        rows = order[ends[z - 1] if z else 0 : ends[z]]
        chunks = [rows[some] for some in slices(len(rows), max(1, HOST_PRODUCT_NUMBERS // d))]
        total[z] = weight[rows].sum(dtype=np.float64)
        means[z] = sum(weight[c].astype(np.float64) @ X[c] for c in chunks) / total[z]
        for c in chunks:
            centred = X[c] - means[z]
            covariances[z] += (centred * weight[c, None]).T @ centred / total[z]
    return ClassMoments(total, means, covariances)


def shrink(covariance: np.ndarray, shrinkage: float) -> np.ndarray:
    """Return (1 − s) Σ + s (tr Σ / d) I.

    >>> shrink(np.diag([1.0, 3.0]), 0.5).tolist()
    [[1.5, 0.0], [0.0, 2.5]]
    """
    d = len(covariance)
    return (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)


def ledoit_wolf(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the covariance of rows with Ledoit and Wolf's shrinkage of the standardised columns, (d, d).

    A row of weight 2 is two rows. scikit-learn's function is the same without weights.

    Ledoit and Wolf (2004), A well-conditioned estimator for large-dimensional covariance matrices.
    """
    d, n = X.shape[1], weight.sum(dtype=np.float64)
    centred = X - (weight @ X) / n
    scale = np.sqrt((weight @ centred**2) / n)
    scale[scale == 0] = 1
    centred = centred / scale
    covariance = (centred * weight[:, None]).T @ centred / n
    squares = centred**2
    mean_variance = np.trace(covariance) / d
    distance = ((covariance - mean_variance * np.eye(d)) ** 2).sum() / d
    noise = (weight @ squares.sum(1) ** 2 / n - (covariance**2).sum()) / (d * n)
    shrinkage = min(noise, distance) / distance if distance > 0 and d > 1 else 0.0
    return scale[:, None] * shrink(covariance, max(shrinkage, 0.0)) * scale


def widen_null_directions(covariance: np.ndarray, tol: float) -> tuple[np.ndarray, bool]:
    """Return the covariance with wide directions where it has none, and whether there are any.

    A direction is an eigenvector of the correlations; columns that are constant, or sums of others, have
    eigenvalues of 0, and no inverse. Eigenvalues of at most tol² become 10⁴, so that distances along them
    count for nothing.

    >>> widen_null_directions(np.ones((2, 2)), 1e-4)[0].round(1).tolist()
    [[5001.0, -4999.0], [-4999.0, 5001.0]]
    """
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    is_null = values <= max(tol**2, 10 * len(values) * np.finfo(values.dtype).eps)
    if not is_null.any():
        return covariance, False
    wide = (vectors * np.where(is_null, 1e4, values)) @ vectors.T
    return np.outer(scale, scale) * (wide + wide.T) / 2, True


class Directions(NamedTuple):
    """Directions in order of how well they separate the classes: `scalings` (d, m), their parts of the
    variance between classes (m,)."""

    scalings: np.ndarray
    ratio: np.ndarray


def between_directions(within: np.ndarray, means: np.ndarray, priors: np.ndarray, tol: float) -> Directions:
    """Return the directions that maximise the variance between the means over that within the classes.

    The scaled columns have a variance of 1 within the classes. Fisher (1936), The use of multiple
    measurements in taxonomic problems; Rao (1948), The utilization of multiple measurements.
    """
    factor = np.linalg.cholesky(within)
    centred = (means - priors @ means) * np.sqrt(priors)[:, None]
    white = scipy.linalg.solve_triangular(factor, centred.T, lower=True).T
    _, s, vt = np.linalg.svd(white, full_matrices=False)
    rank = int((s > tol * s[0]).sum()) if len(s) and s[0] > 0 else 0
    scalings = scipy.linalg.solve_triangular(factor, vt[:rank].T, lower=True, trans="T")
    total = (s**2).sum()
    return Directions(scalings, s**2 / total if total > 0 else s)


def general_directions(within: np.ndarray, total: np.ndarray) -> Directions:
    """Return the eigenvectors of (Σ − Σ_within) v = λ Σ_within v, the largest λ first; Σ is of all rows.

    With shrinkage, or with priors that are not the frequencies, Σ − Σ_within is not that of the means.
    """
    values, vectors = scipy.linalg.eigh(total - within, within)
    values = values[::-1]
    return Directions(vectors[:, ::-1], values / values.sum())


def linear_scores(covariance: np.ndarray, means: np.ndarray, priors: np.ndarray, origin: Any) -> Any:
    """Return (W, b) such that log p(y | x) = (Wx + b)_y + const: W = Σ⁻¹ (μ − origin)."""
    factor = scipy.linalg.cho_factor(covariance, lower=True)
    weight = scipy.linalg.cho_solve(factor, (means - origin).T).T
    with np.errstate(divide="ignore"):
        bias = -0.5 * ((means - origin) * weight).sum(1) - weight @ origin + np.log(priors)
    return weight, bias
