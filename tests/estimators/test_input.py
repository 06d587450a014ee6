"""Invalid input of every method of every estimator raises `BadInput`, and results are never NaN."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from energax import estimators
from energax.errors import BadInput, NotFitted

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(40, 3))
LABELS = np.where(REAL[:, 0] > 0, "up", "down")

#: Small settings of every estimator. Other estimators are tested in their own files.
SMALL = {
    "LinearClassifier": {"max_iter": 20, "tol": None},
    "MLPClassifier": {"hidden_layer_sizes": (4,), "max_iter": 3, "tol": None, "batch_size": None},
    "BernoulliRBM": {"n_components": 2, "n_iter": 2, "binarize": 0.0},
    "VAE": {"n_components": 2, "hidden_layer_sizes": (4,), "max_iter": 2, "n_importance": 10},
    "EnergyModel": {"hidden_layer_sizes": (4,), "max_iter": 2, "n_importance": 256},
    "GaussianMixture": {"n_components": 2},
    "KMeans": {"n_clusters": 2},
    "BernoulliMixture": {"n_components": 2},
}  # fmt: skip
NAMES = [n for n in SMALL if hasattr(estimators, n)]
READERS = (
    "predict",
    "predict_proba",
    "decision_function",
    "transform",
    "score_samples",
    "log_prob",
    "impute",
)


def make(name):
    return getattr(estimators, name)(**SMALL[name], random_state=0)


def data(name):
    return (REAL > 0).astype(float) if name.startswith("Bernoulli") else REAL


def fitted(name, X=None, **options):
    model = make(name)
    X = data(name) if X is None else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, LABELS[: len(X)], **options) if is_classifier(model) else model.fit(X, **options)


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in NAMES}


def readers(model):
    return [m for m in READERS if hasattr(model, m)]


def replaced(X, value):
    out = np.array(X)
    out[1, 1] = value
    return out


BAD = {
    "inf": (lambda X: replaced(X, np.inf), "infinity"),
    "minus inf": (lambda X: replaced(X, -np.inf), "infinity"),
    "empty": (lambda X: X[:0], r"0 sample\(s\)"),
    "no columns": (lambda X: X[:, :0], r"0 feature\(s\)"),
    "one axis": (lambda X: X[:, 0], "2D array"),
    "three axes": (lambda X: X[None], "dim 3"),
    "a number": (lambda X: 3.0, "2D array"),
    "strings": (lambda X: np.full(X.shape, "a"), "string|convert"),
    "complex": (lambda X: X + 1j, "(?i)complex"),
    "huge": (lambda X: replaced(X, 1e300), "as large as|zeros and ones"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", BAD)
def test_every_method_rejects_a_bad_table(models, name, case):
    spoil, words = BAD[case]
    X = spoil(data(name))
    calls = [lambda: fitted(name, X)] if np.ndim(X) and len(X) else [lambda: make(name).fit(X, LABELS)]
    model = models[name]
    calls += [lambda m=m: getattr(model, m)(X) for m in readers(model)]
    for call in calls:
        with pytest.raises(BadInput, match=words) as caught:
            call()
        assert re.match(r"\w[^:]*: found .*; expected .*\.", str(caught.value), re.DOTALL), caught.value


@pytest.mark.parametrize("name", NAMES)
def test_values_of_1e30_are_rejected_or_give_finite_results(models, name):
    X = replaced(data(name), 1e30)
    with pytest.raises(BadInput, match=r"as large as|zeros and ones"):
        fitted(name, X.astype(np.float32))
    model = models[name]  # float64 can hold their squares, if the model computes in float64
    for method in readers(model):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = getattr(model, method)(X)
        except BadInput:
            continue
        values = np.asarray(getattr(out, "value", out))
        assert values.dtype.kind in "UOi" or np.isfinite(values).all(), method


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_rejected_or_allowed_and_never_returned(models, name):
    X = replaced(data(name), np.nan)
    model = models[name]
    if not model.__sklearn_tags__().input_tags.allow_nan:
        with pytest.raises(BadInput, match="NaN"):
            fitted(name, X)
        with pytest.raises(BadInput, match="NaN"):
            getattr(model, readers(model)[0])(X)
        return
    for learned in (model, fitted(name, X)):
        for method in readers(learned):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = getattr(learned, method)(X)
            assert np.isfinite(getattr(out, "value", out)).all(), method


@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_columns_is_rejected(models, name):
    model = models[name]
    for method in readers(model):
        with pytest.raises(BadInput, match=r"2 features, but .* expecting 3 features"):
            getattr(model, method)(data(name)[:, :2])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "weight",
    [-np.ones(40), np.zeros(40), np.full(40, np.nan), np.full(40, np.inf), np.ones(39), np.ones((40, 2))],
    ids=["negative", "zero", "nan", "inf", "short", "2d"],
)
def test_bad_weights_are_rejected(name, weight):
    with pytest.raises(BadInput, match="sample_weight: found"):
        fitted(name, sample_weight=weight)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_raises_before_fit(name):
    model = make(name)
    for method in [*readers(model), "sample"]:
        if hasattr(type(model), method) and hasattr(model, method):
            arguments = (data(name),) if method != "sample" else (2,)
            with pytest.raises(NotFitted, match="not fitted yet") as caught:
                getattr(model, method)(*arguments)
            assert isinstance(caught.value, NotFittedError)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "case", ["one row", "constant column", "a row often", "all constant", "large offset"]
)
def test_degenerate_tables_give_finite_results_or_an_error(name, case):
    X = data(name)
    X = {
        "one row": X[:1],
        "constant column": np.c_[X[:, :2], np.ones(len(X))],
        "a row often": np.repeat(X[:4], 10, axis=0),
        "all constant": np.ones_like(X),
        "large offset": X if name.startswith("Bernoulli") else (X + 300).astype(np.float32),
    }[case]
    try:
        model = fitted(name, X)
    except BadInput:
        if case in ("one row", "all constant"):
            return
        raise
    for method in readers(model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = getattr(model, method)(X)
        values = np.asarray(getattr(out, "value", out))
        assert values.dtype.kind in "OUi" or np.isfinite(values).all(), method


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_bad_setting(name):
    bad = {
        "n_components": 0, "n_clusters": 0, "max_iter": 0, "n_iter": -1, "batch_size": 0, "alpha": -1.0,
        "random_state": "seven", "hidden_layer_sizes": (0,), "activation": "wavy", "loss": "vague",
        "dtype": "float8", "learner": "adam", "likelihood": "poisson", "n_noise": 0, "n_importance": 0,
    }  # fmt: skip
    model = make(name)
    for setting in set(bad) & set(model.get_params()):
        spoiled = clone(model).set_params(**{setting: bad[setting]})
        with pytest.raises(ValueError, match=r".+") as caught:
            spoiled.fit(data(name), LABELS)
        assert setting in str(caught.value), f"{setting}: {caught.value}"


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("Classifier")])
def test_labels(name):
    model = make(name)
    for y, words in (
        (LABELS[:-1], "inconsistent"),
        (np.full(40, "one"), "one class"),
        (np.linspace(0, 1, 40), "Unknown label type|continuous"),
        (np.where(np.arange(40) == 3, np.nan, 1.0), "NaN"),
        (None, "label"),
    ):
        with pytest.raises(BadInput, match=words):
            clone(model).fit(REAL, y)
    first = clone(model)
    with pytest.raises(BadInput, match="classes"):
        first.partial_fit(REAL, LABELS)
    first.partial_fit(REAL, LABELS, classes=["down", "up"])
    with pytest.raises(BadInput, match="'sideways'"):
        first.partial_fit(REAL, np.where(REAL[:, 0] > 0, "sideways", "up"))


def test_errors_of_bernoulli_models_suggest_a_remedy():
    with pytest.raises(BadInput, match=r"1\.5 in row 0, column 1.*binarize="):
        estimators.BernoulliRBM(2).fit([[0.0, 1.5], [1.0, 0.0]])
    model = estimators.VAE(2, (4,), max_iter=1, random_state=0).fit((REAL > 0).astype(float))
    with pytest.raises(BadInput, match="gaussian"):
        model.transform(REAL)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_table_in_every_container(name):
    """NumPy, lists, pandas, polars, integers and (where supported) sparse arrays give the same result."""
    import pandas as pd
    import polars as pl

    X = np.round(data(name) * 2) if not name.startswith("Bernoulli") else data(name)
    columns = ["a", "b", "c"]
    tables = [
        X,
        X.tolist(),
        pd.DataFrame(X, columns=columns),
        pl.DataFrame(X, schema=columns),
        X.astype(int),
    ]
    if make(name)._sparse:
        tables += [scipy.sparse.csr_array(X), scipy.sparse.coo_array(X)]
    reader = readers(fitted(name))[0]
    results = []
    for table in tables:
        model = fitted(name, table) if not scipy.sparse.issparse(table) else make(name)
        if scipy.sparse.issparse(table):
            model.fit(table, LABELS)
        assert model.n_features_in_ == 3
        results.append(getattr(model, reader)(table))
    assert all(np.array_equal(results[0], a) for a in results[1:])
    assert list(fitted(name, tables[2]).feature_names_in_) == columns


@pytest.mark.parametrize("name", NAMES)
def test_precision_follows_the_table(name):
    for dtype in (np.float32, np.float64):
        model = fitted(name, data(name).astype(dtype))
        expected = np.dtype(getattr(model, "dtype", dtype))
        assert model.dtype_ == expected
        import jax

        leaves = [a for a in jax.tree.leaves(model.energy_) if hasattr(a, "dtype") and a.dtype.kind == "f"]
        assert {np.dtype(a.dtype) for a in leaves} == {expected}


@pytest.mark.parametrize("name", NAMES)
def test_random_state(name):
    reader = readers(fitted(name))[-1]
    one, two = fitted(name), make(name).set_params(random_state=np.random.RandomState(3))
    assert np.array_equal(_values(one, reader, name), _values(fitted(name), reader, name))
    two.fit(data(name), LABELS)
    assert np.isfinite(np.asarray(_values(two, reader, name), float)).all() or reader == "predict"


def _values(model, reader, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = getattr(model, reader)(data(name))
    return np.asarray(getattr(out, "value", out))


def test_skipping_validation_of_plain_arrays_does_not_change_results():
    """Plain arrays skip scikit-learn's validation."""
    X = np.arange(40).reshape(20, 2) % 7
    model = estimators.GaussianMixture(2, random_state=0).fit(X.astype(np.float64))
    expected = model.score_samples(X.tolist())
    for kind in (np.float64, ">f8", np.int64, np.int32, np.uint8, ">i4"):
        np.testing.assert_array_equal(model.score_samples(X.astype(kind)), expected)
    for wrong in (X[:, :1], X[:0], np.where(X > 5, np.inf, X)):
        with pytest.raises(BadInput):
            model.score_samples(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_fit_validates_the_table_once(name, monkeypatch):
    """The training loop does not check rows that the estimator has checked."""

    def fail(*arguments):
        raise AssertionError("checked again")

    monkeypatch.setattr("energax.fitting._run.check_data", fail)
    fitted(name)
