"""Padded components, clusters, states and steps change nothing but the last digits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from energax import estimators
from energax._util import sizes
from energax.estimators._mixture import base, kmeans
from energax.estimators._sequence.hmm_base import HMMEstimator

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = load_iris().data
INCOMPLETE = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
WEIGHT = np.random.default_rng(1).random(len(X))
SYMBOLS = np.random.default_rng(0).integers(0, 5, (100, 1))
COUNTS = np.random.default_rng(0).poisson(3.0, (100, 2)).astype(float)


def with_and_without_padding(monkeypatch, fit):
    padded = fit()
    with monkeypatch.context() as patch:
        for module in (base, kmeans):
            patch.setattr(module, "padded_components", lambda *_: None)
            patch.setattr(module, "padded_energy", lambda estimator, _: estimator.energy_)
        patch.setattr(HMMEstimator, "_padded_states", lambda *_: None)
        return padded, fit()


def equal(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "start", "k"),
    [
        ("full", "kmeans", 1),
        ("full", "k-means++", 3),
        ("full", "random", 3),
        ("full", "random_from_data", 5),
        ("tied", "kmeans", 3),
        ("diag", "kmeans", 5),
        ("spherical", "random", 3),
    ],
)
def test_gaussian_mixture(monkeypatch, kind, start, k):
    def fit():
        model = estimators.GaussianMixture(k, covariance_type=kind, init_params=start, random_state=0)
        return model.fit(X, sample_weight=WEIGHT)

    a, b = with_and_without_padding(monkeypatch, fit)
    assert a.n_iter_ == b.n_iter_
    assert a.means_.shape == (k, 4) and a.weights_.shape == (k,) and a.predict_proba(X).shape == (150, k)
    assert a.fit_.energy.n_components == k and a.fit_.energy.active is None
    for name in ("weights_", "means_", "covariances_", "lower_bounds_"):
        equal(getattr(a, name), getattr(b, name))
    equal(a.bic(X), b.bic(X))
    equal(a.predict_proba(X), b.predict_proba(X))
    equal(a.sample(20)[0], b.sample(20)[0])


def test_mixtures_with_missing_values_restarts_and_priors(monkeypatch):
    gaussian = lambda: estimators.GaussianMixture(3, n_init=2, random_state=0).fit(INCOMPLETE)
    a, b = with_and_without_padding(monkeypatch, gaussian)
    equal(a.means_, b.means_)
    equal(a.impute(INCOMPLETE), b.impute(INCOMPLETE))
    bernoulli = lambda: estimators.BernoulliMixture(3, alpha=0.5, random_state=0).fit((X > 3).astype(float))
    a, b = with_and_without_padding(monkeypatch, bernoulli)
    equal(a.probs_, b.probs_)


def test_partial_fit_continues_padded_statistics(monkeypatch):
    def learn():
        model = estimators.GaussianMixture(3, random_state=0).partial_fit(X[::3]).partial_fit(X[1::3])
        return model.fit(X).partial_fit(X[:20])

    a, b = with_and_without_padding(monkeypatch, learn)
    equal(a.means_, b.means_)
    equal(a.weights_, b.weights_)


KMEANS = [("k-means++", None), ("random", None), ("k-means++", 0.5)]


@pytest.mark.parametrize(("start", "temperature"), KMEANS)
def test_kmeans(monkeypatch, start, temperature):
    rows = X if temperature is None else INCOMPLETE
    fit = lambda: estimators.KMeans(
        5, init=start, n_init=2, temperature=temperature or 0, random_state=0
    ).fit(rows, sample_weight=WEIGHT)
    a, b = with_and_without_padding(monkeypatch, fit)
    assert a.n_iter_ == b.n_iter_ and a.cluster_centers_.shape == (5, 4)
    equal(a.cluster_centers_, b.cluster_centers_)
    equal(a.inertia_, b.inertia_)
    equal(a.transform(rows), b.transform(rows))
    equal(a.responsibilities(rows), b.responsibilities(rows))
    np.testing.assert_array_equal(a.predict(rows), b.predict(rows))


HMMS = {
    "symbols": lambda k: estimators.CategoricalHMM(k, random_state=0).fit(SYMBOLS),
    "priors": lambda k: estimators.CategoricalHMM(
        k, transmat_prior=2.0, startprob_prior=np.arange(k) + 1.5, random_state=0
    ).fit(SYMBOLS),
    "lengths": lambda k: estimators.GaussianHMM(k, random_state=0, n_init=2).fit(X, [50, 30, 70]),
    "frozen": lambda k: estimators.GaussianHMM(k, random_state=0, params="st").fit(INCOMPLETE),
    "tied": lambda k: estimators.GaussianHMM(k, covariance_type="tied", random_state=0).fit(X),
    "means": lambda k: estimators.GaussianHMM(k, means_weight=1.0, random_state=0).fit(X),
    "counts": lambda k: estimators.PoissonHMM(k, random_state=0).fit(COUNTS),
}


@pytest.mark.parametrize("name", HMMS)
def test_states_of_chains(monkeypatch, name):
    a, b = with_and_without_padding(monkeypatch, lambda: HMMS[name](3))
    assert a.transmat_.shape == (3, 3)
    equal(a.monitor_.history, b.monitor_.history)
    for attribute in ("startprob_", "transmat_", *(f"{a._letters[c][0]}" for c in a._letters)):
        equal(getattr(a, attribute), getattr(b, attribute))


def test_steps_of_sequences(monkeypatch):
    model = HMMS["symbols"](3)
    padded = [model.score(SYMBOLS[:n]) for n in (1, 9, 17, 33)], model.predict(SYMBOLS[:17])
    monkeypatch.setattr(sizes, "SHORT_STEPS", 0)
    monkeypatch.setattr(sizes, "round_up", lambda n: n)
    equal(padded[0], [model.score(SYMBOLS[:n]) for n in (1, 9, 17, 33)])
    np.testing.assert_array_equal(padded[1], model.predict(SYMBOLS[:17]))


def test_sizes_are_few():
    assert {sizes.component_size(k, 1000) for k in range(1, 31)} == {8, 16, 32}
    assert all(k <= sizes.component_size(k, 10**5) <= max(4, 1.5 * k + 1) for k in range(1, 100))
