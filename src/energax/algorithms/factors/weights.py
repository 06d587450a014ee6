"""Weighted draws of finite variables: estimates from importance weights."""

from __future__ import annotations

from collections.abc import Sequence

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
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(mean) + top[:, 0]
        error = weights.std(1, ddof=1) / np.sqrt(weights.shape[1]) / mean
    return value, np.where(mean > 0, error, np.inf)


def normalise_weights(log_weights: np.ndarray) -> np.ndarray:
    """Weights that sum to one, from the log weights of one row."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def effective_sample_size(weights: np.ndarray) -> float:
    """1 / Σ w² of normalised weights: the number of independent draws with the same variance.

    >>> float(effective_sample_size(np.full(4, 0.25)))
    4.0
    """
    return 1 / np.sum(weights**2)


def weighted_table(states: Sequence[np.ndarray], weights: np.ndarray, cards: Sequence[int]) -> np.ndarray:
    """The joint table of variables from weighted draws, flat, the last variable fastest.

    >>> weighted_table([np.array([0, 1, 1])], np.array([0.5, 0.25, 0.25]), (2,))
    array([0.5, 0.5])
    """
    index = np.ravel_multi_index(tuple(states), tuple(cards))
    return np.bincount(index, weights, minlength=int(np.prod(cards)))
