"""Classification by Gaussian processes: scikit-learn's answers, the gradient, weights, bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.integrate
import sklearn.gaussian_process as peers
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.gaussian_process import kernels as their

from energax import log_prob
from energax.algorithms.gaussian.laplace import mean_sigmoid
from energax.errors import BadInput
from energax.estimators import GaussianProcessClassifier
from energax.infer import Laplace
from energax.kernels import RBF, Matern

GENERATOR = np.random.default_rng(0)
X, NEW = GENERATOR.normal(size=(40, 2)), GENERATOR.normal(size=(15, 2))
Y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * GENERATOR.normal(size=40) > 0.7, "yes", "no")
OURS, THEIRS = 4.0 * Matern([1.2, 0.8], nu=2.5), their.ConstantKernel(4.0) * their.Matern([1.2, 0.8], nu=2.5)
close = np.testing.assert_allclose


def test_two_classes_are_those_of_scikit_learn():
    ours = GaussianProcessClassifier(OURS, optimizer=None).fit(X, Y)
    peer = peers.GaussianProcessClassifier(THEIRS, optimizer=None).fit(X, Y)
    close(ours.log_marginal_likelihood_value_, peer.log_marginal_likelihood_value_, rtol=1e-8)
    close(ours.predict_proba(NEW), peer.predict_proba(NEW), rtol=1e-6)
    assert (ours.predict(NEW) == peer.predict(NEW)).all()
    value, slope = ours.log_marginal_likelihood(OURS.theta, eval_gradient=True)
    expected = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    close(value, expected[0], rtol=1e-8)
    close(slope, expected[1], rtol=1e-5, atol=1e-6)
    # The general method on the fitted energy has the same evidence.
    found = log_prob(ours.energy_, {"y": (Y == "yes").astype(float)}, Laplace(tol=1e-6), given={"x": X})
    close(found.value, ours.log_marginal_likelihood_value_, rtol=1e-6)


def test_the_optimum_is_at_least_that_of_scikit_learn():
    ours = GaussianProcessClassifier(1.0 * RBF(), n_restarts_optimizer=1, random_state=0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = peers.GaussianProcessClassifier(1.0 * their.RBF()).fit(X, Y)
    assert ours.log_marginal_likelihood_value_ >= peer.log_marginal_likelihood_value_ - 1e-6
    assert ours.converged_


def test_several_classes_are_those_of_scikit_learn():
    table, labels = load_iris(return_X_y=True)
    table, labels = table[::3], labels[::3]
    ours = GaussianProcessClassifier(OURS.kernels[0] * RBF(1.5), optimizer=None).fit(table, labels)
    peer = peers.GaussianProcessClassifier(4.0 * their.RBF(1.5), optimizer=None).fit(table, labels)
    close(ours.predict_proba(table), peer.predict_proba(table), rtol=1e-6)
    close(ours.log_marginal_likelihood_value_, peer.log_marginal_likelihood_value_, rtol=1e-8)
    assert len(ours.kernels_) == 3 and ours.score(table, labels) > 0.95


def test_a_weight_is_a_number_of_repetitions():
    weight = np.array([0, 1, 2, 3] * 10)
    weighted = GaussianProcessClassifier(1.0 * RBF()).fit(X, Y, weight)
    repeated = GaussianProcessClassifier(1.0 * RBF()).fit(X.repeat(weight, 0), Y.repeat(weight))
    close(weighted.kernel_.theta, repeated.kernel_.theta, rtol=1e-3)
    close(weighted.predict_proba(NEW), repeated.predict_proba(NEW), rtol=1e-3)


def test_separable_classes_and_float32():
    y = X[:, 0] > 0
    model = GaussianProcessClassifier(1.0 * RBF()).fit(X.astype(np.float32), y)
    found = model.predict_proba(X.astype(np.float32))
    assert found.dtype == np.float32 and np.isfinite(found).all() and model.score(X, y) > 0.9


def test_probabilities_are_means_of_the_sigmoid():
    for mean, variance in [(0.3, 0.5), (-2.0, 4.0), (5.0, 1.0)]:
        density = lambda z, m=mean, v=variance: (
            expit(m + np.sqrt(v) * z) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        )
        exact = scipy.integrate.quad(density, -12, 12)[0]
        assert abs(mean_sigmoid(np.array([mean]), np.array([variance]))[0] - exact) < 2e-4


def test_bad_input_is_answered_by_a_sentence():
    with pytest.raises(BadInput, match="y: found only one class, 'a'"):
        GaussianProcessClassifier().fit(X, ["a"] * 40)
    with pytest.raises(BadInput, match="kernel: found 3 length scales"):
        GaussianProcessClassifier(RBF([1.0, 1.0, 1.0])).fit(X, Y)
    with pytest.raises(BadInput, match="requires y to be passed"):
        GaussianProcessClassifier().fit(X, None)
    three = GaussianProcessClassifier().fit(X, np.arange(40) % 3)
    with pytest.raises(BadInput, match="eval_gradient: found True, for several classes"):
        three.log_marginal_likelihood(np.zeros(2), eval_gradient=True)
