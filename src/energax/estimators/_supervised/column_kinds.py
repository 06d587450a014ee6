"""Columns of mixed tables: strings as numbers, categories, and the kind of every column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import BadInput, describe
from .._common.settings import Setting
from .._common.table import is_binary

KIND_NAMES = ("gaussian", "bernoulli", "categorical", "count")
_ALL_NAMES = ("auto", *KIND_NAMES)
_REMEDY = "Pass kinds={column: 'gaussian'}, or another kind, and fit again."


def _are_kinds(value: Any) -> bool:
    if isinstance(value, str):
        return value in _ALL_NAMES
    several = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(several, list | tuple | np.ndarray):
        return False
    return all(isinstance(kind, str) and kind in _ALL_NAMES for kind in several)


KINDS = Setting(
    _are_kinds,
    "'auto', 'gaussian', 'bernoulli', 'categorical' or 'count', a list of these with one for each column, or "
    "a dict from columns to them",
)


# -- strings -----------------------------------------------------------------------------------------------


def is_missing(value: Any) -> bool:
    """Whether an object is None, NaN or pandas.NA."""
    return value is None or (isinstance(value, float) and value != value) or str(value) in ("<NA>", "NaT")


def _string_columns(X: Any) -> Iterator[tuple[int, np.ndarray]]:
    """(number, values) of the columns of a frame or an array of objects that are not of a type of numbers."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for j, dtype in enumerate(list(X.dtypes)):
            if not str(dtype).lower().startswith(("int", "uint", "float", "bool", "sparse", "date")):
                column = X.iloc[:, j] if hasattr(X, "iloc") else X[X.columns[j]]
                yield j, np.asarray(column, object)
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OU":
        yield from ((j, X[:, j].astype(object)) for j in range(X.shape[1]))


def find_strings(X: Any) -> dict[int, np.ndarray]:
    """Return the columns of X, by number, whose values are strings or missing.

    >>> find_strings(np.array([["red", 1.5], [None, 2.0]], dtype=object))
    {0: array(['red', None], dtype=object)}
    """
    found = {}
    for j, column in _string_columns(X):
        values = [v for v in column.tolist() if not is_missing(v)]
        if values and all(isinstance(v, str) for v in values):
            found[j] = column
    return found


def replace_columns(X: Any, columns: dict[int, np.ndarray]) -> Any:
    """Return a copy of a frame or an array of objects with other values in some columns."""
    if not columns:
        return X
    if hasattr(X, "iloc"):
        X = X.copy(deep=False)
        for j, values in columns.items():
            X.isetitem(j, values)
        return X
    if hasattr(X, "with_columns"):
        import polars

        return X.with_columns([polars.Series(X.columns[j], values) for j, values in columns.items()])
    X = X.astype(object)
    for j, values in columns.items():
        X[:, j] = values
    return X


# -- categories --------------------------------------------------------------------------------------------


def known_values(column: np.ndarray) -> np.ndarray:
    """Return the different values of a column without missing ones, sorted."""
    if column.dtype.kind == "O":
        return np.unique(np.array([v for v in column.tolist() if not is_missing(v)], str))
    return np.unique(column[~np.isnan(column)])


def encode(column: np.ndarray, categories: np.ndarray) -> np.ndarray:
    """Return the index of every value in `categories`; NaN for missing and for other values.

    >>> encode(np.array(["b", "a", None, "c"], dtype=object), np.array(["b", "a"]))
    array([ 0.,  1., nan, nan])
    """
    if column.dtype.kind == "O":
        index = {value: float(i) for i, value in enumerate(categories.tolist())}
        return np.array([index.get(v, np.nan) if isinstance(v, str) else np.nan for v in column.tolist()])
    order = np.argsort(categories, kind="stable")
    place = np.minimum(np.searchsorted(categories, column, sorter=order), len(categories) - 1)
    code = order[place]
    return np.where(categories[code] == column, code, np.nan)


# -- kinds -------------------------------------------------------------------------------------------------


def column_kinds(
    kinds: Any, X: np.ndarray, names: Any, strings: dict[int, Any]
) -> tuple[list[str], list[int]]:
    """Return the kind of every column of X, given by `kinds` or found in its values, and where it was found.

    Args:
        kinds: the argument of the estimator.
        X: the table, NaN for missing values.
        names: the names of the columns, or None.
        strings: the columns whose values are strings.
    """
    given = _given_kinds(kinds, X.shape[1], names)
    found = []
    for j, kind in enumerate(given):
        if j in strings and kind not in ("auto", "categorical"):
            raise BadInput("kinds", f"{kind!r} for column {j}, which has strings", "'categorical' or 'auto'")
        found.append(("categorical" if j in strings else find_kind(X[:, j])) if kind == "auto" else kind)
    return found, [j for j, kind in enumerate(given) if kind == "auto"]


def _given_kinds(kinds: Any, d: int, names: Any) -> list[str]:
    if isinstance(kinds, str):
        return [kinds] * d
    if not isinstance(kinds, dict):
        if len(kinds) != d:
            raise BadInput("kinds", f"{len(kinds)} kinds", f"one for each of {d} columns")
        return [str(kind) for kind in kinds]
    given = ["auto"] * d
    position = {} if names is None else {name: j for j, name in enumerate(names)}
    for column, kind in kinds.items():
        is_number = isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < d
        j = position.get(column, int(column) if is_number else None)
        if j is None:
            expected = f"a number below {d}" + (f", or one of {list(position)[:20]}" if position else "")
            raise BadInput("kinds", f"the column {describe(column)}", expected)
        given[j] = kind
    return given


def find_kind(column: np.ndarray) -> str:
    """Return the kind of a column of numbers.

    Only 0 and 1: "bernoulli"; other whole numbers from 0 on: "count"; else "gaussian".

    >>> [find_kind(np.array(c)) for c in ([0.0, 1, 1], [0.0, 3, 2], [1.0, 3, 2], [0.5, 0, 1])]
    ['bernoulli', 'count', 'gaussian', 'gaussian']
    """
    head = column[:1024]  # most columns of reals show it here
    if not (_are_counts(head) and _are_counts(column)):
        return "gaussian"
    if is_binary(column).all():
        return "bernoulli"
    return "count" if np.nanmin(column) == 0 else "gaussian"


def _are_counts(column: np.ndarray) -> bool:
    return bool((np.isnan(column) | ((column >= 0) & (column == np.floor(column)))).all())


def drop_impossible(X: np.ndarray, kinds: list[str], lenient: frozenset[int] = frozenset()) -> np.ndarray:
    """Return X with NaN for values that their column cannot have, if it is in `lenient`; else raise.

    A Bernoulli column has 0 and 1, one of counts whole numbers from 0 on.
    """
    for j, kind in enumerate(kinds):
        if kind not in ("bernoulli", "count"):
            continue
        column = X[:, j]
        if kind == "bernoulli":
            valid, expected = is_binary(column), "zeros and ones"
        else:
            small = (column >= 0) & (column <= np.iinfo(np.int32).max)
            valid, expected = np.isnan(column) | (small & (column == np.floor(column))), "whole numbers >= 0"
        if valid.all():
            continue
        if j not in lenient:
            i = int(np.argmin(valid))
            found = f"{column[i]:g} in row {i}, column {j}, whose kind is {kind!r}"
            raise BadInput("X", found, expected, _REMEDY)
        X = X.copy()
        X[:, j] = np.where(valid, column, np.nan)
    return X
