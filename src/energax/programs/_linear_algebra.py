"""Products and factorisations of matrices.

Factorisations call the LAPACK of SciPy, as XLA does on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from ._rule import Rule, Unsupported, is_short

#: With more matrices than this per row, substitution goes row by row for all of them at once.
_ONE_BY_ONE = 2


def _dot_general(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    (over_a, over_b), (batch_a, batch_b) = parameters["dimension_numbers"]
    a, b = (tuple(aval.shape) for aval in inputs)
    shape, dtype = tuple(outputs[0].shape), np.dtype(outputs[0].dtype)
    dtype = np.dtype(np.float32) if is_short(dtype) else dtype
    free_a = [i for i in range(len(a)) if i not in over_a and i not in batch_a]
    free_b = [i for i in range(len(b)) if i not in over_b and i not in batch_b]
    size = lambda x, axes: math.prod(x[i] for i in axes)
    batch = tuple(a[i] for i in batch_a)
    m, n, k = size(a, free_a), size(b, free_b), size(a, over_a)
    rows = m == n == 1 and batch  # products of rows
    if rows:
        left = _arrange(inputs[0], dtype, (*batch_a, *over_a, *free_a), (*batch, k))
        right = _arrange(inputs[1], dtype, (*batch_b, *over_b, *free_b), (*batch, k))
    else:
        left = _arrange(inputs[0], dtype, (*batch_a, *free_a, *over_a), (*batch, m, k))
        right = _arrange(inputs[1], dtype, (*batch_b, *over_b, *free_b), (*batch, k, n))
    product = np.vecdot if rows else np.matmul if batch else np.dot
    found = batch if rows else (*batch, m, n)
    if left is None and right is None:
        return product if found == shape else lambda a, b: product(a, b).reshape(shape)
    same = lambda x: x
    left, right = left or same, right or same
    if found == shape:
        return lambda a, b: product(left(a), right(b))
    return lambda a, b: product(left(a), right(b)).reshape(shape)


def _arrange(aval: Any, dtype: np.dtype, order: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """A function that converts, transposes and reshapes an array; None if there is nothing to do."""
    casts, turns = np.dtype(aval.dtype) != dtype, order != tuple(range(len(order)))
    turned = tuple(aval.shape[i] for i in order)
    if not (casts or turns or turned != shape):
        return None
    if not casts and turned == shape:
        return lambda x: x.transpose(order)
    if not casts and not turns:
        return lambda x: x.reshape(shape)
    return lambda x: x.astype(dtype, copy=False).transpose(order).reshape(shape)


def _routine(names: tuple[str, ...], aval: Any) -> Any:
    """Routines of LAPACK for a number type."""
    if np.dtype(aval.dtype).char not in "fd":
        raise Unsupported(f"LAPACK of {aval.dtype}")
    return get_lapack_funcs(names, dtype=aval.dtype)


def _for_each(one: Callable[..., Any], outputs: Any, inputs: Any, several: bool) -> Callable[..., Any]:
    """Apply a function of matrices to every matrix of a batch. A failed one is NaN, as in XLA."""
    batch = tuple(inputs[0].shape[:-2])
    if not batch:
        return one

    n, shapes = math.prod(batch), [tuple(aval.shape) for aval in outputs]
    flat = [(n, *aval.shape[len(batch) :]) for aval in outputs]
    flat_inputs = [(n, *aval.shape[len(batch) :]) for aval in inputs]
    dtypes = [aval.dtype for aval in outputs]

    def each(*arrays):
        out = [np.empty(shape, dtype) for shape, dtype in zip(flat, dtypes, strict=True)]
        rows = [a.reshape(shape) for a, shape in zip(arrays, flat_inputs, strict=True)]
        for i in range(n):
            found = one(*[a[i] for a in rows])
            for whole, part in zip(out, found if several else (found,), strict=True):
                whole[i] = part
        out = [a.reshape(shape) for a, shape in zip(out, shapes, strict=True)]
        return out if several else out[0]

    return each


# -- factorisations ----------------------------------------------------------------------------------------


def _cholesky(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    (potrf,) = _routine(("potrf",), inputs[0])

    def one(x):  # the lower triangle of x is the upper one of xᵀ, which LAPACK reads without a copy
        factor, failed = potrf(x.T, lower=0, clean=1)
        return np.full_like(x, np.nan) if failed else factor.T

    if len(inputs[0].shape) == 2:
        return one
    each = _for_each(one, outputs, inputs, several=False)

    def factor(x):
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:
            return each(x)

    return factor


def _triangular_solve(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    left, lower = parameters["left_side"], parameters["lower"]
    transposed, unit = parameters["transpose_a"], parameters["unit_diagonal"]
    if np.dtype(outputs[0].dtype).char not in "fd":
        raise Unsupported("triangular_solve")
    (trsm,) = get_blas_funcs(("trsm",), dtype=outputs[0].dtype)
    batch, size = inputs[0].shape[:-2], inputs[0].shape[-1]

    def one(a, b):  # the transposed equation, in which no array is copied to another order
        found = trsm(1.0, a.T, b.T, side=int(left), lower=int(not lower), trans_a=transposed, diag=unit)
        return found.T

    # a X = b, after transposing a and exchanging the sides
    forward = lower != (transposed == left)
    steps = range(size) if forward else range(size - 1, -1, -1)

    def together(a, b):
        a = a if transposed != left else np.swapaxes(a, -1, -2)
        b = b if left else np.swapaxes(b, -1, -2)
        out = np.empty(b.shape, b.dtype)
        for i in steps:
            done = slice(0, i) if forward else slice(i + 1, size)
            row = b[..., i, :] - (a[..., i, None, done] @ out[..., done, :])[..., 0, :]
            out[..., i, :] = row if unit else row / a[..., i, i, None]
        return out if left else np.swapaxes(out, -1, -2)

    if math.prod(outputs[0].shape) == 0:
        return lambda a, b: b
    if math.prod(batch) > _ONE_BY_ONE * size:
        return together
    return _for_each(one, outputs, inputs, several=False)


def _eigh(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if parameters["subset_by_index"] not in (None, (0, inputs[0].shape[-1])):
        raise Unsupported("eigh of a subset")
    (syevd,) = _routine(("syevd",), inputs[0])
    lower = int(parameters["lower"])

    def one(x):
        values, vectors, failed = syevd(x, compute_v=1, lower=lower)
        return (np.full_like(x, np.nan), np.full_like(values, np.nan)) if failed else (vectors, values)

    return _for_each(one, outputs, inputs, several=True)


def _svd(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if parameters["subset_by_index"] is not None or math.prod(inputs[0].shape) == 0:
        raise Unsupported("svd of a subset")
    gesdd, lwork = _routine(("gesdd", "gesdd_lwork"), inputs[0])
    full, vectors = int(parameters["full_matrices"]), parameters["compute_uv"]
    work, _ = lwork(*inputs[0].shape[-2:], compute_uv=vectors, full_matrices=full)

    def one(x):
        u, s, vt, failed = gesdd(x, compute_uv=vectors, full_matrices=full, lwork=int(work))
        found = (s, u, vt) if vectors else (s,)
        return tuple(np.full_like(a, np.nan) for a in found) if failed else found

    return _for_each(one, outputs, inputs, several=True)


def _lu(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    (getrf,) = _routine(("getrf",), inputs[0])
    rows = inputs[0].shape[-2]

    def one(x):
        factors, pivots, failed = getrf(x)
        factors = np.full_like(factors, np.nan) if failed < 0 else factors
        return factors, pivots, _permutation(pivots, rows)

    return _for_each(one, outputs, inputs, several=True)


def _permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    order = np.arange(size, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[i], order[j] = order[j], order[i]
    return order


def _pivots(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    size, shape = parameters["permutation_size"], outputs[0].shape

    def permutations(pivots):
        rows = pivots.reshape(-1, pivots.shape[-1])
        return np.stack([_permutation(row, size) for row in rows]).reshape(shape)

    return permutations


def _qr(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    if parameters["pivoting"] or math.prod(inputs[0].shape) == 0:
        raise Unsupported("qr with pivots")
    geqrf, orgqr = _routine(("geqrf", "orgqr"), inputs[0])
    rows, columns = inputs[0].shape[-2:]
    n = outputs[0].shape[-1]

    def one(x):
        factors, scales, _, _ = geqrf(x)
        whole = np.zeros((rows, n), x.dtype)
        whole[:, : min(n, columns)] = factors[:, : min(n, columns)]
        return orgqr(whole, scales)[0], np.triu(factors[:n])

    return _for_each(one, outputs, inputs, several=True)


def _householder(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    (orgqr,) = _routine(("orgqr",), inputs[0])
    return _for_each(lambda a, scales: orgqr(a, scales)[0], outputs, inputs, several=False)


RULES: dict[str, Rule] = {
    "cholesky": _cholesky,
    "dot_general": _dot_general,
    "eigh": _eigh,
    "householder_product": _householder,
    "lu": _lu,
    "lu_pivots_to_permutation": _pivots,
    "qr": _qr,
    "svd": _svd,
    "triangular_solve": _triangular_solve,
}
