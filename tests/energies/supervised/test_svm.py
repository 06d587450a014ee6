"""Energies of support vector machines: common questions, coupling of classes, the noise of regression."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from energax import argmin, fit, log_prob, posterior, sample
from energax.energies import EpsilonInsensitive, Linear, SupportVectorClassifier, SupportVectorRegressor
from energax.energies._supervised.svm import couple
from energax.errors import BadInput, Unsuitable
from energax.kernels import RBF, White
from energax.kernels import Linear as LinearKernel
from energax.learn import SMO


def three_classes(calibration=None):
    support = jax.random.normal(jax.random.key(0), (5, 2))
    coefficients = jax.random.normal(jax.random.key(1), (3, 5))
    return SupportVectorClassifier(RBF(2.0), support, coefficients, jnp.array([0.1, -0.2, 0.3]), calibration)


def test_two_classes_are_the_sign_of_the_function_and_its_sigmoid():
    svm = SupportVectorClassifier(LinearKernel(), jnp.array([[2.0]]), jnp.array([[0.5]]), jnp.array([-1.0]))
    X = np.array([[0.0], [3.0]], np.float32)
    assert np.asarray(argmin(svm, {"x": X})["y"]).tolist() == [0, 1]
    expected = 1 / (1 + np.exp([1.0, -2.0]))
    np.testing.assert_allclose(posterior(svm, {"x": X}).marginals["y"][:, 1], expected, rtol=1e-5)
    found = log_prob(svm, {"y": np.array([1, 1])}, given={"x": X}).value
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-5)


def test_calibration_is_platts_sigmoid():
    plain = SupportVectorClassifier(LinearKernel(), jnp.array([[2.0]]), jnp.array([[0.5]]), jnp.array([-1.0]))
    scaled = dataclasses.replace(plain, calibration=jnp.array([[-2.0, 0.5]]))
    p = posterior(scaled, {"x": np.array([[3.0]], np.float32)}).marginals["y"][0, 1]
    assert float(p) == pytest.approx(1 / (1 + np.exp(-2.0 * 2.0 + 0.5)), rel=1e-5)


def test_several_classes_vote_and_the_largest_score_wins_most_pairs():
    svm = three_classes()
    X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    outputs = np.asarray(svm.row_outputs(X))
    votes = np.zeros((40, 3))
    for p, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        votes[np.arange(40), np.where(outputs[:, p] >= 0, j, i)] += 1
    np.testing.assert_array_equal(jax.vmap(svm.votes)(jnp.asarray(outputs)), votes)
    winner = np.asarray(argmin(svm, {"x": X})["y"])
    assert (votes[np.arange(40), winner] == votes.max(1)).all()


def test_coupling_solves_the_least_squares_problem_of_wu_lin_and_weng():
    """By SciPy over the simplex; and the probabilities of pairs that are consistent are found exactly."""
    p = np.array([0.2, 0.5, 0.3])
    pairs = np.array([p[j] / (p[i] + p[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    np.testing.assert_allclose(couple(jnp.asarray(pairs), 3), p, rtol=1e-5)
    with jax.enable_x64(True):
        r = np.array([0.9, 0.4, 0.2])
        found = np.asarray(couple(jnp.asarray(r), 3))
    from scipy.optimize import minimize

    wins = np.zeros((3, 3))
    for value, (i, j) in zip(r, ((0, 1), (0, 2), (1, 2)), strict=True):
        wins[j, i], wins[i, j] = value, 1 - value
    loss = lambda p: sum(
        (wins[j, i] * p[i] - wins[i, j] * p[j]) ** 2 for i in range(3) for j in range(3) if i != j
    )
    options = {"constraints": {"type": "eq", "fun": lambda p: p.sum() - 1}, "bounds": [(0, 1)] * 3}
    best = minimize(loss, np.full(3, 1 / 3), tol=1e-14, **options).x
    np.testing.assert_allclose(found, best, atol=1e-5)


def test_calibrated_classes_have_probabilities_that_sum_to_one():
    svm = three_classes(jnp.array([[-1.0, 0.0], [-2.0, 0.1], [-0.5, 0.2]]))
    p = posterior(svm, {"x": np.ones((3, 2), np.float32)}).marginals["y"]
    np.testing.assert_allclose(np.asarray(p).sum(1), 1, rtol=1e-5)
    drawn = np.asarray(sample(svm, 4000, {"x": np.ones(2, np.float32)}, key=0)["y"])
    # 4.4 standard errors: each of three frequencies is outside with probability 1e-5.
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 4000, p[0], atol=4.4 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_the_noise_of_regression_is_a_density(epsilon):
    with jax.enable_x64(True):
        noise = EpsilonInsensitive(2.0, epsilon).distribution(jnp.array(1.5))
        density = lambda y: float(np.exp(noise.log_prob(y)))
        corners = [1.5 - epsilon, 1.5, 1.5 + epsilon]
        total = integrate.quad(density, -15, 18, points=corners, limit=200)[0]
        spread = integrate.quad(lambda y: (y - 1.5) ** 2 * density(y), -15, 18, points=corners, limit=200)[0]
        assert total == pytest.approx(1, abs=1e-9)
        assert float(noise.variance) == pytest.approx(spread, rel=1e-8)
        drawn = np.asarray(noise.sample(jax.random.key(0), (20_000,)))
    inside = epsilon * 2 / (epsilon * 2 + 1)
    assert np.mean(np.abs(drawn - 1.5) <= epsilon) == pytest.approx(inside, abs=0.016)  # 4.5 errors
    assert drawn.var() == pytest.approx(spread, rel=0.1)


def test_regression_answers_the_common_questions():
    line = SupportVectorRegressor(LinearKernel(), jnp.array([[2.0]]), jnp.array([0.5]), jnp.array(1.0))
    X = np.array([[3.0], [0.0]], np.float32)
    found = posterior(line, {"x": X})
    np.testing.assert_allclose(found.mean["y"], [4.0, 1.0], rtol=1e-5)
    expected = -np.maximum(np.abs(np.array([0.5, 0.0])) - 0.1, 0) - np.log(2 * 1.1)
    values = log_prob(line, {"y": np.array([4.5, 1.0], np.float32)}, given={"x": X}).value
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_smo_learns_through_fit_and_converges_with_weights():
    X = np.array([[-2.0], [-1.0], [1.0], [3.0], [9.0]], np.float32)
    data = {"x": X, "y": np.array([0, 0, 1, 1, 0])}
    start = SupportVectorClassifier(LinearKernel(), jnp.asarray(X), jnp.zeros((1, 5)), jnp.zeros(1))
    result = fit(start, data, SMO(C=9.0, tol=1e-5), weights=np.array([1, 1, 1, 1, 0]), key=0)
    assert result.status == "converged" and float(result.state.certificate.duality_gap) < 1e-4
    np.testing.assert_allclose(result.energy.coefficients, [[0, -0.5, 0.5, 0, 0]], atol=1e-5)
    assert float(result.energy.scores(jnp.array([1.0]))[1]) == pytest.approx(1.0, abs=1e-4)
    cropped = result.energy.crop(np.array([1, 2]))
    x = jnp.array([5.0])
    np.testing.assert_allclose(cropped.scores(x), result.energy.scores(x), rtol=1e-5)


def test_smo_learns_every_pair_of_classes_as_a_problem_of_its_own():
    """By fits to the rows of two classes; a row has no coefficient in pairs of other classes."""
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        X, y = rng.normal(size=(40, 2)), np.arange(40) % 4
        y[0], weight = 4, rng.integers(0, 3, 40).astype(float)
        y[1], weight[:4] = 4, 1.0
        k, n_pairs = 5, 10
        kernel = RBF(0.8).astype(np.float64)
        start = SupportVectorClassifier(kernel, jnp.asarray(X), jnp.zeros((n_pairs, 40)), jnp.zeros(n_pairs))
        learner = SMO(C=2.0, tol=1e-9)
        largest = max(((y == i) | (y == j))[weight > 0].sum() for i in range(k) for j in range(i))
        for most_rows in (None, int(largest)):
            chosen = dataclasses.replace(learner, most_rows=most_rows)
            result = fit(start, {"x": X, "y": y}, chosen, weights=weight, key=0)
            certificate = result.state.certificate
            assert certificate.violation.shape == (n_pairs,) and (certificate.violation <= 1e-9).all()
            assert float(result.objective) == pytest.approx(float(certificate.dual_objective.sum()))
            for p, (i, j) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
                own = np.flatnonzero((y == i) | (y == j))
                two = SupportVectorClassifier(
                    kernel, jnp.asarray(X[own]), jnp.zeros((1, len(own))), jnp.zeros(1)
                )
                data = {"x": X[own], "y": (y[own] == j).astype(np.int32)}
                alone = fit(two, data, learner, weights=weight[own], key=0)
                expected = np.zeros(40)
                expected[own] = alone.energy.coefficients[0]
                np.testing.assert_allclose(result.energy.coefficients[p], expected, atol=1e-6)
                assert float(result.energy.intercept[p]) == pytest.approx(
                    float(alone.energy.intercept[0]), abs=1e-6
                )
                assert int(certificate.n_support[p]) == int(alone.state.certificate.n_support)
        too_few = dataclasses.replace(learner, most_rows=int(largest) - 1)
        lost = fit(start, {"x": X, "y": y}, too_few, weights=weight, key=0)
        assert lost.status == "diverged" and "dual objective" in lost.message


def test_white_noise_counts_on_the_diagonal_only():
    """k + σ²·1[i = j] is the 2-norm soft margin: margins are 1 − σ² a_i."""
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        X = rng.normal(size=(30, 2))
        y = (X[:, 0] + 0.5 * rng.normal(size=30) > 0).astype(np.int32)
        kernel = (LinearKernel() + White(0.5)).astype(np.float64)
        start = SupportVectorClassifier(kernel, jnp.asarray(X), jnp.zeros((1, 30)), jnp.zeros(1))
        energy = fit(start, {"x": X, "y": y}, SMO(C=np.inf, tol=1e-8), key=0).energy
        sign, beta = 2 * y - 1, np.asarray(energy.coefficients[0])
        margin = sign * np.asarray(energy.row_outputs(X))[:, 0]
    a = sign * beta
    np.testing.assert_allclose(margin[a > 0], 1 - 0.5 * a[a > 0], atol=1e-6)


def test_bad_parts_are_refused():
    support = jnp.zeros((3, 2))
    with pytest.raises(BadInput, match="one coefficient per support vector"):
        SupportVectorClassifier(RBF(), support, jnp.zeros((1, 2)), jnp.zeros(1))
    with pytest.raises(BadInput, match="pairs of classes"):
        SupportVectorClassifier(RBF(), support, jnp.zeros((2, 3)), jnp.zeros(2))
    with pytest.raises(BadInput, match="or neither"):
        SupportVectorClassifier(None, support, jnp.zeros((1, 3)), jnp.zeros(1))
    data = {"x": np.zeros((4, 2), np.float32), "y": np.array([0, 1, 0, 1])}
    with pytest.raises(Unsuitable, match="not Linear"):
        fit(Linear(jnp.zeros((2, 2)), jnp.zeros(2)), data, SMO(), key=0)
    with pytest.raises(Unsuitable, match="the energy has 3, the batch 4"):
        fit(SupportVectorClassifier(RBF(), support, jnp.zeros((1, 3)), jnp.zeros(1)), data, SMO(), key=0)
    with pytest.raises(BadInput, match="C: found -1"):
        SMO(C=-1.0)
    with pytest.raises(BadInput, match="most_rows"):
        SMO(most_rows=0)
