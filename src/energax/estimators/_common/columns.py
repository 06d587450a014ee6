"""The column of a table that cannot be read as numbers, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import BadInput, describe

ENCODE = "Encode the strings as numbers first, for example with OneHotEncoder."
_CONVERT = "Convert it to numbers first, for example to days since the first date, or drop the column."


def check_no_dates(X: Any, expected: str) -> None:
    """Raise if a column of X holds dates or time differences: NumPy would count their nanoseconds."""
    if type(X) is np.ndarray and X.dtype.kind != "O":
        columns = [("0", X)] if X.dtype.kind in "mM" else []
    else:
        columns = [(label, column) for label, column in _odd_columns(X) if column.dtype.kind in "mM"]
    if columns:
        label, column = columns[0]
        raise BadInput("X", f"dates ({column.dtype}) in column {label}", expected, _CONVERT)


def bad_column(X: Any) -> tuple[str, str] | None:
    """Return the first value of X that is not a number, in words, and advice; None if there is none.

    >>> bad_column([[1.0, "red"], [2.0, "green"]])[0]
    "the text 'red' in column 1"
    """
    for label, column in _odd_columns(X):
        for value in column.tolist():
            if value is None or isinstance(value, int | float) or str(value) == "<NA>":
                continue
            try:
                float(value)
            except ValueError:
                return f"the text {describe(value)} in column {label}", ENCODE
            except TypeError:
                return f"{describe(value)} in column {label}", "Convert it to numbers, or drop the column."
    return None


def _odd_columns(X: Any) -> Iterator[tuple[str, np.ndarray]]:
    """(label, values) of the columns of X whose dtype is not that of numbers."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for name, dtype in zip(X.columns, X.dtypes, strict=False):
            if not str(dtype).lower().startswith(("int", "uint", "float", "bool", "sparse")):
                yield repr(name), np.asarray(X[name])
        return
    try:
        table = np.asarray(X)
    except (TypeError, ValueError):  # ragged
        return
    if table.ndim == 2 and table.dtype.kind in "OUST":
        yield from ((str(j), table[:, j]) for j in range(table.shape[1]))
