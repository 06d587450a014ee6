"""A table of numbers with column names, and the columns that were left out of it."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from ..errors import BadInput

_UNNAMED = "an array"


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of numbers, NaN where a value is missing.

    >>> t = Table.of([[0.0, 1.0], [1.0, float("nan")]])
    >>> t
    Table(2 rows × 2 columns, 1 value missing)
    >>> t.without(["x1"]).columns
    ('x0',)
    """

    values: np.ndarray
    columns: tuple[str, ...]
    source: str = _UNNAMED
    dropped: tuple[tuple[str, str], ...] = ()  # (column, why)
    notes: tuple[str, ...] = ()  # remarks on how it was read

    @classmethod
    def of(cls, data: Any, source: str = _UNNAMED) -> Table:
        """A table from an array, a list of rows, a pandas or polars frame, or a table."""
        if isinstance(data, Table):
            return data
        if hasattr(data, "to_pandas"):  # polars, arrow
            data = data.to_pandas()
        if hasattr(data, "columns") and hasattr(data, "dtypes"):
            return from_frame(data, source)
        where = _argument(source)
        try:
            values = np.asarray(data)
        except ValueError as error:
            raise BadInput(where, str(error), "rows of equal length") from None
        if values.ndim != 2 or not values.size:
            expected = "a 2-D table: rows × columns, at least one of each"
            raise BadInput(where, f"a {values.ndim}-D array of shape {values.shape}", expected)
        if values.dtype.kind not in "biuf":
            found = _DTYPES.get(values.dtype.kind, f"dtype {values.dtype}")
            raise BadInput(where, found, "real numbers", "Encode the values first.")
        values = values.astype(values.dtype if values.dtype.kind == "f" else np.float64)
        columns = tuple(f"x{i}" for i in range(values.shape[1]))
        return cls(_check_finite(values, columns, where), columns, source)

    def __repr__(self) -> str:
        n, d = self.values.shape
        missing = int(np.isnan(self.values).sum())
        gap = f", {missing} value{'s' * (missing != 1)} missing" if missing else ""
        return f"Table({n} rows × {d} columns{gap})"

    def __len__(self) -> int:
        return len(self.values)

    def without(self, names: Iterable[str], why: str = "asked for") -> Table:
        """The table without these columns. Columns that were already left out are ignored."""
        names = [n for n in dict.fromkeys(names) if n in self.columns or n not in dict(self.dropped)]
        for name in names:
            check_known_name("drop", name, self.columns, "a column")
        kept = [i for i, c in enumerate(self.columns) if c not in names]
        if not kept:
            raise BadInput("drop", f"all {len(self.columns)} columns", "at least one left")
        dropped = (*self.dropped, *((name, why) for name in names))
        return dataclasses.replace(
            self, values=self.values[:, kept], columns=tuple(self.columns[i] for i in kept), dropped=dropped
        )

    def only(self, names: Iterable[str]) -> Table:
        """The table with only these columns."""
        names, out = list(dict.fromkeys(names)), dict(self.dropped)
        for name in names:
            if name in out and name not in self.columns:
                found = f"{name!r}, which was left out: {out[name]}"
                raise BadInput("columns", found, f"columns of numbers: {join_names(self.columns)}")
            check_known_name("columns", name, self.columns, "a column")
        if not names:
            raise BadInput("columns", "no name", "at least one column")
        kept = [self.columns.index(name) for name in names]
        return dataclasses.replace(self, values=self.values[:, kept], columns=tuple(names))


_DTYPES = {"U": "text", "S": "text", "O": "Python objects", "c": "complex numbers", "M": "dates"}


def _argument(source: str) -> str:
    """The name of the data in an error message: the file, or the argument."""
    return "data" if source == _UNNAMED else source


