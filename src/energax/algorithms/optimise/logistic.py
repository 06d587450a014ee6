"""Logistic regression without a model: its information matrix, and whether its maximum exists."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ..._util.sizes import HOST_NUMBERS, slices

#: The most numbers in the inequalities of `is_separable`.
MOST_INEQUALITIES = 2**22


def information(
    x: np.ndarray, probabilities: np.ndarray, weight: np.ndarray | None, mean: np.ndarray | None = None
) -> np.ndarray:
    """The Hessian of −Σ w log p(y | x) in the weights of a softmax, (k, d, k, d), in float64.

    Args:
        x: the inputs (n, d).
        probabilities: p(y | x) of every class, (n, k).
        weight: the weights of the rows; None is 1 each.
        mean: for x − mean as the inputs, followed by a column of ones; None for x.

    >>> information(np.ones((4, 1)), np.full((4, 2), 0.5), None).ravel()
    array([ 1., -1., -1.,  1.])
    """
    n, d, k = len(x), x.shape[1] + (mean is not None), probabilities.shape[1]
    found = np.zeros((k, d, k, d))
    for rows in slices(n, max(1, HOST_NUMBERS // d)):
        some, p = np.asarray(x[rows], np.float64), np.asarray(probabilities[rows], np.float64)
        some = some if mean is None else np.c_[some - mean, np.ones(len(some))]
        weighted = p if weight is None else p * weight[rows, None]
        for a in range(k):
            for b in range(a + 1, k):
                scaled = some * np.sqrt(weighted[:, a] * p[:, b])[:, None]
                found[a, :, b] -= scaled.T @ scaled  # NumPy computes half of this symmetric product
    for a in range(k):
        for b in range(a):
            found[a, :, b] = found[b, :, a]
        found[a, :, a] = -found[a].sum(1)
    return found


def contrast_covariance(information: np.ndarray) -> np.ndarray:
    """The inverse of the information (k, d, k, d) among weights that sum to 0 over the classes.

    The probabilities do not change when all classes get the same weights, so only these are determined. NaN
    where the data do not determine them either.
    """
    k, d = information.shape[:2]
    # An orthonormal basis of the vectors over classes that sum to 0.
    basis = np.linalg.qr(np.eye(k) - 1 / k)[0][:, : k - 1]
    reduced = np.einsum("am,aibj,bn->minj", basis, information, basis, optimize=True)
    matrix = reduced.reshape((k - 1) * d, (k - 1) * d)
    scale = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1))
    try:
        factor = np.linalg.cholesky(matrix / scale / scale[:, None])
        if np.diag(factor).min() < 1e-7:
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        return np.full(information.shape, np.nan)
    half = np.linalg.inv(factor) / scale
    inverse = (half.T @ half).reshape(reduced.shape)
    return np.einsum("am,minj,bn->aibj", basis, inverse, basis, optimize=True)


def is_separable(x: np.ndarray, y: np.ndarray, k: int) -> bool:
    """Return whether a linear classifier scores the class of no row below another, and one above.

    The likelihood then has no maximum: it grows with the scale of such weights. Found by a linear program.
    Konis (2007), Linear programming algorithms for detecting separated data.

    Args:
        x: the inputs (n, d), with a column of ones for an intercept.
        y: the class of every row, (n,).
        k: the number of classes.

    >>> x = np.array([[0.0, 1], [1, 1], [2, 1], [3, 1]])
    >>> is_separable(x, np.array([0, 0, 1, 1]), 2), is_separable(x, np.array([0, 1, 0, 1]), 2)
    (True, False)
    """
    from scipy.optimize import linprog

    scale = np.abs(x).max(0)
    x = np.asarray(x, np.float64) / np.where(scale > 0, scale, 1)
    d = x.shape[1]
    rows, others = np.nonzero(np.arange(k) != y[:, None])  # one inequality a row and other class
    m = np.arange(len(rows))
    place = lambda classes, sign: sparse.csr_array(
        ((sign * x[rows]).ravel(), (np.repeat(m, d), (classes[:, None] * d + np.arange(d)).ravel())),
        shape=(len(rows), k * d),
    )
    margins = place(y[rows], 1.0) + place(others, -1.0)
    # The first class has weights 0, since only differences of scores matter.
    bounds = [(0.0, 0.0)] * d + [(-1.0, 1.0)] * (d * (k - 1))
    found = linprog(-margins.sum(0), A_ub=-margins, b_ub=np.zeros(len(rows)), bounds=bounds, method="highs")
    return bool(found.status == 0 and -found.fun > 1e-6)
