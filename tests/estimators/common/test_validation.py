"""Errors of scikit-learn, translated: each has its own remedy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from energax.errors import BadInput
from energax.estimators import GaussianMixture, LinearClassifier, NaiveBayes, Ridge

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2
FRAME = pd.DataFrame(X, columns=list("abc"))


@pytest.fixture(scope="module")
def model():
    return LinearClassifier(max_iter=5).fit(FRAME, Y)


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("columns", [["b", "a", "c"], ["a", "b"], None])
def test_errors_about_columns_name_those_of_the_fit(model, columns):
    other = X[:, :2] if columns is None else FRAME[columns]
    with pytest.raises(
        BadInput, match=r"(?s)^X: .*expected the columns that the model was fitted with.*order"
    ):
        model.predict(other)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.where(np.arange(20) == 3, np.nan, Y), "labels without missing values"),
        (Y[:10], "as many labels as rows"),
        (np.stack([Y, Y], 1), "one label for each row"),
    ],
)
def test_errors_about_labels(y, expected):
    with pytest.raises(BadInput, match=f"^y: .*expected {expected}") as caught:
        LinearClassifier().fit(X, y)
    assert "Mixture" not in str(caught.value) and "table" not in str(caught.value)


def test_missing_values_in_x_and_in_weights_have_different_remedies():
    rows = np.where(np.arange(20)[:, None] == 3, np.nan, X)
    with pytest.raises(
        BadInput, match=r"^X: found Input X contains NaN; .*Impute them, or use NaiveBayes or"
    ):
        LinearClassifier().fit(rows, Y)
    number = np.arange(20.0)
    with pytest.raises(BadInput, match=r"NaN; .*by GaussianMixture\(1\)\.fit\(X\)\.impute\(X\)\."):
        Ridge().fit(rows, number)
    # What the messages advise works.
    assert np.isfinite(Ridge().fit(GaussianMixture(1).fit(rows).impute(rows), number).coef_).all()
    assert NaiveBayes().fit(rows, Y).predict(rows).shape == (20,)
    with pytest.raises(BadInput, match=r"^sample_weight: .*NaN") as caught:
        LinearClassifier().fit(X, Y, sample_weight=np.full(20, np.nan))
    assert "Mixture" not in str(caught.value)
