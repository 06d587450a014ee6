"""Tables of many rows are computed in chunks, whose size is bounded by the numbers that a row needs."""

from __future__ import annotations

import numpy as np
import pytest

from energax._util.sizes import QUERY_NUMBERS, number_of_rows
from energax.estimators import VAE, BernoulliRBM, ConditionalVAE
from energax.estimators._neural import conditional_vae, rbm
from energax.infer import _map_rows

pytestmark = pytest.mark.filterwarnings("ignore:Importance", "ignore:VAE. the posterior has collapsed")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)).astype(np.float32)
ONE_EPOCH = {"max_iter": 1, "random_state": 0}


def recorded(monkeypatch, module, name, position):
    """The list of the numbers of rows in the argument at this position, of every later call of a function."""
    function, sizes = getattr(module, name), []

    def call(*arguments):
        sizes.append(number_of_rows(arguments[position]))
        return function(*arguments)

    monkeypatch.setattr(module, name, call)
    return sizes


def test_missing_values_of_a_vae(monkeypatch):
    """100 draws of 256 hidden units and 3 columns for every row."""
    holes = X.copy()
    holes[:, 1] = np.nan
    model = VAE(2, (256,), **ONE_EPOCH).fit(X)
    sizes = recorded(monkeypatch, _map_rows, "_vmap_rows", 1)
    filled = model.impute(holes)
    assert len(sizes) > 1 and max(sizes) * 100 * 259 <= QUERY_NUMBERS.value
    np.testing.assert_allclose(filled[:5], model.impute(holes[:5]), rtol=1e-5)


def test_classes_of_a_conditional_vae(monkeypatch):
    """256 hidden units and 3 columns for each of two classes of every row."""
    many = np.resize(X, (9000, 3))
    model = ConditionalVAE(1, (256,), n_importance=2, **ONE_EPOCH).fit(X, X[:, 0] > 0)
    sizes = recorded(monkeypatch, conditional_vae, "_bounds", 2)
    found = model.predict_proba(many)
    assert len(sizes) > 1 and max(sizes) * 2 * 259 <= QUERY_NUMBERS.value
    np.testing.assert_allclose(found[:5], model.predict_proba(many[:5]), rtol=1e-4)


def test_missing_values_of_a_large_machine(monkeypatch):
    """Chains of 128 rows at a time, which do not repeat the random numbers of the rows before."""
    rows = np.full((300, 3), np.nan)
    model = BernoulliRBM(2, n_iter=1, random_state=0).fit((X > 0).astype(float))
    monkeypatch.setattr(rbm, "_MOST_STATES", 1)
    sizes = recorded(monkeypatch, rbm, "_gibbs_means", 1)
    found = model.transform(rows)
    assert sizes == [128, 128, 128] and np.isfinite(found).all()
    assert (found[:128] != found[128:256]).any(1).all()
