"""SVC and SVR: agreement with libsvm, certificates, published numbers, several classes, bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.svm
from sklearn.datasets import load_iris, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from energax import argmin, posterior
from energax.errors import BadInput
from energax.estimators import SVC, SVR
from energax.kernels import RBF, Matern
from energax.kernels import Linear as LinearKernel


@pytest.fixture(scope="module")
def two_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=240) > 0, "yes", "no")


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=200)


def objective(model, X, y_signed):
    """½ βᵀKβ − Σ |β| of a fitted scikit-learn classifier."""
    beta = np.zeros(len(X))
    beta[model.support_] = model.dual_coef_[0]
    K = np.exp(-model._gamma * ((X[:, None] - X) ** 2).sum(-1))
    return 0.5 * beta @ K @ beta - np.abs(beta).sum()


# -- agreement with libsvm --------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "sigmoid"])
def test_it_agrees_with_libsvm_at_a_small_tolerance(two_classes, kernel):
    X, y = two_classes
    settings = {"C": 2.0, "kernel": kernel, "tol": 1e-6, "coef0": 0.5}
    if kernel == "sigmoid":  # not semi-definite: another local solution may be found with large γ
        settings |= {"gamma": 0.01}
    ours, theirs = SVC(**settings).fit(X, y), sklearn.svm.SVC(**settings).fit(X, y)
    assert (ours.predict(X) == theirs.predict(X)).all() and ours.classes_.tolist() == ["no", "yes"]
    scale = np.abs(theirs.decision_function(X)).max()
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-5 * scale)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert ours.kkt_violation_ <= 1e-6 and ours.duality_gap_ < 1e-3 and ours.converged_
    if kernel == "rbf":
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-4)
        assert ours.dual_objective_ == pytest.approx(objective(theirs, X, y), rel=1e-6)
    if kernel == "linear":
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_weights_multiply_C_as_in_libsvm(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X))
    weight[:20] = 0
    settings = {"C": 2.0, "gamma": 0.3, "tol": 1e-6, "class_weight": {"yes": 2.0}}
    ours = SVC(**settings).fit(X, y, sample_weight=weight)
    theirs = sklearn.svm.SVC(**settings).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    # libsvm counts the rows of positive weight only.
    np.testing.assert_array_equal(ours.support_, theirs.support_ + 20)


def test_several_classes_agree_with_libsvm():
    X, y = load_iris(return_X_y=True)
    settings = {"C": 1.0, "tol": 1e-6}
    ours, theirs = SVC(**settings).fit(X, y), sklearn.svm.SVC(**settings).fit(X, y)
    assert (ours.predict(X) == theirs.predict(X)).all()
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    ours.decision_function_shape = theirs.decision_function_shape = "ovo"
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    assert ours.dual_objective_.shape == ours.kkt_violation_.shape == ours.n_iter_.shape == (3,)
    ours.set_params(decision_function_shape="ovr", break_ties=True)
    assert (ours.predict(X) == ours.decision_function(X).argmax(1)).all()
    assert (np.asarray(argmin(ours.energy_, {"x": X})["y"]) == ours.predict(X)).all()


def test_regression_agrees_with_libsvm(numbers):
    X, y = numbers
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X))
    for settings in ({"C": 3.0}, {"kernel": "linear", "epsilon": 0.3}):
        settings |= {"tol": 1e-6}
        ours = SVR(**settings).fit(X, y, sample_weight=weight)
        theirs = sklearn.svm.SVR(**settings).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-5)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
        assert ours.duality_gap_ < 1e-3 and ours.kkt_violation_ <= 1e-6
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


# -- real data -----------------------------------------------------------------------------------------


def test_heart_scale_has_libsvms_published_solution(shared_data):
    X, y = load_svmlight_file(str(shared_data / "libsvm" / "heart_scale"))
    model = SVC(C=1.0, gamma=1 / 13).fit(X, y)
    assert model.dual_objective_ == pytest.approx(-100.877288, rel=1e-7)
    assert model.n_support_.sum() == 132 and model.n_at_bound_ == 107
    assert model.duality_gap_ < 0.01 and model.kkt_violation_ <= 1e-3 and model.fit_.status == "converged"


def test_svmguide1_reaches_the_published_accuracy(shared_data):
    """C = 2 and γ = 2 on columns in [−1, 1], as Hsu, Chang and Lin (2003) found: 0.96875."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    read = lambda name: np.genfromtxt(shared_data / "libsvm" / name, delimiter=",", skip_header=1)
    train, test = read("svmguide1.csv"), read("svmguide1.t.csv")
    label = 0 if set(np.unique(train[:, 0])) <= {0, 1} else train.shape[1] - 1
    split = lambda rows: (np.delete(rows, label, 1), rows[:, label].astype(int))
    pipeline = make_pipeline(MinMaxScaler((-1, 1)), SVC(C=2.0))
    found = GridSearchCV(pipeline, {"svc__gamma": [0.25, 2.0]}, cv=2).fit(*split(train))
    assert found.best_params_ == {"svc__gamma": 2.0}
    assert found.score(*split(test)) >= 0.968


