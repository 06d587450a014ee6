"""Weights crossed with minibatches, with the order of rows and with the sizes of two samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from energax import Batch, Mixture, fit, log_prob
from energax.energies import (
    RBM,
    Bernoullis,
    Decoder,
    Diagonal,
    Full,
    Gaussians,
    GaussianUnits,
    Linear,
    NeuralEnergy,
    Spherical,
    TiedWithin,
)
from energax.estimate import Estimate
from energax.estimators import BernoulliMixture, GaussianMixture, KMeans, LinearClassifier
from energax.fitting._batching import fill_zero_weight_rows
from energax.learn import ELBO, EM, CrossEntropy, Descent, NegativeLogLikelihood, ScoreFunction, ScoreMatching
from energax.learn._variational import count_active
from energax.missing import Masked
from energax.nn import Encoder

RNG, KEY = np.random.default_rng(0), jax.random.key(0)
BITS = (RNG.random((24, 4)) < 0.4).astype(np.float32)
WEIGHTS = RNG.exponential(size=24).astype(np.float32) ** 2


# -- weights × minibatches: the objective of an epoch ------------------------------------------------


def test_the_objective_of_an_epoch_weighs_batches_by_their_weights():
    """With a step size of 0 the parameters stay, so the objective is the weighted mean over all rows."""
    rbm = RBM.random(4, 2, key=1, scale=1.0)
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.0))
    done = fit(rbm, {"x": BITS}, learner, key=0, epochs=2, batch_size=5, weights=WEIGHTS)
    truth = -np.average(log_prob(rbm, {"x": BITS}).value, weights=WEIGHTS)
    np.testing.assert_allclose(done.history["objective"], truth, rtol=1e-5)
    assert done.n_steps == 10  # five batches, of 5 or 4 rows, in each epoch


def test_an_epoch_of_batches_converges_by_its_weighted_objective():
    """Two kinds of rows in batches of one: the objective is the same in every order, so that it converges."""
    x = np.array([[0.0], [0.0], [1.0]], np.float32)
    rbm = RBM(jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1))
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.0), tol=1e-6)
    done = fit(rbm, {"x": x}, learner, key=0, epochs=5, batch_size=1, weights=np.array([0.1, 3.0, 0.7]))
    assert done.converged and done.n_epochs == 2
    truth = -np.average(log_prob(rbm, {"x": x}).value, weights=[0.1, 3.0, 0.7])
    assert done.objective == pytest.approx(truth, rel=1e-5)


def test_the_objective_of_minibatch_em_weighs_batches_by_their_weights():
    """The weight of a single component is 1 whatever the rows, so nothing moves from batch to batch."""
    coins = Mixture(Bernoullis(jnp.array([[0.2, 0.7, 0.4, 0.5]])))
    settings = {"key": 0, "epochs": 2, "batch_size": 5, "weights": WEIGHTS, "freeze": "components"}
    done = fit(coins, {"x": BITS}, EM(tol=-1.0), **settings)
    truth = -np.average(log_prob(coins, {"x": BITS}).value, weights=WEIGHTS)
    np.testing.assert_allclose(done.history["objective"], truth, rtol=1e-5)


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_objective_of_an_epoch_weighs_batches_by_their_rows_with_a_target(is_stream):
    """Rows without a target have weight 0, so that the objective is the mean over the others."""
    x = RNG.normal(size=(12, 2)).astype(np.float32)
    y = np.where(np.arange(12) < 5, np.nan, np.arange(12) % 2)
    line = Linear(jnp.array([[1.0, 0.5], [-1.0, 2.0]]), jnp.zeros(2))
    learner = Descent(CrossEntropy(), optax.sgd(0.0))
    batches = [{"x": x[i : i + 4], "y": y[i : i + 4]} for i in (0, 4, 8)]
    how = {"data": batches} if is_stream else {"data": {"x": x, "y": y}, "batch_size": 4}
    done = fit(line, learner=learner, key=0, epochs=1, **how)
    truth = -log_prob(line, {"y": y[5:].astype(int)}, given={"x": x[5:]}).value.mean()
    assert done.objective == pytest.approx(truth, rel=1e-5)


# -- rows of weight 0 that come first ----------------------------------------------------------------


def test_rows_of_weight_zero_are_copies_of_the_first_row_with_a_weight():
    data = {"x": np.array([[9.0], [1.0], [8.0], [2.0]]), "z": Masked(np.arange(4), np.array([0, 1, 0, 1]))}
    filled = fill_zero_weight_rows(data, np.array([0.0, 1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(filled["x"][:, 0], [1.0, 1.0, 1.0, 2.0])
    np.testing.assert_array_equal(filled["z"].value, [1, 1, 1, 3])
    assert filled["z"].observed.all()


def test_a_first_row_of_weight_zero_may_overflow():
    """The gradient of a row whose energy overflows is 0 · ∞, wherever the row is."""
    energy = NeuralEnergy.random(2, key=1, width=5)
    x = RNG.normal(size=(8, 2)).astype(np.float32)
    bad = np.concatenate([np.full((1, 2), 3e38, np.float32), x])
    learner = Descent(ScoreMatching(), optax.sgd(0.01))
    weights = np.append(0.0, np.ones(8))
    found = fit(energy, {"x": bad}, learner, key=0, epochs=3, weights=weights)
    truth = fit(energy, {"x": x}, learner, key=0, epochs=3)
    assert found.status == "reached max_iter"
    np.testing.assert_allclose(found.history["objective"], truth.history["objective"], rtol=1e-4)


TABLE = np.concatenate([RNG.normal(-2, 1, (12, 2)), RNG.normal(2, 1, (12, 2))])
ESTIMATORS = {
    "GaussianMixture": (lambda: GaussianMixture(2, random_state=0), TABLE, np.full((1, 2), 1e6)),
    "KMeans": (lambda: KMeans(2, random_state=0), TABLE, np.full((1, 2), 1e6)),
    "BernoulliMixture": (lambda: BernoulliMixture(2, random_state=0), BITS, np.ones((1, 4))),
    "LinearClassifier": (lambda: LinearClassifier(), TABLE, np.full((1, 2), 50.0)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_first_row_of_weight_zero_is_left_out_by_estimators(name):
    make, X, outlier = ESTIMATORS[name]
    y = (np.arange(len(X)) % 24 >= 12).astype(int)
    labels = lambda y: (y,) if name == "LinearClassifier" else ()
    weight = RNG.uniform(0.5, 2.0, len(X))
    X = X.astype(np.float64)
    with_outlier = np.concatenate([outlier.astype(np.float64), X])
    first = make().fit(with_outlier, *labels(np.append(0, y)), sample_weight=np.append(0.0, weight))
    truth = make().fit(X, *labels(y), sample_weight=weight)
    if name == "KMeans":
        np.testing.assert_allclose(first.cluster_centers_, truth.cluster_centers_, rtol=1e-8)
    elif name == "LinearClassifier":
        np.testing.assert_allclose(first.predict_proba(X), truth.predict_proba(X), rtol=1e-4)
    else:
        np.testing.assert_allclose(first.score_samples(X), truth.score_samples(X), rtol=1e-8)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: Diagonal(v, 0.5),
        lambda v: Spherical(v[:, 0], 0.5),
        lambda v: Full(jax.vmap(jnp.diag)(v), 0.5),
        lambda v: TiedWithin(jax.vmap(jnp.diag)(v), 0.5, 1),
    ],
)
def test_a_component_without_rows_keeps_its_covariance(make):
    """Hard EM: all rows belong to the first component."""
    start = Mixture(Gaussians(jnp.array([[0.0, 0.0], [99.0, 99.0]]), make(jnp.ones((2, 2)))))
    done = fit(start, {"x": TABLE.astype(np.float32)}, EM(hard=True, tol=-1.0), key=0, epochs=3)
    np.testing.assert_allclose(done.energy.components.covariance.dense(2, 2)[1], np.eye(2), rtol=1e-5)


# -- the difference of two means ----------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_difference_of_two_means_covers_welch_and_is_not_wider_than_the_smaller_sample(spread, swapped):
    """Welch's degrees of freedom are between those of the smaller sample, 3, and the sum of both, 52."""
    rng = np.random.default_rng(3)
    few, many = rng.normal(0.0, spread, 4), rng.normal(1.0, 1.0, 50)
    a, b = (many, few) if swapped else (few, many)
    found = Estimate(a).mean() - Estimate(b).mean()
    welch = stats.ttest_ind(a, b, equal_var=False)
    low, high = welch.confidence_interval(0.95)
    assert float(found) / float(found.stderr) == pytest.approx(welch.statistic, rel=1e-12)
    assert found.df is not None and 3 <= found.df <= welch.df + 1e-9
    found_low, found_high = found.interval(0.95)
    assert found_low <= low + 1e-12 and high - 1e-12 <= found_high
    half = stats.t(3).ppf(0.975) * float(found.stderr)
    assert found_high - found_low <= 2 * half * (1 + 1e-12)


