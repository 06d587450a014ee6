"""Supervised estimators with weights of rows and classes, missing values and labels that are strings.

Small twins of the tests in tests/estimators: one table of 30 rows, against scikit-learn or a sum by hand. A
weight is a number of repetitions, and a row of weight 0 is no row.
"""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.discriminant_analysis as their_discriminants
import sklearn.gaussian_process as their_processes
import sklearn.kernel_ridge
import sklearn.linear_model as their_lines
import sklearn.svm
from scipy.stats import norm, poisson
from sklearn.gaussian_process import kernels as their_kernels
from sklearn.preprocessing import SplineTransformer

from energax import estimators
from energax.kernels import RBF

RNG = np.random.default_rng(4)
N = 30
LABELS = np.array(["pear", "fig", "apple"])[RNG.permutation(np.arange(N) % 3)]
X = RNG.normal(size=(N, 2)) + 1.5 * np.stack([LABELS == "fig", LABELS == "apple"], 1) + [5.0, -3.0]
#: How often every row counts; the first is left out.
COUNTS = np.append(0, RNG.integers(0, 4, N - 1))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.normal(size=N)
TWO = np.where(LABELS == "fig", "yes", "no")
REPEATED, NEW = np.repeat(np.arange(N), COUNTS), X[:7] + 0.3
close = np.testing.assert_allclose


# -- classifiers by Bayes' rule -------------------------------------------------------------------------


def mixed_table() -> np.ndarray:
    """A normal column, one of bits, one of strings and one of counts, with missing values."""
    rows = np.empty((N, 4), object)
    rows[:, 0] = X[:, 0]
    rows[:, 1] = (X[:, 1] > -2.5).astype(float)
    rows[:, 2] = np.array(["red", "green", "blue"])[RNG.integers(0, 3, N)]
    rows[:, 3] = RNG.poisson(2 + 2.0 * (LABELS == "fig")).astype(float)
    for j, i in enumerate((4, 9, 14, 19)):
        rows[i, j] = None
    return rows


def naive_log_joint(rows: np.ndarray, weight: np.ndarray, alpha: float) -> np.ndarray:
    """log p(x, y) of every row and class, in the order of the sorted labels, by the definition."""
    known = np.array([[value is not None for value in row] for row in rows])
    filled = np.where(known, rows, 0)
    real, bit, count = (filled[:, j].astype(float) for j in (0, 1, 3))
    mean = lambda values, mask: np.average(values[mask], weights=weight[mask])
    seen = known & (weight > 0)[:, None]
    smallest = 1e-9 * mean((real - mean(real, seen[:, 0])) ** 2, seen[:, 0])
    common_rate, out = mean(count, seen[:, 3]), np.zeros((N, 3))
    for k, label in enumerate(np.unique(LABELS)):
        own = seen & (label == LABELS)[:, None]
        total = [weight[own[:, j]].sum() for j in range(4)]
        centre = mean(real, own[:, 0])
        spread = np.sqrt(mean((real - centre) ** 2, own[:, 0]) + smallest)
        p = ((weight * bit)[own[:, 1]].sum() + alpha) / (total[1] + 2 * alpha)
        share = {
            c: (weight[own[:, 2] & (rows[:, 2] == c)].sum() + alpha) / (total[2] + 3 * alpha)
            for c in ("red", "green", "blue")
        }
        rate = ((weight * count)[own[:, 3]].sum() + alpha * common_rate) / (total[3] + alpha)
        terms = np.stack(
            [
                norm(centre, spread).logpdf(real),
                np.log(np.where(bit == 1, p, 1 - p)),
                np.log([share.get(c, 1.0) for c in rows[:, 2]]),
                poisson(rate).logpmf(count),
            ],
            1,
        )
        out[:, k] = np.log(weight[label == LABELS].sum() / weight.sum()) + (terms * known).sum(1)
    return out


