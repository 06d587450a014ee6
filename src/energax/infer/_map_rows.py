"""Functions of one row, or of many, applied to all rows of a query in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from .._util.keys import as_key, split_key
from .._util.sizes import QUERY_NUMBERS, QUERY_ROWS, call_rows, map_chunks
from ..missing import Masked
from ..programs import jit_to_numpy


@jit_to_numpy
def _vmap_rows(function, rows, keys, *arguments):
    return jax.vmap(lambda row, key: function(row, key, *arguments))(rows, keys)


@jit_to_numpy
def _call(function, rows, *arguments):
    return function(rows, *arguments)


def map_rows(
    function: Callable[..., Any],
    rows: dict[str, Any],
    n: int,
    *arguments: Any,
    key: Any = None,
    numbers_per_row: int = 1,
) -> Any:
    """Return `function(row, key, *arguments)` of every row, as NumPy arrays with a leading axis of rows.

    Rows are computed in chunks, one compiled call each, and chunks are padded to a power of two, so that
    another number of rows seldom compiles again. Pass a module-level function: a new lambda compiles again.

    Args:
        function: a function of one row, a key and `arguments`.
        rows: arrays by name, each with a leading axis of `n` rows; may be empty.
        n: the number of rows.
        arguments: further arguments, the same for all rows.
        key: split into one key per row; None is a constant, for functions that draw nothing.
        numbers_per_row: how many numbers the function holds for one row; limits the size of a chunk.
    """
    keys = split_key(as_key(0) if key is None else key, n)
    call = lambda chunk: _vmap_rows(function, *chunk, *arguments)
    return _map_chunks(call, (rows, keys), n, numbers_per_row)


def map_batches(
    function: Callable[..., Any], rows: dict[str, Any], n: int, *arguments: Any, numbers_per_row: int = 1
) -> Any:
    """Return `function(rows, *arguments)` in chunks of rows, for a function written for many rows at once."""
    return _map_chunks(lambda chunk: _call(function, chunk, *arguments), rows, n, numbers_per_row)


def _map_chunks(call: Callable[[Any], Any], tree: Any, n: int, numbers_per_row: int) -> Any:
    size = call_rows(n, min(QUERY_ROWS.value, QUERY_NUMBERS.rows(numbers_per_row)))

    # By default accelerators round the factors of float32 products to fewer bits.
    with jax.default_matmul_precision("highest"):
        return map_chunks(call, tree, size)


def fill_missing(given: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return a complete example: `given`, with hidden variables and missing coordinates from `values`."""
    filled = {k: given[k].fill(v) if isinstance(given.get(k), Masked) else v for k, v in values.items()}
    return {**given, **filled}