# -- kernels --------------------------------------------------------------------------------------------


def test_a_kernel_object_a_function_and_a_matrix_are_the_same(two_classes):
    X, y = two_classes
    train, test = slice(0, 180), slice(180, None)
    by_name = SVC(gamma=0.5, tol=1e-8).fit(X[train], y[train])
    matrix = lambda A, B: np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(-1))
    by_object = SVC(kernel=RBF(1.0), tol=1e-8).fit(X[train], y[train])
    by_function = SVC(kernel=matrix, tol=1e-8).fit(X[train], y[train])
    by_matrix = SVC(kernel="precomputed", tol=1e-8).fit(matrix(X[train], X[train]), y[train])
    expected = by_name.decision_function(X[test])
    np.testing.assert_allclose(by_object.decision_function(X[test]), expected, atol=1e-6)
    np.testing.assert_allclose(by_function.decision_function(X[test]), expected, atol=1e-6)
    np.testing.assert_allclose(by_matrix.decision_function(matrix(X[test], X[train])), expected, atol=1e-6)
    assert SVC(kernel=2.0 * Matern(nu=2.5) + LinearKernel()).fit(X, y).score(X, y) > 0.8


def test_a_bad_kernel_matrix_is_answered(two_classes):
    X, y = two_classes
    with pytest.raises(BadInput, match="square kernel matrix"):
        SVC(kernel="precomputed").fit(X, y)
    K = X @ X.T
    lopsided = K.copy()
    lopsided[0, 1] += 1
    with pytest.raises(BadInput, match="not symmetric"):
        SVC(kernel="precomputed").fit(lopsided, y)
    with pytest.warns(ConvergenceWarning, match="not positive semi-definite"):
        SVC(kernel="precomputed").fit(K - 50 * np.eye(len(K)), y)
    with pytest.raises(BadInput, match="finite numbers of shape"):
        SVC(kernel=lambda A, B: np.ones(3)).fit(X, y)


# -- size, stopping, margins ------------------------------------------------------------------------------


