"""Numeric distribution functions of one number: adaptive quadrature and inverses by monotone cubics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import BadInput, Unsuitable

_REACH, _FIRST_POINTS = 1e6, 513  # the first grid in ℝ: dense at 0, and as far as ±10⁶
_MAX_ROUNDS, _MAX_POINTS = 60, 20_000
_CELL_ERROR = 1e-6  # of the whole mass: cells with a larger difference of two rules are halved
_EDGE_MASS = 1e-5  # of the whole mass: a first or last cell with more means that the grid ends too early
_COUNT_BLOCK, _MAX_COUNT = 1024, 2**21
_NEGLIGIBLE = 45.0  # nats below the largest term

#: A function of row numbers (m,) and points (m,) that returns log-densities (m,), not normalised.
LogDensity = Callable[[np.ndarray, np.ndarray], np.ndarray]


class NumericCDF(NamedTuple):
    """A distribution function F: points of ℝ (m,), F and its density there, the log of the mass, its error.

    The error is that of the mass, relative: the difference of Simpson's rule, which is used, and the
    trapezoid rule, which is less accurate.
    """

    points: np.ndarray
    cdf: np.ndarray
    density: np.ndarray
    log_mass: float
    error: float

    def inverse(self, p: np.ndarray) -> np.ndarray:
        """Return the points where F = p, by cubic Hermite interpolation of F that is kept monotone.

        Fritsch and Carlson (1980), Monotone piecewise cubic interpolation.
        """
        cell = np.clip(np.searchsorted(self.cdf, p, side="right") - 1, 0, len(self.cdf) - 2)
        low, rise = self.cdf[cell], np.diff(self.cdf)[cell]
        width = np.diff(self.points)[cell]
        # Slopes above three times the mean slope would make the cubic turn back.
        left = np.minimum(self.density[cell] * width, 3 * rise)
        right = np.minimum(self.density[cell + 1] * width, 3 * rise)
        a, b = np.zeros_like(p), np.ones_like(p)
        for _ in range(50):  # bisection, to the last bit of a double
            t = (a + b) / 2
            cubic = t * ((1 - t) ** 2 * left + t * (3 - 2 * t) * rise - t * (1 - t) * right)
            below = low + cubic < p
            a, b = np.where(below, t, a), np.where(below, b, t)
        return self.points[cell] + width * (a + b) / 2


class _Row:
    """Sorted points of one row and their log-densities."""

    def __init__(self, points: np.ndarray, logs: np.ndarray):
        self.points, self.logs = points, logs

    def add(self, points: np.ndarray, logs: np.ndarray) -> None:
        both = np.concatenate([self.points, points])
        self.points, first = np.unique(both, return_index=True)
        self.logs = np.concatenate([self.logs, logs])[first]

    def unresolved_peaks(self) -> np.ndarray:
        """Return midpoints beside local maxima that are more than 1 above a neighbour in log-density."""
        padded = np.concatenate([[-np.inf], self.logs, [-np.inf]])
        peak = (padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]) & np.isfinite(self.logs)
        with np.errstate(invalid="ignore"):
            steep = (padded[1:-1] - np.minimum(padded[:-2], padded[2:])) > 1
        steep[[0, -1]] = False
        at = np.flatnonzero(peak & steep)
        at = at[np.argsort(-self.logs[at])][:32]
        sides = np.concatenate([at - 1, at])
        return _middle(self.points, sides)

    def rough_cells(self) -> np.ndarray:
        """Return midpoints of cells where the error of the trapezoid rule is too large."""
        x, g = self.points, np.exp(self.logs - self.logs.max())
        cells = np.diff(x) * (g[1:] + g[:-1]) / 2
        # The error of one cell is −h³ g'' / 12; g'' is that of the parabola through neighbours.
        slope = np.diff(g) / np.diff(x)
        bend = np.zeros_like(g)
        bend[1:-1] = 2 * np.diff(slope) / (x[2:] - x[:-2])
        error = np.diff(x) ** 3 * np.maximum(np.abs(bend[1:]), np.abs(bend[:-1])) / 12
        return _middle(x, np.flatnonzero(error > _CELL_ERROR * cells.sum()))


def _middle(points: np.ndarray, cells: np.ndarray) -> np.ndarray:
    middle = (points[cells] + points[cells + 1]) / 2
    return middle[(middle > points[cells]) & (middle < points[cells + 1])]


def build_cdfs(log_density: LogDensity, n_rows: int) -> list[NumericCDF]:
    """Return the distribution function of every row, from log-densities on ℝ that need not be normalised.

    Points are added beside the peaks until these are resolved, then where the density bends. A peak that
    lies between points and shows in no value there is not found.
    """
    reach = np.arcsinh(_REACH)
    first = np.sinh(np.linspace(-reach, reach, _FIRST_POINTS))
    rows = [_Row(first, logs) for logs in _evaluate(log_density, [first] * n_rows)]
    for find in (_Row.unresolved_peaks, _Row.rough_cells):
        for _ in range(_MAX_ROUNDS):
            new = [find(row) if len(row.points) < _MAX_POINTS else first[:0] for row in rows]
            if not any(map(len, new)):
                break
            for row, points, logs in zip(rows, new, _evaluate(log_density, new), strict=True):
                row.add(points, logs)
    middles = [_middle(row.points, np.arange(len(row.points) - 1)) for row in rows]
    return [
        _integrate(row, m, logs)
        for row, m, logs in zip(rows, middles, _evaluate(log_density, middles), strict=True)
    ]


def _evaluate(log_density: LogDensity, points: list[np.ndarray]) -> list[np.ndarray]:
    """Return the log-densities at points of every row, in one call."""
    lengths = [len(p) for p in points]
    flat = np.concatenate(points)
    logs = np.asarray(log_density(np.repeat(np.arange(len(points)), lengths), flat), float)
    if np.isnan(logs).any() or np.isposinf(logs).any():
        bad = flat[np.isnan(logs) | np.isposinf(logs)][0]
        raise BadInput("energy", f"NaN or −∞ at {bad:.6g} in ℝ", "numbers or +∞ everywhere")
    return np.split(logs, np.cumsum(lengths)[:-1])


def _integrate(row: _Row, middles: np.ndarray, logs: np.ndarray) -> NumericCDF:
    """Return the distribution function by Simpson's rule on the cells of a row and their middles."""
    coarse = len(row.points)
    row.add(middles, logs)
    largest = row.logs.max()
    if not np.isfinite(largest):
        raise Unsuitable("InverseTransform: exp(−e) is 0 at all points of the grid. Use Markov chains.")
    x, g = row.points, np.exp(row.logs - largest)
    if len(x) != 2 * coarse - 1:  # neighbours without a number between them
        mass = np.diff(x) * (g[1:] + g[:-1]) / 2
        error = float("inf")
    else:
        a, m, b, h = g[:-2:2], g[1:-1:2], g[2::2], x[2::2] - x[:-2:2]
        whole = h * (a + 4 * m + b) / 6
        # The parabola through three points, integrated over each half.
        halves = h[:, None] * np.stack([5 * a + 8 * m - b, 5 * b + 8 * m - a], 1) / 24
        mass = np.maximum(halves, 0)
        mass = (mass * (whole / np.maximum(mass.sum(1), 1e-300))[:, None]).ravel()
        error = float(np.abs((whole - h * (a + 2 * m + b) / 4).sum()) / whole.sum())
    total = mass.sum()
    if max(mass[:2].sum(), mass[-2:].sum()) > _EDGE_MASS * total:
        raise Unsuitable(
            f"InverseTransform: the integral of exp(−e) does not converge within ±{_REACH:g} in ℝ. Check "
            "that the energy grows in the tails, or change the unit of the variable."
        )
    cdf = np.concatenate([[0.0], np.cumsum(mass)]) / total
    return NumericCDF(x, cdf, g / total, float(largest + np.log(total)), error)


