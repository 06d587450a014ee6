"""Data frames as values of variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._util.frames import columns_of, is_frame
from ..errors import BadInput
from ._space import Space


def as_columns(spaces: Mapping[str, Space], data: Any, argument: str = "data") -> Any:
    """Return a data frame as values by variable; anything else as it is.

    The columns are the variables, by name. If none of them is one, and one variable has as many coordinates
    as the frame has columns, the frame holds its rows.

    >>> import pandas as pd
    >>> from energax import Categorical, Real
    >>> as_columns({"wet": Categorical(2)}, pd.DataFrame({"wet": [0, 1]}))
    {'wet': array([0, 1])}
    >>> as_columns({"x": Real(2), "z": Categorical(3)}, pd.DataFrame({"a": [1.0], "b": [2.0]}))["x"].shape
    (1, 2)
    """
    if not is_frame(data):
        return data
    columns = columns_of(data, argument)
    if columns.keys() & spaces.keys():
        unknown = [name for name in columns if name not in spaces]
        if unknown:
            hint = "Leave these columns out."
            raise BadInput(argument, f"the columns {unknown}", f"some of {list(spaces)}", hint)
        return columns
    rows = [name for name, space in spaces.items() if space.shape == (len(columns),)]
    if len(rows) != 1:
        expected = f"columns among the variables {list(spaces)}"
        raise BadInput(argument, f"a frame with the columns {list(columns)}", expected)
    text = [name for name, column in columns.items() if column.dtype == object]
    if text:
        raise BadInput(argument, f"text in the column {text[0]!r}", "numbers", "Encode or leave it out.")
    return {rows[0]: data.to_numpy()}
