"""Basis functions of one real variable on an interval: polynomials, bumps, steps, waves, splines.

Every function takes values x, (n,), the ends of the interval and a number of functions, and returns (n, m).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import expit

_DEGREE = 3  # of the splines


def _unit(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return x in units in which the interval is [−1, 1]; of an empty interval, [−1, 1] about its point."""
    half = (high - low) / 2
    return (x - (low + high) / 2) / (half if half > 0 else 1.0)


def _centres(m: int) -> tuple[np.ndarray, float]:
    """Return m points from −1 to 1, and their distance."""
    return (np.linspace(-1, 1, m), 2 / (m - 1)) if m > 1 else (np.zeros(1), 2.0)


def polynomial(x: np.ndarray, low: float, high: float, m: int, width: float = 1.0) -> np.ndarray:
    """Return the powers u, u², …, uᵐ of u = x in units of the interval, [−1, 1].

    >>> polynomial(np.array([0.0, 2.0]), 0.0, 2.0, 3)
    array([[-1.,  1., -1.],
           [ 1.,  1.,  1.]])
    """
    return _unit(x, low, high)[:, None] ** np.arange(1, m + 1)


def gaussian(x: np.ndarray, low: float, high: float, m: int, width: float = 1.0) -> np.ndarray:
    """Return exp(−½ ((x − c) / s)²) for m centres c on the interval, s = `width` times their distance."""
    centres, distance = _centres(m)
    return np.exp(-0.5 * ((_unit(x, low, high)[:, None] - centres) / (width * distance)) ** 2)


def sigmoid(x: np.ndarray, low: float, high: float, m: int, width: float = 1.0) -> np.ndarray:
    """Return σ((x − c) / s) for m centres c on the interval, s = `width` times their distance."""
    centres, distance = _centres(m)
    return expit((_unit(x, low, high)[:, None] - centres) / (width * distance))


def fourier(x: np.ndarray, low: float, high: float, m: int, width: float = 1.0) -> np.ndarray:
    """Return sin(ωx), cos(ωx), sin(2ωx), cos(2ωx), …, m functions, with the period 2 `width` intervals.

    With width = ½ the function has equal values at both ends; with 1 they are free.
    """
    order = np.arange(1, m + 1)
    angle = np.pi / 2 / width * _unit(x, low, high)[:, None] * ((order + 1) // 2)
    return np.where(order % 2 == 1, np.sin(angle), np.cos(angle))


def spline(x: np.ndarray, low: float, high: float, m: int, width: float = 1.0) -> np.ndarray:
    """Return m cubic B-splines on equally spaced knots; constant outside the interval. m >= 4.

    >>> spline(np.array([0.0, 0.5, 1.0]), 0.0, 1.0, 4).round(3)
    array([[0.167, 0.667, 0.167, 0.   ],
           [0.021, 0.479, 0.479, 0.021],
           [0.   , 0.167, 0.667, 0.167]])
    """
    n_spaces = m - _DEGREE
    knots = -1 + 2 / n_spaces * np.arange(-_DEGREE, n_spaces + _DEGREE + 1)
    # Rounded up, the last inner knot would be outside.
    inside = np.clip(_unit(x, low, high), knots[_DEGREE], knots[-_DEGREE - 1])
    return BSpline.design_matrix(inside, knots, _DEGREE).toarray()


BASES: dict[str, Callable[..., np.ndarray]] = {
    "polynomial": polynomial,
    "gaussian": gaussian,
    "sigmoid": sigmoid,
    "fourier": fourier,
    "spline": spline,
}
#: The least number of functions, where it is not 1.
LEAST = {"spline": _DEGREE + 1}
