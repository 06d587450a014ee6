"""`Samples`: rows of data, and the estimates from them by counts or by nearest neighbours.

Every estimate is a mean of one term per row, plus a correction for its bias. The standard error comes from
the spread of the terms; for counts the second-order part, which alone remains where all terms are equal, is
added."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._util.frames import columns_of, is_frame
from ..errors import BadInput, check_whole_number, describe
from ..estimate import Estimate


class Samples:
    """Independent draws, one per row: discrete values (n,) or (n, d), or real ones.

    Real numbers are taken as draws from a density; integers, booleans and text as discrete values.

    Args:
        values: an array, a list or a frame, one row per draw.
        discrete: whether equal values count as the same value; by default, whether they are no floats.
        neighbors: k of the nearest-neighbour estimates of real draws. A larger k has less variance and more
            bias.

    >>> Samples([0, 1, 1, 0]), Samples(np.array([[0.3, 1.2], [0.1, 0.7], [2.0, 0.2], [1.0, 1.0]]))
    (Samples(4 rows of discrete values), Samples(4 rows of 2 real columns))
    """

    def __init__(self, values: Any, discrete: bool | None = None, neighbors: int = 3) -> None:
        if is_frame(values):
            array = np.stack([np.asarray(c, object) for c in columns_of(values, "values").values()], axis=1)
            array = np.array(array.tolist())
        else:
            try:
                array = np.asarray(values)
            except ValueError:
                raise BadInput("values", describe(values), "one row per draw, of equal lengths") from None
        if array.ndim not in (1, 2) or not array.size or len(array) < 2:
            raise BadInput("values", f"shape {array.shape}", "at least two rows, (n,) or (n, d)")
        if array.dtype.kind not in "biufUSO":
            raise BadInput("values", describe(values), "numbers or text")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput("values", "NaN or infinity", "finite numbers", "Drop these rows.")
        if discrete not in (None, True, False):
            raise BadInput("discrete", describe(discrete), "True, False or None")
        self.discrete = array.dtype.kind != "f" if discrete is None else bool(discrete)
        if not self.discrete:
            if array.dtype.kind not in "biuf":
                raise BadInput("discrete", "False, of text", "True for text")
            array = array.astype(float)
        check_whole_number("neighbors", neighbors)
        if not self.discrete and neighbors >= len(array):
            raise BadInput("neighbors", describe(neighbors), f"fewer than the {len(array)} rows")
        self.neighbors = neighbors
        self.values = array.reshape(len(array), -1)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        d = self.values.shape[1]
        columns = f"{d} " if d > 1 else ""
        noun = "discrete values" if self.discrete else f"{columns}real column{'s' if d > 1 else ''}"
        return f"Samples({len(self)} rows of {noun})"


class Terms(NamedTuple):
    """One term per row, a correction of the bias of their mean, and the variance of second order."""

    values: np.ndarray
    correction: float = 0.0
    extra: float = 0.0
    method: str = ""

    def __add__(self, other: Terms) -> Terms:  # type: ignore[override]
        method = self.method if self.method == other.method else f"{self.method}; {other.method}"
        values = self.values + other.values
        return Terms(values, self.correction + other.correction, self.extra + other.extra, method)

    def __sub__(self, other: Terms) -> Terms:
        return self + (-other)

    def __neg__(self) -> Terms:
        return Terms(-self.values, -self.correction, self.extra, self.method)

    def variance(self) -> float:
        return float(self.values.var(ddof=1)) / len(self.values) + self.extra

    def estimate(self) -> Estimate:
        value = float(self.values.mean()) + self.correction
        return Estimate(value, np.sqrt(self.variance()), "estimate", self.method)


def codes_of(*columns: np.ndarray) -> list[np.ndarray]:
    """The rows of several arrays (n_i, d) of discrete values as whole numbers, equal for equal rows."""
    if len({c.shape[1] for c in columns}) != 1:
        raise BadInput("q", f"rows of {columns[1].shape[1]} columns", f"{columns[0].shape[1]}, as in p")
    both = np.concatenate([c.astype(str) if c.dtype.kind == "O" else c for c in columns])
    numbers = np.stack([np.unique(c, return_inverse=True)[1].ravel() for c in both.T], axis=1)
    rows = np.unique(numbers, axis=0, return_inverse=True)[1].ravel()
    return np.split(rows, np.cumsum([len(c) for c in columns])[:-1])


COUNTS = "counts, Miller and Madow (1955)"


def discrete_entropy(values: np.ndarray) -> Terms:
    """−log p̂ of every row; the mean is low by (K − 1) / 2n in expectation, K values."""
    (codes,) = codes_of(values)
    counts = np.bincount(codes)
    n, k = len(codes), len(counts)
    return Terms(-np.log(counts[codes] / n), (k - 1) / (2 * n), (k - 1) / (2 * n**2), COUNTS)


def discrete_information(x: np.ndarray, y: np.ndarray) -> Terms:
    """log p̂(x, y) / p̂(x) p̂(y) of every row; 2n times its mean is χ² where x and y are independent."""
    marginal = discrete_entropy(x), discrete_entropy(y)
    joint = discrete_entropy(np.stack([codes_of(x)[0], codes_of(y)[0]], axis=1))
    found = marginal[0] + marginal[1] - joint
    return found._replace(extra=max(-found.correction, 0.0) / len(x))


def discrete_kl(x: np.ndarray, y: np.ndarray) -> Estimate:
    """Σ p̂ log p̂/q̂, less its bias (K − 1) / 2n + (Σ p/q − 1) / 2m; infinite where q̂ = 0 < p̂."""
    a, b = codes_of(x, y)
    size = max(a.max(), b.max()) + 1
    n, m = len(a), len(b)
    p, q = np.bincount(a, minlength=size) / n, np.bincount(b, minlength=size) / m
    seen = p > 0
    if (q[seen] == 0).any():
        return Estimate(np.inf, np.inf, "estimate", "counts: a value of p that q has not")
    ratio = np.where(q > 0, p / np.where(q > 0, q, 1), 0.0)
    log_ratio = np.log(ratio[a])
    k = int(seen.sum())
    bias = (k - 1) / (2 * n) + (ratio[seen].sum() - 1) / (2 * m)
    variance = log_ratio.var() / n + ratio[b].var() / m + (k - 1) / 2 * (1 / n + 1 / m) ** 2
    return Estimate(log_ratio.mean() - bias, np.sqrt(variance), "estimate", "counts, corrected")


def discrete_jensen_shannon(x: np.ndarray, y: np.ndarray) -> Estimate:
    """H(m̂) − H(p̂)/2 − H(q̂)/2 with m̂ = (p̂ + q̂) / 2, each corrected by the second-order bias of its counts."""
    a, b = codes_of(x, y)
    size = max(a.max(), b.max()) + 1
    n, m = len(a), len(b)
    p, q = np.bincount(a, minlength=size) / n, np.bincount(b, minlength=size) / m
    middle = (p + q) / 2
    first, second = np.log(p[a] / middle[a]), np.log(q[b] / middle[b])
    spread = (p * (1 - p) / n + q * (1 - q) / m) / 4
    bias = (((p > 0).sum() - 1) / n + ((q > 0).sum() - 1) / m) / 4 - (spread / middle).sum() / 2
    variance = (first.var() / n + second.var() / m) / 4 + (size - 1) / 32 * (1 / n + 1 / m) ** 2
    value = (first.mean() + second.mean()) / 2 - bias
    return Estimate(value, np.sqrt(variance), "estimate", "counts, corrected")
