"""The space of the columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..spaces import Binary, Real, Space
from ._table import Table


def find_spaces(data: Any) -> dict[str, Space]:
    """`{"x": Binary(d)}` if every known value is 0 or 1, `{"x": Real(d)}` otherwise.

    >>> find_spaces([[0, 1], [1, 1]]), find_spaces([[0.5, 1], [1, 1]])
    ({'x': Binary(2)}, {'x': Real(2)})
    """
    values = Table.of(data).values
    known = np.isnan(values) | (values == 0) | (values == 1)
    d = values.shape[1]
    return {"x": Binary(d) if known.all() else Real(d)}
