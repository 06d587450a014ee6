"""LinearClassifier is logistic regression: the optimum of scikit-learn for any scale and any weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight

from energax.errors import BadInput
from energax.estimators import LinearClassifier

IRIS, SPECIES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[SPECIES]
TABLES = {"wine": load_wine, "cancer": load_breast_cancer}  # columns from thousandths to thousands


def peer(X, y, alpha, weight=None, *, total=None, **settings):
    """Return scikit-learn's fit.

    Its objective is a sum over rows, of total weight `total`, and for two classes W has one row.
    """
    if total is None:
        total = len(X) if weight is None else weight.sum()
    C = (2 if len(np.unique(y)) == 2 else 1) / (alpha * total)
    theirs = LogisticRegression(C=C, solver="newton-cg", tol=1e-12, max_iter=10_000, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its line search warns at the optimum
        return theirs.fit(X, y, sample_weight=weight)


def assert_same_scores(ours, theirs, error=1e-4):
    """Assert equal coefficients; those of two classes are differences, as scikit-learn's."""
    weight, bias = ours.coef_, ours.intercept_
    np.testing.assert_allclose(weight, theirs.coef_, atol=error * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(bias, theirs.intercept_, atol=error * (1 + np.abs(theirs.intercept_).max()))


@pytest.mark.parametrize(
    ("shift", "dtype", "worse_by"),
    [(0.0, "f8", 1e-5), (100.0, "f8", 1e-5), (1e7, "f8", 1e-5), (0.0, "f4", 1e-5), (1e4, "f4", 1e-3)],
)
def test_an_offset_of_the_columns_does_not_end_it_early(shift, dtype, worse_by):
    """The optimum at default settings is that of scikit-learn for any offset."""
    X, y = make_classification(600, 8, weights=[0.97], random_state=0, flip_y=0.02)
    theirs = peer(X, y, 1e-4)
    X = (X + shift).astype(dtype)
    ours = LinearClassifier().fit(X, y)
    found, best = log_loss(y, ours.predict_proba(X)), log_loss(y, theirs.predict_proba(X - shift))
    assert abs(found - best) < worse_by and ours.n_iter_ < 60


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("name", TABLES)
def test_columns_of_any_scale_end_at_the_optimum_of_a_peer(name, alpha):
    X, y = TABLES[name](return_X_y=True)
    ours = LinearClassifier(alpha=alpha, tol=1e-9).fit(X, y)
    assert_same_scores(ours, peer(X, y, alpha))
    assert ours.converged_ and ours.n_iter_ < 250
    # `history_` has the objective in the units of X.
    loss = log_loss(y, ours.predict_proba(X))
    penalty = alpha / 2 * (np.asarray(ours.energy_.weight) ** 2).sum()
    assert np.isclose(ours.history_["objective"][-1], loss + penalty, atol=1e-9)
    assert np.isclose(ours.history_["penalty"][-1], penalty, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", TABLES)
def test_raw_columns_converge_at_the_default_settings(name, dtype):
    """Warnings are errors here, so the fit converges within max_iter."""
    X, y = TABLES[name](return_X_y=True)
    theirs, X = peer(X, y, 1e-4).predict_proba(X), X.astype(dtype)
    ours = LinearClassifier().fit(X, y)
    assert ours.converged_ and ours.n_iter_ < 200
    assert np.abs(ours.predict_proba(X) - theirs).max() < {"f4": 1e-2, "f8": 1e-3}[dtype]


def test_weights_of_rows_in_raw_columns():
    X, y = TABLES["wine"](return_X_y=True)
    weight = np.random.default_rng(0).exponential(size=len(X))
    weight[::7] = 0
    assert_same_scores(LinearClassifier(alpha=1e-2, tol=1e-9).fit(X, y, weight), peer(X, y, 1e-2, weight))


def test_many_columns_are_scaled_one_by_one(monkeypatch):
    X, y = TABLES["wine"](return_X_y=True)
    monkeypatch.setattr("energax.estimators._supervised.preconditioner._MOST_COLUMNS", 12)
    ours = LinearClassifier(alpha=1e-2, tol=1e-9).fit(X, y)
    assert_same_scores(ours, peer(X, y, 1e-2))
    assert ours.n_iter_ < 250


def test_constant_and_repeated_columns_are_harmless():
    X, y = TABLES["wine"](return_X_y=True)
    wide = np.c_[X, X[:, :1], np.full(len(X), 1e6 / 3), np.zeros(len(X))]
    ours = LinearClassifier(alpha=1e-2, tol=1e-9).fit(wide, y)
    assert np.abs(ours.coef_[:, -2:]).max() < 1e-9  # the intercept has the same effect without a penalty
    assert_same_scores(
        LinearClassifier(alpha=1e-2, tol=1e-9).fit(wide[:, :-2], y), peer(wide[:, :-2], y, 1e-2)
    )
    np.testing.assert_allclose(
        ours.predict_proba(wide), peer(wide[:, :-2], y, 1e-2).predict_proba(wide[:, :-2]), atol=1e-4
    )
    free = LinearClassifier(alpha=0.0, max_iter=20, tol=None).fit(wide, y)
    assert not free.coef_[:, -1].any() and np.isfinite(free.coef_).all() and free.score(wide, y) > 0.99


def test_partial_fit_after_fit_starts_at_its_optimum():
    X, y = TABLES["wine"](return_X_y=True)
    model = LinearClassifier(alpha=1e-2, learning_rate=1e-5).fit(X, y)
    best = model.history_["objective"][-1]
    assert np.isclose(model.partial_fit(X, y).history_["objective"][0], best, atol=1e-6)


@pytest.mark.parametrize("name", TABLES)
def test_without_an_intercept_it_is_zero(name):
    X, y = TABLES[name](return_X_y=True)
    ours = LinearClassifier(alpha=1e-2, fit_intercept=False, tol=1e-9).fit(X, y)
    assert_same_scores(ours, peer(X, y, 1e-2, fit_intercept=False))
    assert not ours.intercept_.any() and not ours.partial_fit(X, y).intercept_.any()


def test_fit_intercept_cannot_change_between_calls_of_partial_fit():
    model = LinearClassifier(fit_intercept=False)
    for _ in range(2):
        model.partial_fit(IRIS, SPECIES, classes=np.unique(SPECIES))
    assert not model.intercept_.any() and model.coef_.any()
    with pytest.raises(BadInput, match=r"fit_intercept: .*but False in the first call.*Call fit"):
        model.set_params(fit_intercept=True).partial_fit(IRIS, SPECIES)
    assert model.fit(IRIS, SPECIES).intercept_.any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "class_weight", ["balanced", {"versicolor": 4, "setosa": 0.5}], ids=["balanced", "dict"]
)
def test_class_weights_are_those_of_a_peer(class_weight, weighted):
    X, y = IRIS[20:], SPECIES[20:]  # 30 of one species
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X)) if weighted else None
    ours = LinearClassifier(alpha=1e-2, class_weight=class_weight, tol=1e-9).fit(X, y, weight)
    by_class = compute_class_weight(class_weight, classes=ours.classes_, y=y, sample_weight=weight)
    total = (by_class[np.searchsorted(ours.classes_, y)] * (1 if weight is None else weight)).sum()
    theirs = peer(X, y, 1e-2, weight, total=total, class_weight=class_weight)
    assert_same_scores(ours, theirs)
    assert np.abs(ours.coef_ - LinearClassifier(alpha=1e-2).fit(X, y, weight).coef_).max() > 0.01
