"""The dual solver: optimality, equal results with working sets and a small cache, the certificate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.algorithms.optimise import smo
from energax.algorithms.optimise.smo import BoxDual, certify, solve_dual
from energax.algorithms.optimise.smo_cache import empty_cache
from energax.programs import jit, use_engine

N = 320


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.4 * rng.normal(size=N) > 0, 1.0, -1.0)
    squares = ((X[:, None] - X) ** 2).sum(-1)
    return X, y, np.exp(-0.5 * squares)


def parts(K):
    return lambda i: K[i], lambda i: K[i[:, None], i], jnp.diagonal(K)


def box(t, C):
    return BoxDual(t[None], jnp.where(t > 0, 0, -C)[None], jnp.where(t > 0, C, 0)[None])


@jax.jit
def _solve(K, problem, tol):
    solution = solve_dual(*parts(K), problem, tol=tol)
    return solution, certify(problem, solution)


def by_working_sets(K, problem, tol, working, cache_rows, monkeypatch, cheap=False):
    monkeypatch.setattr(smo, "SMO_WORKING_SET", working)
    monkeypatch.setattr(smo, "_LEAST_WORKING_SET", 16)

    def solve(K, problem):
        solution = solve_dual(*parts(K), problem, tol=tol, cache_rows=cache_rows, rows_are_cheap=cheap)
        return solution, certify(problem, solution)

    return jax.jit(solve)(K, problem)


def test_the_solution_satisfies_the_optimality_conditions_and_its_gap_is_zero(table):
    _, y, K = table
    K, problem = jnp.asarray(K), box(jnp.asarray(y), 2.0)
    solution, found = _solve(K, problem, 1e-8)
    beta = np.asarray(solution.variables[0])
    assert abs(beta.sum()) < 1e-10 and (beta * y >= 0).all() and (beta * y <= 2).all()
    margin = y * (np.asarray(K) @ beta + float(found.intercept))
    a = beta * y
    assert (margin[a == 0] >= 1 - 1e-7).all() and (margin[a == 2] <= 1 + 1e-7).all()
    np.testing.assert_allclose(margin[(a > 0) & (a < 2)], 1, atol=1e-7)
    primal = 0.5 * beta @ np.asarray(K) @ beta + 2 * np.maximum(0, 1 - margin).sum()
    dual = 0.5 * beta @ np.asarray(K) @ beta - a.sum()
    assert float(found.dual_objective) == pytest.approx(dual, rel=1e-12)
    assert float(found.duality_gap) == pytest.approx(primal + dual, abs=1e-9) and primal + dual < 1e-5
    assert int(found.n_support) == (a > 0).sum() and int(found.n_at_bound) == (a == 2).sum()


@pytest.mark.parametrize(
    ("working", "cache_rows", "cheap"),
    [(64, 64, False), (64, 100, False), (64, 100, True), (16, N, True), (12, N, True)],
)
def test_working_sets_and_a_small_cache_give_the_same_result(table, working, cache_rows, cheap, monkeypatch):
    _, y, K = table
    K, problem = jnp.asarray(K), box(jnp.asarray(y), 2.0)
    whole, _ = _solve(K, problem, 1e-8)
    some, found = by_working_sets(K, problem, 1e-8, working, cache_rows, monkeypatch, cheap)
    assert float(some.violation) <= 1e-8
    # With 12 the free variables do not fit into the largest set; then all are optimised together. With 16
    # they fit into this set only, which needs all rows in memory.
    n_free = int(found.n_support - found.n_at_bound)
    assert (n_free > smo._MOST_FREE * smo._LARGE * working) == (working == 12)
    assert (n_free > smo._FREE_FRACTION * 2 * working) == (working <= 16)
    np.testing.assert_allclose(some.variables, whole.variables, atol=1e-6)
    # The residuals, which are updated step by step, are still t − Kβ.
    np.testing.assert_allclose(some.residuals[0], y - np.asarray(K) @ some.variables[0], atol=1e-11)


def test_two_variables_for_every_row_are_support_vector_regression(table, monkeypatch):
    from sklearn.svm import SVR

    X, _, K = table
    z = np.sin(2 * X[:, 0])
    bound, zero = np.full(N, 5.0), np.zeros(N)
    arrays = np.stack([z - 0.1, z + 0.1]), np.stack([zero, -bound]), np.stack([bound, zero])
    problem = BoxDual(*map(jnp.asarray, arrays))
    theirs = SVR(C=5.0, kernel="precomputed", tol=1e-6).fit(K, z)
    expected = np.zeros(N)
    expected[theirs.support_] = theirs.dual_coef_[0]
    for solution, found in (
        _solve(jnp.asarray(K), problem, 1e-6),
        by_working_sets(jnp.asarray(K), problem, 1e-6, 64, 80, monkeypatch),
    ):
        beta = np.asarray(solution.variables.sum(0))
        np.testing.assert_allclose(K @ beta, K @ expected, atol=1e-4)
        assert float(found.intercept) == pytest.approx(theirs.intercept_[0], abs=1e-4)
        assert 0 <= float(found.duality_gap) < 1e-3


def test_padding_and_continuing_change_nothing(table):
    _, y, K = table
    short = jnp.asarray(K[:256, :256])
    problem = box(jnp.asarray(y[:256]), 2.0)
    expected, _ = _solve(short, problem, 1e-8)
    hidden = jax.tree.map(lambda a: jnp.where(jnp.arange(N) < 256, a, 0), box(jnp.asarray(y), 2.0))
    hidden = hidden._replace(targets=jnp.asarray(y)[None])
    padded, _ = _solve(jnp.asarray(K), hidden, 1e-8)
    np.testing.assert_allclose(padded.variables[0, :256], expected.variables[0], atol=1e-7)
    assert not np.asarray(padded.variables[0, 256:]).any()
    again = solve_dual(*parts(short), problem, tol=1e-8, start=expected)
    assert int(again.n_steps) == 0
    np.testing.assert_array_equal(again.variables, expected.variables)


def test_the_interpreter_finds_the_same_optimum(table):
    _, y, K = table
    K, problem = jnp.asarray(K[:64, :64]), box(jnp.asarray(y[:64]), 2.0)
    results = []
    for engine in ("numpy", "xla"):
        with use_engine(engine):
            results.append(jit(_solve.__wrapped__)(K, problem, 1e-9)[0])
    np.testing.assert_allclose(results[0].variables, results[1].variables, atol=1e-6)


def test_the_steps_are_limited_and_a_kernel_that_is_not_semi_definite_ends(table):
    _, y, K = table
    problem = box(jnp.asarray(y), 2.0)
    K = jnp.asarray(K)
    few = jax.jit(lambda K: solve_dual(*parts(K), problem, max_steps=7))(K)
    assert int(few.n_steps) == 7 and float(few.violation) > 1e-3
    wild = K - 2 * jnp.eye(N)
    found = jax.jit(lambda K: solve_dual(*parts(K), problem))(wild)
    assert float(found.violation) <= 1e-3 and np.isfinite(found.variables).all()


def test_the_cache_stores_rows_at_their_second_use_and_keeps_those_used_last():
    matrix = jnp.arange(1.0, 101).reshape(10, 10)
    cache, ones = empty_cache(4, 10, matrix.dtype), jnp.array([1.0, 2.0])
    add = jax.jit(lambda cache, wanted, weights: cache.weighted_sum(wanted, weights, lambda i: matrix[i]))
    stored = []
    for wanted in ([0, 1], [0, 1], [2, 3], [2, 3], [1, 2], [4, 5], [4, 5], [1, 2]):
        wanted = jnp.array(wanted, jnp.int32)
        cache, total = add(cache, wanted, ones)
        np.testing.assert_allclose(total, ones @ matrix[wanted])
        slots = np.asarray(cache.slot_of)
        here = np.flatnonzero(slots >= 0)
        np.testing.assert_array_equal(cache.values[slots[here]], matrix[here])
        stored.append(here.tolist())
    # 0 and 3 were used longest ago when 4 and 5 came.
    assert stored == [
        [],
        [0, 1],
        [0, 1],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [1, 2, 4, 5],
        [1, 2, 4, 5],
    ]
    cache, total = add(cache, jnp.array([9, 1], jnp.int32), jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(total, matrix[1])
    assert int(cache.slot_of[9]) == -1  # a row of weight 0 is not computed


def test_a_cache_smaller_than_the_working_set_computes_the_other_rows_again():
    matrix = jnp.arange(1.0, 101).reshape(10, 10)
    cache, wanted = empty_cache(2, 10, matrix.dtype), jnp.arange(6, dtype=jnp.int32)
    for _ in range(4):
        cache, total = cache.weighted_sum(wanted, jnp.arange(1.0, 7), lambda i: matrix[i])
        np.testing.assert_allclose(total, jnp.arange(1.0, 7) @ matrix[:6])
    assert (np.asarray(cache.slot_of) >= 0).sum() == 2
