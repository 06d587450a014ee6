"""Platt scaling: the probability of a class as a sigmoid of the output of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import pad_size, pad_weighted
from ...energies import Bernoulli, LinearModel
from ...fitting import fit
from ...learn import NegativeLogLikelihood, Newton


def platt_scale(outputs: np.ndarray, is_positive: np.ndarray) -> np.ndarray:
    """Return (A, B) of p(positive) = 1 / (1 + exp(A f + B)), by maximum likelihood, (2,).

    The targets are (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2) instead of 1 and 0, as if each class had one more row
    of the other kind: separable outputs then have a maximum too. The model is a logistic regression in which
    every row has both labels, weighted by its target.

    Args:
        outputs: f of rows that the classifier was not fitted to, (n,).
        is_positive: whether the row is of the positive class, (n,).

    Platt (1999), Probabilistic outputs for support vector machines; Lin, Lin and Weng (2007), A note on
    Platt's probabilistic outputs for support vector machines.
    """
    n_positive = int(is_positive.sum())
    n_negative = len(outputs) - n_positive
    target = np.where(is_positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    # Newton's method starts from an f of unit size.
    scale = max(float(np.abs(outputs).max(initial=0.0)), 1e-300)
    rows: dict[str, Any] = {
        "x": np.tile(outputs / scale, 2)[:, None],
        "y": np.repeat(np.array([1.0, 0.0]), len(outputs)),
    }
    rows, weight = pad_weighted(rows, np.concatenate([target, 1 - target]), pad_size(2 * len(outputs)))
    bias = np.log((n_positive + 1) / (n_negative + 1))
    start = LinearModel(asarray(np.ones(1)), asarray(np.float64(bias)), Bernoulli())
    learner = Newton(NegativeLogLikelihood(), tol=1e-12)
    found: Any = fit(start, rows, learner, weights=weight, epochs=100, key=0).energy
    return -np.array([float(found.weight[0]) / scale, float(found.bias)])
