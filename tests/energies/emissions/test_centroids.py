"""Centroids: distances, ties, starts, k-means as hard EM and its soft form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import evaluate

from energax import BadInput, Masked, fit
from energax.algorithms.optimise.kmeans import _sample_rows, kmeans_plus_plus, min_and_argmin
from energax.energies import Centroids
from energax.energies._emissions.centroids import hartigan_wong
from energax.learn import EM


def brute(x, centers):
    return ((x[:, None] - centers) ** 2).sum(-1)


@given(st.integers(1, 200), st.integers(0, 1000))
def test_smallest_is_the_first_minimum(k, seed):
    scores = np.random.default_rng(seed).integers(0, 5, (k, 6)).astype(np.float32)
    least, where = evaluate(lambda: min_and_argmin(jnp.asarray(scores)))
    np.testing.assert_array_equal(least, scores.min(0))
    np.testing.assert_array_equal(where, scores.argmin(0))


def test_distances_also_far_from_the_origin():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(20, 3)) + 1000).astype(np.float32)
    c = x[:4] + np.float32(0.5)
    truth = brute(x.astype(np.float64), c.astype(np.float64))
    together = evaluate(lambda: Centroids(c).row_energies(x=jnp.asarray(x)))
    np.testing.assert_allclose(together, truth, rtol=2e-4, atol=1e-4)
    each = evaluate(lambda: jax.vmap(lambda r: Centroids(c).energies(x=r))(jnp.asarray(x)))
    np.testing.assert_allclose(each, truth, rtol=1e-5)


def test_missing_coordinates_are_dropped():
    c = Centroids(jnp.array([[0.0, 0.0], [1.0, 5.0]]))
    x = Masked(jnp.array([[2.0, 9.0]]), jnp.array([[True, False]]))
    np.testing.assert_allclose(evaluate(lambda: c.row_energies(x=x)), [[4.0, 1.0]], atol=1e-5)
    first = Masked(jnp.array([2.0, 9.0]), jnp.array([True, False]))
    np.testing.assert_allclose(evaluate(lambda: c.energies(x=first)), [4.0, 1.0])
    second = jnp.array([[0.0, 1.0]])
    np.testing.assert_allclose(evaluate(lambda: c.impute_given({"x": x}, second)["x"]), [[2.0, 5.0]])


@pytest.mark.parametrize("masked", [False, True])
def test_hard_statistics_are_those_of_one_hot_posteriors(masked):
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        x, weight = jnp.asarray(rng.normal(size=(40, 3))), jnp.asarray(rng.uniform(0, 2, 40))
        rows = {"x": Masked(x, jnp.asarray(rng.random((40, 3)) < 0.7)) if masked else x}
        c = Centroids(jnp.asarray(rng.normal(size=(4, 3))))
        energies = np.asarray(evaluate(lambda: c.row_energies(**rows)))
        chosen = jnp.asarray(np.eye(4)[energies.argmin(1)] * np.asarray(weight)[:, None])
        statistics, objective = evaluate(lambda: c.expected_statistics(rows, weight, 0))
        assert objective == pytest.approx(-float(energies.min(1) @ np.asarray(weight)))
        for name, value in evaluate(lambda: c.statistics(rows, chosen)).items():
            np.testing.assert_allclose(statistics[name], value, atol=1e-12)


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 5.0]))
def test_k_means_never_raises_its_objective(seed, temperature):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2)) * 3
    with jax.enable_x64(True):
        learner = EM(temperature=temperature, criterion="parameters", tol=-1.0)
        losses = fit(Centroids(x[:5]), {"x": x}, learner, key=0, epochs=10).history["objective"]
    assert (np.diff(losses) <= 1e-9 * np.abs(losses[:-1])).all()


def test_soft_k_means_is_a_fixed_point_of_its_equation():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 4])
    with jax.enable_x64(True):
        learner = EM(temperature=2.0, criterion="parameters", tol=1e-26)
        c = np.asarray(fit(Centroids(x[[0, -1]]), {"x": x}, learner, key=0, epochs=2000).energy.centers)
    share = np.exp(-brute(x, c) / 2)
    share /= share.sum(1, keepdims=True)
    np.testing.assert_allclose(c, (share.T @ x) / share.sum(0)[:, None], rtol=1e-10)


def test_rows_are_picked_in_proportion():
    """Chi-square over 5 rows of 1500 (three blocks), 4 degrees: above 23.5 once in 10⁴."""
    mass = np.zeros(1500, np.float32)
    mass[[0, 511, 512, 1024, 1499]] = [1, 2, 3, 4, 5]
    picks = np.asarray(evaluate(lambda: _sample_rows(jax.random.key(0), jnp.asarray(mass), 3000)))
    counts = np.bincount(picks, minlength=1500)
    assert counts[mass == 0].sum() == 0
    expected = 3000 * mass[mass > 0] / 15
    assert ((counts[mass > 0] - expected) ** 2 / expected).sum() < 23.5


def test_k_means_plus_plus_visits_far_clusters_and_never_weightless_rows():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(50, 2)) + 100 * i for i in range(6)]).astype(np.float32)
    weight = np.ones(300, np.float32)
    weight[:50] = 0
    start = lambda k: kmeans_plus_plus(k, jnp.asarray(x), jnp.asarray(weight), 5, jnp.asarray(x).mean(0))
    starts = evaluate(lambda: jax.vmap(start)(jax.random.split(jax.random.key(0), 20)))
    for centers in np.asarray(starts):
        assert sorted(np.round(centers.mean(1) / 100)) == [1, 2, 3, 4, 5]


def test_single_moves_end_where_no_single_move_helps():
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(40, 2)), rng.integers(1, 4, 40).astype(float)
    centers = x[:4].copy()
    for _ in range(50):
        labels = brute(x, centers).argmin(1)
        centers = np.stack(
            [np.average(x[labels == z], axis=0, weights=weight[labels == z]) for z in range(4)]
        )

    def cost(labels):
        parts = [(x[labels == z], weight[labels == z]) for z in range(4)]
        return sum(w @ np.square(p - np.average(p, axis=0, weights=w)).sum(1) for p, w in parts if len(p))

    after = brute(x, hartigan_wong(x, weight, centers, labels)).argmin(1)
    assert cost(after) < cost(labels)
    for i in range(40):
        for z in range(4):
            other = after.copy()
            other[i] = z
            assert cost(other) >= cost(after) - 1e-9


def test_bad_centres_are_named():
    with pytest.raises(BadInput, match="centers"):
        Centroids(np.zeros(3))
    with pytest.raises(BadInput, match="start"):
        Centroids(np.zeros((2, 3)), start="far")