def test_naive_bayes_of_mixed_columns_with_weights_and_missing_values():
    rows, weight = mixed_table(), COUNTS * 1.25
    truth = naive_log_joint(rows, weight, 0.6)
    kinds = ["gaussian", "bernoulli", "categorical", "count"]
    whole = estimators.NaiveBayes(kinds, alpha=0.6).fit(rows, LABELS, weight)
    pieces = estimators.NaiveBayes(kinds, alpha=0.6)
    for some in (slice(0, 17), slice(17, N)):
        pieces.partial_fit(rows[some], LABELS[some], np.unique(LABELS), weight[some])
    for model in (whole, pieces):
        close(model.predict_joint_log_proba(rows), truth, rtol=1e-7)
        assert (model.predict(rows) == np.unique(LABELS)[truth.argmax(1)]).all()
    close(np.exp(whole.score_samples(rows)), np.exp(truth).sum(1), rtol=1e-7)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("LinearDiscriminantAnalysis", {"solver": "svd"}),
        ("LinearDiscriminantAnalysis", {"solver": "lsqr", "shrinkage": 0.3, "priors": [0.2, 0.5, 0.3]}),
        ("LinearDiscriminantAnalysis", {"solver": "eigen", "shrinkage": "auto"}),
        ("QuadraticDiscriminantAnalysis", {"reg_param": 0.1}),
    ],
)
def test_discriminants_with_weights(name, settings):
    ours = getattr(estimators, name)(**settings).fit(X, LABELS, COUNTS)
    theirs = getattr(their_discriminants, name)(**settings).fit(X[REPEATED], LABELS[REPEATED])
    close(ours.decision_function(NEW), theirs.decision_function(NEW), rtol=1e-7, atol=1e-9)
    close(ours.predict_proba(NEW), theirs.predict_proba(NEW), rtol=1e-7, atol=1e-12)
    assert (ours.predict(X) == theirs.predict(X)).all()
    if settings.get("solver") == "svd":
        close(np.abs(ours.transform(NEW)), np.abs(theirs.transform(NEW)), rtol=1e-6)


@pytest.mark.parametrize("name", ["LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"])
def test_discriminants_with_weights_and_missing_values(name):
    holes = X.copy()
    holes[3::8, 0] = holes[1::9, 1] = np.nan
    ours = getattr(estimators, name)().fit(holes, LABELS, COUNTS)
    again = getattr(estimators, name)().fit(holes[REPEATED], LABELS[REPEATED])
    close(ours.means_, again.means_, rtol=1e-5)
    close(ours.predict_proba(holes), again.predict_proba(holes), atol=1e-5)
    share = [COUNTS[label == LABELS].sum() / COUNTS.sum() for label in np.unique(LABELS)]
    close(ours.priors_, share, rtol=1e-9)


# -- support vector machines ----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_support_vectors_of_three_classes_with_both_kinds_of_weights(kernel):
    settings = {"kernel": kernel, "gamma": 0.3, "coef0": 0.5, "C": 2.0, "tol": 1e-6}
    settings |= {"class_weight": {"fig": 3.0, "pear": 0.5}, "decision_function_shape": "ovo"}
    weight, rows = np.append(0.0, RNG.uniform(0.3, 3.0, N - 1)), X - [5.0, -3.0]
    ours = estimators.SVC(**settings).fit(rows, LABELS, weight)
    theirs = sklearn.svm.SVC(**settings).fit(rows, LABELS, weight)
    close(ours.decision_function(rows), theirs.decision_function(rows), atol=1e-4)
    close(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert (ours.predict(rows) == theirs.predict(rows)).all()
    ours.decision_function_shape = theirs.decision_function_shape = "ovr"
    close(ours.decision_function(rows), theirs.decision_function(rows), atol=1e-4)
    np.testing.assert_array_equal(ours.support_, theirs.support_ + 1)  # libsvm leaves rows of weight 0 out
    close(ours.dual_coef_, theirs.dual_coef_, atol=1e-3)


def test_support_vector_regression_with_weights():
    settings = {"gamma": 0.3, "C": 3.0, "epsilon": 0.2, "tol": 1e-7}
    weight = np.append(0.0, RNG.uniform(0.3, 3.0, N - 1))
    ours = estimators.SVR(**settings).fit(X, Y, weight)
    theirs = sklearn.svm.SVR(**settings).fit(X, Y, weight)
    close(ours.predict(NEW), theirs.predict(NEW), atol=1e-5)
    close(ours.dual_coef_, theirs.dual_coef_, atol=1e-4)


# -- Gaussian processes and kernels ---------------------------------------------------------------------


def test_gaussian_process_with_weights_in_the_units_of_y():
    """A row that is repeated is a row with a part of the noise."""
    settings = {"alpha": 0.1, "optimizer": None, "normalize_y": True}
    y = 40.0 + 9.0 * Y
    ours = estimators.GaussianProcessRegressor(1.3 * RBF(0.9), **settings).fit(X, y, COUNTS)
    kernel = their_kernels.ConstantKernel(1.3) * their_kernels.RBF(0.9)
    theirs = their_processes.GaussianProcessRegressor(kernel, **settings).fit(X[REPEATED], y[REPEATED])
    close(ours.predict(NEW, return_std=True), theirs.predict(NEW, return_std=True), rtol=1e-6)
    close(ours.predict(NEW, return_cov=True)[1], theirs.predict(NEW, return_cov=True)[1], rtol=1e-5)
    once, peer = ours.fit(X, y), theirs.fit(X, y)
    close(once.log_marginal_likelihood_value_, peer.log_marginal_likelihood_value_, rtol=1e-8)
    slope = once.log_marginal_likelihood(once.kernel_.theta, eval_gradient=True)[1]
    close(slope, peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)[1], rtol=1e-6)


