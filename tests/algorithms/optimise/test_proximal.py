"""Proximal gradients: the minimum with its certificate, on quadratics and on a logistic loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso

from energax.algorithms.optimise.proximal import minimise, violations

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def test_the_lasso_of_scikit_learn():
    X = RNG.normal(size=(60, 20))
    X[:, 1:] += 2 * X[:, :-1]
    y = X[:, :3].sum(1) + RNG.normal(size=60)
    found = jax.jit(
        lambda: minimise(lambda w: 0.5 * jnp.mean((y - X @ w) ** 2), jnp.zeros(20), 0.1, 1e-10, 10**5)
    )()
    exact = Lasso(0.1, tol=1e-14, max_iter=10**6, fit_intercept=False).fit(X, y).coef_
    assert bool(found.converged) and found.violation <= 1e-10
    np.testing.assert_allclose(found.x, exact, atol=1e-8)
    np.testing.assert_array_equal(found.x == 0, exact == 0)


def test_a_tree_with_penalties_of_its_own():
    """The offset has no penalty, and one weight a large one; the curvatures differ by 10⁴."""
    X = RNG.normal(size=(80, 3)) * np.array([1.0, 100.0, 0.5])
    t = np.sign(X[:, 0] + 0.01 * X[:, 1] + 1 + RNG.normal(size=80))
    loss = lambda p: jnp.mean(jnp.logaddexp(0, -t * (X @ p["w"] + p["b"])))
    start = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    l1 = {"w": jnp.array([0.01, 0.01, 10.0]), "b": 0.0}
    found = jax.jit(lambda: minimise(loss, start, l1, 1e-9, 10**5))()
    gradient = jax.grad(loss)(found.x)
    assert bool(found.converged) and float(found.x["w"][2]) == 0 and float(found.x["b"]) != 0
    assert abs(float(gradient["b"])) < 1e-9
    assert violations(found.x["w"], gradient["w"], l1["w"]).max() < 1e-9


def test_too_few_iterations_are_told():
    square = lambda x: jnp.sum(jnp.arange(1.0, 9) ** 6 * (x - 1) ** 2)
    found = minimise(square, jnp.zeros(8), 0.1, 1e-8, 3)
    assert not bool(found.converged) and int(found.n_iter) == 3 and found.violation > 1e-8
