"""Stacked factors equal LAPACK's, and flow gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax._util.linalg import cholesky, solve_lower


@pytest.mark.parametrize("shape", [(3, 3), (5, 1, 1), (2, 4, 7, 7), (2, 70, 70)])
def test_stacks_equal_lapack(shape):
    with jax.enable_x64(True):
        root = np.random.default_rng(0).normal(size=shape)
        matrix = root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])
        factor = jax.jit(cholesky)(matrix)
        np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-9, atol=1e-12)
        right = np.random.default_rng(1).normal(size=(*shape[:-1], 3))
        solved = jax.jit(solve_lower)(factor, right)
        np.testing.assert_allclose(factor @ solved, right, rtol=1e-8, atol=1e-9)


def test_a_matrix_that_is_not_positive_definite_gives_nan():
    assert np.isnan(np.asarray(cholesky(jnp.array([[[1.0, 2.0], [2.0, 1.0]]])))).any()


def test_the_gradient_of_the_log_determinant_is_the_inverse():
    with jax.enable_x64(True):
        matrix = jnp.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.5], [0.5, 1.0]]])
        log_det = lambda m: 2 * jnp.log(jnp.diagonal(cholesky(m), axis1=-2, axis2=-1)).sum()
        gradient = jax.grad(log_det)(matrix)
        symmetric = (gradient + jnp.swapaxes(gradient, -1, -2)) / 2
        np.testing.assert_allclose(symmetric, np.linalg.inv(matrix), rtol=1e-10)
