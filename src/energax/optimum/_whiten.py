"""`whiten`: a linear map of columns to covariance I, and its effect on the condition number."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Literal

import numpy as np

from .._util.frames import columns_of, is_frame
from ..errors import BadInput, ConvergenceWarning, check_number, describe

Kind = Literal["PCA", "ZCA"]


@dataclasses.dataclass(frozen=True)
class Whitening:
    """z = (x − mean) W, whose columns have mean 0, variance 1 and no correlation in the rows given."""

    mean: np.ndarray  #: (d,)
    matrix: np.ndarray  #: W, (d, k); k is the rank for PCA, and d for ZCA
    inverse_matrix: np.ndarray  #: the pseudo-inverse of W, (k, d)
    kind: Kind
    rank: int
    condition_before: float  #: of the covariance of x, and so of the Hessian of least squares; ∞ if singular
    condition_after: float  #: of the covariance of z, within its rank

    def transform(self, X: Any) -> np.ndarray:
        """The rows of X (n, d) as z (n, k)."""
        return (_as_matrix(X, self.mean.size) - self.mean) @ self.matrix

    def inverse(self, Z: Any) -> np.ndarray:
        """The rows z (n, k) as x (n, d). It inverts `transform` for rows in the span of those given."""
        return _as_matrix(Z, self.matrix.shape[1], "Z") @ self.inverse_matrix + self.mean

    def __repr__(self) -> str:
        d, k = self.matrix.shape
        return (
            f"Whitening({self.kind}, {d} → {k} columns, rank {self.rank}, "
            f"condition number {self.condition_before:.4g} → {self.condition_after:.4g})"
        )


def whiten(X: Any, kind: Kind = "PCA", *, ridge: float = 0.0, weights: Any = None) -> Whitening:
    """The map z = (x − mean) W with WᵀΣW = I, where Σ = UΛUᵀ is the covariance of the rows of X.

    PCA: W = UΛ^(−1/2), columns by decreasing variance. ZCA: W = UΛ^(−1/2)Uᵀ, the z closest to x. The Hessian
    of least squares on z is I, so gradient descent with step 1 reaches its minimum at once; on x it needs
    about as many steps as Σ has condition number. Directions without variance (constant or dependent columns,
    or more columns than rows) are left out, with a warning. Arithmetic is 64-bit.

    Args:
        X: rows (n, d), an array or a frame.
        kind: "PCA" or "ZCA".
        ridge: added to every eigenvalue of Σ as a fraction of their mean, so that directions with little
            variance are not magnified; the condition number after is then above 1.
        weights: one number >= 0 per row.

    >>> X = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 1000.0]
    >>> map = whiten(X)
    >>> map
    Whitening(PCA, 2 → 2 columns, rank 2, condition number 1.06e+06 → 1)
    >>> np.cov(map.transform(X).T, bias=True).round(6) + 0.0
    array([[1., 0.],
           [0., 1.]])
    >>> bool(np.allclose(map.inverse(map.transform(X)), X))
    True

    References: Kessy, Lewin and Strimmer (2018), Optimal whitening and decorrelation; LeCun, Bottou, Orr and
    Müller (1998), Efficient backprop.
    """
    if not isinstance(kind, str) or kind not in ("PCA", "ZCA"):
        raise BadInput("kind", describe(kind), "PCA or ZCA")
    check_number("ridge", ridge, lambda r: 0 <= r < np.inf, "a number >= 0")
    X = _as_matrix(X)
    w = _as_weights(weights, len(X))
    if np.count_nonzero(w) < 2:
        raise BadInput("X", f"{np.count_nonzero(w)} rows with weight", "at least two rows")
    mean = w @ X
    mean = mean + w @ (X - mean)  # again, for the digits that a large mean has lost
    # The singular values of the rows, not the eigenvalues of Σ: squaring would lose half of the digits.
    _, singular, directions = np.linalg.svd((X - mean) * np.sqrt(w)[:, None], full_matrices=False)
    noise = np.finfo(float).eps * max(10 * X.shape[1] * singular.max(), 4 * np.abs(mean).max())
    kept = singular > noise
    rank = int(kept.sum())
    if not rank:
        raise BadInput("X", "rows that are all equal", "columns that vary")
    if rank < X.shape[1]:
        warnings.warn(
            f"X has {X.shape[1]} columns but varies in {rank} directions only: columns are constant or "
            "dependent, or there are fewer rows than columns. The other directions are left out.",
            ConvergenceWarning,
            stacklevel=2,
        )
    variance, U = singular[kept] ** 2, directions[kept].T
    scale = np.sqrt(variance + ridge * variance.sum() / X.shape[1])
    onto = U.T if kind == "ZCA" else np.eye(rank)
    after = variance / scale**2
    return Whitening(
        mean=mean,
        matrix=(U / scale) @ onto,
        inverse_matrix=onto.T @ (scale[:, None] * U.T),
        kind=kind,
        rank=rank,
        condition_before=float(variance[0] / variance[-1]) if rank == X.shape[1] else np.inf,
        condition_after=float(after.max() / after.min()),
    )


def _as_matrix(X: Any, n_columns: int | None = None, argument: str = "X") -> np.ndarray:
    try:
        values = np.stack(list(columns_of(X, argument).values()), axis=1) if is_frame(X) else np.asarray(X)
        values = values.astype(float)
    except (TypeError, ValueError):
        raise BadInput(argument, describe(X), "a table of numbers") from None
    if values.ndim != 2 or not values.size or (n_columns is not None and values.shape[1] != n_columns):
        expected = "rows and columns" if n_columns is None else f"rows of {n_columns} columns"
        raise BadInput(argument, f"shape {values.shape}", expected)
    if not np.isfinite(values).all():
        raise BadInput(argument, "NaN or infinity", "finite numbers", "Impute or drop these rows.")
    return values


def _as_weights(weights: Any, n: int) -> np.ndarray:
    """Weights that sum to 1."""
    if weights is None:
        return np.full(n, 1 / n)
    try:
        w = np.asarray(weights, float)
    except (TypeError, ValueError):
        raise BadInput("weights", describe(weights), "one number per row") from None
    if w.shape != (n,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise BadInput("weights", describe(weights), f"{n} finite numbers >= 0, not all 0")
    return w / w.sum()