def test_a_number_without_spread_leaves_the_degrees_of_freedom():
    mean = Estimate(np.array([1.0, 2.0, 4.0, 3.0])).mean()
    assert (mean - Estimate(2.0, 0.1, "estimate")).df == (Estimate(2.0) - mean).df == mean.df == 3


def test_a_weighted_mean_has_the_errors_of_its_rows_by_their_weights():
    """Equal values, so that the whole error is that of the rows: √Σ w² σ²."""
    weights, errors = np.array([1.0, 2.0, 5.0]), np.array([0.1, 0.3, 0.2])
    mean = Estimate(np.full(3, 7.0), errors, "estimate").mean(weights)
    truth = np.sqrt(((weights / weights.sum()) ** 2 * errors**2).sum())
    assert float(mean) == pytest.approx(7.0) and float(mean.stderr) == pytest.approx(truth)
    shared = Estimate(np.full(3, 7.0), np.hypot(errors, 0.5), "estimate", shared=0.5).mean(weights)
    assert float(shared.stderr) == pytest.approx(np.hypot(truth, 0.5))


# -- weights × what an ELBO computes from the other rows ----------------------------------------------


def test_a_row_of_weight_zero_is_in_no_baseline():
    """The scores of a row are multiplied by its bound less the weighted mean of those of the others."""
    elbo = ELBO(lambda x: None, estimator=ScoreFunction())
    bounds, weight = jnp.array([[1.0], [4.0], [2.0], [99.0]]), jnp.array([1.0, 3.0, 1.0, 0.0])
    term = lambda log_q: elbo._correction(bounds, log_q, weight).sum()
    advantage = [1 - (3 * 4 + 2) / 4, 4 - (1 + 2) / 2, 2 - (1 + 3 * 4) / 4]
    np.testing.assert_allclose(-jax.grad(term)(jnp.zeros((4, 1)))[:3, 0], advantage, rtol=1e-6)


