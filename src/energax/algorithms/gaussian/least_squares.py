"""Least squares on the host: rows reduced to as many as there are columns, then small dense systems.

The rows (x, y) of a linear model with normal noise enter its likelihood only through ‖y − Xw‖². The factor R
of [X, y] = QR gives the same sum for every w, and has only d + 1 rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from ..._util.sizes import HOST_PRODUCT_NUMBERS, slices

#: The least squared pivot of a Cholesky factor in units of its diagonal; below it QR is used, which loses
#: half as many digits and takes five times as long.
_LEAST_PIVOT = 1e-6


class ReducedRows(NamedTuple):
    """Rows with the same ‖y − Xw‖² as the data, for every w.

    Attributes:
        columns: (k, d), k at most d + 1.
        target: (k,).
        total: the number of rows of the data, or their total weight.
        x_mean, y_mean: what was subtracted from the columns, (d,), and from the target; 0 if nothing was.
    """

    columns: np.ndarray
    target: np.ndarray
    total: float
    x_mean: np.ndarray
    y_mean: float


def reduce_rows(X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, center: bool) -> ReducedRows:
    """Return the reduced rows of a table (n, d) and a target (n,), each row times √weight, in float64.

    >>> X, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    >>> rows, w = reduce_rows(X, y, None, center=False), np.array([0.3, -0.2])
    >>> bool(np.isclose(((rows.target - rows.columns @ w) ** 2).sum(), ((y - X @ w) ** 2).sum()))
    True
    """
    n, d = X.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    total = float(w.sum())
    chunks = list(slices(n, max(1, HOST_PRODUCT_NUMBERS // (d + 1))))
    mean = np.zeros(d + 1)
    if center:
        for rows in chunks:
            mean[:d] += w[rows] @ X[rows].astype(np.float64) / total
        mean[d] = w @ y.astype(np.float64) / total

    def chunk(rows: slice) -> np.ndarray:
        table = np.empty((len(w[rows]), d + 1))
        np.subtract(X[rows], mean[:d], out=table[:, :d])
        np.subtract(y[rows], mean[d], out=table[:, d])
        if weight is not None:
            table *= np.sqrt(w[rows, None])
        return table

    if n <= d:
        factor = chunk(slice(None))
        squares = (factor**2).sum(0)
    else:
        products = np.zeros((d + 1, d + 1))
        for rows in chunks:
            table = chunk(rows)
            products += table.T @ table
        squares = np.diag(products).copy()
        found = _cholesky_factor(products)
        factor = _qr_factor(chunk(rows) for rows in chunks) if found is None else found
    # A constant column leaves the rounding error of its mean, which is not a spread.
    noise = 8 * np.finfo(X.dtype).eps * np.abs(mean)
    factor[:, squares <= total * noise**2] = 0
    return ReducedRows(factor[:, :d], factor[:, d], total, mean[:d], float(mean[d]))


def _cholesky_factor(products: np.ndarray) -> np.ndarray | None:
    """Return the upper R with RᵀR = `products`; None if that would lose too many digits."""
    scale = np.sqrt(np.diag(products))
    unit = np.where(scale > 0, scale, 1.0)
    shape = products / unit / unit[:, None]
    np.fill_diagonal(shape, 1.0)
    try:
        factor = np.linalg.cholesky(shape).T
    except np.linalg.LinAlgError:
        return None
    return factor * scale if np.diag(factor).min() ** 2 > _LEAST_PIVOT else None


def _qr_factor(tables: Iterable[np.ndarray]) -> np.ndarray:
    """Return the factor R of all rows of the tables."""
    return functools.reduce(lambda factor, table: _upper(np.vstack([factor, table])), tables)


def _upper(table: np.ndarray) -> np.ndarray:
    """Return the factor R of QR = `table`."""
    return np.asarray(np.linalg.qr(table, mode="r"))


def solve_least_squares(rows: ReducedRows, tol: float) -> tuple[np.ndarray, int, np.ndarray]:
    """Return the least w of all that minimise ‖y − Xw‖², the rank, and the singular values.

    Singular values below `tol` times the largest count as 0.
    """
    found, _, rank, singular = scipy.linalg.lstsq(rows.columns, rows.target, cond=tol)
    return found, int(rank), singular


def solve_ridge(rows: ReducedRows, alpha: float) -> np.ndarray:
    """Return w = argmin ‖y − Xw‖² + α ‖w‖², for α > 0.

    >>> X = np.eye(2)
    >>> solve_ridge(reduce_rows(X, np.array([2.0, 4.0]), None, center=False), 1.0)
    array([1., 2.])
    """
    columns, target = rows.columns, rows.target
    k, d = columns.shape
    # As least squares with d more rows: no squares of small singular values.
    if k <= d:  # in the dual: w = Xᵀ(XXᵀ + α)⁻¹ y, the least solution of Xw + √α v = y in (w, v)
        stacked = np.hstack([columns, np.sqrt(alpha) * np.eye(k)])
        q, r = scipy.linalg.qr(stacked.T, mode="economic")
        return q[:d] @ scipy.linalg.solve_triangular(r, target, trans="T")
    stacked = np.vstack([columns, np.sqrt(alpha) * np.eye(d)])
    factor = _upper(np.column_stack([stacked, np.append(target, np.zeros(d))]))
    return scipy.linalg.solve_triangular(factor[:d, :d], factor[:d, d])


def elastic_net_gap(rows: ReducedRows, w: np.ndarray, l1: float, l2: float) -> float:
    """Return a bound on ½ ‖y − Xw‖² + l1 Σ |w| + ½ l2 ‖w‖² minus its minimum: the duality gap, >= 0.

    The dual point is the residual, scaled so that it is feasible.

    >>> rows = reduce_rows(np.eye(2), np.array([3.0, 0.5]), None, center=False)
    >>> elastic_net_gap(rows, np.array([2.0, 0.0]), l1=1.0, l2=0.0)
    0.0
    """
    residual = rows.target - rows.columns @ w
    squares = residual @ residual + l2 * w @ w
    steepest = float(np.abs(rows.columns.T @ residual - l2 * w).max(initial=0.0))
    factor = 1.0 if steepest <= l1 else l1 / steepest
    gap = 0.5 * squares * (1 + factor**2) + l1 * np.abs(w).sum() - factor * (residual @ rows.target)
    return max(0.0, float(gap))
