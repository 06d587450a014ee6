"""Tables on their way to compiled code: what is missing, zeros and ones, and how many rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...errors import BadInput
from ...missing import Masked, any_nan, is_masked

_LARGEST_BUCKET = 4096


def with_mask(X: np.ndarray) -> Any:
    """X, or a `Masked` where some of it is NaN."""
    return Masked.from_nan(X) if any_nan(X) else X


def drop_zero_weight(*columns: Any, weight: np.ndarray | None) -> tuple[Any, ...]:
    """(*columns, weight) without the rows of weight 0, which are as if they were not there.

    >>> drop_zero_weight(np.array([5, 6, 7]), weight=np.array([1.0, 0.0, 2.0]))
    (array([5, 7]), array([1., 2.]))
    """
    if weight is None or weight.all():
        return *columns, weight
    kept = weight > 0
    return *(column[kept] for column in columns), weight[kept]


def check_no_empty_column(x: Any) -> Any:
    """x as `with_mask` made it, if some value is known in every column."""
    if is_masked(x) and not (known := x.observed.any(0)).all():
        column = int(np.argmin(known))
        raise BadInput("X", f"no known value in column {column}", "some in each", "Drop the column.")
    return x


def are_binary(X: np.ndarray) -> np.ndarray:
    """Which values are 0, 1 or missing.

    >>> are_binary(np.array([0.0, 1.0, np.nan, 0.5])).tolist()
    [True, True, True, False]
    """
    return (X == 0) | (X == 1) | np.isnan(X)


def zeros_and_ones(
    X: np.ndarray, threshold: float | None = None, remedy: str = "Give binarize=, a threshold."
) -> np.ndarray:
    """X with what is above the threshold, if there is one, as 1 and the rest as 0; NaN stays NaN.

    >>> zeros_and_ones(np.array([[0.2, 0.9, np.nan]]), 0.5)
    array([[ 0.,  1., nan]])
    """
    if threshold is not None:
        X = np.where(np.isnan(X), X, threshold < X).astype(X.dtype)
    strange = ~are_binary(X)
    if strange.any():
        i, j = np.argwhere(strange)[0]
        raise BadInput("X", f"{X[i, j]:g} in row {i}, column {j}", "zeros and ones", remedy)
    return X


def bucket(n: int) -> int:
    """How many rows a small table is padded to: powers of two from 16 on; large ones stay.

    >>> bucket(3), bucket(150), bucket(1400), bucket(50_000)
    (16, 256, 2048, 50000)
    """
    return n if n > _LARGEST_BUCKET else max(16, 1 << (n - 1).bit_length())


def bucketed(data: Any) -> Any:
    """The rows, padded to the size of their bucket."""
    return padded(data, bucket(n_rows(data)))


def padded(data: Any, n: int) -> Any:
    """The rows, the first one repeated at the end until there are `n`."""
    short = n - n_rows(data)
    if not short:
        return data
    return jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], short, axis=0)]), data)


def n_rows(data: Any) -> int:
    return len(jax.tree.leaves(data)[0])