def test_a_unit_is_active_by_rows_that_count():
    means = jnp.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0]])
    assert count_active(means, jnp.array([1.0, 1.0, 0.0])) == 1
    # The variance of the second unit is 0.01 of the rows with a weight of 1 %, below 0.01 by 1 %.
    assert count_active(means, jnp.array([0.99, 0.0099, 0.0])) == 0


def test_the_bound_is_linear_in_the_weight_of_the_divergence():
    """−E log p(x | z) + β KL on the same draws; without a β it is the one with β = 1."""
    decoder, encoder = Decoder.random(4, 2, key=0, width=3), Encoder.random(4, 2, key=1, width=3)
    batch = Batch({"x": jnp.asarray(BITS[:5])}, jnp.asarray(WEIGHTS[:5]))
    total = lambda beta: sum(ELBO(encoder, beta=beta)(decoder, batch, None, KEY)[0].values())
    one, two, three = (float(total(beta)) for beta in (1.0, 2.0, 3.0))
    np.testing.assert_allclose(three - two, two - one, rtol=1e-4)
    assert two > one


def test_initial_gaussian_units_have_the_moments_of_rows_with_their_counts():
    value, counts = jnp.array([[0.0], [4.0], [7.0]]), jnp.array([[3.0], [1.0], [0.0]])
    units, bias = GaussianUnits(jnp.ones(1)).fitted(value, counts)
    np.testing.assert_allclose((units.scale, bias), [[3**0.5], [3**-0.5]], rtol=1e-6)
