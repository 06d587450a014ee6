"""Linear regressors: scikit-learn's optimum, robust noise, certificates, and bad input."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.linear_model as theirs
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import energax
from energax import estimators, posterior
from energax.energies import BayesianLinear
from energax.errors import BadInput, ConvergenceWarning

RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(0, 2, 60)
WEIGHTS[:5] = 0
TIGHT = {
    "LinearRegression": ({}, {}),
    "LinearRegression, positive": ({"positive": True}, {"positive": True}),
    "Ridge": ({"alpha": 2.0}, {"alpha": 2.0}),
    "Lasso": ({"alpha": 0.1, "tol": 1e-11}, {"alpha": 0.1, "tol": 1e-14, "max_iter": 10**6}),
    "ElasticNet": (
        {"alpha": 0.1, "l1_ratio": 0.4, "tol": 1e-11},
        {"alpha": 0.1, "l1_ratio": 0.4, "tol": 1e-14, "max_iter": 10**6},
    ),
    "PoissonRegressor": (
        {"alpha": 0.1, "tol": 1e-8},
        {"alpha": 0.1, "tol": 1e-12, "solver": "newton-cholesky", "max_iter": 1000},
    ),
    "BayesianRidge": ({"tol": 1e-11, "max_iter": 10**5}, {"tol": 1e-11, "max_iter": 10**5}),
    "ARDRegression": ({"tol": 1e-11, "max_iter": 10**5}, {"tol": 1e-11, "max_iter": 10**5}),
}


def data(n=60, d=5, name=""):
    """Columns of different scales and offsets, one of them constant."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    y = X @ rng.normal(size=d) + 0.5 * rng.normal(size=n) + 3
    X = X * 10.0 ** rng.integers(-1, 2, d) + rng.normal(size=d)
    X[:, 1] = 2.5
    return X, (np.floor(np.exp(0.3 * y)) if "Poisson" in name else y)


def pair(name, **more):
    ours, other = TIGHT[name]
    kind = name.partition(",")[0]
    a = getattr(estimators, "Lasso" if kind == "ElasticNet" else kind)(**ours, **more)
    return a, getattr(theirs, kind)(**other, **more)


def same(a, b, X, rtol=1e-6):
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=rtol, atol=rtol * np.abs(b.coef_).max())
    np.testing.assert_allclose(a.predict(X), b.predict(X), rtol=rtol, atol=rtol * np.abs(b.predict(X)).max())


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", TIGHT)
def test_scikit_learns_optimum(name, weighted, fit_intercept):
    if name == "ARDRegression" and weighted:
        pytest.skip("scikit-learn's has no weights")
    X, y = data(name=name)
    ours, other = pair(name, fit_intercept=fit_intercept)
    options = {"sample_weight": WEIGHTS} if weighted else {}
    ours.fit(X, y, **options), other.fit(X, y, **options)
    same(ours, other, X)
    assert ours.score(X, y) == pytest.approx(other.score(X, y), rel=1e-6)
    if hasattr(other, "sigma_"):
        mean, std = ours.predict(X, return_std=True)
        np.testing.assert_allclose(std, other.predict(X, return_std=True)[1], rtol=1e-6)
        np.testing.assert_allclose(ours.alpha_, other.alpha_, rtol=1e-6)
        np.testing.assert_allclose(ours.lambda_, other.lambda_, rtol=1e-5)
        np.testing.assert_array_equal(mean, ours.predict(X))


@pytest.mark.parametrize("name", ["LinearRegression", "Ridge", "Lasso", "ElasticNet", "BayesianRidge"])
def test_more_columns_than_rows(name):
    X, y = data(20, 30)
    ours, other = pair(name)
    same(ours.fit(X, y), other.fit(X, y), X)


@pytest.mark.parametrize("name", TIGHT)
def test_float32_sparse_tables_frames_and_files(name, tmp_path):
    X, y = data(name=name)
    X[np.abs(X) < 0.3] = 0
    reference = pair(name)[0].fit(X, y)
    single = pair(name)[0].fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(
        single.predict(X.astype(np.float32)), reference.predict(X), rtol=2e-3, atol=2e-3
    )
    sparse = pair(name)[0].fit(scipy.sparse.csr_array(X), y)
    np.testing.assert_array_equal(sparse.coef_, reference.coef_)
    frame = pd.DataFrame(X, columns=list("abcde"))
    named = pair(name)[0].fit(frame, y)
    np.testing.assert_array_equal(named.predict(frame), reference.predict(X))
    named.save(tmp_path / "model.safetensors")
    loaded = type(named).load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(frame), named.predict(frame))


