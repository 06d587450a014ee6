"""Array functions shared by the covariances: energies, moments and the regularisation of new variances."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.linalg import cholesky, solve_lower
from ...errors import BadInput
from ...programs import interpreted

_UNROLLED_COLUMNS = 32


def check_shape(name: str, shape: tuple, expected: tuple) -> None:
    """Raise `BadInput` unless the last axes of an array have the expected shape."""
    if tuple(shape[len(shape) - len(expected) :]) != expected:
        raise BadInput(name, f"shape {tuple(shape)}", f"{expected}, from the means")


def by_column(count: Any) -> Any:
    """Counts of components (k,), or of components and columns (k, d), to multiply arrays (k, d) with."""
    return count[:, None] if count.ndim == 1 else count


def half_log_two_pi(d: int, dtype: Any) -> Any:
    """(d / 2) log 2π."""
    return 0.5 * d * jnp.log(asarray(2 * jnp.pi, dtype))


def inverse_factor(matrix: Any) -> tuple[Any, Any]:
    """L⁻¹ (…, d, d) and log |L| (…,) for Σ = LLᵀ: computed once, so that rows need only products."""
    factor = cholesky(matrix)
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    inverse = solve_lower(factor, eye)
    return inverse, jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def squared_distances(x: Any, means: Any, variance: Any = None) -> Any:
    """Σ_j (x_ij − μ_zj)², or each term divided by σ²_zj, (k, n).

    The sum over few columns is unrolled: XLA's reduction took up to 14 times as long.
    """

    def term(j):
        squared = jnp.square(x[:, j] - means[:, j, None])
        return squared if variance is None else squared / variance[:, j, None]

    if interpreted() or not 0 < x.shape[1] <= _UNROLLED_COLUMNS:
        squared = jnp.square(x.T - means[:, :, None])
        return (squared if variance is None else squared / variance[:, :, None]).sum(1)
    terms = [term(j) for j in range(x.shape[1])]
    return sum(terms[1:], terms[0])


def independent_energies(x: Any, observed: Any, means: Any, variance: Any) -> Any:
    """−log of the marginal of the observed coordinates, (n, k), for independent coordinates."""
    squared = jnp.square(x.T - means[:, :, None]) / variance[:, :, None]
    constant = jnp.log(variance) + jnp.log(asarray(2 * jnp.pi, x.dtype))
    terms = jnp.where(observed.T, squared + constant[:, :, None], 0)
    return 0.5 * terms.sum(1).T


def independent_moments(x: Any, observed: Any, means: Any, variance: Any, posterior: Any) -> tuple[Any, Any]:
    """Expected Σ r (x − μ) and Σ r (x − μ)², (k, d) each, for independent coordinates.

    The expectation of a missing coordinate is its mean, and of its square the variance.
    """
    centred = jnp.where(observed.T, x.T - means[:, :, None], 0)
    weight = posterior.T[:, None, :]
    second = jnp.where(observed.T, centred**2, variance[:, :, None])
    return (centred * weight).sum(2), (second * weight).sum(2)


def regularise_variance(variance: Any, scale: Any, floor: float) -> Any:
    """The variance plus `floor` plus the rounding error of its sum, `scale` times epsilon.

    It stays positive for duplicate rows and constant columns.
    """
    eps = jnp.finfo(variance.dtype).eps
    return jnp.maximum(variance, 0) + floor + eps * scale + _tiny(variance.dtype)


def regularise_matrix(matrix: Any, scale: Any, floor: float) -> Any:
    """The covariance matrix with its diagonal raised by `floor` and the rounding error of its eigenvalues.

    A matrix that is still not positive definite, since it consists of rounding error, becomes diagonal.
    """
    d, eps = matrix.shape[-1], jnp.finfo(matrix.dtype).eps
    matrix = (matrix + jnp.swapaxes(matrix, -1, -2)) / 2
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    variance = jnp.maximum(diagonal, 0)
    raised = variance + floor + 4 * d * eps * (variance + scale) + _tiny(matrix.dtype)
    eye = jnp.eye(d, dtype=matrix.dtype)
    matrix = matrix + (raised - diagonal)[..., None] * eye
    definite = jnp.isfinite(cholesky(matrix)).all((-2, -1), keepdims=True)
    return jnp.where(definite, matrix, raised[..., None] * eye)


def _tiny(dtype: Any) -> Any:
    """A variance whose logarithm, root and inverse are finite."""
    return jnp.finfo(dtype).tiny ** 0.5
