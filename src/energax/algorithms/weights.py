"""Means of weighted draws, from the logarithms of their weights: rows (n, draws) at once."""

from __future__ import annotations

import numpy as np


def log_mean_weight(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log mean w of every row (n, draws), and its standard error by the delta method.

    >>> value, error = log_mean_weight(np.log([[1.0, 3.0]]))
    >>> value.round(3), error.round(3)                        # log 2, and ½
    (array([0.693]), array([0.5]))
    """
    logs = np.asarray(log_weights, float)
    top = np.max(logs, axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(logs - top)
    mean = weights.mean(1)
    if weights.shape[1] < 2:
        return logs[:, 0], np.full(len(logs), np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(mean) + top[:, 0]
        error = weights.std(1, ddof=1) / np.sqrt(weights.shape[1]) / mean
    return value, np.where(mean > 0, error, np.inf)


def normalise_weights(log_weights: np.ndarray) -> np.ndarray:
    """Weights that sum to one in every row (…, draws); NaN where all are zero.

    >>> normalise_weights(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    logs = np.asarray(log_weights, float)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logs - logs.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def effective_sample_size(weights: np.ndarray) -> np.ndarray:
    """1 / Σ w² of normalised weights (…, draws): the number of independent draws of the same variance.

    >>> float(effective_sample_size(np.full(4, 0.25)))
    4.0
    """
    return 1 / np.sum(weights**2, axis=-1)


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ w f of every row, (n, *shape), and its standard error √Σ w² (f − Σ w f)², by the delta method.

    Booleans are zeros and ones of one probability. Its error is at least that of (½ + hits) / (1 + draws) for
    the effective number of draws, since draws without a hit, or with nothing else, have no spread.

    Args:
        values: f at the draws, (n, draws, *shape).
        weights: normalised weights, (n, draws).

    >>> mean, error = weighted_mean(np.array([[1.0, 3.0]]), np.array([[0.5, 0.5]]))
    >>> mean, error
    (array([2.]), array([1.]))
    """
    w = weights.reshape(*weights.shape, *([1] * (values.ndim - 2)))
    mean = (w * values).sum(1)
    if values.shape[1] < 2:
        return mean, np.full_like(mean, np.inf)
    correction = values.shape[1] / (values.shape[1] - 1)
    error = np.sqrt((w**2 * (values - mean[:, None]) ** 2).sum(1) * correction)
    if values.dtype == bool:
        error = np.maximum(error, least_error_of_probability(mean, 1 / (w**2).sum(1)))
    return mean, error


def least_error_of_probability(p: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The standard error of a frequency p among n draws, moved from 0 and 1 by half a draw.

    >>> float(least_error_of_probability(np.array(0.0), np.array(99)).round(5))
    0.00709
    """
    moved = (p * n + 0.5) / (n + 1)
    return np.sqrt(moved * (1 - moved) / n)
