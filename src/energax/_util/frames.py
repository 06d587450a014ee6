"""Data frames of pandas and polars as columns by name, and columns as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import BadInput


def is_frame(data: Any) -> bool:
    """Whether data is a data frame, of pandas, polars or another library with their methods."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy") and not isinstance(data, Mapping)


def columns_of(frame: Any, argument: str = "data") -> dict[str, np.ndarray]:
    """Return the columns of a frame by name: numbers, or objects for text, None where a value is missing.

    >>> import pandas as pd
    >>> columns_of(pd.DataFrame({"wet": ["yes", None], "n": [1.0, 2.0]}))
    {'wet': array(['yes', None], dtype=object), 'n': array([1., 2.])}
    """
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise BadInput(argument, f"the columns {names}", "different names")
    return {str(name): _as_column(frame[name], str(name), argument) for name in frame.columns}


def _as_column(series: Any, name: str, argument: str) -> np.ndarray:
    kind = str(series.dtype)
    if kind.lower().startswith(("datetime", "date", "time", "duration", "period")):
        expected = "numbers or names of states"
        raise BadInput(argument, f"dates in the column {name!r}", expected, "Leave the column out.")
    values = np.asarray(series.to_numpy())
    if values.dtype.kind in "biuf":
        return values
    # Extension types and text: whatever a library calls missing becomes None.
    missing = np.asarray(series.is_null() if hasattr(series, "is_null") else series.isna(), bool)
    found = values.astype(object)
    found[missing] = None
    if all(item is None or isinstance(item, bool | np.bool_ | int | float | np.number) for item in found):
        return np.array([np.nan if item is None else float(item) for item in found])
    return found


def states_of(series: Any) -> tuple[str, ...] | None:
    """Return the names of the states of a column, in order; None if its values are numbers.

    The order is that of the categories of a categorical column, else alphabetical.

    >>> import pandas as pd
    >>> states_of(pd.Series(["no", "yes", "no"])), states_of(pd.Series([0, 1]))
    (('no', 'yes'), None)
    """
    categories = getattr(getattr(series, "cat", None), "categories", None)
    if categories is not None and not hasattr(series, "is_null"):
        return tuple(map(str, categories))
    values = np.asarray(series, object) if not hasattr(series, "to_numpy") else np.asarray(series.to_numpy())
    if values.dtype.kind in "biufc":
        return None
    known = [item for item in values.astype(object) if item is not None and item == item]
    if not any(isinstance(item, str) for item in known):
        return None
    return tuple(sorted({str(item) for item in known}))


def make_frame(columns: Mapping[str, np.ndarray]) -> Any:
    """Return the columns as a pandas frame. A variable with a shape has one column per coordinate."""
    import pandas as pd

    out: dict[str, Any] = {}
    for name, values in columns.items():
        labels = getattr(values, "labels", None)
        values = np.asarray(values)
        for index in np.ndindex(values.shape[1:]):
            suffix = f"[{', '.join(map(str, index))}]" if index else ""
            column = values[(slice(None), *index)]
            out[name + suffix] = column if labels is None else pd.Categorical.from_codes(column, labels)
    return pd.DataFrame(out)
