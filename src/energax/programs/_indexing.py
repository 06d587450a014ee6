"""`gather` and the `scatter` family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from ._rule import Rule, Unsupported, is_float


def _grids(sizes: Any) -> list[np.ndarray]:
    """One range per size, each along its own axis."""
    return [
        np.arange(n).reshape([n if i == k else 1 for i in range(len(sizes))]) for k, n in enumerate(sizes)
    ]


# -- gather ------------------------------------------------------------------------------------------------


def _gather(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    numbers, sizes, shape = parameters["dimension_numbers"], parameters["slice_sizes"], inputs[0].shape
    batch = tuple(inputs[1].shape[:-1])
    # JAX may give numbers of NumPy, whose comparison with a tuple is an array.
    places, window = tuple(map(int, numbers.start_index_map)), tuple(numbers.offset_dims)
    batching = tuple(numbers.operand_batching_dims)
    dropped = (*numbers.collapsed_slice_dims, *batching)
    kept = [k for k in range(len(shape)) if k not in dropped]  # in the order of `window`
    fills = parameters["mode"] == GatherScatterMode.FILL_OR_DROP
    # A window as long as its axis begins at 0, unless it is filled where it is outside.
    used = [j for j, k in enumerate(places) if fills or sizes[k] < shape[k]]
    axis = places[used[0]] if len(used) == 1 else -1
    whole = all(sizes[k] == shape[k] for k in kept if k != axis)
    if axis >= 0 and sizes[axis] == 1 and set(dropped) <= {axis} and not batching and whole:
        read, found = _take(axis, kept, batch)
    else:
        used = [*range(len(places))]
        read, found = _read(numbers, sizes, shape, batch, kept)
    most = [shape[places[j]] - sizes[places[j]] for j in used]
    # `found` names the axes that `read` returns: numbers of kept axes, and ("batch", i).
    wanted: list[Any] = [None] * (len(batch) + len(window))
    for k, place in zip(kept, window, strict=True):
        wanted[place] = k
    rest = iter([("batch", i) for i in range(len(batch))])
    wanted = [next(rest) if name is None else name for name in wanted]
    order = tuple(found.index(name) for name in wanted)
    arrange = None if order == tuple(range(len(order))) else order
    fill = _fill_value(np.dtype(outputs[0].dtype), parameters["fill_value"]) if fills else None
    at_batch = [i for i in range(len(wanted)) if i not in window]
    outer = tuple(n if i in at_batch else 1 for i, n in enumerate(outputs[0].shape))

    def gather(operand, indices):
        columns = [indices[..., j] for j in used]
        out = read(operand, [np.minimum(np.maximum(c, 0), n) for c, n in zip(columns, most, strict=True)])
        out = out if arrange is None else out.transpose(arrange)
        if fill is not None:
            for column, n in zip(columns, most, strict=True):
                outside = (column < 0) | (column > n)
                if outside.any():
                    out = np.where(outside.reshape(outer), fill, out)
        return out

    return gather


def _take(axis: int, kept: list[Any], batch: tuple[int, ...]) -> tuple[Callable[..., Any], list[Any]]:
    """Whole rows along one axis: `x[i]` and `take`. A kept axis of windows of one row is put back."""
    names = [*[k for k in kept if k < axis], *[("batch", i) for i in range(len(batch))]]
    names += [k for k in kept if k >= axis]
    if axis not in kept:
        return lambda operand, columns: operand.take(columns[0], axis), names
    place = names.index(axis)
    return lambda operand, columns: np.expand_dims(operand.take(columns[0], axis), place), names


def _read(
    numbers: Any, sizes: Any, shape: Any, batch: tuple[int, ...], kept: list[int]
) -> tuple[Callable[..., Any], list[Any]]:
    """Any windows, by one array of indices for every axis that has a first index or is batched."""
    places, batching = tuple(numbers.start_index_map), tuple(numbers.operand_batching_dims)
    inner = [k for k in kept if k in places]  # windows along axes with a first index
    rest = [k for k in range(len(shape)) if k not in places and k not in batching]
    front = (*places, *batching, *rest)
    cut = (*(slice(None),) * (len(places) + len(batching)), *(slice(0, sizes[k]) for k in rest))
    grids = dict(zip(inner, _grids([sizes[k] for k in inner]), strict=True))
    spread = (*batch, *(1,) * len(inner))
    axes = dict(zip(batching, numbers.start_indices_batching_dims, strict=True))
    fixed = []
    for k in batching:
        line = [1] * len(spread)
        line[axes[k]] = batch[axes[k]]
        fixed.append(np.arange(batch[axes[k]]).reshape(line))
    # Axes outside the windows that are cut to one number and dropped.
    gone = tuple(len(spread) + i for i, k in enumerate(rest) if k not in kept)

    def read(operand, columns):
        index = []
        for k, column in zip(places, columns, strict=True):
            at = column.reshape(spread)
            index.append(at + grids[k] if k in grids else at)
        out = operand.transpose(front)[cut][(*index, *fixed)]
        return out.squeeze(gone) if gone else out

    names = [*[("batch", i) for i in range(len(batch))], *inner, *[k for k in rest if k in kept]]
    return read, names


def _fill_value(dtype: np.dtype, value: Any) -> Any:
    if value is not None:
        return np.asarray(value, dtype)
    if is_float(dtype):
        return np.asarray(np.nan, dtype)
    if dtype.kind == "i":
        return np.asarray(np.iinfo(dtype).min, dtype)
    return np.asarray(np.iinfo(dtype).max if dtype.kind == "u" else True, dtype)


# -- scatter -----------------------------------------------------------------------------------------------


def _scatter(combine: np.ufunc | None) -> Rule:
    def rule(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
        if combine is None and _computes(parameters["update_jaxpr"]):
            raise Unsupported("scatter_apply")
        numbers, shape = parameters["dimension_numbers"], tuple(inputs[0].shape)
        batch, window = tuple(inputs[1].shape[:-1]), tuple(numbers.update_window_dims)
        places = tuple(numbers.scatter_dims_to_operand_dims)
        dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        kept = [k for k in range(len(shape)) if k not in dropped]
        sizes = [1] * len(shape)
        for k, place in zip(kept, window, strict=True):
            sizes[k] = inputs[2].shape[place]
        outer = [i for i in range(len(inputs[2].shape)) if i not in window]
        order = (*outer, *window)
        arrange = None if order == tuple(range(len(order))) else order
        most = [shape[k] - sizes[k] for k in places]
        clips = parameters["mode"] == GatherScatterMode.CLIP
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        base = _base(numbers, batch, strides)
        steps = np.zeros((1,) * len(kept), np.int64)
        for k, grid in zip(kept, _grids([sizes[k] for k in kept]), strict=True):
            steps = steps + grid * strides[k]
        steps = steps.reshape(-1)
        axes = tuple(numbers.scatter_indices_batching_dims)
        distinct = parameters["unique_indices"] or all(
            n == 1 or i in axes for i, n in enumerate(batch)
        )  # no number gets two updates

        def one(operand, indices, updates):
            window = whole.copy()
            for k, start, n in zip(places, indices.reshape(-1).tolist(), most, strict=True):
                inside = min(max(start, 0), n)
                if inside != start and not clips:  # an update outside is dropped
                    return operand
                window[k] = slice(inside, inside + sizes[k])
            out, at = np.array(operand), tuple(window)
            updates = (updates if arrange is None else updates.transpose(arrange)).reshape(sizes)
            out[at] = updates if combine is None else combine(out[at], updates)
            return out

        if math.prod(batch) == 1 and not numbers.operand_batching_dims:
            whole = [slice(0, n) for n in sizes]
            return one

        def scatter(operand, indices, updates):
            updates = (updates if arrange is None else updates.transpose(arrange)).reshape(-1, len(steps))
            at, kept_rows = base, None
            for j, n in enumerate(most):
                column = indices[..., j]
                inside = np.minimum(np.maximum(column, 0), n)
                at = at + inside.astype(np.int64) * strides[places[j]]
                if not clips:
                    same = column == inside
                    kept_rows = same if kept_rows is None else kept_rows & same
            rows = at.reshape(-1, 1)
            if kept_rows is not None and not kept_rows.all():  # updates outside are dropped
                which = np.flatnonzero(kept_rows)
                rows, updates = rows[which], updates[which]
            flat = (rows + steps).reshape(-1)
            out = np.array(operand).reshape(-1)
            if combine is None:
                out[flat] = updates.reshape(-1)
            elif distinct:
                out[flat] = combine(out[flat], updates.reshape(-1))
            else:
                combine.at(out, flat, updates.reshape(-1))
            return out.reshape(shape)

        return scatter

    return rule


def _base(numbers: Any, batch: tuple[int, ...], strides: list[int]) -> np.ndarray:
    """Where the windows of every batch begin in the flat array, without their indices."""
    base = np.zeros(batch, np.int64)
    for k, i in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        base = base + _grids(batch)[i] * strides[k]
    return base


def _computes(jaxpr: Any) -> bool:
    """Whether an update is a function of the old value, as in `x.at[i].apply(f)`."""
    if jaxpr is None:
        return False
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return bool(inner.eqns) or inner.outvars[0] is not inner.invars[-1]


RULES: dict[str, Rule] = {
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter(np.add),
    "scatter-max": _scatter(np.maximum),
    "scatter-min": _scatter(np.minimum),
    "scatter-mul": _scatter(np.multiply),
    "scatter-sub": _scatter(np.subtract),
}