@pytest.mark.parametrize("name", TIGHT)
def test_a_constant_target_and_one_row(name):
    X, _ = data()
    model = pair(name)[0].fit(X, np.full(60, 4.0))
    np.testing.assert_allclose(model.predict(X), 4.0, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, 0, atol=1e-6)
    if name != "ARDRegression":
        assert pair(name)[0].fit(X[:1], [4.0]).predict(X[:1]) == pytest.approx(4.0)


@pytest.mark.parametrize("name", TIGHT)
def test_bad_targets_are_named(name):
    X, y = data()
    for bad, words in (
        (np.where(np.arange(60) == 3, np.nan, y), "NaN in row 3; .*Leave out the rows"),
        (np.where(np.arange(60) == 3, np.inf, y), "infinity in row 3"),
        (["a"] * 60, "one finite number for each row"),
        (None, "None; expected targets"),
        (y * 1e300, "values as large as"),
    ):
        with pytest.raises(BadInput, match=f"^y: found .*{words}"):
            pair(name)[0].fit(X, bad)
    missing = X.copy()
    missing[0, 0] = np.nan
    with pytest.raises(BadInput, match=r"^X"):
        pair(name)[0].fit(missing, y)
    with pytest.raises(BadInput, match="sample_weight"):
        pair(name)[0].fit(X, y, sample_weight=-np.ones(60))


# -- maximum a posteriori ------------------------------------------------------------------------------


def test_ridge_is_the_posterior_mode_with_the_ratio_of_the_precisions():
    X, y = data()
    alpha, beta = 3.0, 1.5
    model = estimators.Ridge(alpha / beta, fit_intercept=False).fit(X, y)
    with jax.enable_x64(True):
        prior = BayesianLinear(jnp.asarray(alpha), jnp.asarray(beta), 5)
        np.testing.assert_allclose(model.coef_, posterior(prior, {"x": X, "y": y}).mean["w"], rtol=1e-9)
        np.testing.assert_allclose(model.coef_, energax.argmin(prior, {"x": X, "y": y})["w"], rtol=1e-9)


def test_the_scores_are_the_evidence_and_the_energy_predicts():
    X, y = data()
    options = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0, "fit_intercept": False}
    model = estimators.BayesianRidge(compute_score=True, tol=1e-10, **options).fit(X, y)
    other = theirs.BayesianRidge(compute_score=True, tol=1e-10, **options).fit(X, y)
    assert model.scores_[-1] == pytest.approx(other.scores_[-1], rel=1e-9)
    with jax.enable_x64(True):
        prior = BayesianLinear(jnp.asarray(model.lambda_), jnp.asarray(model.alpha_), 5)
        evidence = energax.log_prob(prior, {"y": y}, given={"x": X})
        assert model.scores_[-1] == pytest.approx(float(evidence.value), rel=1e-9)
        predictive = model.energy_.conditional("y", x=jnp.asarray(X[:3]))
        mean, std = model.predict(X[:3], return_std=True)
        np.testing.assert_allclose(predictive.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(predictive.variance, std**2, rtol=1e-9)


def test_relevance_drops_the_columns_that_do_not_help():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    model = estimators.ARDRegression(compute_score=True).fit(
        X, 3 * X[:, 0] - X[:, 5] + 0.1 * rng.normal(size=200)
    )
    assert (
        set(np.flatnonzero(model.coef_)) >= {0, 5} and len(model.sigma_) == (model.lambda_ < 1e4).sum() <= 4
    )
    assert np.isfinite(model.scores_).all() and model.predict(X, return_std=True)[1].min() > 0.09


def test_too_few_iterations_warn():
    X, y = data()
    for model in (
        estimators.BayesianRidge(max_iter=1),
        estimators.PoissonRegressor(max_iter=1),
        estimators.LinearRegression(noise="student-t", max_iter=1),
    ):
        with pytest.warns(ConvergenceWarning, match="did not converge"):
            model.fit(X, np.abs(y))


# -- robust noise ----------------------------------------------------------------------------------------


def test_student_t_noise_ignores_outliers_and_is_a_maximum():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) + np.array([100.0, 0.0, -5.0])
    w = np.array([1.0, -2.0, 0.5])
    y = X @ w + 7 + 0.1 * rng.normal(size=200)
    y[:20] += 50
    model = estimators.LinearRegression(noise="student-t", df=2.0).fit(X, y)
    assert (
        np.abs(model.coef_ - w).max() < 0.05 < np.abs(estimators.LinearRegression().fit(X, y).coef_ - w).max()
    )

    def loss(parameters):
        from scipy import stats

        return -stats.t(2.0, X @ parameters[:3] + parameters[3], np.exp(parameters[4])).logpdf(y).mean()

    best = np.append(model.coef_, [model.intercept_, np.log(float(model.energy_.likelihood.scale))])
    for i in range(5):  # no direction is better
        step = np.zeros(5)
        step[i] = 1e-4 / (100 if i == 0 else 1)
        assert loss(best) <= min(loss(best + step), loss(best - step)) + 1e-12


