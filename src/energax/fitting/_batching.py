"""The door of the loop: data checked once, weights made whole, batches all of one size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from .._util.keys import numpy_generator
from ..energy import Energy
from ..errors import BadInput
from ..missing import number_of_rows


def check_data(energy: Energy, data: Any, argument: str = "data") -> dict[str, Any]:
    """Named rows in the spaces of the energy, or a `BadInput` that says which is not."""
    if not isinstance(data, Mapping):
        names = ", ".join(repr(n) for n in energy.spaces)
        raise BadInput(
            argument,
            type(data).__name__,
            f"a dict of arrays by variable name, among {names}",
            'Try {"x": X}.',
        )
    unknown = sorted(set(data) - set(energy.spaces))
    if unknown or not data:
        raise BadInput(argument, f"the names {sorted(data)}", f"some of {sorted(energy.spaces)}")
    out = {name: energy.spaces[name].check(value, f"{argument}[{name!r}]") for name, value in data.items()}
    counts = {}
    for name, value in out.items():
        if len(value.shape) != energy.spaces[name].ndim + 1:
            raise BadInput(
                f"{argument}[{name!r}]",
                f"shape {value.shape}",
                f"(n, *{energy.spaces[name].shape}): one row an example",
            )
        counts[name] = value.shape[0]
    if len(set(counts.values())) > 1:
        raise BadInput(argument, f"row counts {counts}", "the same number of rows in every array")
    if not number_of_rows(out):
        raise BadInput(argument, "0 rows", "at least one row")
    return out


def check_weights(weights: Any, n: int, dtype: Any = np.float32) -> np.ndarray:
    """Finite, non-negative, not all zero; None means one each."""
    if weights is None:
        return np.ones(n, dtype)
    try:
        w = np.asarray(weights, dtype=dtype)
    except (TypeError, ValueError):
        found = f"{type(weights).__name__} of what is no number"
        raise BadInput("weights", found, f"({n},): one number a row") from None
    if w.shape != (n,):
        raise BadInput("weights", f"shape {w.shape}", f"({n},): one number a row")
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise BadInput("weights", "NaN, inf, negative or only zeros", "finite numbers >= 0, not all 0")
    return w


def real_dtype(data: Any) -> Any:
    """The widest real dtype among the arrays as JAX will hold them; float32 if there is none."""
    kinds = [np.dtype(leaf.dtype) for leaf in jax.tree.leaves(data) if np.dtype(leaf.dtype).kind == "f"]
    widest = max(kinds, key=lambda d: d.itemsize, default=np.dtype(np.float32))
    return jax.dtypes.canonicalize_dtype(widest)


def batch_layout(n: int, batch_size: int | None) -> tuple[int, int]:
    """(number of batches, rows in each): as even as can be, so that little is padding.

    >>> batch_layout(1437, 100)
    (15, 96)
    """
    if batch_size is None or batch_size >= n:
        return 1, n
    n_batches = -(-n // batch_size)
    return n_batches, -(-n // n_batches)


def epoch_order(key: jax.Array, epoch: int, n: int, n_batches: int, size: int) -> np.ndarray:
    """A shuffle of the rows as (n_batches, size) indices; the largest integer stands for padding."""
    order = numpy_generator(key, epoch).permutation(n).astype(np.int32)
    padded = np.full(n_batches * size, np.iinfo(np.int32).max, np.int32)
    # Padding goes to the ends of the last batches, one row each, and never makes a batch empty.
    short = n_batches * size - n
    grid = padded.reshape(n_batches, size)
    whole = (n_batches - short) * size
    grid[: n_batches - short] = order[:whole].reshape(-1, size)
    if short:
        grid[n_batches - short :, : size - 1] = order[whole:].reshape(short, size - 1)
    return grid


def fill_zero_weight_rows(data: Any, weight: np.ndarray) -> Any:
    """The same rows, those of weight 0 holding what the first that counts holds.

    Nothing they say is used; but an energy that overflows on them has a gradient that no weight undoes,
    since 0 · ∞ is NaN.
    """
    nothing, first = np.flatnonzero(weight == 0), np.argmax(weight > 0)
    if not len(nothing) or all(
        (np.asarray(a[nothing]) == np.asarray(a[first])).all() for a in jax.tree.leaves(data)
    ):
        return data  # nothing of the size of the table is copied
    row = np.arange(len(weight))
    row[nothing] = first
    return jax.tree.map(lambda a: a[row], data)


def padded_rows(data: Any, weight: np.ndarray, multiple: int) -> tuple[Any, np.ndarray]:
    """Rows repeated, with weight 0, until their number divides by `multiple`."""
    short = -len(weight) % multiple
    if not short:
        return data, weight
    grow = lambda a: np.concatenate([a, np.repeat(a[:1], short, axis=0)])
    return jax.tree.map(grow, data), np.concatenate([weight, np.zeros(short, weight.dtype)])


def is_stream(data: Any) -> bool:
    """Whether data is an iterable of batches, or a function that starts one, rather than arrays."""
    return callable(data) or (isinstance(data, Iterable) and not isinstance(data, Mapping | np.ndarray | str))
