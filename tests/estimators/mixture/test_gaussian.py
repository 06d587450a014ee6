"""GaussianMixture, KMeans and BernoulliMixture: results of scikit-learn, and features beyond it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.cluster
import sklearn.mixture
from sklearn.base import clone
from sklearn.datasets import load_iris

from energax import BadInput, NotFitted, log_prob, posterior
from energax.estimators import BernoulliMixture, GaussianMixture, KMeans

TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(scope="module")
def iris():
    return load_iris().data


def start(X, k, covariance_type):
    d = X.shape[1]
    precisions = {
        "full": np.broadcast_to(np.eye(d), (k, d, d)),
        "tied": np.eye(d),
        "diag": np.ones((k, d)),
        "spherical": np.ones(k),
    }[covariance_type]
    return {"weights_init": np.full(k, 1 / k), "means_init": X[::7][:k], "precisions_init": precisions}


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.filterwarnings("ignore:.*onverge")
def test_every_iteration_has_the_likelihood_of_scikit_learn(iris, covariance_type):
    options = {"covariance_type": covariance_type, "tol": 0.0, "max_iter": 20, "n_components": 3}
    options |= start(iris, 3, covariance_type)
    ours, theirs = GaussianMixture(**options).fit(iris), sklearn.mixture.GaussianMixture(**options).fit(iris)
    np.testing.assert_allclose(ours.lower_bounds_, theirs.lower_bounds_, rtol=1e-8)
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-9)
    for name in ("score_samples", "predict_proba", "predict", "bic", "aic", "score"):
        np.testing.assert_allclose(
            getattr(ours, name)(iris), getattr(theirs, name)(iris), rtol=1e-7, atol=1e-9
        )


def test_only_means_may_be_given(iris):
    gm = GaussianMixture(3, means_init=iris[[0, 60, 120]], random_state=0).fit(iris)
    assert gm.converged_ and gm.score(iris) > -1.3
    with pytest.raises(BadInput, match="means_init"):
        GaussianMixture(3, means_init=iris[:2]).fit(iris)


def test_restarts_keep_the_best(iris):
    gm = GaussianMixture(3, n_init=8, init_params="random_from_data", random_state=0, max_iter=200).fit(iris)
    finals = [restart.objective for restart in gm.fit_.restarts]
    assert len(finals) == 8 and gm.fit_.objective == min(finals) < max(finals)


@pytest.mark.parametrize("init", ["kmeans", "k-means++", "random", "random_from_data"])
def test_every_start_ends_near_the_best(iris, init):
    gm = GaussianMixture(2, init_params=init, n_init=3, random_state=0, tol=1e-5, max_iter=300).fit(iris)
    best = sklearn.mixture.GaussianMixture(2, n_init=3, random_state=0, tol=1e-5).fit(iris)
    assert gm.score(iris) > best.score(iris) - 0.02


def test_missing_values_weights_and_imputation(iris):
    rng = np.random.default_rng(0)
    X = iris.copy()
    X[rng.random(X.shape) < 0.15] = np.nan
    gm = GaussianMixture(3, random_state=0, n_init=2).fit(X)
    filled = gm.impute(X)
    hidden = np.isnan(X)
    assert np.array_equal(filled[~hidden], X[~hidden])
    error = np.sqrt(np.mean((filled - iris)[hidden] ** 2))
    column_means = np.where(hidden, np.nanmean(X, 0), X)
    assert error < 0.5 * np.sqrt(np.mean((column_means - iris)[hidden] ** 2))
    # The observed values of a row determine its component and its density.
    assert (gm.predict(X) == gm.predict(filled)).mean() > 0.9
    assert np.isfinite(gm.score_samples(X)).all()


@pytest.mark.parametrize("missing", [False, True])
def test_results_are_those_of_infer(iris, missing):
    """Up to rounding: the estimator pads the components."""
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    X = iris.copy()
    if missing:
        X[::3, 1] = np.nan
    gm = GaussianMixture(3, random_state=0).fit(X)
    close(log_prob(gm.energy_, {"x": X}).value, gm.score_samples(X))
    found = posterior(gm.energy_, {"x": X})
    close(found.marginals["z"], gm.predict_proba(X))
    if missing:
        close(found.mean["x"], gm.impute(X))


def test_data_frames_are_validated_once(iris):
    """An array made of a data frame has no column names, and would be warned of."""
    frame = load_iris(as_frame=True).data
    gm, km = GaussianMixture(2, random_state=0).fit(frame), KMeans(2, random_state=0).fit(frame)
    assert gm.bic(frame) > gm.aic(frame)
    np.testing.assert_array_equal(gm.impute(frame), iris)
    np.testing.assert_array_equal(km.impute(frame), iris)


def test_a_weight_is_a_number_of_copies(iris):
    weight = np.arange(150) % 3
    options = {"n_components": 2, "max_iter": 30} | start(iris, 2, "full")
    weighted = GaussianMixture(**options).fit(iris, sample_weight=weight)
    copied = GaussianMixture(**options).fit(np.repeat(iris, weight, axis=0))
    np.testing.assert_allclose(weighted.means_, copied.means_, rtol=1e-8)
    np.testing.assert_allclose(weighted.covariances_, copied.covariances_, rtol=1e-6)


def test_minibatches_approach_the_full_fit():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2)) + 5])
    rng.shuffle(X)
    gm = GaussianMixture(2, random_state=0)
    for batch in np.split(X, 20):
        gm.partial_fit(batch)
    assert gm.score(X) > GaussianMixture(2, random_state=0).fit(X).score(X) - 0.01


def test_sample_is_sorted_and_repeatable(iris):
    gm = GaussianMixture(3, random_state=0).fit(iris)
    X, z = gm.sample(50)
    assert X.shape == (50, 4) and (np.diff(z) >= 0).all()
    np.testing.assert_array_equal(X, gm.sample(50)[0])


def test_single_precision_stays_single(iris):
    gm = GaussianMixture(2, random_state=0).fit(iris.astype(np.float32))
    assert gm.means_.dtype == gm.score_samples(iris).dtype == np.float32


def test_warm_start_continues(iris):
    gm = GaussianMixture(3, random_state=0, max_iter=300, tol=1e-6, warm_start=True).fit(iris)
    first = gm.n_iter_
    assert gm.fit(iris).n_iter_ < max(first, 3)


def test_saved_and_pickled_models_give_the_same_results(iris, tmp_path):
    gm = GaussianMixture(2, random_state=0).fit(iris)
    gm.save(tmp_path / "gm.energax")
    for again in (GaussianMixture.load(tmp_path / "gm.energax"), pickle.loads(pickle.dumps(gm))):
        np.testing.assert_array_equal(again.score_samples(iris), gm.score_samples(iris))


@pytest.mark.parametrize(
    ("estimator", "X", "word"),
    [
        (GaussianMixture(5), np.zeros((3, 2)), "fewer components"),
        (KMeans(5), np.zeros((3, 2)), "fewer clusters"),
        (GaussianMixture(1), [[1.0, np.inf], [0.0, 1.0]], "infinity"),
        (GaussianMixture(1), [[np.nan, 1.0], [np.nan, 2.0]], "column 0"),
        (GaussianMixture(1, covariance_type="round"), np.zeros((3, 2)), "covariance_type"),
        (GaussianMixture(1, init_params="far"), np.zeros((3, 2)), "init_params"),
        (GaussianMixture(1, reg_covar=-1), np.zeros((3, 2)), "reg_covar"),
        (GaussianMixture(2, weights_init=[1, 1]), np.zeros((3, 2)), "sum to 1"),
        (GaussianMixture(0), np.zeros((3, 2)), "n_components"),
        (GaussianMixture(1), np.full((3, 2), 1e200), "Scale the columns"),
        (KMeans(2, init="near"), np.zeros((3, 2)), "init"),
        (KMeans(2, init=np.zeros((3, 2))), np.zeros((3, 2)), r"\(2, 2\)"),
        (KMeans(2, tol=-1), np.zeros((3, 2)), "tol"),
        (BernoulliMixture(1), [[0.0, 0.5]], "binarize"),
    ],
)
def test_bad_input_is_rejected(estimator, X, word):
    with pytest.raises(BadInput, match=word):
        estimator.fit(X)


def test_unfitted_models_raise(iris):
    for estimator in (GaussianMixture(), KMeans(), BernoulliMixture()):
        with pytest.raises(NotFitted, match="fit"):
            estimator.predict(iris)


@pytest.mark.filterwarnings("ignore:.*onverge")
def test_constant_columns_and_duplicates_are_harmless():
    X = np.repeat([[1.0, 5.0, 0.0], [1.0, 7.0, 1.0]], 20, axis=0)
    gm = GaussianMixture(4, random_state=0).fit(X)
    assert np.isfinite(gm.means_).all() and np.isfinite(gm.score(X))
    assert KMeans(4, random_state=0).fit(X).inertia_ == pytest.approx(0, abs=1e-12)


# -- k-means -------------------------------------------------------------------------------


def test_k_means_from_the_same_start_ends_as_scikit_learn_does(iris):
    for dtype in (np.float64, np.float32):
        X = iris.astype(dtype)
        ours = KMeans(5, init=X[::30]).fit(X)
        theirs = sklearn.cluster.KMeans(5, init=X[::30], n_init=1).fit(X)
        assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)
        np.testing.assert_allclose(
            ours.transform(X), theirs.transform(X), atol=2e-3 if dtype == np.float32 else 1e-7
        )
        assert ours.n_iter_ == theirs.n_iter_
        assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-5)


def test_k_means_weights_are_copies(iris):
    weight = np.arange(150) % 3
    weighted = KMeans(3, init=iris[::50]).fit(iris, sample_weight=weight)
    copied = KMeans(3, init=iris[::50]).fit(np.repeat(iris, weight, axis=0))
    np.testing.assert_allclose(weighted.cluster_centers_, copied.cluster_centers_, rtol=1e-10)
    assert weighted.inertia_ == pytest.approx(copied.inertia_)


def test_empty_clusters_are_moved_to_the_farthest_rows():
    X = np.array([[0.0], [0.1], [5.0], [5.1], [20.0]])
    km = KMeans(3, init=np.array([[0.0], [1000.0], [2000.0]])).fit(X)
    assert sorted(np.unique(km.labels_)) == [0, 1, 2]
    assert km.inertia_ == pytest.approx(0.01)


def test_k_means_with_missing_values(iris):
    rng = np.random.default_rng(0)
    X = iris.copy()
    X[rng.random(X.shape) < 0.1] = np.nan
    km = KMeans(3, random_state=0, n_init=4).fit(X)
    whole = KMeans(3, random_state=0, n_init=4).fit(iris)
    pairs = {(a, b) for a, b in zip(km.labels_, whole.labels_, strict=True)}
    counts = sum(max(np.sum((km.labels_ == a) & (whole.labels_ == b)) for b in range(3)) for a in range(3))
    assert len(pairs) >= 3 and counts >= 140
    assert np.isfinite(km.impute(X)).all()


def test_soft_k_means_gives_responsibilities(iris):
    km = KMeans(3, init=iris[::50], temperature=0.5, max_iter=1000).fit(iris)
    weights = km.responsibilities(iris)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights.T @ iris / weights.sum(0)[:, None], km.cluster_centers_, atol=0.05)
    assert 0.01 < (1 - weights.max(1)).mean() < 0.3


def test_k_means_minibatches_approach_the_full_fit(iris):
    rng = np.random.default_rng(0)
    X = iris[rng.integers(0, 150, 3000)]
    km = KMeans(3, random_state=0)
    for batch in np.split(X, 30):
        km.partial_fit(batch)
    assert -km.score(iris) < 1.05 * KMeans(3, random_state=0, n_init=5).fit(iris).inertia_


# -- Bernoulli -----------------------------------------------------------------------------


def test_bernoulli_mixture_recovers_the_true_parameters():
    rng = np.random.default_rng(0)
    probs = np.array([[0.9] * 5 + [0.1] * 5, [0.1] * 5 + [0.9] * 5])
    z = rng.integers(0, 2, 1000)
    X = (rng.random((1000, 10)) < probs[z]).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    bm = BernoulliMixture(2, random_state=0, n_init=3).fit(X)
    order = np.argsort(bm.probs_[:, 9])
    np.testing.assert_allclose(bm.probs_[order], probs, atol=0.06)  # five standard errors
    labels = order.argsort()[bm.predict(X)]
    assert (labels == z).mean() > 0.97
    assert set(np.unique(bm.sample(30)[0])) <= {0.0, 1.0}
    assert bm.bic(X) < BernoulliMixture(1).fit(X).bic(X)
    filled = bm.impute(X)
    assert ((filled >= 0) & (filled <= 1)).all()


@pytest.mark.parametrize("model", [GaussianMixture(2, random_state=0), KMeans(2, random_state=0)])
def test_fit_ignores_earlier_partial_fit(model):
    X = np.random.default_rng(0).normal(size=(60, 2)) + 5 * (np.arange(60) % 2)[:, None]
    fresh = clone(model).fit(X)
    again = clone(model).partial_fit(X).fit(X)
    np.testing.assert_allclose(again.score(X), fresh.score(X))
    again.partial_fit(X)


def test_minibatches_from_a_distant_start_reach_the_moments_of_the_rows():
    X = np.random.default_rng(0).normal(3.0, 1.0, (200, 1))
    model = GaussianMixture(1, means_init=[[0.0]], reg_covar=0)
    for _ in range(6):
        model.partial_fit(X)
        np.testing.assert_allclose(model.means_, X.mean(0)[None], rtol=1e-8)
        np.testing.assert_allclose(model.covariances_[0, 0, 0], X.var(), rtol=1e-6)


@pytest.mark.parametrize(
    "model", [GaussianMixture(1), KMeans(1), BernoulliMixture(1)], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("before", ["fit", "partial_fit"])
def test_a_few_rows_change_a_model_of_many_rows_only_a_little(model, before):
    """One row after a thousand moves a mean by about a thousandth of the distance; a thousand by half."""
    rng = np.random.default_rng(0)
    X = (rng.random((1000, 2)) < 0.3).astype(float)
    centre = lambda m: np.ravel(
        getattr(m, "means_", getattr(m, "cluster_centers_", getattr(m, "probs_", None)))
    )
    known = getattr(clone(model).set_params(random_state=0), before)(X)
    old = centre(known).copy()
    np.testing.assert_allclose(centre(known.partial_fit(np.ones((1, 2)))) - old, 0, atol=2e-3)
    again = getattr(clone(model).set_params(random_state=0), before)(X).partial_fit(np.ones((1000, 2)))
    assert (centre(again) - old > 0.3 * (1 - old)).all()


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")  # the floor lowers the likelihood
def test_a_warm_start_uses_changed_arguments():
    X = load_iris().data
    model = GaussianMixture(2, warm_start=True, random_state=0).fit(X).set_params(reg_covar=10.0)
    assert np.linalg.eigvalsh(model.fit(X).covariances_).min() > 9.99
    for change in ({"covariance_type": "diag"}, {"n_components": 3}):
        with pytest.raises(BadInput, match=f"{next(iter(change))}: .*warm_start=False"):
            clone(model).fit(X).set_params(**change).fit(X)
    with pytest.raises(BadInput, match=r"X: found 2 columns; expected 4.*warm_start=False"):
        model.fit(X[:, :2])
    # The dtype is that of the new table.
    single = GaussianMixture(2, warm_start=True, random_state=0).fit(X.astype(np.float32))
    assert single.means_.dtype == np.float32 and single.fit(X).means_.dtype == np.float64


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")  # the prior lowers the likelihood
def test_a_warm_start_of_a_bernoulli_mixture_uses_its_prior():
    """With 100 ones and 100 zeros added to the counts, every probability is near a half."""
    X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (10, 1))
    model = BernoulliMixture(2, alpha=0.1, warm_start=True, random_state=0).fit(X)
    assert np.abs(model.probs_ - 0.5).min() > 0.45
    assert np.abs(model.set_params(alpha=100.0).fit(X).probs_ - 0.5).max() < 0.05
    with pytest.raises(BadInput, match=r"n_components: .*warm_start=False"):
        model.set_params(n_components=3).fit(X)


@pytest.mark.parametrize(
    ("covariance_type", "given", "words"),
    [
        ("full", np.array([np.eye(2), -np.eye(2)]), "not positive definite"),
        ("diag", np.array([[1.0, 2.0], [0.0, 1.0]]), "0 to 2; expected finite numbers > 0"),
    ],
)
def test_invalid_precisions(covariance_type, given, words):
    model = GaussianMixture(2, covariance_type=covariance_type, precisions_init=given)
    with pytest.raises(BadInput, match=f"precisions_init: .*{words}"):
        model.fit(load_iris().data[:, :2])


@pytest.mark.parametrize("model", [GaussianMixture(3), KMeans(3)], ids=lambda m: type(m).__name__)
def test_partial_fit_with_and_without_missing_values(model):
    X = load_iris().data[:, :2]
    missing = X.copy()
    missing[::7, 0] = np.nan
    for before, after in ((X, missing), (missing, X)):
        known = clone(model).set_params(random_state=0).fit(before)
        score = known.score(X)
        assert known.partial_fit(after).score(X) > score - 0.1 * abs(score)


def test_impute_keeps_observed_values_of_a_binarized_table():
    X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (9, 1))
    model = BernoulliMixture(2, binarize=0.3, random_state=0).fit(X)
    row = np.array([[0.6, 0.1, 0.6, np.nan]])
    filled = model.impute(row)
    assert (filled[0, :3] == row[0, :3]).all() and 0 <= filled[0, 3] < 0.2
    whole = np.array([[0.6, 0.1, 0.6, 0.2]])
    again = model.impute(whole)
    assert (again == whole).all() and again is not whole
