"""Steps of β from 0 to 1: where they lie and how many there are, from a trial run."""

from __future__ import annotations

import numpy as np

#: Pieces of a schedule, between which the density of steps changes.
N_PIECES = 64


def even_schedule() -> np.ndarray:
    """Return the ends of the pieces, at equal distances."""
    return np.linspace(0.0, 1.0, N_PIECES + 1)


def place(knots: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return ends of pieces of equal cost.

    A piece i of n steps adds costs_i to the variance of log w. With density n(β) of steps the variance is
    ∫ c(β) / n(β) dβ, and n ∝ √c makes it smallest.

    >>> place(np.array([0.0, 0.5, 1.0]), np.array([1.0, 9.0]))          # three times as dense above ½
    array([0.        , 0.66666667, 1.        ])
    """
    lengths = np.sqrt(costs)
    ends = np.concatenate([[0.0], np.cumsum(lengths)]) / lengths.sum()
    found = np.interp(np.linspace(0, 1, len(knots)), ends, knots)
    found[0], found[-1] = knots[0], knots[-1]
    return found


def local_costs(pieces: np.ndarray) -> np.ndarray:
    """Return the contribution of every piece to the variance of the log-weight, > 0.

    pieces: changes of the log-weight of every piece and chain, (n_pieces, n_chains). The contribution of a
    piece is its covariance with the sum of all, without the few lowest chains, smoothed over neighbours.
    """
    total = pieces.sum(0)
    keep = total >= np.quantile(total, 0.05)
    centred = pieces[:, keep] - pieces[:, keep].mean(1, keepdims=True)
    own = (centred**2).mean(1)
    near = np.stack([np.roll(centred, shift, 0) for shift in (-2, -1, 0, 1, 2)])
    shared = (near.sum(0) * centred).mean(1)
    costs = np.maximum(shared, 0.5 * own)
    kernel = np.array([1.0, 2.0, 3.0, 2.0, 1.0])
    weights = np.convolve(np.ones_like(costs), kernel, "same")
    smooth = np.convolve(costs, kernel, "same") / weights
    return np.maximum(smooth, 0.02 * smooth.mean() + 1e-12)


def spread(pieces: np.ndarray) -> float:
    """Return the variance of the log-weights, without the few lowest chains, whose weights are nearly 0."""
    total = pieces.sum(0)
    return float(np.var(total[total >= np.quantile(total, 0.05)], ddof=1))


def n_steps_for(variance_times_steps: float, n_chains: int, stderr: float) -> int:
    """Return how many steps give this standard error of log mean w, for normal log-weights.

    Their variance v falls as 1 / n_steps, and the standard error is √((eᵛ − 1) / n_chains).

    >>> n_steps_for(1000.0, 100, 0.1)                                       # v = log 2
    1443
    """
    return int(np.ceil(variance_times_steps / np.log1p(n_chains * stderr**2)))
