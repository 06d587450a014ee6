"""Training rows and held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._util.keys import as_key, numpy_generator
from ..errors import BadInput


def hold_out(n: int, test: float | int = 0.2, *, key: Any) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training rows and of the test rows, both sorted.

    `test` is a fraction of the rows, or their number.

    >>> train, test_rows = hold_out(10, 0.3, key=0)
    >>> len(train), len(test_rows), sorted([*train.tolist(), *test_rows.tolist()]) == list(range(10))
    (7, 3, True)
    """
    whole = isinstance(test, int | np.integer) and not isinstance(test, bool)
    if not whole and not (isinstance(test, float | np.floating) and 0 < test < 1):
        found = f"{test:g}" if isinstance(test, float | np.floating) else repr(test)
        raise BadInput("test", found, "a fraction strictly between 0 and 1, or a number of rows")
    if n < 4:
        raise BadInput("n", f"{n} row{'s' * (n != 1)}", "at least 4: 2 rows on each side of the split")
    n_test = int(test) if whole else max(2, round(float(test) * n))
    if n_test < 2 or n - n_test < 2:
        raise BadInput(
            "test",
            f"{n_test} of {n} rows held out",
            "at least 2 rows on each side",
            f"Hold out 2 to {n - 2}.",
        )
    order = numpy_generator(as_key(key), 0).permutation(n)
    return np.sort(order[n_test:]), np.sort(order[:n_test])
