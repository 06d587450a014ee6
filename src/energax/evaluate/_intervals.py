"""Intervals for means over rows, for paired differences and for any statistic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._util.keys import as_key, numpy_generator
from .._util.sizes import HOST_NUMBERS
from ..errors import BadInput
from ..estimate import Estimate


def _rows(values: Any, name: str = "values") -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or array.size < 2:
        raise BadInput(name, f"shape {array.shape}", "one number per row, at least two rows")
    return array


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise BadInput("level", repr(level), "a probability strictly between 0 and 1")
    return float(level)


def mean_interval(values: Any, level: float = 0.95) -> tuple[float, float]:
    """mean ± √((t s)² / n + (z shared)²): Student's interval for the mean of independent rows.

    For an `Estimate`, s includes the spread between rows and the error of each row, and `shared` is
    the error that all rows have in common, which more rows do not reduce.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    rows, level = _rows(values), _level(level)
    return (values if isinstance(values, Estimate) else Estimate(rows)).mean().interval(level)


def paired_difference(a: Estimate, b: Estimate) -> Estimate:
    """mean(aᵢ − bᵢ) over the same rows, with the error of the *differences*.

    The scores of two models are correlated over rows, so the difference has a smaller error than either
    mean. The difference of two bounds is not a bound: its kind is `estimate`, unless both are exact.

    >>> a = Estimate(np.array([-1.0, -9.0, -2.0])); b = a - 0.5
    >>> paired_difference(a, b)
    0.500 (exact)
    """
    if a.value.shape != b.value.shape or a.value.ndim != 1:
        raise BadInput("b", f"shape {b.value.shape}", f"the rows of the other, {a.value.shape}")
    return (a - b).mean()


def bootstrap(
    values: Any,
    statistic: Callable[..., Any] = np.mean,
    *,
    key: Any,
    n_resamples: int = 2000,
    level: float = 0.95,
) -> tuple[float, float]:
    """The percentile interval of a statistic over rows resampled with replacement.

    `statistic` takes rows of `values` along the first axis and an `axis` keyword.
    Efron (1979), Bootstrap methods: another look at the jackknife.

    >>> low, high = bootstrap(np.arange(100.0), key=0)
    >>> bool(low < 49.5 < high)
    True
    """
    values, level = np.asarray(values), _level(level)
    if values.ndim < 1 or len(values) < 2:
        raise BadInput("values", f"shape {values.shape}", "at least two rows")
    if n_resamples < 2:
        raise BadInput("n_resamples", repr(n_resamples), "at least 2")
    generator, n = numpy_generator(as_key(key)), len(values)
    chunk = max(1, HOST_NUMBERS // max(1, values.size))  # resamples held at one time
    found = []
    for start in range(0, n_resamples, chunk):
        picks = generator.integers(0, n, (min(chunk, n_resamples - start), n))
        found.append(np.asarray(statistic(values[picks], axis=1)))
    low, high = np.quantile(np.concatenate(found), [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)