class CountCDF(NamedTuple):
    """Running sums of the probabilities of the values 0, 1, …, and log of the sum of the weights."""

    cdf: np.ndarray
    log_mass: float

    def inverse(self, p: np.ndarray) -> np.ndarray:
        """Return the smallest value k with F(k) > p."""
        return np.minimum(np.searchsorted(self.cdf, p, side="right"), len(self.cdf) - 1)


def sum_weights(log_weights: np.ndarray) -> CountCDF:
    """Return the distribution function of a list of log-weights."""
    largest = log_weights.max()
    if not np.isfinite(largest):
        raise Unsuitable("InverseTransform: exp(−e) is 0 or not a number for all values. Check the energy.")
    sums = np.cumsum(np.exp(log_weights - largest))
    return CountCDF(sums / sums[-1], float(largest + np.log(sums[-1])))


def build_count_cdf(log_weight: Callable[[np.ndarray], Any]) -> CountCDF:
    """Return the distribution function of weights of 0, 1, 2, …, summed until terms are negligible."""
    logs, start, size = np.zeros(0), 0, _COUNT_BLOCK
    while start < _MAX_COUNT:
        logs = np.concatenate([logs, np.asarray(log_weight(np.arange(start, start + size)), float)])
        start, size = start + size, start + size
        tail = logs[-len(logs) // 4 :]
        if tail.max() < logs.max() - _NEGLIGIBLE and tail[-1] <= tail[0]:
            return sum_weights(logs)
    raise Unsuitable(
        f"InverseTransform: the sum of exp(−e) over 0, 1, … does not converge within {_MAX_COUNT:,} terms. "
        "Check that the energy grows with the count."
    )