def test_gaussian_process_classifier_with_weights():
    ours = estimators.GaussianProcessClassifier(2.0 * RBF(1.1), optimizer=None).fit(X, LABELS, COUNTS)
    kernel = their_kernels.ConstantKernel(2.0) * their_kernels.RBF(1.1)
    theirs = their_processes.GaussianProcessClassifier(kernel, optimizer=None)
    theirs.fit(X[REPEATED], LABELS[REPEATED])
    close(ours.predict_proba(NEW), theirs.predict_proba(NEW), rtol=1e-5)
    close(ours.log_marginal_likelihood_value_, theirs.log_marginal_likelihood_value_, rtol=1e-5)


def test_kernel_ridge_with_weights_and_a_penalty_for_each_target():
    settings = {"alpha": [0.3, 2.0], "kernel": "rbf", "gamma": 0.4}
    y, weight = np.stack([Y, Y**2], 1), COUNTS * 0.7
    ours = estimators.KernelRidge(**settings).fit(X, y, weight)
    theirs = sklearn.kernel_ridge.KernelRidge(**settings | {"alpha": np.array([0.3, 2.0])})
    kept = weight > 0
    close(ours.predict(NEW), theirs.fit(X[kept], y[kept], weight[kept]).predict(NEW), rtol=1e-7)


# -- linear models --------------------------------------------------------------------------------------

LINES = {
    "LinearRegression": {"positive": True},
    "Ridge": {"alpha": 2.0},
    "Lasso": {"alpha": 0.05},
    "ElasticNet": {"alpha": 0.1, "l1_ratio": 0.4},
    "PoissonRegressor": {"alpha": 0.1},
    "BayesianRidge": {"compute_score": True},
    "ARDRegression": {"compute_score": True},
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", LINES)
def test_linear_models_with_weights(name, fit_intercept):
    """Columns with an offset, without which a mean that is not weighted would do no harm."""
    table, settings = np.concatenate([X, X[:, :1] * X[:, 1:]], 1), LINES[name]
    y = np.floor(np.exp(0.5 * Y + 1.5)) if name == "PoissonRegressor" else Y
    kind = getattr(estimators, "Lasso" if name == "ElasticNet" else name)
    tol = 1e-9 if name in ("BayesianRidge", "ARDRegression", "PoissonRegressor") else None
    more = {"fit_intercept": fit_intercept} | ({} if tol is None else {"tol": tol, "max_iter": 10**4})
    ours = kind(**settings, **more).fit(table, y, sample_weight=COUNTS)
    if name in ("Lasso", "ElasticNet"):
        more |= {"tol": 1e-13, "max_iter": 10**6}
    if name == "PoissonRegressor":
        more |= {"solver": "newton-cholesky"}
    theirs = getattr(their_lines, name)(**settings, **more).fit(table[REPEATED], y[REPEATED])
    close(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-6)
    close(ours.predict(table), theirs.predict(table), rtol=1e-5, atol=1e-6)
    if hasattr(theirs, "sigma_"):
        spread = theirs.predict(table, return_std=True)[1]
        close(ours.predict(table, return_std=True)[1], spread, rtol=1e-5)
        close(ours.alpha_, theirs.alpha_, rtol=1e-5)
        close(ours.lambda_, theirs.lambda_, rtol=1e-4)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.7])