def test_student_t_noise_with_many_degrees_of_freedom_is_least_squares():
    X, y = data()
    robust = estimators.LinearRegression(noise="student-t", df=1e9).fit(X, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(
        robust.predict(X),
        estimators.LinearRegression().fit(X, y, sample_weight=WEIGHTS).predict(X),
        rtol=1e-5,
    )
    flat = estimators.LinearRegression(noise="student-t", fit_intercept=False).fit(X, y)
    assert float(flat.intercept_) == 0
    with pytest.raises(BadInput, match="positive: found True with Student-t"):
        estimators.LinearRegression(noise="student-t", positive=True).fit(X, y)


# -- certificates ------------------------------------------------------------------------------------------


def test_the_dual_gap_bounds_the_error_of_the_lasso():
    X, y = data(80, 12)
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1)
    objective = lambda m: 0.5 * np.mean((y - m.predict(X)) ** 2) + 0.05 * np.abs(m.coef_).sum()
    best = theirs.Lasso(0.05, tol=1e-14, max_iter=10**6).fit(X, y)
    for tol in (1e-1, 1e-3, 1e-8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimators.Lasso(0.05, tol=tol).fit(X, y)
        error = objective(model) - objective(best)
        assert -1e-12 < error <= model.dual_gap_ + 1e-12
    assert model.dual_gap_ < 1e-12 and (model.coef_ == 0).sum() == (best.coef_ == 0).sum()


def test_nearly_dependent_columns_have_an_exact_lasso_or_a_warning():
    """Columns that are mostly the same offset: coordinate descent ends far from the minimum."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 10))
    X, y = 5 + 0.1 * noise, noise @ rng.normal(size=10) + rng.normal(size=300)
    model = estimators.Lasso(0.001, fit_intercept=False).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = theirs.Lasso(0.001, fit_intercept=False).fit(X, y)
    assert model.converged_ and model.dual_gap_ < 1e-10 and (model.coef_ != 0).sum() > 5
    assert other.dual_gap_ > 1e-6
    wide = 5 + 0.1 * rng.normal(size=(10, 30))
    with pytest.warns(ConvergenceWarning, match="Lasso did not converge: the duality gap is"):
        estimators.Lasso(1e-6, fit_intercept=False, max_iter=1).fit(wide, rng.normal(size=10))


@pytest.mark.parametrize("name", ["LinearRegression", "LinearRegression, positive", "Ridge"])
def test_several_targets_are_as_many_models(name, tmp_path):
    X, y = data()
    X = np.delete(X, 1, 1)
    Y = np.stack([y, np.roll(y, 7), 3 * X[:, 0] - y], axis=1)
    ours, peer = (TIGHT[name][i] for i in (0, 1))
    model = getattr(estimators, name.partition(",")[0])(**ours).fit(X, Y, sample_weight=WEIGHTS)
    other = getattr(theirs, name.partition(",")[0])(**peer).fit(X, Y, sample_weight=WEIGHTS)
    assert model.coef_.shape == (3, X.shape[1]) and model.intercept_.shape == (3,)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=1e-9, atol=1e-9)
    assert model.score(X, Y, WEIGHTS) == pytest.approx(other.score(X, Y, WEIGHTS), abs=1e-12)
    each = [getattr(estimators, name.partition(",")[0])(**ours).fit(X, t, sample_weight=WEIGHTS) for t in Y.T]
    with jax.enable_x64(True):
        found = energax.log_prob(model.energy_, {"y": Y}, given={"x": X}).value
        alone = [
            energax.log_prob(m.energy_, {"y": t}, given={"x": X}).value
            for m, t in zip(each, Y.T, strict=True)
        ]
    np.testing.assert_allclose(found[::9], np.sum(alone, 0)[::9], rtol=1e-6)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        type(model).load(tmp_path / "model.safetensors").predict(X), model.predict(X)
    )
    for wrong in (y, Y[:, :2]):
        with pytest.raises(BadInput, match=r"y: found shape .*; expected numbers of shape \(n_samples, 3\)"):
            model.score(X, wrong)
    assert model.fit(X, y).coef_.shape == (X.shape[1],)
    with pytest.raises(BadInput, match="y: found NaN in row 3"):
        model.fit(X, np.where(np.arange(60)[:, None] == 3, np.nan, Y))


def test_robust_regression_of_several_targets():
    X, y = data()
    Y = np.stack([y, np.where(np.arange(60) % 9 == 0, y + 50, y)], axis=1)
    found = estimators.LinearRegression(noise="student-t", tol=1e-12).fit(X, Y)
    for t in range(2):
        alone = estimators.LinearRegression(noise="student-t", tol=1e-12).fit(X, Y[:, t])
        np.testing.assert_allclose(found.coef_[t], alone.coef_, rtol=1e-10)
        scale = found.energy_.likelihood.scale[t]
        assert float(scale) == pytest.approx(float(alone.energy_.likelihood.scale))


@pytest.mark.parametrize("name", ["Lasso", "BayesianRidge", "ARDRegression", "PoissonRegressor", "SVR"])
def test_several_targets_need_a_wrapper_where_there_is_one_model(name):
    X, y = data()
    Y = np.abs(np.stack([y, y], axis=1))
    with pytest.raises(BadInput, match=r"y: found 2 targets; .*MultiOutputRegressor"):
        getattr(estimators, name)().fit(X, Y)
    wrapped = MultiOutputRegressor(getattr(estimators, name)()).fit(X, Y)
    np.testing.assert_allclose(
        wrapped.predict(X)[:, 1], getattr(estimators, name)().fit(X, Y[:, 1]).predict(X)
    )


def test_the_score_of_equal_counts_is_one_if_they_are_predicted():
    X, _ = data()
    model = estimators.PoissonRegressor().fit(X, np.full(60, 3.0))
    assert model.score(X, np.full(60, 3.0)) == 1 and model.score(X, np.full(60, 4.0)) == 0
    weight = np.append(np.ones(59), 0.0)
    assert model.score(X, np.append(np.full(59, 3.0), 9.0), weight) == 1


def test_counts_are_checked():
    X, _ = data()
    for y, words in ((np.full(60, -1.0), "-1 in row 0"), (np.zeros(60), "only zeros")):
        with pytest.raises(BadInput, match=f"^y: found {words}"):
            estimators.PoissonRegressor().fit(X, y)


# -- basis functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["polynomial", "gaussian", "sigmoid", "fourier", "spline"])
def test_every_basis_fits_a_curve_through_a_pipeline(basis):
    X = np.linspace(-2, 3, 200)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0]
    for model in (estimators.BayesianRidge(), estimators.LinearRegression(tol=1e-12)):
        curve = make_pipeline(estimators.BasisExpansion(basis, 12), model).fit(X, y)
        assert curve.score(X, y) > 0.999
    names = curve[0].get_feature_names_out(["age"])
    assert len(names) == 12 and names[3] == f"age_{basis}3"


def test_splines_are_those_of_scikit_learn():
    X = np.random.default_rng(0).uniform(-1, 4, size=(50, 2))
    ours = estimators.BasisExpansion("spline", 7).fit_transform(X)
    np.testing.assert_allclose(ours, SplineTransformer(5, degree=3).fit_transform(X), atol=1e-12)


def test_a_basis_outside_its_range_and_too_few_functions():
    X = np.linspace(0, 1, 20)[:, None]
    for basis in ("gaussian", "sigmoid", "fourier", "spline", "polynomial"):
        found = estimators.BasisExpansion(basis, 5).fit(X).transform([[-10.0], [10.0]])
        assert np.isfinite(found).all() and found.shape == (2, 5)
        constant = estimators.BasisExpansion(basis, 5).fit_transform(np.ones((4, 1)))
        assert np.isfinite(constant).all()
    with pytest.raises(BadInput, match=r"^n_basis: found 3; expected >= 4 for basis='spline'"):
        estimators.BasisExpansion("spline", 3).fit(X)
