"""Cholesky factors and triangular solves for stacks of small matrices.

On a CPU, XLA calls LAPACK for the matrices of a stack one by one, on the threads that wait for the result;
two independent stacks can deadlock on a machine with few cores. For small matrices, loops over columns, each
a product over the whole stack, are as fast and cannot deadlock. Large matrices, and accelerators, use their
libraries.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..programs import interpreted

_SMALL = 64


def cholesky(matrix: Any) -> Any:
    """The lower L with LLᵀ = `matrix`, for (..., d, d); NaN where it is not positive definite.

    >>> cholesky(jnp.array([[[4.0, 2.0], [2.0, 5.0]]]))
    Array([[[2., 0.],
            [1., 2.]]], dtype=float32)
    """
    if matrix.shape[-1] > _SMALL or interpreted():
        return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return jax.lax.platform_dependent(matrix, cpu=_columns, default=jnp.linalg.cholesky)


def solve_lower(factor: Any, right: Any) -> Any:
    """X with LX = `right`, for lower L (..., d, d) and right sides (..., d, m)."""
    if factor.shape[-1] > _SMALL or interpreted():
        return jax.scipy.linalg.solve_triangular(factor, right, lower=True)
    library = lambda f, r: jax.scipy.linalg.solve_triangular(f, r, lower=True)
    return jax.lax.platform_dependent(factor, right, cpu=_substitute, default=library)


def _columns(matrix: Any) -> Any:
    rows = jnp.arange(matrix.shape[-1])

    def column(j, factor):
        # This column of the matrix, less the product of the columns before it.
        rest = matrix[..., j] - jnp.einsum("...ij,...j->...i", factor, factor[..., j, :])
        new = jnp.where(rows >= j, rest, 0) / jnp.sqrt(rest[..., j])[..., None]
        return factor.at[..., j].set(new)

    return jax.lax.fori_loop(0, matrix.shape[-1], column, jnp.zeros_like(matrix))


def _substitute(factor: Any, right: Any) -> Any:
    def row(i, solved):
        above = jnp.einsum("...j,...jm->...m", factor[..., i, :], solved)
        new = (right[..., i, :] - above) / factor[..., i, i][..., None]
        return solved.at[..., i, :].set(new)

    return jax.lax.fori_loop(0, factor.shape[-1], row, jnp.zeros_like(right))


def gram(factor: Any) -> Any:
    """LLᵀ."""
    return factor @ factor.swapaxes(-1, -2)


def semidefinite_factor(matrix: Any) -> Any:
    """The lower L with LLᵀ = `matrix` (n, n), which may be singular.

    >>> semidefinite_factor(jnp.array([[4.0, 0.0], [0.0, 0.0]]))
    Array([[2., 0.],
           [0., 0.]], dtype=float32)
    """
    n = matrix.shape[-1]
    rows = jnp.arange(n)
    noise = 10 * n * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)

    def column(j, factor):
        rest = matrix[:, j] - factor @ factor[j]
        is_positive = rest[j] > noise[j]
        new = jnp.where(rows >= j, rest, 0) / jnp.sqrt(jnp.where(is_positive, rest[j], 1))
        return factor.at[:, j].set(jnp.where(is_positive, new, 0))

    return jax.lax.fori_loop(0, n, column, jnp.zeros_like(matrix))