@pytest.mark.parametrize("y", [TWO, LABELS], ids=["two", "three"])
def test_logistic_regression_with_both_kinds_of_weights(y, l1_ratio):
    """At the minimum of C Σ w (−log p) + l1 Σ |W| + ½ l2 Σ W² zero is a subgradient, of the intercept too."""
    C, labels = 0.8, np.unique(y)
    model = estimators.LogisticRegression(C=C, class_weight={y[0]: 2.5}, tol=1e-9, l1_ratio=l1_ratio)
    model.fit(X, y, COUNTS)
    weight, p = COUNTS * np.where(y == y[0], 2.5, 1.0), model.predict_proba(X)
    slope = (C * weight[:, None] * (p - (y[:, None] == labels)))[:, -len(model.coef_) :]
    close(slope.sum(0), 0, atol=1e-6)
    slope = slope.T @ X + (1 - l1_ratio) * model.coef_
    is_zero = model.coef_ == 0
    assert is_zero.any() == (l1_ratio > 0 and len(labels) > 2)
    close(slope[~is_zero], -l1_ratio * np.sign(model.coef_[~is_zero]), atol=1e-6)
    assert (np.abs(slope[is_zero]) <= l1_ratio).all()
    assert (model.predict(X) == labels[p.argmax(1)]).all()


def test_standard_errors_of_logistic_regression_with_weights():
    """The inverse of Σ w p (1 − p) x xᵀ, plus the penalty 1 / C of all but the intercept."""
    model = estimators.LogisticRegression(C=3.0, tol=1e-9).fit(X, TWO, COUNTS)
    p = model.predict_proba(X)[:, 1]
    rows = np.column_stack([X, np.ones(N)])
    information = (rows * (COUNTS * p * (1 - p))[:, None]).T @ rows + np.diag([1 / 3, 1 / 3, 0])
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    close(model.standard_errors_[0], errors[:2], rtol=1e-6)
    close(model.intercept_standard_errors_, errors[2:], rtol=1e-6)
    half = (model.confidence_intervals(0.9)[0] @ [-0.5, 0.5]) / errors[:2]
    close(half, norm.ppf(0.95), rtol=1e-6)


@pytest.mark.parametrize("name", ["SVC", "LogisticRegression"])
def test_balanced_classes_have_the_same_total_weight(name):
    """Σ of the weights of the rows in a class, not the number of its rows."""
    totals = np.array([COUNTS[label == TWO].sum() for label in ("no", "yes")])
    by_hand = dict(zip(("no", "yes"), COUNTS.sum() / (2 * totals), strict=True))
    kind = getattr(estimators, name)
    balanced = kind(class_weight="balanced").fit(X, TWO, COUNTS)
    close(
        balanced.decision_function(NEW),
        kind(class_weight=by_hand).fit(X, TWO, COUNTS).decision_function(NEW),
        rtol=1e-9,
    )


# -- basis functions ------------------------------------------------------------------------------------


def test_basis_functions_are_placed_on_the_range_of_their_column():
    low, high = X.min(0), X.max(0)
    u = (NEW - (low + high) / 2) / ((high - low) / 2)
    found = lambda name, m, **more: estimators.BasisExpansion(name, m, **more).fit(X).transform(NEW)
    side_by_side = lambda f, m: np.stack([f(u, i) for i in range(m)], 2).reshape(len(NEW), -1)
    close(found("polynomial", 3), side_by_side(lambda u, i: u ** (i + 1), 3), rtol=1e-9)
    bump = lambda u, i: np.exp(-0.5 * ((u - (i - 1)) / 0.7) ** 2)  # centres at −1, 0, 1
    close(found("gaussian", 3, width=0.7), side_by_side(bump, 3), rtol=1e-9)
    step = lambda u, i: 1 / (1 + np.exp(-(u - (i - 1)) / 0.7))
    close(found("sigmoid", 3, width=0.7), side_by_side(step, 3), rtol=1e-9)
    wave = lambda u, i: (np.cos if i % 2 else np.sin)(np.pi / 2 / 0.8 * u * (i // 2 + 1))
    close(found("fourier", 4, width=0.8), side_by_side(wave, 4), rtol=1e-7, atol=1e-12)
    theirs = SplineTransformer(n_knots=4, degree=3, extrapolation="constant").fit(X).transform(NEW)
    close(found("spline", 6), theirs, rtol=1e-7, atol=1e-9)
