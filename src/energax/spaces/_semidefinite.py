"""Symmetric matrices without negative eigenvalues."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from .._util.linalg import gram, semidefinite_factor
from ._space import Space


class Semidefinite(Space):
    """Symmetric d × d matrices with eigenvalues ≥ 0: LLᵀ for any lower triangular L."""

    event_ndim = 2

    @property
    def bijection(self):
        return _Square()

    def _is_valid(self, array):
        finite = np.isfinite(array).all()
        symmetric = finite and np.allclose(array, np.swapaxes(array, -1, -2), rtol=1e-4, atol=1e-6)
        if not symmetric:
            return np.zeros(array.shape, bool)
        values = np.linalg.eigvalsh(array)
        least = -1e-5 * np.abs(values).max(-1, initial=0)
        return np.full(array.shape, bool((values.min(-1) >= least).all()))

    def description(self):
        return "symmetric matrices without negative eigenvalues"


class _Square:
    """L ↦ LLᵀ. A zero matrix is mapped to itself, with a zero gradient: a noise of zero stays zero."""

    def __call__(self, u):
        return gram(jnp.tril(u))

    def inv(self, y):
        return jnp.vectorize(semidefinite_factor, signature="(n,n)->(n,n)")(y)

    def log_abs_det_jacobian(self, u, y):
        d = u.shape[-1]
        powers = jnp.arange(d, 0, -1, dtype=u.dtype)
        return d * jnp.log(asarray(2, u.dtype)) + powers @ jnp.log(jnp.abs(jnp.diagonal(u)))

    def inverse_shape(self, shape):
        return shape
