"""One step of Newton's method: quadratics in one step, indefinite and singular Hessians, L1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.algorithms.optimise import newton
from energax.algorithms.optimise.logistic import contrast_covariance, information, is_separable

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def run(function, x, n, step=newton.step, **options):
    x = jnp.asarray(x, jnp.float64)
    for _ in range(n):
        here, slope = jax.value_and_grad(function, has_aux=True)(x)
        x = step(function, x, here, slope, jax.hessian(lambda x: function(x)[0])(x), **options).x
    return np.asarray(x)


def test_a_quadratic_of_any_scale_takes_one_step():
    root = RNG.normal(size=(5, 5)) * 10.0 ** np.arange(-6, 4, 2)
    matrix, centre = root.T @ root, RNG.normal(size=5)
    f = lambda x: ((x - centre) @ matrix @ (x - centre) / 2, None)
    np.testing.assert_allclose(run(f, np.zeros(5), 1), centre, rtol=1e-5, atol=1e-6)


def test_no_step_raises_the_function():
    """Rosenbrock's function has indefinite Hessians; its minimum is at (1, 1)."""
    f = lambda x: ((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2, None)
    x, values = np.array([-1.2, 1.0]), []
    for _ in range(40):
        values.append(float(f(x)[0]))
        x = run(f, x, 1)
    assert (np.diff(values) <= 1e-12).all()
    np.testing.assert_allclose(x, 1.0, atol=1e-8)


def test_a_singular_hessian_gives_the_least_step():
    f = lambda x: ((x[0] + x[1] - 2.0) ** 2, None)
    np.testing.assert_allclose(run(f, np.zeros(2), 1), [1.0, 1.0], atol=1e-4)
    flat = lambda x: (0.0 * x.sum(), None)
    assert not run(flat, np.zeros(2), 1).any()


def test_a_proximal_step_solves_the_lasso():
    """The minimum of ½‖Ax − b‖² + Σ λ|x| satisfies |∇| ≤ λ, with equality and the sign of x where x ≠ 0."""
    A, b, weights = RNG.normal(size=(30, 8)), RNG.normal(size=30), jnp.array([0.0, *[6.0] * 7])
    f = lambda x: (((A @ x - b) ** 2).sum() / 2, None)
    x = run(f, np.zeros(8), 2, newton.proximal_step, l1_weights=weights)
    slope = A.T @ (A @ x - b)
    active = x != 0
    assert 1 < active.sum() < 8 and active[0]
    np.testing.assert_allclose(slope[active], -np.asarray(weights)[active] * np.sign(x[active]), atol=1e-9)
    assert (np.abs(slope[~active]) <= np.asarray(weights)[~active]).all()


def test_the_information_is_a_hessian():
    X, y, w = RNG.normal(size=(20, 2)), RNG.integers(0, 3, 20), RNG.exponential(size=20)
    W = RNG.normal(size=(3, 2))

    def loss(W):
        scores = jnp.asarray(X) @ W.T
        return (w * (jax.nn.logsumexp(scores, 1) - scores[jnp.arange(20), y])).sum()

    p = np.asarray(jax.nn.softmax(jnp.asarray(X @ W.T), 1))
    found = information(X, p, w)
    np.testing.assert_allclose(found, jax.hessian(loss)(jnp.asarray(W)), atol=1e-9)
    covariance = contrast_covariance(found).reshape(6, 6)
    np.testing.assert_allclose(covariance, np.linalg.pinv(found.reshape(6, 6)), atol=1e-8)
    constant = information(np.c_[X, X[:, :1]], p, w)  # a column twice: not determined
    assert np.isnan(contrast_covariance(constant)).all()


def test_separable_classes_are_found_by_a_linear_program():
    x = np.c_[RNG.normal(size=(60, 2)), np.ones(60)]
    split = np.argmax(x @ RNG.normal(size=(3, 3)).T, 1)
    assert is_separable(x, split, 3)
    assert not is_separable(x, RNG.integers(0, 3, 60), 3)


def test_a_step_that_cannot_decrease_stays_with_what_belongs_to_its_point():
    f = lambda x: ((x**2).sum(), {"twice": 2 * x})
    x = jnp.array([1.0, -2.0])
    uphill = newton.step(f, x, f(x), -2 * x, 2 * jnp.eye(2))
    np.testing.assert_array_equal(uphill.x, x)
    np.testing.assert_array_equal(uphill.aux["twice"], 2 * x)
    assert uphill.decrease == 0
