"""LogisticRegression: scikit-learn's optimum for every penalty, Wald intervals, separable classes, a9a."""

from __future__ import annotations

import gzip
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_svmlight_file, load_wine
from sklearn.linear_model import LogisticRegression as Peer
from sklearn.preprocessing import StandardScaler

import energax
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import LogisticRegression

X2, Y2 = load_breast_cancer(return_X_y=True)
X2 = StandardScaler().fit_transform(X2)[:, :10]
X3, Y3 = load_wine(return_X_y=True)
X3 = StandardScaler().fit_transform(X3)[:, :6]
TABLES = {"two": (X2, Y2), "three": (X3, Y3)}


def peer(X, y, weight=None, **settings):
    """Return scikit-learn's optimum: by Newton for L2, by SAGA for L1."""
    solver = "saga" if settings.get("l1_ratio") else "newton-cholesky"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Peer(solver=solver, tol=1e-12, max_iter=50_000, random_state=0, **settings).fit(X, y, weight)


def assert_same(ours, theirs, X, error=1e-6):
    scale = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=error * scale, rtol=0)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=error, rtol=0)
    np.testing.assert_allclose(  # all intercepts may be shifted together
        ours.intercept_ - ours.intercept_.mean() * (len(ours.intercept_) > 1),
        theirs.intercept_ - theirs.intercept_.mean() * (len(ours.intercept_) > 1),
        atol=error * max(1, np.abs(theirs.intercept_).max()),
        rtol=0,
    )


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"C": 0.03, "fit_intercept": False},
        {"C": 5.0, "class_weight": "balanced"},
        {"C": 0.2, "l1_ratio": 1.0},
        {"C": 0.5, "l1_ratio": 0.4},
        {"C": 0.2, "l1_ratio": 1.0, "fit_intercept": False},
    ],
    ids=["l2", "no intercept", "balanced", "l1", "elastic net", "l1 without intercept"],
)
def test_the_optimum_is_that_of_scikit_learn(name, settings):
    X, y = TABLES[name]
    ours = LogisticRegression(tol=1e-9, **settings).fit(X, y)
    theirs = peer(X, y, **settings)
    assert ours.converged_ and ours.n_iter_ < 20
    assert_same(ours, theirs, X)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_weights_of_rows(l1_ratio):
    weight = np.random.default_rng(0).exponential(size=len(X3))
    weight[::5] = 0
    ours = LogisticRegression(tol=1e-9, C=0.5, l1_ratio=l1_ratio).fit(X3, Y3, weight)
    assert_same(ours, peer(X3, Y3, weight, C=0.5, l1_ratio=l1_ratio), X3)


@pytest.mark.parametrize(("solver", "l1_ratio"), [("lbfgs", 0.0), ("proximal", 0.0), ("proximal", 1.0)])
def test_all_solvers_find_the_same_optimum(solver, l1_ratio):
    settings = {"C": 0.3, "l1_ratio": l1_ratio, "tol": 1e-8}
    newton = LogisticRegression(solver="newton", **settings).fit(X2, Y2)
    other = LogisticRegression(solver=solver, max_iter=1000, **settings).fit(X2, Y2)
    assert other.converged_
    np.testing.assert_allclose(other.coef_, newton.coef_, atol=1e-5)
    np.testing.assert_allclose(other.intercept_, newton.intercept_, atol=1e-5)


def test_without_a_penalty_at_any_offset_and_scale():
    X, y = X2[:, :3] * [1.0, 1e-4, 1e5] + [0.0, 3.0, 1e7], Y2
    ours = LogisticRegression(C=np.inf, tol=1e-9).fit(X, y)
    theirs = peer(X2[:, :3], y, C=np.inf)
    np.testing.assert_allclose(ours.coef_ * [1.0, 1e-4, 1e5], theirs.coef_, rtol=1e-6)
    single = LogisticRegression(C=np.inf).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.predict_proba(X), theirs.predict_proba(X2[:, :3]), atol=2e-3)


def test_one_program_serves_every_strength():
    """The certificate of the last step: the gradient where it began."""
    model = LogisticRegression(tol=1e-9)
    for C in (0.1, 1.0, 10.0):
        model.set_params(C=C).fit(X3, Y3)
        assert float(model.fit_.state.gradient) < 1e-4 and model.converged_


def test_a_warm_start_begins_at_the_last_weights():
    model = LogisticRegression(warm_start=True, tol=1e-9).fit(X3 + 5, Y3)
    before = model.coef_
    model.fit(X3 + 5, Y3)
    assert model.n_iter_ <= 2
    np.testing.assert_allclose(model.coef_, before, atol=1e-8)


# -- standard errors -----------------------------------------------------------------------------------


def test_wald_intervals_of_two_classes():
    """Standard errors of a generalised linear model: the diagonal of (Xᵀ diag(p(1 − p)) X)⁻¹."""
    X, y = X2[:, :4] + [0, 1, 2, 30], Y2
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    ones = np.c_[X, np.ones(len(X))]
    p = model.predict_proba(X)[:, 1]
    covariance = np.linalg.inv(ones.T @ (ones * (p * (1 - p))[:, None]))
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(model.standard_errors_[0], errors[:-1], rtol=1e-6)
    np.testing.assert_allclose(model.intercept_standard_errors_, errors[-1:], rtol=1e-6)
    low, high = np.moveaxis(model.confidence_intervals(0.9), -1, 0)
    np.testing.assert_allclose((high - low) / 2, 1.6448536269514722 * errors[None, :-1], rtol=1e-6)
    np.testing.assert_allclose((high + low) / 2, model.coef_, rtol=1e-12)


