"""Sequences in all forms that estimators take, as one table with lengths, and padded for compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ..._util.sizes import sequence_size
from ...errors import BadInput, describe
from ...missing import Masked
from .settings import is_numeric


class Sequences(NamedTuple):
    """The rows of all sequences, one after the other, and the lengths of the sequences.

    table: (N, d), NaN where missing. lengths: (n,).
    """

    table: np.ndarray
    lengths: np.ndarray

    @property
    def is_ragged(self) -> bool:
        """Whether lengths differ."""
        return bool((self.lengths != self.lengths[0]).any())

    @property
    def padded_size(self) -> tuple[int, int]:
        """(rows, steps) of the padded sequences."""
        return sequence_size(len(self.lengths), int(self.lengths.max()))

    def split(self) -> list[np.ndarray]:
        """The table of every sequence, (steps, d) each."""
        return np.split(self.table, np.cumsum(self.lengths)[:-1])

    def pad(self, values: np.ndarray, n: int, steps: int, filler: Any = 0) -> np.ndarray:
        """Values of the table's rows as (n, steps, …); rows after the last sequence repeat the first."""
        if n * steps == len(values):
            return values.reshape(n, steps, *values.shape[1:])
        out = np.full((n, steps, *values.shape[1:]), filler, values.dtype)
        out[self._places()] = values
        out[len(self.lengths) :] = out[0]
        return out

    def unpad(self, values: np.ndarray) -> np.ndarray:
        """Padded values (n, steps, …) as one table (N, …) again: the inverse of `pad`."""
        if not self.is_ragged and values.shape[1] == self.lengths[0]:
            return values[: len(self.lengths)].reshape(-1, *values.shape[2:])
        return values[self._places()]

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequence and the step of every row of the table."""
        sequence = np.repeat(np.arange(len(self.lengths)), self.lengths)
        starts = np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        return sequence, np.arange(len(sequence)) - starts


def join_sequences(X: Any, lengths: Any, one_column: bool = False) -> tuple[Any, np.ndarray | None]:
    """(one table, lengths), from a table with lengths, a list of tables, or an array (n, steps, d).

    A table without lengths is one sequence and returned unchanged, with None. With `one_column` 1-D arrays
    are tables of one column.

    >>> join_sequences([np.ones((3, 1)), np.zeros((2, 1))], None)[1]
    array([3, 2])
    >>> join_sequences([[1.0], [2.0]], None)                    # one table of two rows
    ([[1.0], [2.0]], None)
    """
    if scipy.sparse.issparse(X):
        raise BadInput("X", "a sparse array", "a dense table", "Call X.toarray() first.")
    if is_list_of_sequences(X, one_column):
        _check_no_lengths(lengths)
        _check_not_empty([len(x) for x in X])
        tables = [np.asarray(x).reshape(len(x), -1) for x in X]
        if len({t.shape[1] for t in tables}) > 1:
            found = f"sequences with {sorted({t.shape[1] for t in tables})} columns"
            raise BadInput("X", found, "the same number of columns in each sequence")
        return np.concatenate(tables), np.array([len(t) for t in tables])
    array = X if hasattr(X, "shape") else _as_array(X)
    if len(array.shape) == 3:
        _check_no_lengths(lengths)
        n, steps, d = array.shape
        _check_not_empty([steps] * n)
        return np.asarray(array).reshape(n * steps, d), np.full(n, steps)
    if len(array.shape) == 1 and one_column and array.size:
        return np.asarray(array)[:, None], check_lengths(lengths, len(array))
    return X, check_lengths(lengths, array.shape[0]) if len(array.shape) else None


def is_list_of_sequences(X: Any, one_column: bool = False) -> bool:
    """Whether X is a list of tables, or with `one_column` a list of 1-D arrays, and not one table.

    >>> is_list_of_sequences([np.ones((3, 1)), np.ones((2, 1))]), is_list_of_sequences([[1.0], [2.0]])
    (True, False)
    """
    if not isinstance(X, list | tuple) or not X:
        return False
    if not all(isinstance(x, list | tuple) or hasattr(x, "ndim") for x in X):
        return False
    ndims = {_as_array(x).ndim for x in X}
    return ndims == {2} or (ndims == {1} and one_column and any(len(x) != 1 for x in X))


def _as_array(X: Any) -> np.ndarray:
    """X as an array; raise if its rows have different lengths."""
    try:
        return np.asarray(X)
    except (TypeError, ValueError):
        expected = "rows of equal length, or a list of tables"
        raise BadInput("X", "rows of different lengths", expected) from None


def _check_no_lengths(lengths: Any) -> None:
    if lengths is not None:
        raise BadInput("lengths", "lengths besides a list of sequences", "only one of the two")


def _check_not_empty(lengths: Any) -> None:
    if not len(lengths) or min(lengths) < 1:
        raise BadInput("X", "an empty sequence", "at least one step in each sequence", "Leave it out.")


def check_lengths(lengths: Any, n: int) -> np.ndarray | None:
    """Return lengths as an array, or None; raise unless they are whole numbers >= 1 that sum to n."""
    if lengths is None:
        return None
    found = np.asarray(lengths) if is_numeric(lengths) else np.zeros(0)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu" or (found < 1).any():
        raise BadInput("lengths", describe(lengths), "whole numbers >= 1, one per sequence")
    if found.sum() != n:
        raise BadInput("lengths", f"a sum of {found.sum()}", f"{n}, the number of rows of X")
    return found.astype(np.int64)


def pad_for_fit(
    sequences: Sequences, values: np.ndarray, states: np.ndarray | None, dtype: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """(padded x and known states z, `Masked` where missing or past an end; weights, 0 for padding)."""
    n, (n_rows, steps) = len(sequences.lengths), sequences.padded_size
    weights = np.append(np.ones(n, dtype), np.zeros(n_rows - n, dtype))
    filled, observed = fill_nan(values)
    mask = np.ones(values.shape, bool) if observed is None else observed
    mask = sequences.pad(mask, n_rows, steps, False)
    data: dict[str, Any] = {"x": sequences.pad(filled, n_rows, steps)}
    if not mask.all():
        data["x"] = Masked(data["x"], mask)
    if states is not None:
        padded = sequences.pad(states, n_rows, steps, -1)
        data["z"] = Masked(np.maximum(padded, 0).astype(np.int32), padded >= 0)
    return data, weights


def fill_nan(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(values with 0 in place of NaN, where they are observed; None if nothing is missing).

    >>> fill_nan(np.array([1.0, np.nan]))
    (array([1., 0.]), array([ True, False]))
    """
    if values.dtype.kind != "f":
        return values, None
    missing = np.isnan(values)
    if not missing.any():
        return values, None
    return np.where(missing, 0, values).astype(values.dtype), ~missing
