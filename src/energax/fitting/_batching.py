"""Data for the training loop: validation of rows and weights, validation splits, batches of equal size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._util.keys import numpy_generator
from .._util.sizes import number_of_rows, pad_weighted
from ..energy import Energy
from ..errors import BadInput
from ..spaces import as_columns


@dataclasses.dataclass(frozen=True)
class ValidatedRows:
    """Rows that the caller has validated, and their weights: `fit` does not check them again.

    Rows of weight 0 must be copies of the first row.
    """

    data: dict[str, Any]
    weight: np.ndarray


def check_data(energy: Energy, data: Any, argument: str = "data") -> dict[str, Any]:
    """Return the rows of every variable, checked against its space; raise `BadInput` if one does not fit."""
    data = as_columns(energy.spaces, data, argument)
    if not isinstance(data, Mapping):
        names = ", ".join(repr(n) for n in energy.spaces)
        expected = f"a dict of arrays by variable name, among {names}"
        raise BadInput(argument, type(data).__name__, expected, 'Try {"x": X}.')
    unknown = set(data) - set(energy.spaces)
    if unknown or not data:
        raise BadInput(argument, f"the names {sorted(data, key=str)}", f"some of {sorted(energy.spaces)}")
    out = {name: energy.spaces[name].check(value, f"{argument}[{name!r}]") for name, value in data.items()}
    counts = {}
    for name, value in out.items():
        space = energy.spaces[name]
        if len(value.shape) != space.ndim + 1:
            expected = f"({', '.join(map(str, ('n', *space.shape)))}{'' if space.shape else ','})"
            found = f"shape {value.shape}"
            raise BadInput(f"{argument}[{name!r}]", found, f"{expected}: one example per row")
        counts[name] = value.shape[0]
    if len(set(counts.values())) > 1:
        raise BadInput(argument, f"row counts {counts}", "the same number of rows in every array")
    if not number_of_rows(out):
        raise BadInput(argument, "0 rows", "at least one row")
    return out


def check_weights(weights: Any, n: int, dtype: Any = np.float32) -> np.ndarray:
    """Return the weights of n rows: finite, not negative, not all zero; ones if None."""
    if weights is None:
        return np.ones(n, dtype)
    expected = f"({n},): one number per row"
    try:
        w = np.asarray(weights, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise BadInput("weights", f"{type(weights).__name__} with non-numeric entries", expected) from None
    if w.shape != (n,):
        raise BadInput("weights", f"shape {w.shape}", expected)
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise BadInput("weights", "NaN, inf, negative or only zeros", "finite numbers >= 0, not all 0")
    return w


def real_dtype(data: Any) -> Any:
    """Return the widest real dtype among the arrays, as JAX stores it; float32 if there is none."""
    kinds = [np.dtype(leaf.dtype) for leaf in jax.tree.leaves(data) if np.dtype(leaf.dtype).kind == "f"]
    widest = max(kinds, key=lambda d: d.itemsize, default=np.dtype(np.float32))
    return jax.dtypes.canonicalize_dtype(widest)


def fill_zero_weight_rows(data: Any, weight: np.ndarray) -> Any:
    """Return the rows, those of weight 0 replaced by copies of the first row with a weight.

    Their content is not used, but an energy that overflows on them would have the gradient 0 · ∞ = NaN.
    """
    unused, first = np.flatnonzero(weight == 0), np.argmax(weight > 0)
    if not len(unused) or all(
        (np.asarray(a[unused]) == np.asarray(a[first])).all() for a in jax.tree.leaves(data)
    ):
        return data  # no copy of the table
    row = np.arange(len(weight))
    row[unused] = first
    return jax.tree.map(lambda a: a[row], data)


def check_rows(
    energy: Energy, data: Any, weights: Any = None, argument: str = "data"
) -> tuple[dict[str, Any], np.ndarray]:
    """Return rows and weights, checked against the spaces of the energy; weights are ones if None."""
    rows = check_data(energy, data, argument)
    arrays = (rows, eqx.filter(energy, eqx.is_inexact_array))
    weight = check_weights(weights, number_of_rows(rows), real_dtype(arrays))
    return fill_zero_weight_rows(rows, weight), weight


def pad_to_multiple(data: Any, weight: np.ndarray, multiple: int) -> tuple[Any, np.ndarray]:
    """Return rows and weights, padded with rows of weight 0 to a multiple of `multiple` rows."""
    return pad_weighted(data, weight, len(weight) + -len(weight) % multiple)


def split_validation(
    data: Any, weight: np.ndarray, fraction: float, key: jax.Array
) -> tuple[tuple[Any, np.ndarray], tuple[Any, np.ndarray]]:
    """Return (training rows, weights) and (validation rows, weights); rows of weight 0 are for training."""
    if not 0 < fraction < 1:
        raise BadInput("validation", repr(fraction), "a fraction strictly between 0 and 1")
    counted, padding = np.flatnonzero(weight), np.flatnonzero(weight == 0)
    n_validation = max(1, round(fraction * len(counted)))
    if n_validation >= len(counted):
        found = f"{n_validation} of {len(counted)} rows with a weight"
        raise BadInput("validation", found, "at least one row left to learn")
    order = numpy_generator(key, 2**31).permutation(counted)
    training = np.sort(np.append(order[n_validation:], padding))
    take = lambda rows: jax.tree.map(lambda a: a[rows], (data, weight))
    return take(training), take(np.sort(order[:n_validation]))


def batch_layout(n: int, batch_size: int | None) -> tuple[int, int]:
    """Return (number of batches, rows in each), with as little padding as possible.

    >>> batch_layout(1437, 100)
    (15, 96)
    """
    if batch_size is None or batch_size >= n:
        return 1, n
    n_batches = -(-n // batch_size)
    return n_batches, -(-n // n_batches)


def shuffle_batches(key: jax.Array, epoch: int, n: int, n_batches: int, size: int) -> np.ndarray:
    """Return shuffled row numbers, (n_batches, size); the largest integer marks padding."""
    order = numpy_generator(key, epoch).permutation(n).astype(np.int32)
    batches = np.full((n_batches, size), np.iinfo(np.int32).max, np.int32)
    # The last batches have one padded row each, at the end, so that no batch is empty.
    n_short = n_batches * size - n
    n_full = n_batches - n_short
    batches[:n_full] = order[: n_full * size].reshape(-1, size)
    if n_short:
        batches[n_full:, : size - 1] = order[n_full * size :].reshape(n_short, size - 1)
    return batches


def is_stream(data: Any) -> bool:
    """Return whether data is an iterable of batches, or a function that returns one, instead of arrays."""
    is_table = isinstance(data, Mapping | str | bytes) or hasattr(data, "shape")
    return callable(data) or (isinstance(data, Iterable) and not is_table)