def test_standard_errors_of_differences_of_classes():
    """Three classes with class 0 as the reference, as in other software, in closed form."""
    X, y = X3[:, :2], Y3
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    p, ones = model.predict_proba(X)[:, 1:], np.c_[X, np.ones(len(X))]
    blocks = [
        [ones.T @ (ones * (p[:, a] * ((a == b) - p[:, b]))[:, None]) for b in range(2)] for a in range(2)
    ]
    reference = np.linalg.inv(np.block(blocks)).reshape(2, 3, 2, 3)
    contrast = np.array([[0.0, 0], [1, 0], [0, 1]]) - 1 / 3  # weights that sum to 0 from those differences
    covariance = np.einsum("ap,piqj,bq->aibj", contrast, reference, contrast)
    errors = np.sqrt(np.diagonal(covariance.reshape(9, 9))).reshape(3, 3)
    np.testing.assert_allclose(model.standard_errors_, errors[:, :2], rtol=1e-6)
    np.testing.assert_allclose(model.intercept_standard_errors_, errors[:, 2], rtol=1e-6)


def test_weights_and_the_penalty_count_as_information():
    weight = np.full(len(X2), 4.0)
    one, four = (LogisticRegression(C=np.inf, tol=1e-9).fit(X2[:, :3], Y2, w) for w in (None, weight))
    np.testing.assert_allclose(four.standard_errors_, one.standard_errors_ / 2, rtol=1e-6)
    strong = LogisticRegression(C=1e-8).fit(X2, Y2)
    np.testing.assert_allclose(strong.standard_errors_, 1e-4, rtol=1e-3)  # that of the prior, √C


def test_intervals_cover_the_truth():
    """95 % intervals of 2 × 300 weights: below 91.6 % or above 97.6 % with probability 0.001."""
    rng, truth, covered = np.random.default_rng(0), np.array([1.0, -0.5]), []
    for _ in range(300):
        X = rng.normal(size=(250, 2))
        y = rng.uniform(size=250) < 1 / (1 + np.exp(-X @ truth))
        low, high = LogisticRegression(C=np.inf).fit(X, y).confidence_intervals()[0].T
        covered += [(low < truth) & (truth < high)]
    assert 0.916 < np.mean(covered) < 0.976


def test_no_standard_errors_with_l1():
    model = LogisticRegression(l1_ratio=1.0).fit(X2, Y2)
    assert not hasattr(model, "standard_errors_")
    with pytest.raises(AttributeError, match="Set l1_ratio=0"):
        model.confidence_intervals()
    with pytest.raises(BadInput, match="level"):
        LogisticRegression().fit(X2, Y2).confidence_intervals(95)


# -- separable classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y", [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 0, 1]], ids=["two", "three", "touching"]
)
def test_separable_classes_without_a_penalty(y):
    """ "touching": x = 3 has both labels and everything else is separated, so one weight has no maximum."""
    x = np.array([[0.0], [1], [2], [3], [4], [5]])
    if y == [0, 0, 0, 1, 0, 1]:
        x[4] = 3.0
    with pytest.warns(ConvergenceWarning, match="the classes are separable, .*C=1"):
        model = LogisticRegression(C=np.inf).fit(x, y)
    assert model.C_ == 1.0 and model.converged_
    assert_same(model, peer(x, y, C=1.0), x, 1e-5)


def test_overlapping_classes_have_a_maximum():
    x = np.array([[0.0], [1], [2], [3], [4], [5]])
    model = LogisticRegression(C=np.inf).fit(x, [0, 0, 1, 0, 1, 1])
    assert np.isinf(model.C_)


def test_a_solver_that_cannot_is_refused():
    with pytest.raises(BadInput, match=r"solver: found 'lbfgs' with l1_ratio=1.0"):
        LogisticRegression(l1_ratio=1.0, solver="lbfgs").fit(X2, Y2)


def test_saved_and_loaded(tmp_path):
    model = LogisticRegression().fit(*load_iris(return_X_y=True))
    model.save(tmp_path / "m")
    back = energax.load(tmp_path / "m")
    assert np.array_equal(back.standard_errors_, model.standard_errors_)
    assert np.array_equal(back.predict_proba(X3[:, :4]), model.predict_proba(X3[:, :4]))


# -- real data -------------------------------------------------------------------------------------------


def test_a9a(shared_data):
    """Objective and accuracy published with the data: λ = 1, no intercept."""

    def load(name):
        with gzip.open(shared_data / "libsvm" / name) as file:
            return load_svmlight_file(file, n_features=123)

    X, y = load("a9a.gz")
    model = LogisticRegression(fit_intercept=False).fit(X, y)
    w = model.coef_[0]
    objective = w @ w / 2 + np.logaddexp(0, -y * (X @ w)).sum()
    assert abs(objective / 10529.5625846 - 1) < 1e-9
    X, y = load("a9a.t.gz")
    assert (model.predict(X) == y).sum() == 13837
