"""`compare`: every number on one held-out scale, in the units of the data, and no model takes it down."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from energax import catalog
from energax.errors import BadInput
from energax.estimate import Estimate
from energax.evaluate import Score, _model_specs, compare, hold_out, model_specs
from energax.evaluate._compare import _rank
from energax.evaluate._model_specs import MODEL_SPECS

ROWS = np.random.default_rng(0).normal(size=(160, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]]) + [3.0, -1.0]


@pytest.fixture(scope="module")
def plain():
    return compare(ROWS, ["gaussian", "gmm-diag"], key=0)


def test_one_gaussian_is_the_gaussian_of_the_training_rows(plain):
    train, held = hold_out(len(ROWS), 0.2, key=0)
    X = ROWS[train]
    reference = multivariate_normal(X.mean(0), np.cov(X.T, bias=True)).logpdf(ROWS[held])
    # The mixture adds 1e-6 to its variances, as scikit-learn's does.
    np.testing.assert_allclose(plain["gaussian"].rows.value, reference, atol=1e-4)
    assert plain["gaussian"].mean.kind == "exact"


def test_units_move_the_density_by_their_jacobian(plain):
    scaled = compare(ROWS * [1e3, 1e-2] + 5, ["gaussian", "gmm-diag"], key=0)
    for name in ("gaussian", "gmm-diag"):
        shift = float(scaled[name].mean) - float(plain[name].mean)
        assert abs(shift + np.log(1e3) + np.log(1e-2)) < 1e-3


def test_best_first_with_paired_differences(plain):
    means = [float(s.mean) for s in plain.scores]
    assert means == sorted(means, reverse=True)
    assert float(plain.best.difference) == 0
    other = plain.scores[1]
    np.testing.assert_allclose(float(other.difference), means[1] - means[0], atol=1e-9)
    frame = plain.to_frame()
    assert (frame["low"] < frame["log_likelihood"]).all() and (frame["log_likelihood"] < frame["high"]).all()


def test_an_error_that_all_rows_share_is_in_the_interval(plain):
    values = np.random.default_rng(0).normal(-20.0, 2.0, size=250)
    exact = Score("a", "a", "fitted", rows=Estimate(values))
    shared = Score("b", "b", "fitted", rows=Estimate(values, 5.0, "estimate", shared=5.0))
    half = lambda score: np.ptp(score.interval()) / 2
    assert half(exact) == pytest.approx(1.97 * values.std() / np.sqrt(250), rel=0.01)  # about 0.25
    assert half(shared) == pytest.approx(9.8, rel=0.01)
    # The difference of the best to itself is exactly 0.
    best, other = _rank([shared, dataclasses.replace(exact, rows=exact.rows - 1.0)])
    assert float(best.difference.stderr) == 0 and float(other.difference.stderr) == pytest.approx(5.0)


def test_the_same_key_gives_the_same_table(plain):
    again = compare(ROWS, ["gaussian", "gmm-diag"], key=0)
    columns = ["log_likelihood", "difference", "status"]
    assert again.to_frame()[columns].equals(plain.to_frame()[columns])
    other = compare(ROWS, ["gaussian"], key=1)
    assert float(other["gaussian"].mean) != float(plain["gaussian"].mean)


def test_missing_values_are_summed_out_or_the_model_is_skipped():
    X = ROWS.copy()
    X[::7, 0] = np.nan
    X[5] = np.nan
    result = compare(X, ["gaussian", "energy-model"], key=0)
    assert np.isfinite(float(result["gaussian"].mean))
    assert result["energy-model"].status == "skipped" and "missing" in result["energy-model"].message
    assert any("without any value" in note for note in result.notes)
    # A row with only its second value known is scored by the marginal of that value.
    kept = X[~np.isnan(X).all(1)]
    _, held = hold_out(len(kept), 0.2, key=0)
    half = np.flatnonzero(np.isnan(kept[held, 0]))
    assert len(half)
    complete = multivariate_normal(ROWS[:, 1].mean(), ROWS[:, 1].var())
    expected = complete.logpdf(kept[held][half, 1])
    np.testing.assert_allclose(result["gaussian"].rows.value[half], expected, atol=0.2)


def test_columns_that_cannot_be_used_are_named():
    import pandas as pd

    frame = pd.DataFrame(
        {"a": ROWS[:, 0], "flat": 1.0, "name": "x", "b": ROWS[:, 1], "coin": np.arange(160) % 2}
    )
    result = compare(frame, ["gaussian"], key=0)
    told = " ".join(result.notes)
    assert "not numeric: name" in told and "constant in the training rows: flat" in told and "coin" in told
    assert result.space.shape == (3,)


def test_how_whole_numbers_were_read_is_told():
    rows = np.c_[ROWS, np.arange(160) % 7, np.arange(160) % 2]
    rows[3, 2] = np.nan
    told = " ".join(compare(rows, ["gaussian"], key=0).notes)
    assert "Whole numbers, treated as real numbers: x2. " in told and "Only 0 and 1" in told
    assert not compare(ROWS, ["gaussian"], key=0).notes


def test_a_model_that_breaks_is_a_row(monkeypatch):
    def broken(X):
        raise RuntimeError("no luck")

    bad = dataclasses.replace(MODEL_SPECS[0], name="broken", label="broken", parameters=broken)
    monkeypatch.setattr(_model_specs, "MODEL_SPECS", (*MODEL_SPECS, bad))
    result = compare(ROWS, ["broken", "gaussian"], key=0)
    assert [s.name for s in result.scores] == ["gaussian", "broken"]
    assert result["broken"].status == "failed" and "no luck" in result["broken"].message
    assert "no luck" in repr(result)


def test_a_model_for_other_data_is_skipped_and_says_so(plain):
    result = compare(ROWS, ["gaussian", "rbm-cd"], key=0)
    assert result["rbm-cd"].status == "skipped" and "zeros and ones" in result["rbm-cd"].message


def test_a_family_means_all_of_it_that_suits():
    names = lambda models, data: [spec.name for spec in _model_specs.select(models, data)]
    assert names("GaussianMixture", "real") == [
        s.name for s in MODEL_SPECS if s.estimator == "GaussianMixture"
    ]
    assert names("gmm", "real") == ["gmm-full", "gmm-tied", "gmm-diag", "gmm-spherical"]
    assert names("vae", "binary") == ["vae-1", "vae-10"]
    assert names(None, "binary") == [spec.name for spec in model_specs() if spec.data == "binary"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"models": ["gausian"]}, "Did you mean 'gaussian'"),
        ({"models": []}, "at least one model"),
        ({"test": 1.5}, "fraction"),
        ({"data": np.ones((20, 2)) * 3}, "constant"),
        ({"data": ROWS[:3]}, "data: found 3 rows; expected at least 4, to have 2 rows on each side"),
        ({"data": ROWS[:1]}, "data: found 1 row; "),
        ({"test": 159}, r"159 of 160 rows held out.*Hold out 2 to 158\."),
        ({"test": np.float64(2.5)}, "test: found 2.5; "),
        ({"key": "x"}, "key"),
        (
            {"models": ["rbm-cd", "vae-1"]},
            r"models: found rbm-cd, vae-1 \(for zeros and ones, and the data are",
        ),
        (
            {"data": np.where(ROWS > 5, np.nan, ROWS), "models": "energy-model"},
            "not for rows with missing values",
        ),
    ],
)
def test_bad_input_at_the_door(arguments, said):
    with pytest.raises(BadInput, match=said):
        compare(**{"data": ROWS, "models": ["gaussian"], **arguments})


def test_the_table_is_whole_at_80_columns(plain):
    from rich.console import Console

    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(plain)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    table = [line for line in lines if "±" in line and "How" not in line and "interval" not in line]
    assert len(table) == len(plain), "a row of the table was wrapped"
    assert all(len(spec.label) <= 19 for spec in model_specs())


def test_progress_is_told(plain):
    heard = []
    compare(ROWS, ["gaussian"], key=0, progress=lambda *event: heard.append(event))
    assert heard[0][:2] == ("start", "one Gaussian") and heard[-1] == ("end", "one Gaussian: converged", 1, 1)


@pytest.mark.slow
def test_models_of_the_digits_beat_independent_bits():
    """The main job on its default data, by some of its models (all nine take a minute): the order."""
    models = ["bernoulli", "bernoulli-mixture-10", "bernoulli-mixture-50", "rbm-likelihood", "vae-1"]
    result = compare(key=0, models=models)
    means = {s.name: float(s.mean) for s in result.scores}
    assert set(means) == set(models)
    assert all(value > means["bernoulli"] + 3 for name, value in means.items() if name != "bernoulli")
    assert means["bernoulli-mixture-50"] > means["bernoulli-mixture-10"]
    assert means["rbm-likelihood"] > -19.3 and means["vae-1"] > -17.8


def test_model_specs_are_unique_and_name_an_estimator():
    names, labels = [s.name for s in MODEL_SPECS], [s.label for s in MODEL_SPECS]
    assert len(set(names)) == len(names) and len(set(labels)) == len(labels)
    assert {catalog.find(s.estimator).kind for s in MODEL_SPECS} == {"estimator"}