def test_a_small_cache_gives_the_same_result(monkeypatch):
    """1500 rows of 1 MB: 87 rows of the kernel matrix at a time."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=1500) > 0).astype(int)
    large, small = SVC(tol=1e-5).fit(X, y), SVC(tol=1e-5, cache_size=1).fit(X, y)
    assert large.dual_objective_ == pytest.approx(small.dual_objective_, rel=1e-8)
    np.testing.assert_allclose(large.decision_function(X), small.decision_function(X), atol=1e-4)
    theirs = sklearn.svm.SVC(tol=1e-5).fit(X, y)
    np.testing.assert_allclose(large.decision_function(X), theirs.decision_function(X), atol=1e-4)


def test_few_steps_warn_and_leave_an_honest_certificate(two_classes, numbers):
    with pytest.warns(ConvergenceWarning, match="SVC did not converge: after max_iter=5 steps"):
        model = SVC(max_iter=5).fit(*two_classes)
    assert not model.converged_ and model.n_iter_.tolist() == [5] and model.kkt_violation_ > 1e-3
    assert model.duality_gap_ > 1
    with pytest.warns(ConvergenceWarning, match="SVR did not converge"):
        SVR(max_iter=5).fit(*numbers)


def test_a_hard_margin_separates_or_says_that_it_cannot():
    X = np.array([[-2.0, 0.5], [-1.0, 1.0], [1.0, -1.0], [2.0, -0.5]])
    y = np.array([0, 0, 1, 1])
    model = SVC(C=np.inf, kernel="linear", tol=1e-8).fit(X, y)
    # The widest margin is between rows 1 and 2: w = (x₂ − x₁) · 2 / ‖x₂ − x₁‖².
    np.testing.assert_allclose(model.coef_, [[0.5, -0.5]], atol=1e-7)
    assert model.duality_gap_ < 1e-6
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(BadInput, match="not separable with this kernel"):
        SVC(C=np.inf, kernel="linear").fit(corners, [0, 1, 1, 0])
    assert SVC(C=np.inf, gamma=2.0).fit(corners, [0, 1, 1, 0]).score(corners, [0, 1, 1, 0]) == 1


# -- probabilities -------------------------------------------------------------------------------------------


def test_probabilities_are_calibrated(two_classes):
    """The rows were made with p(yes | x) = Φ(2 x₀ x₁): the mean error of p is far below that of a guess."""
    from scipy.stats import norm

    X, y = two_classes
    model = SVC(probability=True, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    truth = norm.cdf(X[:, 0] * X[:, 1] / 0.5)
    assert np.abs(p[:, 1] - truth).mean() < 0.12 < np.abs(0.5 - truth).mean()
    again = SVC(probability=True, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), p)
    np.testing.assert_allclose(posterior(model.energy_, {"x": X}).marginals["y"], p, atol=1e-6)
    assert not hasattr(SVC().fit(X, y), "predict_proba")


def test_platt_scaling_maximises_the_likelihood_of_the_smoothed_targets():
    import jax
    from scipy.optimize import minimize

    from energax.estimators._supervised.platt import platt_scale

    rng = np.random.default_rng(0)
    f = rng.normal(size=60) * 3
    positive = rng.random(60) < 1 / (1 + np.exp(-f))
    target = np.where(positive, (positive.sum() + 1) / (positive.sum() + 2), 1 / ((~positive).sum() + 2))
    loss = lambda ab: np.sum(np.logaddexp(0, ab[0] * f + ab[1]) - (1 - target) * (ab[0] * f + ab[1]))
    with jax.enable_x64(True):
        found = platt_scale(f, positive)
        separable = platt_scale(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]))
    best = minimize(loss, [-1.0, 0.0], tol=1e-12).x
    np.testing.assert_allclose(found, best, atol=1e-5)
    assert np.isfinite(separable).all() and separable[0] < 0


def test_probabilities_of_several_classes_are_near_those_of_libsvm():
    X, y = load_iris(return_X_y=True)
    ours = SVC(probability=True, random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-9)
    assert (ours.argmax(1) == y).mean() > 0.95


def test_probabilities_are_fitted_to_outputs_of_machines_that_did_not_see_the_row(monkeypatch):
    X, y = load_iris(return_X_y=True)
    weight = np.where(np.arange(150) % 7 == 0, 0.0, 1.0)
    seen = []

    def record(outputs, is_positive):
        seen.append((outputs, is_positive))
        return np.array([-1.0, 0.0])

    monkeypatch.setattr("energax.estimators._supervised.svm.platt_scale", record)
    model = SVC(probability=True, tol=1e-9, random_state=0).fit(X, y, sample_weight=weight)
    fold = model._folds(np.where(weight > 0, y, -1))
    for c in range(3):  # the folds have equal shares of every class
        sizes = np.bincount(fold[(y == c) & (weight > 0)], minlength=5)
        assert sizes.min() > 0 and np.ptp(sizes) <= 1
    for p, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        members = np.flatnonzero(((y == i) | (y == j)) & (weight > 0))
        expected = np.zeros(len(members))
        for f in range(5):
            kept, out = members[fold[members] != f], fold[members] == f
            two = sklearn.svm.SVC(tol=1e-9, gamma=model.gamma_).fit(X[kept], y[kept])
            expected[out] = two.decision_function(X[members[out]])
        np.testing.assert_allclose(seen[p][0], expected, atol=1e-5)
        np.testing.assert_array_equal(seen[p][1], y[members] == j)
    few = np.r_[0:20, 50:70, 100:102]
    assert np.isfinite(SVC(probability=True).fit(X[few], y[few]).predict_proba(X)).all()
    with pytest.raises(BadInput, match="a class with 1 row"):
        SVC(probability=True).fit(X[few[:-1]], y[few[:-1]])


@pytest.mark.parametrize("working_set", [1024, 8])
def test_pairs_of_classes_are_one_fit_if_they_are_small(working_set, monkeypatch):
    from energax.estimators import _base
    from energax.estimators._supervised import svm

    X, y = load_iris(return_X_y=True)
    fits, run_fit = [], _base.run_fit
    monkeypatch.setattr(
        _base, "run_fit", lambda *args, **options: fits.append(1) or run_fit(*args, **options)
    )
    monkeypatch.setattr(svm, "SMO_WORKING_SET", working_set)
    for kernel in ("rbf", "precomputed"):
        fits.clear()
        table = X @ X.T if kernel == "precomputed" else X
        ours = SVC(kernel=kernel, tol=1e-8).fit(table, y)
        theirs = sklearn.svm.SVC(kernel=kernel, tol=1e-8).fit(table, y)
        assert len(fits) == (1 if working_set == 1024 else 3)
        np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
        np.testing.assert_allclose(ours.decision_function(table), theirs.decision_function(table), atol=1e-4)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
        assert ours.duality_gap_.shape == ours.kkt_violation_.shape == ours.n_iter_.shape == (3,)


# -- manners -----------------------------------------------------------------------------------------------


def test_it_is_saved_pickled_and_keeps_the_dtype(two_classes, numbers, tmp_path):
    X, y = two_classes
    model = SVC(probability=True, random_state=0).fit(X, y)
    model.save(tmp_path / "svc.safetensors")
    for copy in (SVC.load(tmp_path / "svc.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(copy.support_, model.support_)
    small = X.astype(np.float32)
    single = SVC().fit(small, y)
    assert single.decision_function(small).dtype == np.float32
    np.testing.assert_allclose(
        single.decision_function(small), SVC().fit(X, y).decision_function(X), atol=2e-3
    )
    regressor = SVR().fit(*numbers)
    regressor.save(tmp_path / "svr.safetensors")
    loaded = SVR.load(tmp_path / "svr.safetensors")
    np.testing.assert_array_equal(loaded.predict(numbers[0]), regressor.predict(numbers[0]))


def test_bad_input_is_answered(two_classes, numbers):
    X, y = two_classes
    with pytest.raises(BadInput, match="only one class"):
        SVC().fit(X, np.zeros(len(X)))
    with pytest.raises(BadInput, match="0 for all rows of class"):
        SVC().fit(X, y, sample_weight=(y == "yes").astype(float))
    with pytest.raises(BadInput, match="C: found 0"):
        SVC(C=0).fit(X, y)
    with pytest.raises(BadInput, match="kernel: found 'rbff'"):
        SVC(kernel="rbff").fit(X, y)
    with pytest.raises(BadInput, match="C: found inf"):
        SVR(C=np.inf).fit(*numbers)


def test_a_constant_target_is_a_constant_function(numbers):
    X, _ = numbers
    model = SVR().fit(X, np.full(len(X), 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, atol=0.11)
    assert len(model.support_) == 0 and model.duality_gap_ == 0
