"""Kernels: scikit-learn's values, positive semi-definite matrices, the algebra, gradients, bad input."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.gaussian_process.kernels as peers
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import polynomial_kernel

from energax.errors import BadInput
from energax.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
    White,
)
from energax.parameters import constrain, parameter_spaces, unconstrain
from energax.spaces import Positive

GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.normal(size=(9, 3)) + 5.0, GENERATOR.normal(size=(7, 3)) + 5.0
SCALES = np.array([0.5, 2.0, 1.3])

PAIRS = {
    "RBF": (RBF(0.7), peers.RBF(0.7), 3),
    "RBF, one scale a column": (RBF(SCALES), peers.RBF(SCALES), 3),
    "Matern 1/2": (Matern(SCALES, nu=0.5), peers.Matern(SCALES, nu=0.5), 3),
    "Matern 3/2": (Matern(1.7), peers.Matern(1.7), 3),
    "Matern 5/2": (Matern(SCALES, nu=2.5), peers.Matern(SCALES, nu=2.5), 3),
    "RationalQuadratic": (RationalQuadratic(0.8, 1.9), peers.RationalQuadratic(0.8, 1.9), 3),
    "Periodic": (Periodic(0.8, 1.9), peers.ExpSineSquared(0.8, 1.9), 1),
    "Linear": (Linear() + Constant(4.0), peers.DotProduct(2.0), 3),
    "White": (White(0.3), peers.WhiteKernel(0.3), 3),
    "Constant": (Constant(0.3), peers.ConstantKernel(0.3), 3),
    "sum and product": (
        2.0 * RBF(0.7) + Matern(1.7) * Constant(0.5) + White(0.1),
        2.0 * peers.RBF(0.7) + peers.Matern(1.7) * peers.ConstantKernel(0.5) + peers.WhiteKernel(0.1),
        3,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_matrices_are_those_of_scikit_learn(name):
    ours, theirs, d = PAIRS[name]
    with jax.enable_x64(True):
        np.testing.assert_allclose(ours.matrix(X[:, :d]), theirs(X[:, :d]), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            ours.matrix(X[:, :d], Y[:, :d]), theirs(X[:, :d], Y[:, :d]), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(ours.diagonal(X[:, :d]), theirs.diag(X[:, :d]), rtol=1e-12)
        pair = ours(X[0, :d], Y[0, :d]), ours(X[0, :d])
        np.testing.assert_allclose(pair[0], theirs(X[:1, :d], Y[:1, :d])[0, 0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(pair[1], theirs.diag(X[:1, :d])[0], rtol=1e-12)


def test_polynomials_are_those_of_scikit_learn():
    with jax.enable_x64(True):
        found = Polynomial(3, gamma=0.2, coef0=0.5).matrix(X, Y)
        np.testing.assert_allclose(found, polynomial_kernel(X, Y, 3, 0.2, 0.5), rtol=1e-12)
        assert np.asarray(Polynomial(2, coef0=0).matrix(X, Y)).dtype == np.float64


KERNELS = [RBF(0.7), Matern(0.7, nu=0.5), Matern(), Matern(nu=2.5), RationalQuadratic(0.5, 0.7)]
KERNELS += [Periodic(0.5, 1.7), Linear(2.0), Polynomial(3, 0.5), White(0.1), Constant(2.0)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, len(KERNELS) - 1), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2**16),
    st.integers(1, 4),
)
def test_every_combination_is_positive_semi_definite(which, multiply, seed, d):
    kernel = KERNELS[which[0]]
    for i in which[1:]:
        kernel = kernel * KERNELS[i] if multiply else kernel + KERNELS[i]
    points = np.random.default_rng(seed).normal(size=(12, d))
    points[6:9] = points[:3]  # equal points make the matrix singular
    with jax.enable_x64(True):
        matrix = np.asarray(kernel.matrix(points))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-300)
    eigenvalues = np.linalg.eigvalsh(matrix)
    assert eigenvalues.min() >= -1e-10 * max(1.0, eigenvalues.max())
    np.testing.assert_allclose(np.diagonal(matrix), kernel.diagonal(points), rtol=1e-6)


def test_equal_points_far_from_the_origin_have_the_full_covariance():
    far = np.repeat(GENERATOR.normal(size=(4, 3)) + 1e3, 2, axis=0)
    with jax.enable_x64(True):
        matrix = np.asarray(Matern(0.5, nu=0.5).matrix(far))
    np.testing.assert_array_equal(matrix[::2, 1::2].diagonal(), np.ones(4))


@pytest.mark.parametrize("name", ["RBF, one scale a column", "Matern 1/2", "Matern 5/2", "Periodic"])
def test_gradients_are_those_of_scikit_learn(name):
    ours, theirs, d = PAIRS[name]
    with jax.enable_x64(True):
        jacobian = jax.jacobian(lambda kernel: kernel.matrix(jnp.asarray(X[:, :d])))(ours)
        parts = [
            np.atleast_1d(leaf)[..., :] if leaf.ndim > 2 else np.asarray(leaf)[..., None]
            for leaf in jax.tree.leaves(jacobian)
        ]
        values = np.concatenate([np.atleast_1d(leaf) for leaf in jax.tree.leaves(ours)])
    expected = theirs(X[:, :d], eval_gradient=True)[1]  # with respect to the logarithms
    np.testing.assert_allclose(np.concatenate(parts, -1) * values, expected, atol=1e-10)


def test_hyperparameters_are_positive_and_keep_their_digits():
    kernel = 0.1 * RBF([0.1, 0.3]) + White(1e-3)
    assert [space for _, space in parameter_spaces(kernel)] == [Positive()] * 3
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(kernel))
    with jax.enable_x64(True):
        back = constrain(unconstrain(kernel))
    np.testing.assert_allclose(back.kernels[0].kernels[1].length_scale, [0.1, 0.3], rtol=1e-12)
    single = kernel.astype(np.float32)
    assert np.asarray(single.matrix(X[:, :2].astype(np.float32))).dtype == np.float32
    assert kernel.n_dims == 2 and RBF().n_dims is None


def test_the_algebra():
    k, other = RBF(), White()
    assert isinstance(k + other, Sum) and isinstance(k * other, Product)
    assert isinstance(sum([k, other]), Sum) and isinstance(k + 1.0, Sum) and isinstance(1.0 + k, Sum)
    assert isinstance(2 * k, Product) and isinstance(k * 2, Product)
    assert isinstance(k, Kernel) and "length_scale" in repr(k)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RBF(-1.0), r"length_scale: found -1.0; expected a finite number > 0"),
        (lambda: RBF([1.0, np.nan]), "length_scale: found"),
        (lambda: RBF("a"), "length_scale: found 'a'"),
        (lambda: Matern(nu=1.0), "nu: found 1.0; expected 0.5, 1.5 or 2.5"),
        (lambda: White([1.0, 2.0]), "noise_level: found an array of shape"),
        (lambda: Polynomial(1.5), "degree: found 1.5"),
        (lambda: Polynomial(2, coef0=-1.0), "coef0: found -1.0"),
        (lambda: RBF() + "a", "kernel"),
        (lambda: 0.0 * RBF(), "constant_value: found 0.0"),
        (lambda: RBF([1.0, 2.0]).matrix(X), "X: found 3 columns; expected 2"),
        (lambda: RBF().matrix(X, Y[:, :2]), "Y: found 2 columns; expected 3"),
        (lambda: RBF().matrix(X[0]), r"X: found shape \(3,\); expected points as rows"),
        (lambda: Sum(()), "kernels: found none"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(call, message):
    with pytest.raises(BadInput, match=message):
        call()


def test_the_repr_is_the_expression_with_its_values():
    kernel = 2.5 * (RBF([0.5, 1.25]) + White(1e-3)) * Polynomial(2, gamma=3) + Constant(4)
    text = "2.5 * (RBF(length_scale=[0.5, 1.25]) + White(noise_level=0.001)) * Polynomial(degree=2, gamma=3, "
    assert repr(kernel) == text + "coef0=1.0) + 4"
    again = eval(repr(kernel))
    np.testing.assert_allclose(again.theta, kernel.theta, rtol=1e-6)
    assert repr(2.0 * Constant(3.0)).startswith("Product(")
    assert repr(RBF(np.ones(20))) == "RBF(length_scale=f64[20])"
    seen = []
    jax.jit(lambda k: seen.append(repr(k)))(1.5 * RBF())
    assert re.fullmatch(r"Constant\(constant_value=f\d\d\[\]\) \* RBF\(length_scale=f\d\d\[\]\)", seen[0])
