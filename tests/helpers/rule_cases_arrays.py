"""The rest of `rule_cases`: primitives that move values, index, factorise, draw, loop and call."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import threefry_2x32
from rule_cases import BITS, BOOLS, EDGES, EMPTY, ONE, TIES, WHOLE, Case, bf16, f16, f32, i32, nan, real

SHAPES: dict[str, list[Case]] = {
    "bitcast_convert_type": [
        (lambda x: lax.bitcast_convert_type(x, jnp.int32), EDGES.astype(np.float32)),
        (lambda x: lax.bitcast_convert_type(x, jnp.uint8), i32([[1, -2], [300, 7]])),
        (lambda x: lax.bitcast_convert_type(x, jnp.int32), np.arange(8, dtype=np.uint8).reshape(2, 4)),
        (lambda x: lax.bitcast_convert_type(x, jnp.float32), i32(7)),
        (lambda x: lax.bitcast_convert_type(x, jnp.uint8), np.zeros((0, 2), np.int32)),
    ],
    "broadcast_in_dim": [
        (lambda x: jnp.broadcast_to(x, (2, 3)), ONE),
        (lambda x: jnp.broadcast_to(x, (200, 200)), real(200)),
        (lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (1,)), real(2)),
        (lambda x: lax.broadcast_in_dim(x, (300, 3), (0,)), real(300)),
        (lambda x: lax.broadcast_in_dim(x, (300, 3), (1,)), real(3)),
        (lambda x: lax.broadcast_in_dim(x, (20, 10, 3), (0, 2)), real(20, 1)),
        (lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)), real(3, 1)),
        (lambda x: lax.broadcast_in_dim(x, (1, 3, 1), (1,)), real(3)),
        (lambda x: jnp.broadcast_to(x, (0, 3)), real(3)),
        (lambda x: jnp.broadcast_to(x, (4,)), bf16(1.5)),
    ],
    "concatenate": [
        (lambda x, y: jnp.concatenate([x, y], 1), real(2, 3), real(2, 1)),
        (lambda x, y: jnp.concatenate([x, y], 0), real(2, 3), EMPTY),
    ],
    "dynamic_slice": [
        (lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3)), real(4, 5), i32(i), i32(j))
        for i, j in ((1, 1), (-3, 9), (7, -1))
    ],
    "dynamic_update_slice": [
        (lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)), real(4, 3), real(2, 3), i32(i))
        for i in (1, -3, 9)
    ],
    "empty": [(lambda x: x + 0 * lax.empty((3,), x.dtype), real(3))],
    # The two branches have different residuals.
    "empty2": [(jax.grad(lambda x: lax.cond(x > 0, lambda x: x * jnp.sin(x), lambda x: x, x)), ONE)],
    "iota": [
        (lambda x: x + lax.broadcasted_iota(jnp.float32, (2, 3), 1), real(2, 3)),
        (lambda x: x + lax.broadcasted_iota(jnp.int8, (200, 2), 0), np.int8(0)),
        (lambda x: x + lax.broadcasted_iota(jnp.bfloat16, (0, 2), 0), bf16(0)),
    ],
    "pad": [
        (lambda x, c=c: lax.pad(x, x.dtype.type(9), [c, (0, 0, 0)]), real(5, 2))
        for c in (
            (1, 2, 0),
            (0, 0, 2),
            (-1, -2, 0),
            (-2, 1, 2),
            (1, -3, 1),
            (-6, 2, 0),
            (3, -7, 0),
            (-1, -8, 1),
        )
    ]
    + [(lambda x: lax.pad(x, 0.0, [(1, 1, 3), (0, 0, 0)]), EMPTY)],
    "platform_index": [(lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), real(3))],
    "reshape": [
        (lambda x: x.reshape(3, 4), real(2, 6)),
        (lambda x: lax.reshape(x, (6, 2), (1, 0)), real(3, 4)),
        (lambda x: x.reshape(()), real(1, 1)),
    ],
    "rev": [(lambda x: lax.rev(x, (0, 2)), real(2, 3, 4)), (lambda x: x[::-1], EMPTY)],
    "slice": [(lambda x: lax.slice(x, (1, 0), (5, 3), (2, 1)), real(6, 4)), (lambda x: x[1:1], real(3))],
    "sort": [(lambda x, a=a: jnp.sort(x, a), x) for a in (0, 1) for x in (TIES, BOOLS, bf16(TIES), EMPTY)]
    + [(jnp.sort, WHOLE), (jnp.sort, BITS), (jnp.argsort, TIES), (jnp.argsort, TIES[1]), (jnp.argsort, EMPTY)]
    + [
        (
            lambda *x, n=n: lax.sort(x, num_keys=n, dimension=0),
            i32([2, 1, 2, 1]),
            f32([nan, 3, -1, 3]),
            real(4),
        )
        for n in (1, 2, 3)
    ]
    + [(lambda *x: lax.sort(x, dimension=0, num_keys=2), TIES, TIES[::-1].copy(), real(3, 4))],
    "split": [(lambda x: lax.split(x, (1, 0, 3), 1), real(2, 4))],
    "squeeze": [(lambda x: x.squeeze((0, 2)), real(1, 3, 1)), (jnp.squeeze, real(1, 1))],
    "stack": [(lambda x, y: lax.stack([x, y], 1), real(3), real(3))],
    "tile": [(lambda x: lax.tile(x, (2, 3)), real(2, 2))],
    "top_k": [
        (lambda x, k=k: lax.top_k(x, k), x)
        for k, x in ((2, TIES), (3, EDGES), (4, WHOLE), (3, BITS), (1, BOOLS[0]), (2, bf16(TIES[1])))
    ],
    "transpose": [(lambda x: x.transpose(1, 2, 0), real(2, 3, 4)), (jnp.transpose, EMPTY)],
    "unstack": [(lambda x: lax.unstack(x, axis=1), real(2, 3))],
}

# -- indices -------------------------------------------------------------------------------------------------

OUTSIDE = i32([0, 3, -1, 7, 2, -9, 2])
GATHER_MODES = ("clip", "fill", "promise_in_bounds")
SCATTER_MODES = ("clip", "drop", "promise_in_bounds")


def _gather_cases() -> list[Case]:
    raw = lambda x, i, numbers, sizes, mode: lax.gather(x, i[:, None], numbers, sizes, mode=mode)
    along = lambda x, i, m: raw(x, i, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3), m)
    window = lambda x, i, m: raw(x, i, lax.GatherDimensionNumbers((0, 2), (), (0,)), (2, 2), m)
    column = lambda x, i, m: raw(x, i, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 2), m)
    last = lambda x, i, m: raw(x, i, lax.GatherDimensionNumbers((1,), (1,), (1,)), (4, 1), m)
    cases: list[Case] = [
        (lambda x, i, f=f, m=m: f(x, i, m), real(4, 3), OUTSIDE)
        for f in (along, window, column, last)
        for m in GATHER_MODES
    ]
    rows, columns = i32([[0, 1], [3, -7]]), i32([[2, 5], [0, -1]])
    cases += [
        (lambda x, i, j, m=m: x.at[i, j].get(mode=m), real(4, 3), rows, columns) for m in ("clip", "fill")
    ]
    cases += [(lambda x, i: x.at[:, i].get(mode="fill"), x, i32([1, 9])) for x in (real(4, 3), BITS[None])]
    cases += [(lambda x, i: x.at[i].get(mode="fill"), x, OUTSIDE) for x in (WHOLE, BOOLS[0], bf16([1, 2]))]
    cases += [(lambda x, i: x.at[i].get(mode="fill", fill_value=5), WHOLE, OUTSIDE)]
    cases += [
        (jax.vmap(lambda x, i: x[i]), real(4, 3), i32([0, 2, 1, -1])),
        (jax.vmap(lambda x, i: x[i], (1, 0)), real(4, 3), i32([0, 2, 1])),
        (jax.vmap(jax.vmap(lambda x, i: x[i, 1:])), real(2, 3, 4, 5), i32([[0, 3, 9], [1, 1, -1]])),
        (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), real(4, 5), i32([0, 9, -3, 2])),
        (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (1, 5)), (None, 0)), real(4, 5), i32([0, 9, -3])),
        (jax.vmap(lambda x, i: lax.dynamic_slice(x, (0, i), (4, 1)), (None, 0)), real(4, 5), i32([0, 9, -3])),
        (
            jax.vmap(jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (1, 5)), (0, None)), (None, 0)),
            real(2, 4, 5),
            i32([0, 9, -3]),
        ),
        (lambda x, i: jnp.take_along_axis(x, i, 1), real(3, 4), i32([[0], [5], [-1]])),
        (lambda x, i: x[i], real(3, 2), np.zeros((0,), np.int32)),
        (lambda x, i: x[None, i, :, None], real(3, 2), i32([[2, 0], [1, 1]])),
        (lambda x, i: jnp.take(x, i, 1), real(3, 4, 2), np.array([1, 3], np.uint8)),
    ]
    return cases


def _scatter_cases(method: str) -> list[Case]:
    def put(x, index, new, mode):
        return getattr(x.at[index], method)(new, mode=mode)

    cases: list[Case] = [
        (lambda x, i, y, m=m: put(x, i, y, m), x, OUTSIDE, y)
        for m in SCATTER_MODES
        for x, y in ((real(4, 3), real(7, 3)), (i32([1, 2, 3, 4]), i32([5, 6, 7, 8, 9, 10, 11])))
    ]
    dnums = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    functions = {"set": lax.scatter, "add": lax.scatter_add, "subtract": lax.scatter_sub}
    functions |= {"multiply": lax.scatter_mul, "min": lax.scatter_min, "max": lax.scatter_max}
    windows = lambda x, i, y, m: functions[method](x, i[:, None], y, dnums, mode=m)
    cases += [
        (lambda x, i, y, m=m: windows(x, i, y, m), real(4, 3), OUTSIDE, real(7, 2, 2)) for m in SCATTER_MODES
    ]
    rows, columns = i32([[0, 1], [3, 0]]), i32([[2, 5], [0, 2]])
    cases += [(lambda x, i, j, y: put(x, (i, j), y, None), real(4, 3), rows, columns, real(2, 2))]
    if method not in ("set", "add"):
        return cases
    cases += [
        (jax.vmap(lambda x, i, y: put(x, i, y, None)), real(4, 3), i32([0, 2, 1, 7]), real(4)),
        (jax.vmap(lambda x, i, y: put(x, i, y, None)), real(2, 3), i32([[0, 0], [2, 1]]), real(2, 2)),
        (lambda x, y: put(x, 1, y, None), real(4, 3), real(3)),
        (lambda x, y: put(x, (slice(None), 1), y, None), real(4, 3), real(4)),
        (lambda x, i, y: put(x, i, y, None), real(3), np.zeros((0,), np.int32), real(0)),
        (lambda x, i, y: put(x, i, y, None), bf16([1, 2]), i32([1, 0]), bf16([0.5, 3])),
        (lambda x, i, y: getattr(x.at[i], method)(y, unique_indices=True), real(4), i32([1, 3]), real(2)),
    ]
    return cases


INDEXING: dict[str, list[Case]] = {
    "gather": _gather_cases(),
    "scatter": [*_scatter_cases("set"), (lambda x, i, y: x.at[i].set(y), BOOLS, i32([1, 5]), BOOLS[:2])],
    "scatter-add": _scatter_cases("add"),
    "scatter-max": _scatter_cases("max"),
    "scatter-min": _scatter_cases("min"),
    "scatter-mul": _scatter_cases("multiply"),
    "scatter-sub": _scatter_cases("subtract"),
}

# -- matrices ------------------------------------------------------------------------------------------------


def _dot_cases() -> list[Case]:
    dot = lambda numbers, dtype=None: (
        lambda a, b: lax.dot_general(a, b, numbers, preferred_element_type=dtype)
    )
    bytes_ = np.array([[100, -100, 3], [7, 1, 2]], np.int8)
    return [
        (jnp.dot, real(3), real(3)),
        (jnp.dot, real(2, 3), real(3)),
        (jnp.dot, real(3), real(3, 2)),
        (jnp.dot, real(2, 3), real(3, 4)),
        (jnp.dot, real(2, 3).T, real(4, 2).T),
        (jnp.dot, real(2, 0), real(0, 3)),
        (jnp.dot, bf16(real(2, 3)), bf16(real(3, 2))),
        (jnp.dot, f16(real(2, 3)), f16(real(3, 2))),
        (jnp.outer, real(3), real(2)),
        (jnp.matmul, real(4, 2, 3), real(4, 3, 2)),
        (jax.vmap(jnp.dot), real(4, 3), real(4, 3)),
        (jax.vmap(jnp.dot), real(4, 2, 3), real(4, 3)),
        (dot((((0, 2), (1, 3)), ((1,), (2,)))), real(2, 3, 4, 5), real(6, 2, 3, 4)),
        (dot((((0,), (1,)), ((), ()))), real(2, 3, 4), real(5, 2)),
        (dot((((), ()), ((0,), (1,)))), real(3, 2), real(4, 3)),
        (dot((((1,), (1,)), ((), ())), jnp.int32), bytes_, bytes_),
        (dot((((1,), (1,)), ((), ()))), bytes_, bytes_),
        (dot((((1,), (0,)), ((), ())), jnp.float32), bf16(real(2, 3)), bf16(real(3, 2))),
        (jnp.dot, WHOLE, WHOLE),
        (lambda a, b: jnp.einsum("abc,dc,be->ade", a, b, b), real(2, 3, 3), real(3, 3)),
    ]


def _positive(*shape: int) -> np.ndarray:
    a = real(*shape)
    return a @ a.swapaxes(-1, -2) + 0.5 * np.eye(shape[-1], dtype=np.float32)


def _triangular_cases() -> list[Case]:
    cases: list[Case] = []
    for batch in ((), (2,), (3, 4)):
        a = real(*batch, 3, 3) + 3 * np.eye(3, dtype=np.float32)
        for left, low, turn, unit in itertools.product((True, False), repeat=4):
            b = real(*batch, 3, 2) if left else real(*batch, 2, 3)
            solve = lambda a, b, o=(left, low, turn, unit): lax.linalg.triangular_solve(
                a, b, left_side=o[0], lower=o[1], transpose_a=o[2], unit_diagonal=o[3]
            )
            cases.append((solve, a, b))
    singular = f32([[1, 0], [2, 0]])
    solve = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    return [*cases, (solve, singular, real(2, 1)), (solve, np.stack([singular] * 9), real(9, 2, 1))]


INDEFINITE = np.stack([np.diag(f32([1, -1, 1])), np.eye(3, dtype=np.float32)])

MATRICES: dict[str, list[Case]] = {
    "cholesky": [(jnp.linalg.cholesky, a) for a in (_positive(3, 3), _positive(2, 4, 3, 3), INDEFINITE)]
    + [(jnp.linalg.cholesky, INDEFINITE[0]), (lambda a: lax.linalg.cholesky(a), _positive(1, 1))],
    "dot_general": _dot_cases(),
    "eigh": [(jnp.linalg.eigh, _positive(3, 3)), (jnp.linalg.eigvalsh, _positive(2, 3, 3))],
    "householder_product": [
        (lax.linalg.householder_product, np.tril(real(4, 3)), f32([1, 0.5, 0.2])),
        (lax.linalg.householder_product, np.tril(real(2, 4, 3)), real(2, 3)),
    ],
    "lu": [(lax.linalg.lu, a) for a in (real(3, 3), real(2, 4, 3), real(3, 4), np.zeros((2, 2), np.float32))]
    + [(jnp.linalg.slogdet, real(3, 3)), (jnp.linalg.inv, _positive(2, 3, 3))],
    "lu_pivots_to_permutation": [
        (lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), i32([[2, 1, 3, 3], [0, 1, 2, 3]]))
    ],
    "qr": [(lambda a, f=f: lax.linalg.qr(a, full_matrices=f), a) for f in (True, False) for a in
           (real(4, 3), real(3, 4), real(2, 4, 3))],
    "svd": [(lambda a, f=f: lax.linalg.svd(a, full_matrices=f), a) for f in (True, False) for a in
            (real(4, 3), real(2, 3, 4))] + [(lambda a: lax.linalg.svd(a, compute_uv=False), real(2, 3, 4))],
    "triangular_solve": _triangular_cases(),
}  # fmt: skip

# -- random bits ---------------------------------------------------------------------------------------------

_KEYS = np.array([[0, 7], [3, 2**32 - 1], [5, 6]], np.uint32)
_key = lambda words: jax.random.wrap_key_data(words, impl="threefry2x32")
_data = jax.random.key_data


def _bits_cases() -> list[Case]:
    cases: list[Case] = [
        (lambda w, s=shape, d=f"uint{bits}": jax.random.bits(_key(w), s, d), _KEYS[0])
        for bits in (8, 16, 32)
        for shape in ((), (3,), (4, 5), (0,))
    ]
    each = jax.vmap(lambda w: jax.random.bits(_key(w), (5,)))
    wide = lambda w: jax.random.bits(_key(w), (3,), "uint64" if jax.config.jax_enable_x64 else "uint32")
    return [*cases, (each, _KEYS), (jax.vmap(lambda w: jax.random.bits(_key(w))), _KEYS), (wide, _KEYS[1])]


RANDOM: dict[str, list[Case]] = {
    "random_bits": _bits_cases(),
    "random_clone": [(lambda w: _data(jax.random.clone(_key(w))), _KEYS)],
    "random_fold_in": [
        (lambda w, i: _data(jax.random.fold_in(_key(w), i)), _KEYS[0], i32(-3)),
        (lambda w, i: _data(jax.vmap(lambda k: jax.random.fold_in(k, i))(_key(w))), _KEYS, np.uint32(9)),
        (lambda w, i: _data(jax.vmap(jax.random.fold_in, (None, 0))(_key(w), i)), _KEYS[0], np.arange(12)),
    ],
    "random_gamma": [
        (lambda w, a: jax.random.gamma(_key(w), a), _KEYS[0], f32([0.3, 2, 30])),
        (lambda w: jax.vmap(lambda k: jax.random.dirichlet(k, jnp.ones(3)))(_key(w)), _KEYS),
    ],
    "random_seed": [(lambda s: _data(jax.random.key(s)), s) for s in (i32(-1), i32(2**31 - 1), np.uint32(5))]
    + [(lambda s: _data(jax.random.key(s)), np.array(-(2**40) - 3))],
    "random_split": [
        (lambda w, s=s: _data(jax.random.split(_key(w), s)), _KEYS[1]) for s in (1, 2, 20, (2, 3), 0)
    ]
    + [(lambda w: _data(jax.vmap(jax.random.split)(_key(w))), _KEYS)],
    "random_unwrap": [(lambda w: _data(_key(w)), _KEYS)],
    "random_wrap": [(lambda w: _data(_key(w)[1:]), _KEYS)],
    "threefry2x32": [(threefry_2x32, _KEYS[0], np.arange(n, dtype=np.uint32)) for n in (1, 2, 40)],
}

# -- loops and calls -----------------------------------------------------------------------------------------


def _halve(x):
    return lax.while_loop(lambda x: x > 1, lambda x: x / 2, x)


def _countdown(n, x):
    return lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] * 1.5), (n, x))


def _nested(x):
    def row(total, i):
        inner = lax.fori_loop(0, i, lambda j, s: s + jnp.sin(s) * j, total)
        return inner, lax.cond(i % 2 == 0, jnp.cos, jnp.sin, inner)

    return lax.scan(row, x, jnp.arange(4))


@jax.custom_jvp
def _with_jvp(x):
    return jnp.exp(x) + 1


_with_jvp.defjvp(lambda x, t: (_with_jvp(x[0]), 3 * t[0]))


@jax.custom_vjp
def _with_vjp(x):
    return jnp.exp(x) + 1


_with_vjp.defvjp(lambda x: (_with_vjp(x), x), lambda x, g: (g * x,))
_checkpointed = jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)).sum())


def _scan(x, xs, **options):
    return lax.scan(lambda c, v: (c * 0.5 + v, (c, c * v)), x, xs, **options)


def _iterate(a, b):
    """A solution of a x = b whose derivative is not that of its steps."""
    solve = lambda matvec, b: lax.fori_loop(0, 5, lambda _, x: x + 0.1 * (b - matvec(x)), b)
    return lax.custom_linear_solve(lambda x: a @ x, b, solve, symmetric=True)


CONTROL: dict[str, list[Case]] = {
    "while": [
        (_halve, f32(37.0)), (jax.vmap(_halve), f32([37, 0.5, 3])), (_countdown, i32(3), real(2)),
        (jax.vmap(_countdown), i32([3, 0, 5]), real(3, 2)),
        (jax.vmap(_countdown, (None, 0)), i32(2), real(3)),
        (jax.vmap(jax.vmap(_countdown)), i32([[3, 0], [1, 2]]), real(2, 2)), (_nested, ONE),
        (lambda w: _data(lax.fori_loop(0, 3, lambda i, k: jax.random.fold_in(k, i), _key(w))), _KEYS[0]),
    ],
    "scan": [
        (_scan, real(2), real(4, 2)), (lambda x, xs: _scan(x, xs, reverse=True), real(2), real(4, 2)),
        (lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=3, reverse=True), real(2)),
        (_scan, real(2), real(0, 2)), (jax.vmap(_scan), real(3, 2), real(3, 4, 2)), (_nested, ONE),
        (jax.grad(lambda x, xs: _scan(x, xs)[1][1].sum()), real(2), real(4, 2)),
        (lambda w: lax.scan(lambda c, k: (c, jax.random.bits(k)), 0, jax.random.split(_key(w), 3)), _KEYS[0]),
        (lambda w: _data(lax.scan(lambda k, _: tuple(jax.random.split(k)), _key(w), None, 3)[1]), _KEYS[0]),
    ],
    "cond": [
        *[(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos], x), i32(i), real(2)) for i in (-1, 0, 1, 9)],
        (lambda p, x: lax.cond(p, jnp.sin, lambda x: x, x), np.array(True), real(2)), (_nested, ONE),
    ],
    "custom_linear_solve": [
        (_iterate, _positive(3, 3), real(3)), (jax.vmap(_iterate, (None, 1)), _positive(3, 3), real(3, 2)),
    ],
}  # fmt: skip

CALLS: dict[str, list[Case]] = {
    "jit": [(lambda x: jax.jit(jnp.sin)(x) + jax.jit(lambda y: x * y)(x), real(3))],
    "checkpoint": [(_checkpointed, real(3)), (jax.grad(_checkpointed), real(3))],
    "custom_jvp_call": [(_with_jvp, real(3)), (jax.vmap(jax.grad(_with_jvp)), real(3))],
    "custom_vjp_call": [(_with_vjp, real(3)), (jax.vmap(jax.grad(_with_vjp)), real(3))],
    # Branches of a batched predicate are both computed.
    "select_n": [(jax.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x)), np.array([True, False]), real(2))],
}

CASES: dict[str, list[Case]] = {**SHAPES, **INDEXING, **MATRICES, **RANDOM, **CONTROL, **CALLS}
