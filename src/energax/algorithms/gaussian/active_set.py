"""The exact minimum of the elastic net from a point near it, by the search over the signs of the weights.

Lee, Battle, Raina and Ng (2007), Efficient sparse coding algorithms. Given the signs, the minimum is the
solution of a linear system; the search corrects the signs that the solution contradicts. Where columns are
nearly dependent, first-order methods need very many steps, and this one a few.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

_MOST_ACTIVE = 2000  # columns: a step is cubic in their number
_ROUNDING = 1e-12  # of slopes, relative to the largest


def finish_elastic_net(
    columns: np.ndarray,
    target: np.ndarray,
    w: np.ndarray,
    l1: np.ndarray,
    l2: np.ndarray,
    max_iter: int = 500,
) -> np.ndarray:
    """Return the minimum of ½ ‖y − Xw‖² + Σ l1 |w| + ½ Σ l2 w²; w itself if the search does not end.

    Args:
        columns, target: X, (n, d), and y, (n,).
        w: the start, (d,).
        l1, l2: the penalties, (d,).
        max_iter: the most changes of signs.

    >>> X, y = np.eye(2), np.array([3.0, 0.5])
    >>> finish_elastic_net(X, y, np.array([1.9, 0.1]), np.ones(2), np.zeros(2))
    array([2., 0.])
    """
    for start in (w, np.zeros_like(w)):  # where too many weights are active, from the beginning
        found = _search_signs(columns, target, start.copy(), l1, l2, max_iter)
        if found is not None:
            return found
    return w


def _search_signs(columns, target, w, l1, l2, max_iter):
    """Return the minimum, or None if the columns that are active become dependent."""
    signs = np.sign(w)
    steepest = np.abs(columns.T @ target).max(initial=0.0)
    for _ in range(max_iter):
        active = np.flatnonzero(signs)
        if len(active) > _MOST_ACTIVE:
            return None
        if len(active):
            best = _solve_signs(columns[:, active], target, l1[active] * signs[active], l2[active])
            if best is None:
                return None
            w[active] = _best_between(columns[:, active], target, w[active], best, l1[active], l2[active])
            agree = np.array_equal(np.sign(w[active]), signs[active]) and np.array_equal(w[active], best)
            signs[active] = np.sign(w[active])
            if not agree:
                continue
        slope = columns.T @ (target - columns @ w) - l2 * w
        excess = np.where(signs == 0, np.abs(slope) - l1, 0)
        worst = int(np.argmax(excess))
        if excess[worst] <= _ROUNDING * steepest:
            return w
        signs[worst] = np.sign(slope[worst])
    return None


def _solve_signs(columns, target, slopes, l2):
    """Return the minimum of ½ ‖y − Xw‖² + slopesᵀw + ½ Σ l2 w²; None if X has dependent columns."""
    stacked = np.vstack([columns, np.diag(np.sqrt(l2))])
    q, r = scipy.linalg.qr(stacked, mode="economic")
    diagonal = np.abs(np.diag(r))
    if len(diagonal) < len(l2) or diagonal.min() <= 1e-13 * diagonal.max():
        return None
    right = q[: len(target)].T @ target - scipy.linalg.solve_triangular(r, slopes, trans="T")
    return scipy.linalg.solve_triangular(r, right)


def _best_between(columns, target, here, there, l1, l2):
    """Return the best point on the way from `here` to `there`: the end, or where a weight becomes 0."""
    move = there - here
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = np.where(here * there < 0, -here / move, np.inf)
    times = np.append(np.unique(crossing[np.isfinite(crossing)]), 1.0)
    residual, change = target - columns @ here, columns @ move
    squares = -times * (residual @ change) + 0.5 * times**2 * (change @ change)
    points = here + times[:, None] * move
    values = squares + np.abs(points) @ l1 + 0.5 * points**2 @ l2
    i = int(np.argmin(values))
    if i == len(times) - 1:
        return there
    return np.where(crossing == times[i], 0.0, points[i])