def join_names(names: Iterable[str], most: int = 12) -> str:
    """Names separated by commas; a name with a comma or outer spaces is quoted."""
    names = [n if "," not in n and n == n.strip() != "" else repr(n) for n in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_known_name(argument: str, name: str, known: Iterable[str], noun: str, where: str = "") -> None:
    """Raise if a name is not among the known ones, and suggest the nearest ones.

    `where` says who lists all names ("`energax models` lists"); without it the message lists them.
    """
    known = [str(k) for k in known]
    if name in known:
        return
    spelled = {k.lower(): k for k in known}
    near = [spelled[k] for k in difflib.get_close_matches(name.lower(), spelled, n=3, cutoff=0.5)]
    expected = f"that {where}" if where else f"among {join_names(known)}"
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise BadInput(argument, f"no {noun.split()[-1]} {name!r}", f"{noun} {expected}", hint)


def check_unique_names(names: Iterable[str], source: str) -> None:
    """Raise if two columns share a name."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        found = f"more than one column called {' and '.join(map(repr, repeated[:3]))}"
        raise BadInput(_argument(source), found, "unique column names", "Rename all but one.")


def from_frame(frame: Any, source: str, notes: tuple[str, ...] = ()) -> Table:
    """The numeric columns of a pandas frame; the others are listed with the reason why they were left out."""
    kept, arrays, dropped = [], [], []
    check_unique_names(map(str, frame.columns), source)
    for i, name in enumerate(frame.columns):
        column, name = frame.iloc[:, i], str(name)
        array = _numbers(column)
        if array is None:
            dropped.append((name, _why_not_numeric(column)))
        elif np.isnan(array).all():
            dropped.append((name, "empty"))
        elif i == 0 and _is_row_index(name, array):
            dropped.append((name, "a row index"))
        else:
            kept.append(name)
            arrays.append(array)
    if not kept:
        reasons = "; ".join(f"{name}: {why}" for name, why in dropped[:3])
        more = f"; and {len(dropped) - 3} more" if len(dropped) > 3 else ""
        raise BadInput(
            _argument(source),
            f"no column of numbers ({reasons}{more})" if dropped else "no column",
            "at least one",
            _remedy([why for _, why in dropped]),
        )
    columns = tuple(kept)
    values = _check_finite(np.stack(arrays, axis=1), columns, _argument(source))
    return Table(values, columns, source, tuple(dropped), notes)


def _numbers(column: Any) -> np.ndarray | None:
    """The column as numbers, or None if it holds something else."""
    if column.dtype.kind in "biuf" or str(column.dtype).lower() in _NULLABLE:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if column.dtype == object:  # booleans with empty cells, long integers, decimals
        known = column.dropna()
        if all(isinstance(v, (int, float, np.number, np.bool_, Decimal)) for v in known):
            return column.where(column.notna(), np.nan).to_numpy(dtype=np.float64)
    return None


_COMMAS = "decimal commas"
_POINTS = (
    "Write decimal points, or read it by pandas.read_csv(path, sep=';', decimal=',') and give the frame."
)

#: Pattern of the cells that are not numbers, its description, and the advice.
_NOT_NUMBERS = (
    (r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", "commas in numbers", "write 1234, or 1.234, for 1,234"),
    (r"[+-]?[\d.]*,\d+([eE][+-]?\d+)?", _COMMAS, "write decimal points"),
    (r"-?[$€£¥]\s*-?[\d.,]+|[+-]?[\d.,]+\s*[%$€£¥]", "signs beside numbers", "write the number alone"),
    (
        r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([ T].*)?",
        "dates",
        "write numbers, such as days since the first",
    ),
)


def _remedy(reasons: list[str]) -> str:
    if all(why == "empty" for why in reasons):
        return "Fill in the known values."
    if any(_COMMAS in why for why in reasons):
        return _POINTS
    return "" if any("(write" in why for why in reasons) else "Encode the values as numbers first."


def _why_not_numeric(column: Any) -> str:
    """Why a column is not numeric: the first bad cell if most cells are numbers."""
    import pandas as pd

    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return "not numeric"
    written = column.notna().to_numpy()
    number = lambda c: pd.to_numeric(c.astype(object), errors="coerce").notna().to_numpy()
    bad = np.flatnonzero(written & ~number(column))
    where = lambda row: f"{str(column.iloc[row])[:20]!r} in row {row + 1} of {len(column)}"
    cells = column.iloc[bad].astype(object).astype(str).str.strip()
    for pattern, what, instead in _NOT_NUMBERS:
        if len(bad) and cells.str.fullmatch(pattern).all():
            return f"{what} such as {where(bad[0])} ({instead})"
    if len(bad) and len(bad) <= 0.5 * written.sum():
        others = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        return f"not numeric for {where(bad[0])}{others} (leave a cell empty where its value is missing)"
    return "not numeric"


_NULLABLE = {f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)} | {"float32", "float64", "boolean"}


def _is_row_index(name: str, column: np.ndarray) -> bool:
    """Whether the column is a row index written with the data: 0, 1, 2, … or 1, 2, 3, … under such a name."""
    named = name.lower() in ("", "rownames", "row", "index", "id", "unnamed: 0")
    return named and len(column) > 1 and bool((np.diff(column) == 1).all()) and column[0] in (0, 1)


def _check_finite(values: np.ndarray, columns: tuple[str, ...], where: str) -> np.ndarray:
    bad = np.argwhere(np.isinf(values))
    if len(bad):
        row, column = bad[0]
        found = f"an infinite value in row {row + 1} of {len(values)}, column {join_names([columns[column]])}"
        raise BadInput(where, found, "finite numbers", "Leave it empty (NaN) where a value is missing.")
    return values
