"""KMeans has the signatures and warnings of scikit-learn."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
import sklearn.cluster
import sklearn.exceptions
from sklearn.utils import check_random_state

from energax import errors
from energax.estimators import KMeans

X = np.random.default_rng(0).normal(size=(30, 2))


def shape_of(method):
    """Name, kind and default of every parameter."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(
    "name", ["fit", "fit_predict", "fit_transform", "predict", "transform", "score", "get_feature_names_out"]
)
def test_the_signatures_are_scikit_learns(name):
    assert shape_of(getattr(KMeans, name)) == shape_of(getattr(sklearn.cluster.KMeans, name))


def test_arguments_and_defaults_are_those_of_scikit_learn():
    ours, theirs = KMeans().get_params(), sklearn.cluster.KMeans().get_params()
    assert {name: ours[name] for name in theirs} == theirs


def test_weights_may_be_given_by_position():
    weight = np.arange(30.0)
    fitted = KMeans(3, random_state=0).fit(X, None, weight)
    np.testing.assert_array_equal(KMeans(3, random_state=0).fit_predict(X, None, weight), fitted.labels_)
    np.testing.assert_array_equal(
        KMeans(3, random_state=0).fit_transform(X, None, weight), fitted.transform(X)
    )
    assert fitted.score(X, None, weight) == pytest.approx(-fitted.inertia_)


def warnings_of(model, rows):
    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        model.fit(rows)
    return ours


@pytest.mark.parametrize("k", [2, 3, 5])
def test_fewer_distinct_rows_than_clusters_is_a_warning_as_in_scikit_learn(k):
    rows = np.repeat([[0.0, 1.0], [4.0, 2.0], [9.0, 9.0]], 5, axis=0)
    ours = warnings_of(KMeans(k, random_state=0), rows)
    theirs = warnings_of(sklearn.cluster.KMeans(k, random_state=0), rows)
    assert len(ours) == len(theirs) == (k == 5)
    for warning in ours:
        assert issubclass(warning.category, errors.ConvergenceWarning)
        assert issubclass(warning.category, sklearn.exceptions.ConvergenceWarning)
        assert "3 distinct clusters, fewer than n_clusters=5" in str(warning.message)
        assert warning.filename == __file__


def test_coinciding_centres_at_a_temperature_are_no_warning():
    rows = np.repeat([[0.0], [1.0]], 5, axis=0)
    assert not warnings_of(KMeans(3, temperature=1.0, random_state=0, tol=1e-3), rows)


@pytest.mark.parametrize(("n_init", "warns"), [("auto", False), (1, False), (4, True)])
def test_given_centres_are_one_start_and_more_is_a_warning(n_init, warns):
    ours = warnings_of(KMeans(3, init=X[:3], n_init=n_init), X)
    theirs = warnings_of(sklearn.cluster.KMeans(3, init=X[:3], n_init=n_init), X)
    assert [w.category for w in ours] == [w.category for w in theirs] == [RuntimeWarning] * warns
    assert all("one start, not n_init=4" in str(w.message) for w in ours)


def test_a_start_function_gets_a_generator_as_in_scikit_learn():
    def some_rows(rows, k, random_state):
        assert check_random_state(random_state) is random_state
        return rows[random_state.permutation(len(rows))[:k]]

    ours = KMeans(3, init=some_rows, random_state=5).fit(X)
    theirs = sklearn.cluster.KMeans(3, init=some_rows, n_init=1, random_state=5).fit(X)
    assert ours.inertia_ == pytest.approx(theirs.inertia_)
