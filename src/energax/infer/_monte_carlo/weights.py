"""Means of weights given as logarithms, with standard errors that heavy weights do not hide."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ...algorithms.weights import least_error_of_probability, weighted_mean
from ...errors import ConvergenceWarning
from ...estimate import Estimate, Kind
from ...samplers import Draws, import_arviz

#: The part of the weights that must be effective for their spread to be a standard error as it is.
_ENOUGH = 0.25
#: The variance of log-weights above which the standard error does not rise: e^7 of 100 weights is 3 nats.
_WIDEST = 7.0
#: Pareto k̂ above which a mean of weights cannot be trusted. Vehtari et al. (2024).
GOOD_PARETO_K = 0.7
#: Log-weights that differ by less are equal, but for rounding.
_EQUAL = 1e-4


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
    low = ess < least_effective_draws(k)
    if low.any():
        warnings.warn(
            f"{method}: {quantity} rests on {ess.min():.1f} effective draws of {k} "
            f"in {int(low.sum())} of {low.size} rows, so its standard error cannot be trusted. {remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )


def least_effective_draws(k: int) -> float:
    """Return how many of `k` weighted draws must be effective for their spread to be a standard error."""
    return max(2, min(30, 0.1 * k))


def effective_size(chains: np.ndarray) -> float:
    """Return the effective number of draws of chains, (n_chains, n_draws), for their mean; at least 1.

    >>> 500 < effective_size(np.random.default_rng(0).normal(size=(4, 250))) <= 1000
    True
    """
    found = float(import_arviz().ess(np.asarray(chains, float), method="mean"))
    return min(max(found, 1.0), float(chains.size)) if np.isfinite(found) else 1.0


def mean_of_draws(values: np.ndarray, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of values at draws and their standard errors, (rows, *shape).

    Args:
        values: (rows, n, *shape), at the draws of all chains, one chain after another.
        draws: the draws. Independent ones count fully; of chains the effective number is that of the values,
            and of draws taken from chains in random order the smallest of these chains.
    """
    rows, n = values.shape[:2]
    mean, error = weighted_mean(values, np.full((rows, n), 1 / n))
    if draws.exact:
        return mean, error
    ess = np.full(mean.shape, _least_effective_size(draws, n)).ravel()
    length = next(iter(draws.chains.values())).shape[1]
    n_whole = n // length  # the last chain may be cut off
    if draws._checked is None and n_whole:
        columns = np.moveaxis(values, 1, 0).reshape(n, -1)
        for i in np.flatnonzero(np.ptp(columns.astype(float), axis=0)):
            chains = columns[: n_whole * length, i].reshape(n_whole, length)
            ess[i] = effective_size(chains) * n / chains.size
    sizes = ess.reshape(mean.shape)
    error = error * np.sqrt(n / sizes)
    if values.dtype == bool:
        error = np.maximum(error, least_error_of_probability(mean, sizes))
    return mean, error


def _least_effective_size(draws: Draws, n: int) -> float:
    """Return the smallest effective number of draws of a coordinate, at least 1."""
    finite = draws.ess[np.isfinite(draws.ess)]
    return float(np.clip(finite.min(initial=n), 1.0, n))


def pareto_k(log_weights: np.ndarray) -> np.ndarray:
    """Return the Pareto k̂ of the weights of every row (n, draws): below 0.7 their mean can be trusted.

    The largest weights are fitted by a generalised Pareto distribution, whose moments of order 1 / k and
    above are infinite. Equal weights have k̂ = −∞.

    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling.

    >>> x = np.random.default_rng(0).normal(size=(2, 4000)) * np.array([[0.1], [4.0]])
    >>> pareto_k(x) > GOOD_PARETO_K
    array([False,  True])
    """
    log_weights = np.asarray(log_weights, float)
    found = np.full(len(log_weights), -np.inf)
    uneven = np.ptp(log_weights, axis=1) > _EQUAL
    if uneven.any():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[uneven] = np.atleast_1d(import_arviz().psislw(log_weights[uneven])[1])
    return found
