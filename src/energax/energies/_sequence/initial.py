"""The parameters from which the learning of a linear-Gaussian state-space model starts."""

from __future__ import annotations

from typing import Any

import numpy as np

_DIFFUSE = 1e6  # times the mean square of the data


def linear_start(
    sequences: list[np.ndarray], k: int, given: dict[str, Any], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """All eight parameters of a `LinearGaussianSSM` with `k` states, those in `given` unchanged.

    The emission starts at the principal directions of the data, with states of variance one; the transition
    at the regression of the projected data on the step before; the noise at half the squared steps.

    >>> x = np.sin(np.arange(50.0))[:, None] * [[1.0, 2.0]]
    >>> start = linear_start([x], 1, {}, np.random.default_rng(0))
    >>> (start["emission"] / start["emission"][0]).round(3).ravel().tolist()
    [1.0, 2.0]
    """
    x = np.concatenate(sequences)
    center = np.nanmean(x, axis=0)
    steps = np.concatenate([np.diff(s, axis=0) for s in sequences])
    observed = ~np.isnan(steps)
    squares = np.where(observed, steps, 0) ** 2
    step = squares.sum(0) / np.maximum(observed.sum(0), 1)
    variance = np.nanvar(x, axis=0)
    least = 1e-6 * max(float(variance.max()), np.finfo(x.dtype).tiny) + 1e-12
    step = np.maximum(np.where(step > 0, step, variance), least)
    out = dict(given)
    if "emission" not in given:
        out["emission"] = _principal(x - center, k, rng)
        out.setdefault("emission_offset", center)
        out.setdefault("initial_covariance", np.eye(k))
    emission = np.asarray(out["emission"], float)
    out.setdefault("emission_offset", np.zeros(len(emission)))
    size = max(float((emission**2).sum() / k), np.finfo(float).tiny)
    if "transition" not in given:
        out["transition"] = _regression(sequences, emission, np.asarray(out["emission_offset"]), center)
    out.setdefault("transition_covariance", float(step.sum()) / size / 2 * np.eye(k))
    out.setdefault("emission_covariance", np.diag(step / 2))
    broad = _DIFFUSE * float(np.nanmean(x**2) + least) * len(emission) / size
    out.setdefault("initial_covariance", broad * np.eye(k))
    out.setdefault("initial_mean", np.zeros(k))
    out.setdefault("transition_offset", np.zeros(k))
    return out


def _principal(centred: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Principal directions scaled by the data, (d, k); columns of further states are small and random."""
    filled = np.where(np.isnan(centred), 0, centred)
    _, sizes, directions = np.linalg.svd(filled, full_matrices=False)
    n, d = filled.shape
    found = (directions * sizes[:, None] / np.sqrt(n))[:k].T
    scale = 0.1 * np.sqrt(np.mean(filled**2)) or 1.0
    more = scale * rng.normal(size=(d, k))
    more[:, : found.shape[1]] = found + 1e-3 * more[:, : found.shape[1]]
    return more


def _regression(sequences: list[np.ndarray], emission: np.ndarray, offset: Any, center: Any) -> np.ndarray:
    """The regression of z_t on z_{t−1}, z being the projected data, with spectral radius at most 0.98."""
    k = emission.shape[1]
    project = np.linalg.pinv(emission, rcond=1e-3)
    states = [(np.where(np.isnan(s), center, s) - offset) @ project.T for s in sequences]
    before = np.concatenate([z[:-1] for z in states])
    after = np.concatenate([z[1:] for z in states])
    square = before.T @ before
    ridge = 1e-3 * (np.trace(square) / k + np.finfo(float).tiny)
    found = np.linalg.solve(square + ridge * np.eye(k), before.T @ after + 0.9 * ridge * np.eye(k)).T
    radius = np.abs(np.linalg.eigvals(found)).max()
    return found * min(1.0, 0.98 / max(radius, 1e-12))
