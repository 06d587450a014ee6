"""Linear and quadratic discriminant analysis against scikit-learn, closed forms and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn import discriminant_analysis as theirs
from sklearn.datasets import load_iris, load_wine

import energax
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

X, Y = load_iris(return_X_y=True)
PRIORS = [0.2, 0.5, 0.3]
WINE, WINE_Y = load_wine(return_X_y=True)
LINEAR = [
    {},
    {"priors": PRIORS},
    {"store_covariance": True},
    {"solver": "lsqr"},
    {"solver": "lsqr", "priors": PRIORS, "shrinkage": 0.3},
    {"solver": "lsqr", "shrinkage": "auto"},
    {"solver": "eigen"},
    {"solver": "eigen", "priors": PRIORS},
    {"solver": "eigen", "shrinkage": "auto", "n_components": 1},
    {"solver": "eigen", "shrinkage": 0.5, "priors": PRIORS},
]
QUADRATIC = [
    {"store_covariance": True},
    {"priors": PRIORS, "reg_param": 0.2},
    {"solver": "eigen", "shrinkage": "auto"},
    {"solver": "eigen", "shrinkage": 0.4, "store_covariance": True},
]


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("rows", "y"), [(X, Y), (WINE, WINE_Y), (X[50:], Y[50:])], ids=["iris", "wine", "two"]
)
@pytest.mark.parametrize("settings", LINEAR, ids=str)
def test_linear_equals_scikit_learn(settings, rows, y):
    if len(np.unique(y)) == 2 and "priors" in settings:
        settings = settings | {"priors": [0.3, 0.7]}
    a = theirs.LinearDiscriminantAnalysis(**settings).fit(rows, y)
    b = LinearDiscriminantAnalysis(**settings).fit(rows, y)
    same(b.decision_function(rows), a.decision_function(rows))
    same(b.predict_proba(rows), a.predict_proba(rows))
    np.testing.assert_array_equal(b.predict(rows), a.predict(rows))
    same(b.coef_, a.coef_)
    same(b.intercept_, a.intercept_)
    for name in ("means_", "priors_", "covariance_", "xbar_", "explained_variance_ratio_"):
        if hasattr(a, name):
            same(getattr(b, name), getattr(a, name))
    if b.solver == "lsqr":
        with pytest.raises(BadInput, match="'lsqr', which has no transform"):
            b.transform(rows)
    else:
        one, two = b.transform(rows), a.transform(rows)
        same(one * np.sign((one * two).sum(0)), two)  # the sign of a direction is arbitrary
        np.testing.assert_array_equal(
            b.get_feature_names_out(), [f"lineardiscriminantanalysis{i}" for i in range(two.shape[1])]
        )


@pytest.mark.parametrize("settings", QUADRATIC, ids=str)
def test_quadratic_equals_scikit_learn(settings):
    for rows, y in ((X, Y), (WINE[:, :5], WINE_Y)):
        a = theirs.QuadraticDiscriminantAnalysis(**settings).fit(rows, y)
        b = QuadraticDiscriminantAnalysis(**settings).fit(rows, y)
        same(b.decision_function(rows), a.decision_function(rows))
        same(b.predict_proba(rows), a.predict_proba(rows))
        same(b.means_, a.means_)
        if b.store_covariance:
            same(b.covariance_, a.covariance_)


@pytest.mark.parametrize(
    "model",
    [
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis("eigen", shrinkage="auto"),
        QuadraticDiscriminantAnalysis(),
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    ],
    ids=str,
)
def test_a_weight_of_three_is_a_row_three_times(model):
    weight = np.where(np.arange(150) % 4 == 0, 3.0, 1.0)
    rows = np.repeat(np.arange(150), weight.astype(int))
    repeated = model.fit(X[rows], Y[rows]).decision_function(X)
    same(model.fit(X, Y, weight).decision_function(X), repeated)
    same(model.fit(X, Y, 10 * weight).predict(X), repeated.argmax(1))


def test_float32():
    for cls in (LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis):
        exact, rounded = cls().fit(X, Y), cls().fit(X.astype(np.float32) + np.float32(100), Y)
        found = rounded.predict_proba(X.astype(np.float32) + np.float32(100))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact.predict_proba(X), atol=2e-2)


# -- missing values ----------------------------------------------------------------------------------------


def incomplete(seed=0, part=0.2):
    rows = X.copy()
    rows[np.random.default_rng(seed).random(X.shape) < part] = np.nan
    return rows


def observed_log_likelihood(rows, index, means, covariances):
    total = 0.0
    for row, z in zip(rows, index, strict=True):
        o = ~np.isnan(row)
        if o.any():
            total += multivariate_normal(means[z][o], covariances[z][np.ix_(o, o)]).logpdf(row[o])
    return total


@pytest.mark.parametrize("tied", [True, False])
def test_missing_values_are_integrated_out_of_the_likelihood(tied):
    """A fit to incomplete rows is a maximum of the likelihood of the observed values: its gradient is 0."""
    rows = incomplete()[:, :2]
    model = (LinearDiscriminantAnalysis if tied else QuadraticDiscriminantAnalysis)().fit(rows, Y)
    dense = np.asarray(model.energy_.components.covariance.matrix)
    dense = np.broadcast_to(dense, (3, 2, 2)) if tied else dense
    best = observed_log_likelihood(rows, Y, model.means_, dense)
    for step in (1e-3, -1e-3):
        for z in range(3):
            for j in range(2):
                means = model.means_.copy()
                means[z, j] += step
                assert observed_log_likelihood(rows, Y, means, dense) < best
        for i, j in ((0, 0), (1, 1), (0, 1)):
            change = np.zeros((2, 2))
            change[i, j] = change[j, i] = step
            for z in [slice(None)] if tied else [0, 1, 2]:
                other = np.array(dense)
                other[z] += change
                assert observed_log_likelihood(rows, Y, model.means_, other) < best
    assert model.converged_


def test_missing_values_are_integrated_out_of_predictions():
    model = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, Y)
    linear = LinearDiscriminantAnalysis(store_covariance=True).fit(X, Y)
    row = np.array([[np.nan, 3.0, np.nan, 1.5]])
    o = [1, 3]
    for one, covariances in ((model, model.covariance_), (linear, [linear.covariance_] * 3)):
        p = [multivariate_normal(m[o], c[np.ix_(o, o)]).pdf(row[0, o])
             for m, c in zip(one.means_, covariances, strict=True)]  # fmt: skip
        same(one.predict_proba(row)[0], np.array(p) / np.sum(p))
    both = np.concatenate([row, X[:3]])
    same(linear.predict_proba(both)[1:], linear.predict_proba(X[:3]))
    filled = linear.transform(both)
    same(filled[1:], linear.transform(X[:3]))
    assert np.isfinite(filled).all()


def test_few_missing_values_change_little():
    for cls in (LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis):
        assert cls().fit(incomplete(part=0.1), Y).score(X, Y) > 0.96


# -- the common questions --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis])
def test_the_energy_answers_the_common_questions(cls, tmp_path):
    model = cls().fit(X, np.array(["a", "b", "c"])[Y])
    rows = incomplete()[:40]
    found = energax.posterior(model.energy_, {"x": rows})
    same(found.marginals["z"], model.predict_proba(rows))
    same(energax.log_prob(model.energy_, {"x": rows}).value, model.score_samples(rows))
    np.testing.assert_array_equal(
        model.classes_[energax.argmin(model.energy_, {"x": X})["z"]], model.predict(X)
    )
    drawn = energax.sample(model.energy_, 4000, {"z": 1}, key=0)["x"]
    spread = X[Y == 1].std(0) * 1.3
    assert (np.abs(np.mean(drawn, axis=0) - model.means_[1]) < 5 * spread / np.sqrt(4000)).all()
    model.save(tmp_path / "model.safetensors")
    same(cls.load(tmp_path / "model.safetensors").predict_proba(X), model.predict_proba(X))
    assert set(model.sample(200, random_state=1)[1]) == {"a", "b", "c"}


# -- bad input -------------------------------------------------------------------------------------------


def test_collinear_columns_warn_or_are_refused():
    rows = np.column_stack([X, X[:, 0] + X[:, 1]])
    with pytest.warns(ConvergenceWarning, match="singular"):
        model = LinearDiscriminantAnalysis().fit(rows, Y)
    peer = theirs.LinearDiscriminantAnalysis().fit(rows, Y)
    np.testing.assert_allclose(model.predict_proba(rows), peer.predict_proba(rows), atol=1e-7)
    with pytest.raises(BadInput, match=r"a singular covariance of class 0 \(columns .*shrinkage='auto'"):
        QuadraticDiscriminantAnalysis().fit(rows, Y)
    with pytest.raises(BadInput, match=r"class 0 \(3 rows for 4 columns\)"):
        QuadraticDiscriminantAnalysis().fit(X[47:], Y[47:])
    assert QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X[47:], Y[47:]).score(X, Y) > 0.9


@pytest.mark.parametrize(
    ("model", "rows", "y", "message"),
    [
        (LinearDiscriminantAnalysis(shrinkage=0.5), X, Y, r"^shrinkage: found 0.5 with solver='svd'"),
        (
            QuadraticDiscriminantAnalysis(shrinkage="auto"),
            X,
            Y,
            r"^shrinkage: found 'auto' with solver='svd'",
        ),
        (LinearDiscriminantAnalysis(n_components=3), X, Y, r"^n_components: found 3; expected at most 2"),
        (LinearDiscriminantAnalysis(priors=[0.5, 0.5]), X, Y, r"^priors: "),
        (LinearDiscriminantAnalysis(), X[:50], Y[:50], "only one class"),
        (LinearDiscriminantAnalysis(), X[[0, 60, 120]], [0, 1, 2], "more rows than classes"),
        (QuadraticDiscriminantAnalysis(), X[49:], Y[49:], r"class 0 \(1 row for 4 columns\)"),
        (
            LinearDiscriminantAnalysis("lsqr", "auto"),
            incomplete(),
            Y,
            r"^shrinkage: found 'auto' for rows with",
        ),
    ],
)
def test_bad_input(model, rows, y, message):
    with pytest.raises(BadInput, match=message):
        model.fit(rows, y)
