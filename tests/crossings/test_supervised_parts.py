"""Supervised parts crossed with freezing, validation rows, warm starts, white noise and repeated rows.

Each test here was written for a fault that no other fast test found.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.svm
from quick import evaluate
from scipy import stats
from scipy.special import digamma
from sklearn.model_selection import StratifiedKFold

from energax import Batch, estimators, fit
from energax.conjugate import NormalInverseGamma, NormalInverseWishart
from energax.energies import Gaussian, Linear, LinearModel, SupportVectorClassifier
from energax.estimators._supervised.platt import platt_scale
from energax.information import Samples, entropy, kl
from energax.kernels import RBF, White
from energax.kernels import Linear as LinearKernel
from energax.learn import (
    SMO,
    CrossEntropy,
    FastGradientSign,
    NegativeLogLikelihood,
    Newton,
    ProjectedGradient,
    Proximal,
)
from energax.learn._noise import _turn_on

RNG = np.random.default_rng(7)
X = RNG.normal(size=(24, 2)) + np.array([2.0, -1.0])
LABELS = np.where(X[:, 0] + RNG.normal(size=24) > 2.0, "yes", "no")
COUNTS = RNG.integers(0, 3, 24)
close = np.testing.assert_allclose


# -- attacks and dropout --------------------------------------------------------------------------------


def test_one_step_of_projected_gradients_is_the_fast_gradient_sign():
    """The last point counts: with one step it is the only one besides the input."""
    line = Linear(jnp.array([[1.0, -2.0], [0.5, 1.0]]), jnp.zeros(2))
    x, y = jnp.asarray(X[:5], jnp.float32), jnp.array([0, 1, 0, 1, 1])
    one = ProjectedGradient(0.1, step=0.1, steps=1)(line, x, y)
    close(one, FastGradientSign(0.1)(line, x, y), rtol=1e-6)


@pytest.mark.parametrize(("norm", "d"), [("inf", 1), (2, 3)])
def test_random_first_points_are_uniform_in_the_ball(norm, d):
    """A constant loss leaves the first point. Kolmogorov–Smirnov at level 1e-3, with a fixed key."""
    flat = Linear(jnp.zeros((2, d)), jnp.zeros(2))
    x, y = jnp.ones((400, d)), jnp.zeros(400, int)
    move = np.asarray(ProjectedGradient(0.5, norm=norm, steps=1)(flat, x, y, key=3)) - 1
    assert len(np.unique(move[:, 0])) > 390  # every row has its own key
    share = (np.sqrt((move**2).sum(1)) / 0.5) ** d
    assert share.max() <= 1 + 1e-5
    assert stats.kstest(share, "uniform").pvalue > 1e-3


def test_layers_of_dropout_have_their_own_masks():
    layers = _turn_on([eqx.nn.Dropout(0.5, inference=True)] * 2, jax.random.key(0))
    first, second = evaluate(lambda: [layer(jnp.ones(40)) for layer in layers])
    assert (np.asarray(first) != np.asarray(second)).any()


# -- learners -------------------------------------------------------------------------------------------


def test_newton_with_frozen_weights_uses_the_curvature_of_the_biases():
    """In six steps the biases are at their optimum, where the mean probabilities are the frequencies."""
    y = (LABELS == "yes").astype(np.int32)
    start = Linear(jnp.array([[3.0, 1.0], [-1.0, 0.5]]), jnp.zeros(2))
    learner = Newton(CrossEntropy(), tol=None)
    found = fit(start, {"x": X.astype(np.float32), "y": y}, learner, epochs=6, key=0, freeze="weight").energy
    np.testing.assert_array_equal(found.weight, start.weight)
    scores = X @ np.asarray(found.weight).T + np.asarray(found.bias)
    p = 1 / (1 + np.exp(scores[:, 0] - scores[:, 1]))
    assert p.mean() == pytest.approx(y.mean(), abs=1e-5)


def test_validation_rows_have_the_penalty_of_the_learner():
    line = LinearModel(jnp.array([-1.0, 2.0]), jnp.array(0.5), Gaussian(1.0))
    batch = Batch({"x": jnp.array([[1.0, 1.0]]), "y": jnp.array([2.0])}, jnp.ones(1))
    learner = Proximal(NegativeLogLikelihood(), jnp.array([0.3, 0.1]))
    terms = evaluate(lambda: learner.evaluate(line, None, batch, jax.random.key(0)))
    assert float(terms["l1"]) == pytest.approx(0.3 + 0.2)
    assert float(terms["loss"]) == pytest.approx(0.5 * 0.5**2 + 0.5 * np.log(2 * np.pi), rel=1e-6)


def test_validation_rows_of_a_machine_have_the_weighted_mean_of_the_hinge():
    """f(x) = x − 1: the hinge losses of the rows below are 0, 3 and ½."""
    machine = SupportVectorClassifier(
        LinearKernel(), jnp.array([[1.0]]), jnp.array([[1.0]]), jnp.array([-1.0])
    )
    batch = Batch(
        {"x": jnp.array([[3.0], [3.0], [1.5]]), "y": jnp.array([1, 0, 1])}, jnp.array([5.0, 2.0, 1.0])
    )
    terms = evaluate(lambda: SMO(C=4.0).evaluate(machine, None, batch, None))
    assert float(terms["loss"]) == pytest.approx(4 * (2 * 3 + 0.5) / 8)


# -- estimators -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BayesianRidge", "ARDRegression"])
def test_the_score_with_more_columns_than_rows_is_the_evidence(name):
    """log N(y; 0, X Λ⁻¹ Xᵀ + I / α) at the last precisions; the columns that were dropped are without it."""
    rows, y = X.reshape(6, 8), X[:6, 0]
    none = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 0.0)
    model = getattr(estimators, name)(fit_intercept=False, compute_score=True, max_iter=400, **none)
    model.fit(rows, y + 0.5 * np.sin(np.arange(6) * 4.0))
    precision = np.broadcast_to(model.lambda_, 8)
    kept = precision < 1e4 if name == "ARDRegression" else np.ones(8, bool)
    covariance = rows[:, kept] / precision[kept] @ rows[:, kept].T + np.eye(6) / model.alpha_
    truth = stats.multivariate_normal(np.zeros(6), covariance).logpdf(y + 0.5 * np.sin(np.arange(6) * 4.0))
    assert model.scores_[-1] == pytest.approx(truth, rel=1e-6)


def test_a_warm_start_begins_where_the_last_fit_ended():
    """The columns have means, so that the bias of centred columns is not that of the model."""
    model = estimators.LogisticRegression(tol=1e-8, warm_start=True).fit(X, LABELS)
    before, coefficients = model.fit_.history["objective"][-1], model.coef_.copy()
    model.max_iter = 2
    after = model.fit(X, LABELS).fit_.history["objective"][0]
    assert after == pytest.approx(before, rel=1e-12)
    close(model.coef_, coefficients, rtol=1e-7)


def test_the_slope_of_laplaces_evidence_is_that_of_its_values():
    model = estimators.GaussianProcessClassifier(2.0 * RBF(0.9), optimizer=None).fit(X, LABELS, COUNTS)
    theta = model.kernel_.theta
    slope = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    for i, unit in enumerate(1e-4 * np.eye(2)):
        values = [model.log_marginal_likelihood(theta + sign * unit) for sign in (1, -1)]
        assert slope[i] == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-5, abs=1e-7)


def test_white_noise_is_on_the_diagonal_of_the_kernel_matrix():
    squares = ((X[:, None] - X) ** 2).sum(-1)
    gram = np.exp(-0.5 * squares / 0.9**2) + 0.4 * np.eye(24)
    ours = estimators.SVC(kernel=RBF(0.9) + White(0.4), C=3.0, tol=1e-7).fit(X, LABELS)
    theirs = sklearn.svm.SVC(kernel="precomputed", C=3.0, tol=1e-7).fit(gram, LABELS)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    close(ours.dual_coef_, theirs.dual_coef_, atol=1e-5)
    close(ours.intercept_, theirs.intercept_, atol=1e-5)


def test_rows_and_blocks_of_the_kernel_of_a_machine_are_those_of_its_matrix():
    """A matrix of some rows with all does not know which are the same; the noise is added for these."""
    kernel = RBF(0.9) + White(0.4)
    machine = SupportVectorClassifier(kernel, X, jnp.zeros((1, 24)), jnp.zeros(1))
    index = jnp.array([5, 2, 2])

    def parts():
        rows, block, diagonal = machine.dual_kernel({"x": X})
        return rows(index), block(index), diagonal, kernel.matrix(X)

    rows, block, diagonal, matrix = map(np.asarray, evaluate(parts))
    close(rows, matrix[index], rtol=1e-5)
    close(block, matrix[np.ix_(index, index)], rtol=1e-5)
    close(diagonal, np.diag(matrix), rtol=1e-6)


def test_probabilities_are_calibrated_on_rows_that_were_held_out():
    model = estimators.SVC(C=2.0, gamma=0.5, tol=1e-7, probability=True, random_state=0).fit(X, LABELS)
    held_out, y = np.zeros(24), LABELS == "yes"
    for train, test in StratifiedKFold(5, shuffle=True, random_state=model._seed()).split(X, y):
        peer = sklearn.svm.SVC(C=2.0, gamma=0.5, tol=1e-7).fit(X[train], y[train])
        held_out[test] = peer.decision_function(X[test])
    a, b = platt_scale(held_out, y)
    close(model.energy_.calibration[0], [a, b], rtol=1e-4)
    p = 1 / (1 + np.exp(a * model.decision_function(X) + b))
    close(model.predict_proba(X)[:, 1], p, rtol=1e-3)


def test_probabilities_from_a_kernel_matrix_are_those_of_the_kernel():
    gram = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    settings = {"C": 2.0, "gamma": 0.5, "tol": 1e-7, "probability": True, "random_state": 0}
    by_kernel = estimators.SVC(**settings).fit(X, LABELS, COUNTS)
    by_matrix = estimators.SVC(kernel="precomputed", **settings).fit(gram, LABELS, COUNTS)
    close(by_matrix.energy_.calibration, by_kernel.energy_.calibration, rtol=1e-5)
    close(by_matrix.predict_proba(gram), by_kernel.predict_proba(X), rtol=1e-5)


def test_the_noise_of_a_network_is_weighted_and_each_target_has_its_own():
    Y = np.stack([X[:, 0], np.sin(X[:, 1]), 9 * X[:, 1]], axis=1)
    settings = {"max_iter": 3, "tol": None, "random_state": 0, "dtype": "float64"}
    for y in (Y, Y[:, 1]):
        model = estimators.MLPRegressor((2,), **settings).fit(X, y, COUNTS)
        truth = np.sqrt(np.average((y - model.predict(X)) ** 2, axis=0, weights=COUNTS))
        close(model.noise_, truth, rtol=1e-7)


# -- conjugate pairs and information --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gamma", "wishart"])
def test_every_conditional_of_a_conjugate_pair_is_a_slice_of_the_joint(kind):
    """Two values of one variable: their log-densities given all others differ as their energies do."""
    if kind == "gamma":
        pair, spread = NormalInverseGamma(0.5, 2.0, 3.0, 1.5), ("variance", 0.7, 1.9)
        others = {"mean": (0.2, -1.0), "x": (1.5, -0.4)}
    else:
        scale = np.array([[2.0, 0.3], [0.3, 1.0]])
        pair, spread = NormalInverseWishart(np.array([0.5, -1.0]), 2.0, 5.0, scale), ("covariance",)
        spread += tuple(np.array(m) for m in ([[1.0, 0.2], [0.2, 0.5]], [[0.6, -0.1], [-0.1, 2.0]]))
        others = {name: (np.array([a, 0.4]), np.array([-a, 1.0])) for name, a in (("mean", 0.3), ("x", 2.0))}
    values = {spread[0]: spread[1:], **others}
    with jax.enable_x64(True):
        first = {name: jnp.asarray(pairs[0]) for name, pairs in values.items()}
        for name in values:
            second = {**first, name: jnp.asarray(values[name][1])}
            given = {k: v for k, v in first.items() if k != name}
            density = pair.conditional(name, **given)
            found = density.log_prob(second[name]) - density.log_prob(first[name])
            assert float(found) == pytest.approx(float(pair(**first) - pair(**second)), rel=1e-9)


def test_nearest_neighbours_of_a_few_numbers_by_hand():
    """The published formulas, with the second neighbour, in one dimension: the unit ball has length 2."""
    x, y = RNG.normal(size=9), RNG.normal(size=6) + 0.5
    own = np.sort(np.abs(x[:, None] - x), axis=1)[:, 2]
    other = np.sort(np.abs(x[:, None] - y), axis=1)[:, 1]
    truth = digamma(9) - digamma(2) + np.log(2) + np.log(own).mean()
    assert float(entropy(Samples(x, neighbors=2))) == pytest.approx(truth, rel=1e-9)
    truth = np.log(other / own).mean() + np.log(6 / 8)
    assert float(kl(Samples(x, neighbors=2), Samples(y, neighbors=2))) == pytest.approx(truth, rel=1e-9)
