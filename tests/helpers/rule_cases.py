"""Small functions for every primitive that the interpreter has: `CASES[primitive]` is a list of
(function, arguments). Their arguments include NaN, infinities, zeros of both signs, empty and 0-d arrays,
and indices out of bounds.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core.primitives import eq_to_p, le_to_p, lt_to_p

Case = tuple[Any, ...]  # a function, then its arguments

nan, inf = np.nan, np.inf
f32 = functools.partial(np.array, dtype=np.float32)
i32 = functools.partial(np.array, dtype=np.int32)
bf16 = lambda x: np.asarray(x, ml_dtypes.bfloat16)
f16 = lambda x: np.asarray(x, np.float16)
RNG = np.random.default_rng(0)
real = lambda *shape: RNG.normal(size=shape).astype(np.float32)

EDGES = f32([-inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 7.0, inf, nan])
POSITIVE = f32([0.0, 1e-6, 0.25, 0.5, 1.0, 1.5, 2.5, 7.0, 40.0, inf, nan])
UNIT = f32([-1.0, -0.99, -0.3, -0.0, 0.0, 0.3, 0.999, 1.0, 1.5, nan])
WHOLE = i32([-7, -3, -1, 0, 1, 2, 3, 7, 2**31 - 1, -(2**31)])
PAIRS = tuple(a.ravel() for a in np.meshgrid(EDGES, EDGES))
INTEGERS = tuple(a.ravel() for a in np.meshgrid(WHOLE, WHOLE))
BITS = np.array([0, 1, 3, 200, 255], np.uint8)
EMPTY = np.zeros((0, 3), np.float32)
BOOLS = np.array([[True, False, True], [False, False, False], [True, True, True]])
ONE = f32(0.5)  # 0-d


def unary(function, *extra, edges=EDGES) -> list[Case]:
    """Edge values, in float32 and bfloat16."""
    return [(function, a) for a in (edges, bf16(edges[np.isfinite(edges)]), *extra)]


def binary(function, *extra: Any) -> list[Case]:
    pairs = [PAIRS, (bf16([1.5, -2]), bf16([0.5, 3])), *extra]
    return [(function, *pair) for pair in pairs]


def reductions(function, *arrays: Any, edges: bool = True) -> list[Case]:
    cube = real(2, 3, 4)
    axes = [(0,), (2,), (0, 2), (1, 2), (0, 1, 2)]
    cases: list[Case] = [(functools.partial(function, axes=a), cube) for a in axes] if edges else []
    for a in (f32([[nan, 1, -inf], [2, -0.0, 0.0]]), EMPTY) if edges else ():
        cases += [(functools.partial(function, axes=(k,)), a) for k in (0, 1)]
    # Larger than what NumPy reduces without turning it first.
    large = [(real(300, 3), (0,)), (real(300, 3), (1,)), (real(20, 3, 20), (0, 2)), (real(9, 9, 9), (0, 2))]
    cases += [(functools.partial(function, axes=axes), a) for a, axes in large] if edges else []
    return cases + [(functools.partial(function, axes=(0,)), a) for a in arrays]


def scans(function, *arrays: Any) -> list[Case]:
    choices = list(itertools.product((0, 1), (False, True)))
    cases = [(real(3, 4), *choice) for choice in choices]
    cases += [(a, 0, True) for a in (f32([[1, nan, 2], [-inf, 3, -0.0]]), EMPTY, *arrays)]
    return [(functools.partial(function, axis=axis, reverse=reverse), a) for a, axis, reverse in cases]


SMALL_INTEGERS = (np.array([[100, -100], [100, 3]], np.int8), np.array([[200, 100], [7, 3]], np.uint8))

UNARY = {
    "abs": unary(jnp.abs, WHOLE), "acos": unary(jnp.arccos, edges=UNIT), "acosh": unary(jnp.arccosh),
    "asin": unary(jnp.arcsin, edges=UNIT), "asinh": unary(jnp.arcsinh), "atan": unary(jnp.arctan),
    "atanh": unary(jnp.arctanh, edges=UNIT), "bessel_i0e": unary(lax.bessel_i0e),
    "bessel_i1e": unary(lax.bessel_i1e), "cbrt": unary(jnp.cbrt), "ceil": unary(jnp.ceil),
    "clz": [(lax.clz, WHOLE), (lax.clz, BITS)],
    "copy": unary(lambda x: jnp.array(x, copy=True)), "cos": unary(jnp.cos), "cosh": unary(jnp.cosh),
    "digamma": unary(lax.digamma, edges=POSITIVE[1:]), "erf": unary(lax.erf), "erfc": unary(lax.erfc),
    "erf_inv": unary(lax.erf_inv, edges=UNIT),
    "exp": unary(jnp.exp, f32([-200, 200]), EMPTY, ONE, f16([0.5, 2])),
    "exp2": unary(jnp.exp2), "expm1": unary(jnp.expm1, f32([1e-8, -1e-8])), "floor": unary(jnp.floor),
    "is_finite": unary(jnp.isfinite),
    "lgamma": unary(lax.lgamma, edges=POSITIVE), "log": unary(jnp.log), "log1p": unary(jnp.log1p),
    "logistic": unary(lax.logistic, f32([-200, 200])),
    "name": [(lambda x: checkpoint_name(x, "x") * 2, real(3))],
    "neg": unary(jnp.negative, WHOLE, BITS),
    "not": [(jnp.invert, WHOLE), (jnp.invert, BOOLS), (jnp.invert, BITS)],
    "population_count": [(lax.population_count, WHOLE), (lax.population_count, BITS)],
    "rsqrt": unary(lax.rsqrt, edges=POSITIVE),
    "round": unary(jnp.round, f32([0.5, 1.5, -0.5, 2.5]))
    + unary(lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), f32([0.49999997, -0.5, 8388609.0])),
    "sign": unary(jnp.sign, WHOLE, BITS), "sin": unary(jnp.sin), "sinh": unary(jnp.sinh),
    "sqrt": unary(jnp.sqrt), "square": unary(jnp.square, WHOLE), "tan": unary(jnp.tan),
    "tanh": unary(jnp.tanh, f32([-50, 50])),
    "integer_pow": [(lambda x, n=n: x**n, EDGES) for n in (-3, -1, 3, 5, 8)]
    + [(lambda x: lax.integer_pow(x, 0), EDGES), (lambda x: x**3, WHOLE), (lambda x: x**3, bf16([1.5]))],
    "reduce_precision": [
        (lambda x, e=e, m=m: lax.reduce_precision(x, e, m), EDGES) for e, m in ((8, 7), (5, 10), (8, 23))
    ],
    "stop_gradient": [(lambda x: lax.stop_gradient(x) * 2, real(3))],
    "optimization_barrier": [(lambda x, y: lax.optimization_barrier((x, y)), real(3), WHOLE)],
}  # fmt: skip

BINARY = {
    "add": binary(jnp.add, INTEGERS, (EMPTY, EMPTY), (ONE, ONE)),
    "add_any": [(jax.grad(lambda x: x * jnp.sin(x)), ONE)],
    "and": [(jnp.bitwise_and, *INTEGERS), (jnp.bitwise_and, BOOLS, BOOLS.T)],
    "atan2": binary(jnp.arctan2),
    "div": binary(lax.div, INTEGERS, (BITS, BITS[::-1])), "eq": binary(jnp.equal, INTEGERS),
    "eq_to": [(eq_to_p.bind, *PAIRS), (eq_to_p.bind, *INTEGERS)],
    "ge": binary(jnp.greater_equal, INTEGERS), "gt": binary(jnp.greater, INTEGERS),
    "igamma": [(lax.igamma, np.full(9, a, np.float32), POSITIVE[:9]) for a in (0.5, 3.0)],
    "igammac": [(lax.igammac, np.full(9, a, np.float32), POSITIVE[:9]) for a in (0.5, 3.0)],
    "le_to": [
        (le_to_p.bind, *PAIRS),
        (lambda x: jnp.searchsorted(f32([-1, 0, 1]).astype(x.dtype), x), EDGES),
    ],
    "lt_to": [
        (lt_to_p.bind, *PAIRS), (lt_to_p.bind, *INTEGERS),
        (lambda x: jnp.searchsorted(f32([-1, 0, 1]).astype(x.dtype), x, side="right"), EDGES),
        (lambda x: jnp.interp(x, f32([0, 1, 2]), f32([3, 1, 2])), EDGES[2:-2]),
    ],
    "le": binary(jnp.less_equal, INTEGERS), "lt": binary(jnp.less, INTEGERS, (BITS, BITS[::-1])),
    "max": binary(jnp.maximum, INTEGERS), "min": binary(jnp.minimum, INTEGERS),
    "mul": binary(jnp.multiply, INTEGERS), "ne": binary(jnp.not_equal, INTEGERS),
    "nextafter": [(jnp.nextafter, f32([0.5, 1, -3, 7]), f32([1, -inf, 0, 7]))],
    "or": [(jnp.bitwise_or, *INTEGERS), (jnp.bitwise_or, BOOLS, BOOLS.T)],
    "polygamma": [(lax.polygamma, f32([1, 2, 3, 1]), f32([0.5, 1.5, 2.0, 30]))],
    "pow": [*binary(lax.pow), (lax.pow, f32([-2, 0.5, 3]), i32([3, -2, 0]))],
    "regularized_incomplete_beta": [(lax.betainc, f32([0.5, 2, 3]), f32([1, 2, 0.5]), f32([0.2, 0.7, 1]))],
    "rem": binary(lax.rem, INTEGERS), "sub": binary(jnp.subtract, INTEGERS),
    "shift_left": [(lax.shift_left, *INTEGERS), (lax.shift_left, BITS, BITS[::-1])],
    "shift_right_arithmetic": [(lax.shift_right_arithmetic, *INTEGERS)],
    "shift_right_logical": [(lax.shift_right_logical, *INTEGERS), (lax.shift_right_logical, BITS, BITS)],
    "xor": [(jnp.bitwise_xor, *INTEGERS), (jnp.bitwise_xor, BOOLS, BOOLS.T)],
    "zeta": [(lax.zeta, f32([2, 3, 4.5]), f32([1, 0.5, 10]))],
}  # fmt: skip


def _convert_cases() -> list[Case]:
    wild = f32([-inf, -3e9, -300, -1.5, -0.5, -0.0, 0.5, 1.5, 254.9, 300, 3e9, 2**31, inf, nan])
    cases: list[Case] = []
    for dtype in ("int32", "int8", "uint8", "uint32", "bool", "float16", "bfloat16"):
        cases += [(lambda x, d=dtype: lax.convert_element_type(x, d), a) for a in (wild, WHOLE, BOOLS)]
    cases += [(lambda x: lax.convert_element_type(x, "int32"), bf16([2.5, -inf, nan]))]
    cases += [(lambda x: lax.convert_element_type(x, "float32"), a) for a in (WHOLE, BITS, bf16(1.5))]
    return cases


def _clamp_cases() -> list[Case]:
    low, high = f32(-1), f32(2)
    return [
        (lax.clamp, low, EDGES, high),
        (lax.clamp, f32(nan), EDGES, high),
        (lax.clamp, i32(-2), WHOLE, i32(5)),
        (lax.clamp, np.full_like(EDGES, -1), EDGES, EDGES[::-1].copy()),
        (lax.clamp, high, EDGES, low),
    ]


def _select_cases() -> list[Case]:
    which = np.array([True, False, True])
    return [
        (jnp.where, which, f32([nan, 1, 2]), f32([3, nan, -0.0])),
        (lax.select, np.array(True), real(3), real(3)),
        (lax.select_n, i32([0, 2, 1]), real(3), real(3), real(3)),
        (lax.select_n, i32(1), real(3), real(3), real(3)),
        (lambda a, b: lax.select(a, b, b), np.zeros((0,), bool), real(0)),
    ]


TIES = f32([[1, nan, 3, nan], [2, 2, -inf, 2], [-0.0, 0.0, -0.0, 0.0]])

REDUCTIONS = {
    "argmax": [(lambda x, a=a: jnp.argmax(x, a), x) for a in (0, 1) for x in (TIES, BOOLS, bf16(TIES))]
    + [(lambda x: lax.argmax(x, 0, jnp.uint8), WHOLE)],
    "argmin": [(lambda x, a=a: jnp.argmin(x, a), x) for a in (0, 1) for x in (TIES, BOOLS, bf16(TIES))]
    + [(lambda x: lax.argmin(x, 0, jnp.uint8), WHOLE)],
    "clamp": _clamp_cases(), "convert_element_type": _convert_cases(), "select_n": _select_cases(),
    "cumlogsumexp": scans(lax.cumlogsumexp)[:4],
    "cummax": scans(lax.cummax, *SMALL_INTEGERS), "cummin": scans(lax.cummin, *SMALL_INTEGERS),
    "cumprod": scans(lax.cumprod, *SMALL_INTEGERS),
    "cumsum": scans(lax.cumsum, *SMALL_INTEGERS, bf16([[1.5, 2], [3, 4]])),
    "reduce_and": reductions(lax.reduce_and, BOOLS, INTEGERS[0], np.zeros((0, 2), bool), edges=False),
    "reduce_or": reductions(lax.reduce_or, BOOLS, INTEGERS[0], np.zeros((0, 2), bool), edges=False),
    "reduce_xor": reductions(lax.reduce_xor, BOOLS, INTEGERS[0], edges=False),
    "reduce_max": reductions(lax.reduce_max, *SMALL_INTEGERS, BOOLS, np.zeros((0, 2), np.int8), bf16([1, 2])),
    "reduce_min": reductions(lax.reduce_min, *SMALL_INTEGERS, BOOLS, np.zeros((0, 2), np.uint8), bf16([1])),
    "reduce_prod": reductions(lax.reduce_prod, *SMALL_INTEGERS, bf16([1.5, 2])),
    "reduce_sum": [
        *reductions(lax.reduce_sum, *SMALL_INTEGERS, WHOLE, bf16([1.5, 2]), f16([1.5, 2])),
        (lambda x: jnp.sum(x, ()), real(2, 3)), (jnp.sum, BOOLS), (jnp.mean, ONE),
    ],
}  # fmt: skip
