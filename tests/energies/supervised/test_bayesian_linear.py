"""Bayesian linear regression: posterior, evidence, predictions and missing targets against closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

from energax import argmin, fit, learn, log_prob, posterior, sample
from energax.energies import BayesianLinear, LinearModel
from energax.errors import BadInput, Unsuitable

ALPHA, BETA = np.array([0.5, 2.0]), 4.0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 2))
Y = X @ [1.0, -2.0] + 0.3 * RNG.normal(size=7)
COVARIANCE = np.eye(7) / BETA + X @ np.diag(1 / ALPHA) @ X.T
PRECISION = np.diag(ALPHA) + BETA * X.T @ X
MEAN = np.linalg.solve(PRECISION, BETA * X.T @ Y)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def energy(**more):
    return BayesianLinear(jnp.asarray(ALPHA), jnp.asarray(BETA), **more)


def test_evidence_is_the_density_of_y():
    exact = stats.multivariate_normal(np.zeros(7), COVARIANCE).logpdf(Y)
    found = log_prob(energy(), {"y": Y}, given={"x": X})
    assert found.kind == "exact" and float(found.value) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_evidence_equals_quadrature_over_the_weights(d):
    model, x = BayesianLinear(jnp.asarray(ALPHA[:d]), jnp.asarray(BETA)), X[:, :d]
    joint = jax.jit(lambda w: jnp.exp(-model(x=x, y=Y, w=w)))
    centre = np.linalg.solve(PRECISION[:d, :d], BETA * x.T @ Y)
    ranges = [(c - 4, c + 4) for c in centre]
    options = {"epsabs": 0, "epsrel": 1e-8}
    total, _ = integrate.nquad(lambda *w: float(joint(jnp.asarray(w))), ranges, opts=options)
    found = log_prob(model, {"y": Y}, given={"x": x})
    assert float(found.value) == pytest.approx(np.log(total), rel=1e-7)


def test_posterior_of_the_weights():
    found = posterior(energy(), {"x": X, "y": Y})
    np.testing.assert_allclose(found.mean["w"], MEAN, rtol=1e-12)
    np.testing.assert_allclose(found.mode["w"], MEAN, rtol=1e-12)
    np.testing.assert_allclose(found.covariance["w"], np.linalg.inv(PRECISION), rtol=1e-10)
    exact = energy().conditional("w", x=X, y=Y)
    np.testing.assert_allclose(exact.covariance_matrix, np.linalg.inv(PRECISION), rtol=1e-10)
    # log p(w | x, y) = log p(y, w | x) − log p(y | x), at any w.
    w = jnp.array([0.3, 0.4])
    evidence = log_prob(energy(), {"y": Y}, given={"x": X}).value
    np.testing.assert_allclose(exact.log_prob(w), -energy()(x=X, y=Y, w=w) - evidence, rtol=1e-10)
    assert float(found.log_evidence.value) == pytest.approx(float(evidence))


def test_draws_of_the_weights_have_their_mean_and_covariance():
    """5 standard errors of 20 000 draws: wrong with probability below 1e-5."""
    drawn = np.asarray(sample(energy(), 20_000, {"x": X, "y": Y}, key=0)["w"])
    covariance = np.linalg.inv(PRECISION)
    error = np.abs(drawn.mean(0) - MEAN) / np.sqrt(np.diag(covariance) / 20_000)
    assert error.max() < 5
    np.testing.assert_allclose(np.cov(drawn.T), covariance, rtol=0.06, atol=0.002)


def test_missing_targets_are_integrated_out_and_predicted():
    hidden = Y.copy()
    hidden[2] = np.nan
    kept = np.arange(7) != 2
    rest = COVARIANCE[np.ix_(kept, kept)]
    exact = stats.multivariate_normal(np.zeros(6), rest).logpdf(Y[kept])
    assert float(log_prob(energy(), {"y": hidden}, given={"x": X}).value) == pytest.approx(exact, rel=1e-12)
    found = posterior(energy(), {"x": X, "y": hidden})
    predicted = COVARIANCE[2, kept] @ np.linalg.solve(rest, Y[kept])
    assert found.mean["y"][2] == pytest.approx(predicted, rel=1e-10)
    np.testing.assert_allclose(found.mean["y"][kept], Y[kept])
    assert argmin(energy(), {"x": X, "y": hidden})["y"][2] == pytest.approx(predicted, rel=1e-10)
    drawn = np.asarray(found.sample(4000, key=0)["y"])
    variance = COVARIANCE[2, 2] - COVARIANCE[2, kept] @ np.linalg.solve(rest, COVARIANCE[2, kept])
    assert abs(drawn[:, 2].mean() - predicted) < 5 * np.sqrt(variance / 4000)
    assert drawn[:, 2].var() == pytest.approx(variance, rel=0.12) and np.ptp(drawn[:, 0]) == 0


def test_rows_one_after_another_are_rows_at_once():
    one_by_one = energy()
    for i in range(7):
        one_by_one = one_by_one.update(x=X[i : i + 1], y=Y[i : i + 1])
    new = RNG.normal(size=(3, 2))
    predictive = one_by_one.conditional("y", x=new)
    np.testing.assert_allclose(one_by_one.conditional("w", x=new).mean, MEAN, rtol=1e-10)
    np.testing.assert_allclose(predictive.mean, new @ MEAN, rtol=1e-10)
    exact = new @ np.linalg.inv(PRECISION) @ new.T + np.eye(3) / BETA
    np.testing.assert_allclose(predictive.covariance_matrix, exact, rtol=1e-9)
    found = posterior(one_by_one.over("w"), {"x": new})
    np.testing.assert_allclose(found.mean["y"], new @ MEAN, rtol=1e-10)
    np.testing.assert_allclose(found.covariance["y"], exact, rtol=1e-9)
    # p(y' | y) = p(y', y) / p(y)
    y = RNG.normal(size=3)
    both = log_prob(energy(), {"y": np.append(Y, y)}, given={"x": np.vstack([X, new])})
    ratio = both.value - log_prob(energy(), {"y": Y}, given={"x": X}).value
    assert float(log_prob(one_by_one, {"y": y}, given={"x": new}).value) == pytest.approx(ratio, rel=1e-9)


def test_centre_and_bias_shift_the_data():
    moved = energy(centre=jnp.array([1.0, -3.0]), bias=jnp.array(2.0), mean=jnp.array([0.5, 0.0]))
    plain = energy(mean=jnp.array([0.5, 0.0]))
    shifted = {"x": X + np.array([1.0, -3.0]), "y": Y + 2}
    np.testing.assert_allclose(
        log_prob(moved, {"y": shifted["y"]}, given={"x": shifted["x"]}).value,
        log_prob(plain, {"y": Y}, given={"x": X}).value,
    )
    found = posterior(moved, shifted).mean["w"]
    exact = np.linalg.solve(PRECISION, BETA * X.T @ Y + ALPHA * [0.5, 0.0])
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.parametrize("relevance", [False, True])
def test_em_and_descent_find_the_same_maximum_of_the_evidence(relevance):
    data = {"x": X[None], "y": Y[None]}
    start = BayesianLinear(jnp.ones(2) if relevance else jnp.ones(()), jnp.ones(()), 2)
    by_em = fit(start, data, learn.EM(tol=1e-13), epochs=5000, key=0)
    learner = learn.Descent(learn.NegativeLogLikelihood(), optax.lbfgs(), tol=1e-15)
    by_descent = fit(start, data, learner, epochs=300, key=0)
    assert by_em.converged and (np.diff(by_em.history["objective"]) <= 1e-12).all()
    np.testing.assert_allclose(by_em.energy.precision, by_descent.energy.precision, rtol=1e-4)
    np.testing.assert_allclose(by_em.energy.noise_precision, by_descent.energy.noise_precision, rtol=1e-4)
    gradient = jax.grad(lambda e: e.free_energy(x=X, y=Y), allow_int=True)(by_descent.energy)
    assert np.abs(np.atleast_1d(gradient.precision)).max() < 1e-5


def test_several_data_sets_share_the_precisions():
    """Each data set has its own weights: two copies have the maximum of one, and the same evidence each."""
    start = BayesianLinear(jnp.ones(()), jnp.ones(()), 2)
    one = fit(start, {"x": X[None], "y": Y[None]}, learn.EM(tol=1e-13), epochs=500, key=0).energy
    pair = {"x": np.stack([X, X]), "y": np.stack([Y, Y])}
    two = fit(start, pair, learn.EM(tol=1e-13), epochs=500, key=0).energy
    np.testing.assert_allclose(one.precision, two.precision, rtol=1e-8)
    np.testing.assert_allclose(
        log_prob(one, {"y": pair["y"]}, given={"x": pair["x"]}).value[0],
        log_prob(one, {"y": Y}, given={"x": X}).value,
    )


def test_bad_input():
    with pytest.raises(BadInput, match="n_features"):
        BayesianLinear(jnp.array(1.0), jnp.array(1.0))
    with pytest.raises(BadInput, match="shapes"):
        BayesianLinear(jnp.ones(2), jnp.array(1.0), mean=jnp.ones(3))
    with pytest.raises(BadInput, match="'w' or 'y'"):
        energy().conditional("x", y=Y)
    with pytest.raises(Unsuitable, match="has no covariance matrix"):
        _ = posterior(LinearModel(jnp.ones(2), jnp.zeros(())), {"x": X}).covariance
    with pytest.raises(Unsuitable, match="Give values of"):
        posterior(energy(), {"y": Y})
    with pytest.raises(BadInput, match="length: found None; expected a number of steps"):
        posterior(energy(), {"x": X}, key=0)  # of w and y, by a Markov chain
    assert not energy().update(x=X, y=Y).has_m_step
