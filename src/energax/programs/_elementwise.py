"""Elementwise primitives, reductions and scans along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special as special

from ._rule import Rule, Unsupported, is_float, is_short, plain, widened


def _wide(function: Callable[..., Any]) -> Rule:
    """A rule for a function that bfloat16 does not have."""
    return lambda parameters, outputs, inputs: widened(function, inputs)


def _divide(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if outputs[0].dtype.kind not in "iu":
        return np.divide

    def truncate(a, b):  # towards zero, as in C; NumPy rounds down
        quotient = np.floor_divide(a - np.fmod(a, b), b)
        return quotient if b.all() else np.where(b == 0, ~np.zeros_like(quotient), quotient)

    return truncate


def _remainder(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if outputs[0].dtype.kind not in "iu":
        return np.fmod
    return lambda a, b: np.fmod(a, b) if b.all() else np.where(b == 0, a, np.fmod(a, b))


def _integer_power(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    y = parameters["y"]
    if y == 2:
        return np.square
    if y == 0:
        return np.ones_like
    bits = [bit == "1" for bit in bin(abs(y))[3:]]

    def power(x):  # by squares: faster than `np.power`
        out = x
        for bit in bits:
            out = out * out
            if bit:
                out = out * x
        return out if y > 0 else 1 / out

    return power


def _power(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    dtype = np.dtype(outputs[0].dtype)
    if is_float(dtype):
        return lambda a, b: np.power(a, b.astype(dtype))

    def power(a, b):  # NumPy raises for negative exponents; XLA gives 0, and ±1 for a base of ±1
        found = np.power(a, np.maximum(b, 0), dtype=dtype)
        if (b >= 0).all():
            return found
        unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2, -1, 1), 0))
        return np.where(b < 0, unit, found)

    return power


def _round(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if int(parameters["rounding_method"]) == 1:
        return np.rint  # half to even

    def away(x):
        whole = np.trunc(x)
        return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)

    return away


def _shift_right_logical(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    dtype = np.dtype(outputs[0].dtype)
    if dtype.kind == "u":
        return np.right_shift
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return lambda a, b: np.right_shift(a.view(unsigned), b.view(unsigned)).view(dtype)


def _leading_zeros(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    dtype = np.dtype(outputs[0].dtype)
    if dtype.itemsize > 4:
        raise Unsupported("clz of 64 bits")
    unsigned, bits = np.dtype(f"u{dtype.itemsize}"), 8 * dtype.itemsize
    return lambda x: (bits - np.frexp(x.view(unsigned).astype(np.float64))[1]).astype(dtype)


def _count_bits(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    unsigned = np.dtype(f"u{np.dtype(inputs[0].dtype).itemsize}")
    return lambda x: np.bitwise_count(x.view(unsigned))  # that of a signed number is of its absolute value


def _digamma(x):
    return np.where(x == 0, np.nan, special.digamma(x))  # a pole, as the negative integers


def _total_order(function: np.ufunc) -> Rule:
    """Comparison in which -0.0 < 0.0, and NaN is next to the infinity of its sign."""

    def rule(parameters, outputs, inputs):
        dtype = np.dtype(inputs[0].dtype)
        if not is_float(dtype):
            return function
        signed = np.dtype(f"i{dtype.itemsize}")
        most = np.iinfo(signed).max

        def place(x):
            bits = x.view(signed)
            return bits ^ (bits >> 8 * signed.itemsize - 1 & most)

        return lambda a, b: function(place(a), place(b))

    return rule


def _select(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    which, *cases = inputs
    if not which.shape:
        most = len(cases) - 1
        return lambda i, *arrays: arrays[min(max(int(i), 0), most)]
    if len(cases) == 1:
        return lambda i, x: x
    if len(cases) == 2:
        return lambda i, no, yes: np.where(i, yes, no)
    return lambda i, *arrays: np.take_along_axis(np.stack(arrays), i[None], 0)[0]


def _convert(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    dtype, before = np.dtype(outputs[0].dtype), np.dtype(inputs[0].dtype)
    if dtype == before:
        return lambda x: x
    if dtype.kind not in "iu" or not is_float(before):
        return lambda x: x.astype(dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = float(least), float(most)  # 2⁶³ for int64, which is not an int64 any more

    def saturate(x):  # as XLA, with 0 for NaN
        x = x.astype(np.float32) if is_short(before) else x
        if x.size and x.min() > low and x.max() < high:
            return x.astype(dtype)
        inside = np.where((x > low) & (x < high), x, 0).astype(dtype)
        return np.where(x >= high, np.array(most, dtype), np.where(x <= low, np.array(least, dtype), inside))

    return saturate


def _reduce_precision(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    bits = parameters["exponent_bits"], parameters["mantissa_bits"]
    dtype = np.dtype(outputs[0].dtype)
    kinds = {(11, 52): np.float64, (8, 23): np.float32, (8, 7): ml_dtypes.bfloat16, (5, 10): np.float16}
    if bits not in kinds:
        raise Unsupported("reduce_precision")
    target = np.dtype(kinds[bits])
    return (lambda x: x) if target == dtype else lambda x: x.astype(target).astype(dtype)


# -- reductions and scans ----------------------------------------------------------------------------------


def _reducer(function: np.ufunc, parameters: Any, inputs: Any, dtype: np.dtype) -> Callable[..., Any]:
    """`function.reduce` over the axes. NumPy needs a long innermost loop, so others are turned first."""
    axes, shape, reduce = tuple(parameters["axes"]), tuple(inputs[0].shape), function.reduce
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    run = 1  # numbers in a row that are all reduced, or all kept
    for k in range(len(shape) - 1, -1, -1):
        if (k in axes) != (len(shape) - 1 in axes):
            break
        run *= shape[k]
    if not kept:
        return lambda x: reduce(x, None, dtype)
    if run >= 16 or math.prod(shape) < 512:
        axis: Any = axes[0] if len(axes) == 1 else axes
        return lambda x: reduce(x, axis, dtype)  # without a dtype NumPy would widen small integers
    out = tuple(shape[k] for k in kept)
    n_out = math.prod(out)
    n = math.prod(shape) // n_out
    order, table = ((*kept, *axes), (n_out, n)) if n > n_out else ((*axes, *kept), (n, n_out))
    side = int(n > n_out)

    def turn(x):
        x = np.ascontiguousarray(x.transpose(order)).reshape(table)
        return reduce(x, side, dtype).reshape(out)

    return turn


def _reduce(function: np.ufunc) -> Rule:
    def rule(parameters, outputs, inputs):
        dtype = np.dtype(np.float32 if is_short(outputs[0].dtype) else outputs[0].dtype)
        if not parameters["axes"]:
            return lambda x: x
        if math.prod(inputs[0].shape) == 0:
            axes = tuple(parameters["axes"])
            return widened(lambda x: function.reduce(x, axes), inputs)
        return widened(_reducer(function, parameters, inputs, dtype), inputs)

    return rule


def _extreme(function: np.ufunc, least: bool) -> Rule:
    def rule(parameters, outputs, inputs):
        dtype = np.dtype(outputs[0].dtype)
        if not parameters["axes"]:
            return lambda x: x
        if math.prod(inputs[0].shape):
            return _reducer(function, parameters, inputs, dtype)
        if dtype.kind == "b":
            initial: Any = least
        elif is_float(dtype):
            initial = np.inf if least else -np.inf
        else:
            initial = np.iinfo(dtype).max if least else np.iinfo(dtype).min
        found = np.full(outputs[0].shape, initial, dtype)
        return lambda x: found

    return rule


def _argument(name: str) -> Rule:
    def rule(parameters, outputs, inputs):
        (axis,) = parameters["axes"]
        return widened(lambda x: getattr(x, name)(axis), inputs)

    return rule


def _cumulative(function: np.ufunc) -> Rule:
    def rule(parameters, outputs, inputs):
        axis, accumulate = parameters["axis"], function.accumulate
        dtype = np.dtype(np.float32 if is_short(outputs[0].dtype) else outputs[0].dtype)
        back = (slice(None),) * axis + (slice(None, None, -1),)
        if parameters["reverse"]:
            return widened(lambda x: accumulate(x[back], axis, dtype)[back], inputs)
        return widened(lambda x: accumulate(x, axis, dtype), inputs)

    return rule


_PLAIN: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add,
    "and": np.bitwise_and, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x, "cos": np.cos,
    "cosh": np.cosh, "eq": np.equal, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
    "is_finite": np.isfinite, "le": np.less_equal, "log": np.log, "log1p": np.log1p, "lt": np.less,
    "max": np.maximum, "min": np.minimum, "mul": np.multiply, "name": lambda x: x,
    "ne": np.not_equal, "neg": np.negative, "nextafter": np.nextafter, "not": np.invert,
    "or": np.bitwise_or,
    "rsqrt": lambda x: 1 / np.sqrt(x), "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift, "sign": np.sign, "sin": np.sin, "sinh": np.sinh,
    "sqrt": np.sqrt, "square": np.square, "stop_gradient": lambda x: x, "sub": np.subtract,
    "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
}  # fmt: skip
_WIDE: dict[str, Callable[..., Any]] = {
    "bessel_i0e": special.i0e, "bessel_i1e": special.i1e, "digamma": _digamma,
    "erf": special.erf, "erf_inv": special.erfinv, "erfc": special.erfc, "igamma": special.gammainc,
    "igammac": special.gammaincc, "lgamma": special.gammaln, "logistic": special.expit,
    "polygamma": special.polygamma, "regularized_incomplete_beta": special.betainc,
    "zeta": special.zeta,
}  # fmt: skip

RULES: dict[str, Rule] = {
    **{name: plain(function) for name, function in _PLAIN.items()},
    **{name: _wide(function) for name, function in _WIDE.items()},
    "argmax": _argument("argmax"),
    "argmin": _argument("argmin"),
    "clz": _leading_zeros,
    "convert_element_type": _convert,
    "cumlogsumexp": _cumulative(np.logaddexp),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "cumprod": _cumulative(np.multiply),
    "cumsum": _cumulative(np.add),
    "div": _divide,
    "eq_to": _total_order(np.equal),
    "integer_pow": _integer_power,
    "le_to": _total_order(np.less_equal),
    "lt_to": _total_order(np.less),
    "optimization_barrier": plain(lambda *x: x),
    "population_count": _count_bits,
    "pow": _power,
    "reduce_and": _reduce(np.bitwise_and),
    "reduce_max": _extreme(np.maximum, least=False),
    "reduce_min": _extreme(np.minimum, least=True),
    "reduce_or": _reduce(np.bitwise_or),
    "reduce_precision": _reduce_precision,
    "reduce_prod": _reduce(np.multiply),
    "reduce_sum": _reduce(np.add),
    "reduce_xor": _reduce(np.bitwise_xor),
    "rem": _remainder,
    "round": _round,
    "select_n": _select,
    "shift_right_logical": _shift_right_logical,
}
