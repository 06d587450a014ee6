"""Networks that compute in float32, for columns whose values differ only in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from energax.errors import BadInput
from energax.estimators import VAE, EnergyModel, MLPClassifier
from energax.estimators._common.scaling import mean_and_scale

RNG = np.random.default_rng(0)
#: Seconds of a day 25 years after 1970: float32 resolves 64 seconds.
NOON = 788_961_600.0
SECONDS = RNG.normal(size=(300, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
STAMPS = SECONDS + NOON
MODELS = [
    MLPClassifier((8,), learning_rate_init=0.02, max_iter=30, tol=None, random_state=0),
    VAE(1, (8,), max_iter=10, random_state=0),
    EnergyModel((8,), max_iter=10, n_importance=1024, random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_an_offset_of_the_columns_does_not_matter(model):
    """float64 resolves these columns to 1e-7 of their standard deviation."""
    labels = (SECONDS[:, 0] > 0).astype(int)
    read = "decision_function" if isinstance(model, MLPClassifier) else "score_samples"
    near = getattr(model.fit(SECONDS, labels), read)(SECONDS)
    far = getattr(model.fit(STAMPS, labels), read)(STAMPS)
    assert np.ptp(near) > 1
    assert_allclose(far, near, atol=2e-3)


@pytest.mark.parametrize("model", MODELS[1:], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_impute_keeps_observed_values(model, dtype):
    rows = SECONDS.astype(dtype)
    model.fit(rows)
    rows[:5, 1] = np.nan
    filled = model.impute(rows)
    assert filled.dtype == dtype and np.isfinite(filled).all()
    assert_array_equal(filled[~np.isnan(rows)], rows[~np.isnan(rows)])


@pytest.mark.parametrize("model", MODELS[1:], ids=lambda m: type(m).__name__)
def test_draws_have_the_units_of_the_columns(model):
    drawn = model.fit(STAMPS).sample(50)
    assert len(np.unique(drawn)) == 100
    assert np.abs(drawn - NOON).max() < 10


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_an_extreme_value_is_named_in_the_error(model):
    model.fit(SECONDS, (SECONDS[:, 0] > 0).astype(int))
    rows = SECONDS[:4].copy()
    rows[2, 1] = -1e30
    read = model.predict if isinstance(model, MLPClassifier) else model.score_samples
    with pytest.raises(BadInput, match=r"-1e\+30 in row 2, column 1, 1e\+30 standard deviations"):
        read(rows)


def test_moments_with_weights_and_missing_values():
    X = np.array([[1.0, 4.0], [3.0, np.nan], [7.0, 8.0]])
    mean, scale = mean_and_scale(X, np.array([1.0, 1.0, 0.0]))
    assert_allclose(mean, [2.0, 4.0])
    assert_allclose(scale, [1.0, 1.0])  # the second has one observed value of positive weight
    assert_allclose(mean_and_scale(X.astype(np.float32), None)[1], [np.std([1, 3, 7]), 2.0])


@pytest.mark.parametrize("constant", [0.1, 0.7, 1 / 3, 1234.567, 1e9 + 0.1])
def test_a_long_constant_column_has_scale_one(constant):
    """The rounding error of a long sum is not a standard deviation."""
    X = np.c_[RNG.normal(size=30_000), np.full(30_000, constant)]
    mean, scale = mean_and_scale(X, None)
    assert scale[1] == 1.0 and mean[1] == pytest.approx(constant, rel=1e-15)


def test_scales_of_tiny_and_huge_columns():
    x, units = RNG.normal(size=(100, 1)), np.array([1e-300, 1e-170, 1e200])
    assert_allclose(mean_and_scale(x * units, None)[1], x.std() * units, rtol=1e-12)
