"""The mean and the bands of a forecast, from arrays or from what the estimators return."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from .._util.arguments import is_real, read_names
from ..errors import BadInput, as_numbers, describe

_LEVELS = (0.95, 0.5)  # of a forecast that has covariances and no bounds


@dataclasses.dataclass(frozen=True)
class Bands:
    """Means (T,), bounds (bands, T) with the widest band first, and the labels of the bands."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    labels: list[str]

    def __len__(self) -> int:
        return len(self.mean)


def bands_of(mean: Any, lower: Any, upper: Any, levels: Any, column: int | None) -> Bands:
    """The bands of a forecast with `mean`, or of arrays; raises if the parts do not match."""
    if _is_forecast(mean):
        if lower is not None or upper is not None:
            raise BadInput("lower", "bounds beside a forecast", "none: a forecast has its own")
        return _check_bands(*_of_forecast(mean, levels, column))
    if (lower is None) != (upper is None):
        name = "lower" if lower is None else "upper"
        raise BadInput(name, "None", "both lower and upper, or neither")
    return _check_bands(mean, lower, upper, levels)


def column_of(name: str, values: np.ndarray, column: int | None) -> np.ndarray:
    """One column of values (n, d)."""
    columns = values.shape[-1]
    if column is None and columns != 1:
        raise BadInput(name, f"{columns} columns", "one series at a time", "Choose one with column=.")
    if not 0 <= (column or 0) < columns:
        raise BadInput("column", repr(column), f"a column of {name}, 0 to {columns - 1}")
    return values[:, column or 0]


def _is_forecast(value: Any) -> bool:
    """Whether this has a mean that is not a method, which arrays have."""
    return hasattr(value, "mean") and not callable(value.mean)


def _of_forecast(found: Any, levels: Any, column: int | None) -> tuple[Any, Any, Any, Any]:
    """(mean, lower, upper, levels) of one column of a forecast of one sequence."""
    means = np.asarray(found.mean, float)
    if means.ndim != 2:
        hint = "Pass the arrays of one sequence: mean[i, :, j], lower[i, :, j] and upper[i, :, j]."
        raise BadInput("mean", f"a forecast of shape {means.shape}", "(steps, d), of one sequence", hint)
    pick = lambda values: column_of("mean", np.asarray(values, float), column)
    mean, deviation = pick(means), None
    if getattr(found, "covariance", None) is not None:
        deviation = np.sqrt(pick(np.diagonal(np.asarray(found.covariance, float), axis1=-2, axis2=-1)))
    bounded = getattr(found, "lower", None) is not None
    if deviation is not None and (_are_numbers(levels) or (levels is None and not bounded)):
        chosen = sorted(_probabilities(_LEVELS if levels is None else levels), reverse=True)
        reach = np.array([NormalDist().inv_cdf(0.5 + level / 2) for level in chosen])[:, None] * deviation
        return mean, mean - reach, mean + reach, chosen
    if not bounded:
        return mean, None, None, levels
    lower, upper = pick(found.lower), pick(found.upper)
    if levels is None and deviation is not None and deviation.min() > 0:
        z = float(np.median((upper - lower) / 2 / deviation))
        levels = f"{100 * math.erf(z / math.sqrt(2)):.3g} %"  # the bounds do not tell their level
    return mean, lower, upper, levels


def _are_numbers(levels: Any) -> bool:
    if levels is None or isinstance(levels, str):
        return False
    return all(not isinstance(level, str) for level in np.atleast_1d(np.asarray(levels, object)))


def _probabilities(levels: Any) -> list[float]:
    found = np.atleast_1d(np.asarray(as_numbers("levels", levels, "probabilities, or labels"))).tolist()
    if not all(map(is_real, found)):
        raise BadInput("levels", describe(levels), "probabilities between 0 and 1, or labels")
    if not found or not all(0 < level < 1 for level in found):
        raise BadInput("levels", f"{levels}", "probabilities between 0 and 1, or labels")
    return found


def _labels(levels: Sequence[str | float] | str | float | None, n: int) -> list[str]:
    if levels is None:
        return ["band"] * n
    if _are_numbers(levels):
        labels = [f"{100 * level:g} %" for level in _probabilities(levels)]
    else:
        labels = [levels] if isinstance(levels, str) else read_names("levels", levels)
    if len(labels) != n:
        raise BadInput("levels", f"{len(labels)} names", f"one for each of {n} bands")
    return labels


def _floats(name: str, values: Any) -> np.ndarray:
    """Values as real numbers; raise if they are none."""
    found = np.asarray(as_numbers(name, values, "one number per step"))
    if not np.isrealobj(found):
        raise BadInput(name, describe(values), "one number per step")
    return found.astype(float)


def _check_bands(mean: Any, lower: Any, upper: Any, levels: Any) -> Bands:
    """The bands; raises if their shapes or values do not match."""
    centre = _floats("mean", mean)
    if centre.ndim != 1 or centre.size == 0:
        expected = "one value per step, shape (T,): one series at a time"
        raise BadInput("mean", f"shape {centre.shape}", expected)
    empty = np.zeros((0, len(centre)))
    bounds = {"lower": lower, "upper": upper}
    low, high = (empty if e is None else np.atleast_2d(_floats(name, e)) for name, e in bounds.items())
    for name, edge in (("lower", low), ("upper", high)):
        if edge.ndim != 2 or edge.shape[1] != len(centre) or edge.shape != low.shape:
            raise BadInput(name, f"shape {edge.shape}", f"shape ({len(centre)},) or (bands, {len(centre)})")
    for name, values in (("mean", centre), ("lower", low), ("upper", high)):
        if not np.all(np.isfinite(values)):
            raise BadInput(name, "a value that is not finite", "finite numbers")
    if np.any(low > high):
        step = int(np.argwhere(low > high)[0][1])
        raise BadInput("lower", f"a value above `upper` at step {step}", "lower <= upper everywhere")
    return Bands(centre, low, high, _labels(levels, len(low)))
