"""The rows that models are compared on: split, cleaned, standardised."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..data import ColumnScaler, Table, find_spaces
from ..data._table import join_names
from ..errors import BadInput
from ..spaces import Binary, Real, Space
from ._split import hold_out

_FARTHEST = 1e15  # standard deviations from the mean; float32 cannot square more than 1e19


@dataclasses.dataclass(frozen=True)
class Split:
    """Training and test rows, both standardised if they are real.

    log_det: (n_test,), log |∂u/∂x| of the standardisation of each test row, to add to log p(u).
    notes: remarks for the reader about how the data were read.
    """

    train: np.ndarray
    test: np.ndarray
    space: Space
    log_det: np.ndarray
    notes: tuple[str, ...]

    @property
    def kind(self) -> str:
        return "binary" if isinstance(self.space, Binary) else "real"

    @property
    def has_missing(self) -> bool:
        return bool(np.isnan(self.train).any() or np.isnan(self.test).any())


def prepare(table: Table, test: Any, key: Any) -> Split:
    """Hold out rows, drop constant columns and standardise real ones by the training rows."""
    values, notes = _drop_empty_rows(table)
    dropped: dict[str, list[str]] = {}
    for column, reason in table.dropped:
        dropped.setdefault(reason, []).append(column)
    train_rows, test_rows = hold_out(len(values), test, key=key)
    space = find_spaces(values)["x"]
    train, test_values = values[train_rows], values[test_rows]
    log_det = np.zeros(len(test_values))
    if not isinstance(space, Binary):
        varies = _varying_columns(train)
        constant = [c for c, v in zip(table.columns, varies, strict=True) if not v]
        if constant:
            dropped.setdefault("constant in the training rows", []).extend(constant)
        columns = [c for c, v in zip(table.columns, varies, strict=True) if v]
        train, test_values, space = train[:, varies], test_values[:, varies], Real(len(columns))
        notes += _notes_on_codes(columns, train)
        scaling = ColumnScaler.fit(train)
        log_det = scaling.log_det(test_values)
        train, test_values = scaling.transform(train), _scale_test_rows(scaling, test_values, columns)
    notes += [f"Left out, {reason}: {join_names(names, 6)}." for reason, names in dropped.items()]
    n_missing = int(np.isnan(train).sum() + np.isnan(test_values).sum())
    if n_missing:
        notes.append(f"{n_missing} values are missing. Models that cannot learn from such rows are skipped.")
    return Split(train, test_values, space, log_det, tuple(notes))


def _drop_empty_rows(table: Table) -> tuple[np.ndarray, list[str]]:
    notes, values = list(table.notes), table.values
    empty = np.isnan(values).all(axis=1)
    if empty.any():
        notes.append(f"{empty.sum()} rows without any value were left out.")
        values = values[~empty]
    if len(values) < 4:
        found = f"{len(values)} row{'s' * (len(values) != 1)}{' with a value' if empty.any() else ''}"
        raise BadInput("data", found, "at least 4, to have 2 rows on each side of the split", "Add rows.")
    return values, notes


def _varying_columns(train: np.ndarray) -> np.ndarray:
    # Compared, not subtracted: 1e308 − (−1e308) overflows.
    varies = np.nanmax(train, axis=0, initial=-np.inf) > np.nanmin(train, axis=0, initial=np.inf)
    if not varies.any():
        raise BadInput("data", "only constant columns", "at least one that varies")
    return varies


def _notes_on_codes(columns: list[str], values: np.ndarray) -> list[str]:
    """Notes on columns that may be codes of categories but are treated as real numbers."""
    observed = [column[~np.isnan(column)] for column in values.T]
    binary = [c for c, v in zip(columns, observed, strict=True) if np.isin(v, (0, 1)).all()]
    # From 2⁵³ on every float is a whole number.
    is_whole = lambda v: (v == np.floor(v)).all() and (np.abs(v) < 2**53).all()
    whole = [c for c, v in zip(columns, observed, strict=True) if is_whole(v) and c not in binary]
    notes = []
    if binary:
        notes.append(
            f"Only 0 and 1, treated as real numbers like the other columns: {join_names(binary, 6)}. "
            "A density on such columns can be arbitrarily high; leave them out to compare fairly."
        )
    if whole:
        notes.append(
            f"Whole numbers, treated as real numbers: {join_names(whole, 6)}. Fine for counts and grades. "
            "Leave out codes of categories, or replace each by columns of 0 and 1."
        )
    return notes


def _scale_test_rows(scaling: ColumnScaler, test: np.ndarray, columns: list[str]) -> np.ndarray:
    """The test rows standardised; raises if a value is so far off that its square overflows."""
    with np.errstate(over="ignore"):
        scaled = scaling.transform(test)
    far = np.nan_to_num(np.abs(scaled), posinf=np.inf)
    if far.max() < _FARTHEST:
        return scaled
    row, column = np.unravel_index(far.argmax(), far.shape)
    name = join_names([columns[column]])
    typical = f"{scaling.mean[column]:.3g} ± {scaling.scale[column]:.3g}"
    raise BadInput(
        "data",
        f"{test[row, column]:.3g} in column {name}, whose other values are {typical}",
        "test rows on the scale of the training rows",
        "Correct the value, leave it empty if it is unknown, or leave the column out.",
    )
