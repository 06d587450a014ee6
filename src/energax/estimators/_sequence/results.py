"""Results of the estimators of sequences: convergence, forecasts."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass
class ConvergenceMonitor:
    """The progress of a fit, hmmlearn's `monitor_`.

    `history` holds the log-likelihood before every iteration. `converged` is True only if the gain fell to
    `tol`.
    """

    tol: float
    n_iter: int
    history: list[float]
    converged: bool

    @property
    def iter(self) -> int:
        """The number of iterations."""
        return len(self.history)


class HMMForecast(NamedTuple):
    """A forecast: probabilities of the states (…, steps, k), and expected observations (…, steps, d)."""

    states: np.ndarray
    mean: np.ndarray


class ForecastBands(NamedTuple):
    """A forecast: means, bounds of the bands (…, steps, d), and covariances (…, steps, d, d)."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    covariance: np.ndarray
