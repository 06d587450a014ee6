"""Primitives that move, copy and sort values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._rule import Rule, Unsupported, is_float, is_short

#: Broadcast arrays up to this size are written out: `np.broadcast_to` takes longer than that.
_WRITTEN_OUT = 10_000
#: The same for a short last axis, because NumPy is slow with views of that kind.
_WRITTEN_OUT_SHORT = 1_000_000


def _broadcast_in_dim(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    shape, before = tuple(parameters["shape"]), inputs[0].shape
    spread = [1] * len(shape)
    for size, place in zip(before, parameters["broadcast_dimensions"], strict=True):
        spread[place] = size
    inner = tuple(spread)
    if inner == shape:
        return (lambda x: x) if before == shape else lambda x: x.reshape(shape)
    size, short = math.prod(shape), shape[-1] <= 8
    if size > (_WRITTEN_OUT_SHORT if short else _WRITTEN_OUT):
        return lambda x: np.broadcast_to(x.reshape(inner), shape)
    if short and size >= 512 and math.prod(inner) > 1:
        columns = [(..., i) for i in range(shape[-1])]
        sources = columns if inner[-1] > 1 else [(..., 0)] * shape[-1]

        def write_columns(x):
            out, x = np.empty(shape, x.dtype), x.reshape(inner)
            for column, source in zip(columns, sources, strict=True):
                out[column] = x[source]
            return out

        return write_columns
    aligned = not before or inner[len(shape) - len(before) :] == before

    def write(x):
        out = np.empty(shape, x.dtype)
        out[...] = x if aligned else x.reshape(inner)
        return out

    return write


def _iota(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    shape, axis = tuple(parameters["shape"]), parameters["dimension"]
    line = np.arange(shape[axis]).astype(parameters["dtype"])
    table = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    if table.size <= _WRITTEN_OUT:
        table = np.ascontiguousarray(table)
    return lambda: table


def _empty(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if not isinstance(outputs[0].dtype, np.dtype):
        raise Unsupported("empty keys")
    zeros = np.zeros(outputs[0].shape, outputs[0].dtype)
    return lambda: zeros


def _reshape(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    shape, order = tuple(outputs[0].shape), parameters["dimensions"]
    if order is None:
        return lambda x: x.reshape(shape)
    return lambda x: x.transpose(order).reshape(shape)


def _squeeze(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    shape = tuple(outputs[0].shape)
    return lambda x: x.reshape(shape)


def _transpose(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    permutation = tuple(parameters["permutation"])
    return lambda x: x.transpose(permutation)


def _reverse(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    back, same = slice(None, None, -1), slice(None)
    index = tuple(back if i in parameters["dimensions"] else same for i in range(len(inputs[0].shape)))
    return lambda x: x[index]


def _slice(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    starts, limits = parameters["start_indices"], parameters["limit_indices"]
    strides = parameters["strides"] or (1,) * len(starts)
    index = tuple(map(slice, starts, limits, strides))
    return lambda x: x[index]


def _split(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    ends = np.cumsum(parameters["sizes"]).tolist()
    before = (slice(None),) * parameters["axis"]
    parts = [(*before, slice(end - size, end)) for size, end in zip(parameters["sizes"], ends, strict=True)]
    return lambda x: [x[part] for part in parts]


def _unstack(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    axis = parameters["axis"]
    return lambda x: [x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis])]


def _concatenate(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    axis = parameters["dimension"]
    return lambda *x: np.concatenate(x, axis)


def _starts(shape: Any, sizes: Any) -> Callable[..., tuple[slice, ...]]:
    """The window at some indices, moved inside the array."""
    whole = [slice(0, n) for n in shape]
    moving = [(k, n - size, size) for k, (n, size) in enumerate(zip(shape, sizes, strict=True)) if size != n]

    def window(indices):
        out = whole.copy()
        for k, most, size in moving:
            start = min(max(int(indices[k]), 0), most)
            out[k] = slice(start, start + size)
        return tuple(out)

    return window


def _dynamic_slice(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    window = _starts(inputs[0].shape, parameters["slice_sizes"])
    return lambda x, *indices: x[window(indices)]


def _dynamic_update_slice(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    window = _starts(inputs[0].shape, inputs[1].shape)

    def update(x, new, *indices):
        out = np.array(x)
        out[window(indices)] = new
        return out

    return update


def _pad(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    shape, targets, sources = tuple(outputs[0].shape), [], []
    for (low, _, interior), before, after in zip(
        parameters["padding_config"], inputs[0].shape, shape, strict=True
    ):
        places = low + np.arange(before) * (interior + 1)
        kept = np.flatnonzero((places >= 0) & (places < after))  # negative padding cuts
        first, n = (int(kept[0]), len(kept)) if len(kept) else (0, 0)
        begin = int(places[first]) if n else 0
        sources.append(slice(first, first + n))
        targets.append(slice(begin, begin + n * (interior + 1), interior + 1))
    target, source = tuple(targets), tuple(sources)

    def pad(x, value):
        out = np.empty(shape, x.dtype)
        out[...] = value
        out[target] = x[source]
        return out

    return pad


def _sort(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    axis, n_keys, n_axes = parameters["dimension"], parameters["num_keys"], len(inputs[0].shape)

    def alone(x):
        out = np.array(x)
        out.sort(axis, kind="stable")  # 0.0 and -0.0 are equal
        return (out,)

    def sort(*arrays):
        keys = [a.astype(np.float32) if is_short(a.dtype) else a for a in arrays[:n_keys]]
        order = keys[0].argsort(axis, kind="stable") if n_keys == 1 else np.lexsort(keys[::-1], axis)
        if n_axes == 1:
            return [a[order] for a in arrays]
        return [np.take_along_axis(a, order, axis) for a in arrays]

    return alone if len(inputs) == 1 and not is_short(inputs[0].dtype) else sort


def _top_k(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    k, last = outputs[0].shape[-1], len(inputs[0].shape) - 1
    axis = parameters.get("axis", last)
    signed = np.dtype(f"i{np.dtype(inputs[0].dtype).itemsize}")

    def key(x):  # increases where x decreases; -0.0 is less than 0.0, and NaN is the most
        if is_float(x.dtype):
            bits = np.where(np.isnan(x), np.array(np.nan, x.dtype), x).view(signed)
            return np.where(bits < 0, bits ^ np.iinfo(signed).max, bits)
        return x

    def top(x):
        order = ~key(x) if x.dtype.kind != "b" else ~x
        order = order.argsort(axis, kind="stable").take(np.arange(k), axis)
        return np.take_along_axis(x, order, axis), order

    return top


def _platform(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    platforms = parameters["platforms"]
    index = next(
        (i for i, names in enumerate(platforms) if names is None or "cpu" in names), len(platforms) - 1
    )
    found = np.asarray(index, outputs[0].dtype)
    return lambda: found


def _bitcast(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    dtype, shape = np.dtype(outputs[0].dtype), tuple(outputs[0].shape)
    if math.prod(shape) == 0:
        return lambda x: np.empty(shape, dtype)
    return lambda x: np.ascontiguousarray(x).view(dtype).reshape(shape)


RULES: dict[str, Rule] = {
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "empty": _empty,
    "empty2": _empty,
    "iota": _iota,
    "pad": _pad,
    "platform_index": _platform,
    "reshape": _reshape,
    "rev": _reverse,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": _squeeze,
    "stack": lambda p, outputs, inputs: lambda *x: np.stack(x, p["axis"]),
    "tile": lambda p, outputs, inputs: lambda x: np.tile(x, p["reps"]),
    "top_k": _top_k,
    "transpose": _transpose,
    "unstack": _unstack,
}
