"""Queries of linear-Gaussian models for many sequences, used by `Kalman` and `LinearGaussianChain`.

Rows are arrays by variable name, (n, steps, …), `Masked` where values are missing. The model is a
`LinearGaussianSSM` or another energy that implements `protocols.LinearGaussianStates`.
"""

from __future__ import annotations

from typing import Any

import jax

from ..._util.linalg import gram
from ...algorithms.chains import kalman
from ...programs import jit_to_numpy


def _observed(rows: Any, model: Any) -> dict[str, Any]:
    return {model.observed_name: rows[model.observed_name]}


def filter_states(rows: Any, model: Any) -> tuple[Any, Any]:
    """Mean (n, steps, k) and covariance (n, steps, k, k) of every state given the steps up to its own."""
    found = jax.vmap(lambda row: model.filter(**row))(_observed(rows, model))
    return found.mean, gram(found.factor)


def smooth(rows: Any, model: Any) -> tuple[Any, Any]:
    """Mean (n, steps, k) and covariance (n, steps, k, k) of every state given its whole sequence."""
    found = jax.vmap(lambda row: model.smooth(**row))(_observed(rows, model))
    return found.mean, found.covariance


def smooth_and_complete(rows: Any, model: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(mean and covariance of the states, those of the sequences with missing values)."""

    def one(row):
        found = model.smooth(**row)
        return (found.mean, found.covariance), model.complete(**row, smoothed=found)

    return jax.vmap(one)(_observed(rows, model))


def log_evidence(rows: Any, model: Any) -> Any:
    """log p(rows) of every sequence, (n,)."""
    return -jax.vmap(lambda row: model.free_energy(**row))(_observed(rows, model))


def forecast(rows: Any, model: Any, lengths: Any, steps: int) -> tuple[Any, Any]:
    """Mean (n, steps, d) and covariance (n, steps, d, d) of the `steps` observations after every sequence."""
    one = lambda row, length: model.forecast(steps, **row, after=length)
    found = jax.vmap(one)(_observed(rows, model), lengths)
    return found.mean, found.covariance


def simulate(model: Any, steps: int, key: Any) -> tuple[Any, Any]:
    """Draw (states, observations) of one sequence."""
    return kalman.simulate(model.system, steps, key)


# Compiled, for the models of estimators, which hold only arrays; `Kalman` maps rows in chunks.
compiled_filter_states = jit_to_numpy(filter_states)
compiled_smooth = jit_to_numpy(smooth)
compiled_smooth_and_complete = jit_to_numpy(smooth_and_complete)
compiled_log_evidence = jit_to_numpy(log_evidence)
compiled_forecast = jit_to_numpy(forecast)
compiled_simulate = jit_to_numpy(simulate)
