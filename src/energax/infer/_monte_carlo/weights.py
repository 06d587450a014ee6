"""Means of weights given as logarithms, with standard errors that heavy weights do not hide."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...errors import ConvergenceWarning
from ...estimate import Estimate, Kind

#: The part of the weights that must be effective for their spread to be a standard error as it is.
_ENOUGH = 0.25
#: The variance of log-weights above which the standard error does not rise: e^7 of 100 weights is 3 nats.
_WIDEST = 7.0


def as_estimate(value: float, stderr: float, kind: Kind, method: str, df: float | None = None) -> Estimate:
    """Return an `Estimate` in the precision of the energy, of numbers that were summed in float64."""
    dtype = jnp.zeros(()).dtype
    return Estimate(np.asarray(value, dtype), np.asarray(stderr, dtype), kind, method, df=df)


class LogMean(NamedTuple):
    """log mean w, its standard error, and the effective number of weights (Σw)² / Σw²."""

    value: float
    stderr: float
    ess: float


def log_mean_weight(log_weights: np.ndarray) -> LogMean:
    """Return log mean w of independent weights with a standard error.

    The error is std(w) / (√n w̄) by the delta method. If few weights dominate, that is too small, since the
    heaviest were not drawn; then it is at least that of normal log-weights with the spread of their upper
    half, √((e^{σ²} − 1) / n).

    >>> log_mean_weight(np.zeros(10))
    LogMean(value=0.0, stderr=0.0, ess=10.0)
    """
    log_weights = np.asarray(log_weights, float)
    n, largest = len(log_weights), log_weights.max()
    if not np.isfinite(largest):
        return LogMean(float(largest), np.inf, 0.0)
    w = np.exp(log_weights - largest)
    ess = float(w.sum() ** 2 / (w**2).sum())
    error = np.sqrt(max(1 / ess - 1 / n, 0.0) * n / (n - 1))
    if ess < _ENOUGH * n:
        middle, high = np.quantile(log_weights, [0.5, 0.841])
        error = max(error, np.sqrt(np.expm1(min((high - middle) ** 2, _WIDEST)) / n))
    return LogMean(float(largest + np.log(w.mean())), float(error), ess)


def warn_low_ess(method: str, ess: np.ndarray, k: int, quantity: str, remedy: str) -> None:
    """Warn if the effective sample size of `k` weights is too low in some rows."""
    # A single draw has no spread to estimate its error from: fewer than two are always too few.
    low = ess < max(2, min(30, 0.1 * k))
    if low.any():
        warnings.warn(
            f"{method}: {quantity} rests on {ess.min():.1f} effective draws of {k} "
            f"in {int(low.sum())} of {low.size} rows, so its standard error cannot be trusted. {remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )


def effective_size(chains: np.ndarray) -> float:
    """Return the effective number of draws of chains, (n_chains, n_draws), for their mean; at least 1.

    >>> 500 < effective_size(np.random.default_rng(0).normal(size=(4, 250))) <= 1000
    True
    """
    found = float(_import_arviz().ess(np.asarray(chains, float), method="mean"))
    return min(max(found, 1.0), float(chains.size)) if np.isfinite(found) else 1.0


def _import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz
