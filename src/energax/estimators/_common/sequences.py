"""Sequences on their way to compiled code: one long table with `lengths`, or a list, as padded rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import BadInput
from ...missing import Masked

_LARGEST = 2**15  # rows of a table; larger ones are compiled as they are


class Sequences(NamedTuple):
    """Rows of all sequences, one after the other, and how they are cut.

    table: (N, d), NaN where missing. lengths: (n,).
    """

    table: np.ndarray
    lengths: np.ndarray

    @property
    def ragged(self) -> bool:
        return bool((self.lengths != self.lengths[0]).any())

    def split(self, values: np.ndarray) -> np.ndarray:
        """Padded answers (n, steps, …) as one table again."""
        if not self.ragged and values.shape[1] == self.lengths[0]:
            return values[: len(self.lengths)].reshape(-1, *values.shape[2:])
        return values[self.places(values.shape[1])]

    def places(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Row and step of every entry of the table."""
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        starts = np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        return row, np.arange(len(row)) - starts

    def padded(self, values: np.ndarray, n: int, steps: int, filler: Any = 0) -> np.ndarray:
        """Values of the table's rows as (n, steps, …); rows past the last sequence repeat the first."""
        if n * steps == len(values):
            return values.reshape(n, steps, *values.shape[1:])
        out = np.full((n, steps, *values.shape[1:]), filler, values.dtype)
        out[self.places(steps)] = values
        out[len(self.lengths) :] = out[0]
        return out


def padded_size(lengths: np.ndarray) -> tuple[int, int]:
    """(rows, steps) to pad sequences to; small tables share sizes, and so compiled code.

    >>> padded_size(np.array([100, 90])), padded_size(np.full(1000, 100))
    ((2, 104), (1000, 100))
    """
    n, longest = len(lengths), int(lengths.max())
    small = n * longest <= _LARGEST and longest < 4096
    return (rounded_up(n), rounded_up(longest)) if small else (n, longest)


def rounded_up(n: int) -> int:
    """A size that many share: at most an eighth larger.

    >>> [rounded_up(n) for n in (1, 7, 100, 300)]
    [1, 7, 104, 320]
    """
    if n <= 8:
        return n
    step = 1 << max(0, n.bit_length() - 4)
    return -(-n // step) * step


def as_sequences(X: Any, lengths: Any, one_column: bool) -> tuple[Any, np.ndarray | None]:
    """(one table, lengths or None): a list of sequences or an array (n, steps, d) is laid end to end."""
    if isinstance(X, list | tuple) and X and all(isinstance(x, np.ndarray | list | tuple) for x in X):
        ndims = {np.ndim(x) for x in X}
        short = ndims == {1} and one_column and any(len(x) != 1 for x in X)
        if ndims == {2} or short:
            _no_lengths(lengths)
            _no_empty([len(x) for x in X])
            rows = [np.asarray(x).reshape(len(x), -1) for x in X]
            if len({r.shape[1] for r in rows}) > 1:
                found = f"sequences of {sorted({r.shape[1] for r in rows})} columns"
                raise BadInput("X", found, "as many columns in each")
            return np.concatenate(rows), np.array([len(r) for r in rows])
    array = X if hasattr(X, "shape") else np.asarray(X)
    if len(array.shape) == 3:
        _no_lengths(lengths)
        n, steps, d = array.shape
        _no_empty([steps] * n)
        return np.asarray(array).reshape(n * steps, d), np.full(n, steps)
    if len(array.shape) == 1 and one_column and array.size:
        return np.asarray(array)[:, None], _checked(lengths, len(array))
    return X, _checked(lengths, len(array)) if len(array.shape) else None


def _no_lengths(lengths: Any) -> None:
    if lengths is not None:
        raise BadInput("lengths", "lengths, and a list of sequences", "only one of the two")


def _no_empty(lengths: Any) -> None:
    if not len(lengths) or min(lengths) < 1:
        raise BadInput("X", "an empty sequence", "at least one step in each", "Leave it out.")


def _checked(lengths: Any, n: int) -> np.ndarray | None:
    if lengths is None:
        return None
    found = np.asarray(lengths)
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu" or (found < 1).any():
        raise BadInput("lengths", f"{lengths!r:.60}", "whole numbers >= 1, one a sequence")
    if found.sum() != n:
        raise BadInput("lengths", f"a sum of {found.sum()}", f"{n}, the number of rows in X")
    return found.astype(np.int64)


def as_rows(
    sequences: Sequences, values: np.ndarray, states: np.ndarray | None, dtype: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """Padded variables for `fit`, masked only where something is missing or past an end; and weights."""
    n, (n_rows, steps) = len(sequences.lengths), padded_size(sequences.lengths)
    weights = np.append(np.ones(n, dtype), np.zeros(n_rows - n, dtype))
    seen = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    filled = np.where(seen, values, 0).astype(values.dtype) if not seen.all() else values
    inside = sequences.padded(seen, n_rows, steps, False)
    data: dict[str, Any] = {"x": sequences.padded(filled, n_rows, steps)}
    if not inside.all():
        data["x"] = Masked(data["x"], inside)
    if states is not None:
        told = sequences.padded(states, n_rows, steps, -1)
        data["z"] = Masked(np.maximum(told, 0).astype(np.int32), told >= 0)
    return data, weights
