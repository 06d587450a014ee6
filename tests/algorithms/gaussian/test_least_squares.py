"""Reduced rows keep every sum of squares; the solutions on them are those of the data."""

from __future__ import annotations

import numpy as np
import pytest

from energax.algorithms.gaussian import least_squares
from energax.algorithms.gaussian.active_set import finish_elastic_net
from energax.algorithms.gaussian.evidence import Hyperprior, maximise_evidence, maximise_relevance
from energax.algorithms.gaussian.least_squares import elastic_net_gap, reduce_rows, solve_ridge

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(50, 4), (3, 6), (5, 5)])
def test_sums_of_squares_are_kept(shape, weighted, center, monkeypatch):
    monkeypatch.setattr(least_squares, "HOST_PRODUCT_NUMBERS", 60)  # several chunks
    X, y = RNG.normal(size=shape) + 3, RNG.normal(size=shape[0])
    weight = RNG.uniform(0.1, 2, shape[0]) if weighted else None
    w = np.ones(len(y)) if weight is None else weight
    rows = reduce_rows(X, y, weight, center)
    if center:
        X, y = X - w @ X / w.sum(), y - w @ y / w.sum()
    for _ in range(3):
        v = RNG.normal(size=shape[1])
        exact = w @ (y - X @ v) ** 2
        assert ((rows.target - rows.columns @ v) ** 2).sum() == pytest.approx(exact, rel=1e-10)
    assert rows.total == pytest.approx(w.sum()) and len(rows.target) <= shape[1] + 1


def test_nearly_dependent_columns_are_reduced_by_qr():
    """Their products would lose the difference of 1e-9 altogether."""
    x = RNG.normal(size=200)
    X = np.stack([x, x + 1e-9 * RNG.normal(size=200)], axis=1)
    rows = reduce_rows(X, RNG.normal(size=200), None, center=False)
    found = np.linalg.svd(rows.columns, compute_uv=False)
    np.testing.assert_allclose(found, np.linalg.svd(X, compute_uv=False), rtol=1e-5)


def test_a_constant_column_is_exactly_zero():
    X = RNG.normal(size=(40, 3))
    X[:, 1] = 0.1 + 1e6
    rows = reduce_rows(X, np.full(40, 1 / 3), None, center=True)
    assert not rows.columns[:, 1].any() and not rows.target.any()
    assert rows.columns[:, 0].any()


@pytest.mark.parametrize("shape", [(30, 4), (4, 9)])
def test_ridge_solves_its_equations(shape):
    X, y = RNG.normal(size=shape), RNG.normal(size=shape[0])
    rows = reduce_rows(X, y, None, center=False)
    for alpha in (1e-8, 0.1, 100.0):
        exact = np.linalg.solve(X.T @ X + alpha * np.eye(shape[1]), X.T @ y)
        np.testing.assert_allclose(solve_ridge(rows, alpha), exact, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(30, 5), (5, 12)])
def test_evidence_is_stationary_at_the_maximum(shape):
    X, y = RNG.normal(size=shape), RNG.normal(size=shape[0])
    y[: shape[0] // 2] += 3 * X[: shape[0] // 2, 0]
    rows = reduce_rows(X, y, None, center=False)
    found = maximise_evidence(rows, 1.0, 1.0, Hyperprior(), max_iter=10**5, tol=1e-13)

    def evidence(alpha, beta):
        covariance = np.eye(len(y)) / beta + X @ X.T / alpha
        return -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])

    alpha, beta = float(found.weight_precision), found.noise_precision
    here = evidence(alpha, beta) + 1e-12 * abs(evidence(alpha, beta))  # the rounding of its sums
    for step in (1.01, 1 / 1.01):
        assert here >= evidence(alpha * step, beta) and here >= evidence(alpha, beta * step)


def test_relevance_has_the_same_posterior_by_rows_and_by_columns():
    """Few rows use Woodbury's identity; with zero rows below, the same data do not."""
    X, y = RNG.normal(size=(6, 9)), RNG.normal(size=6)
    few = reduce_rows(X, y, None, center=False)
    many = few._replace(columns=np.vstack([X, np.zeros((9, 9))]), target=np.append(y, np.zeros(9)))
    options = {"max_iter": 20, "tol": 0.0, "threshold": 1e10, "score": True}
    a, b = (
        maximise_relevance(rows, 1.0, Hyperprior(1e-6, 1e-6, 1e-6, 1e-6), **options) for rows in (few, many)
    )
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(a.scores[:-1], b.scores[:-1], rtol=1e-6)
    assert (np.diff(a.scores) > -1e-9).all()  # the evidence never falls here


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_the_search_over_signs_ends_at_the_minimum(l2):
    X = RNG.normal(size=(30, 8))
    X[:, 1] = X[:, 0] + 1e-4 * X[:, 1]
    y = X @ np.array([1.0, 0, -2, 0, 0, 0.5, 0, 0]) + 0.1 * RNG.normal(size=30)
    rows = reduce_rows(X, y, None, center=False)
    for start in (np.zeros(8), RNG.normal(size=8)):
        found = finish_elastic_net(rows.columns, rows.target, start, np.full(8, 2.0), np.full(8, l2))
        assert elastic_net_gap(rows, found, 2.0, l2) < 1e-9
    assert elastic_net_gap(rows, np.zeros(8), 2.0, l2) > 1
