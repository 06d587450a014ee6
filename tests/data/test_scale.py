"""Standardising changes the numbers and not the density; spaces are read off the values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from energax.data import ColumnScaler, digits, find_spaces
from energax.errors import BadInput
from energax.spaces import Binary, Real


def test_a_density_of_scaled_data_is_the_density_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) @ np.diag([1e-2, 1.0, 1e2]) + [5.0, 0.0, 1e4]
    scaling = ColumnScaler.fit(X)
    U = scaling.transform(X)
    raw = multivariate_normal(X.mean(0), np.cov(X.T)).logpdf(X)
    scaled = multivariate_normal(U.mean(0), np.cov(U.T)).logpdf(U) + scaling.log_det(X)
    np.testing.assert_allclose(scaled, raw, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaling.inverse_transform(U), X, rtol=1e-12)


def test_a_missing_value_scales_nothing():
    scaling = ColumnScaler(np.zeros(2), np.array([2.0, 8.0]))
    np.testing.assert_allclose(scaling.log_det([[1.0, np.nan]]), [-np.log(2)])


def test_columns_far_from_zero_keep_their_spread():
    X = 1e9 + np.random.default_rng(0).normal(size=(1000, 1))
    assert abs(ColumnScaler.fit(X).scale[0] - X.std()) < 1e-6


@pytest.mark.parametrize("unit", [2.0**1000, 2.0**-1000])
def test_units_whose_squares_are_no_numbers_change_nothing(unit):
    X = np.random.default_rng(0).normal(size=(1000, 2))
    plain, scaled = ColumnScaler.fit(X), ColumnScaler.fit(X * unit)
    np.testing.assert_array_equal(scaled.scale, plain.scale * unit)
    np.testing.assert_array_equal(scaled.transform(X * unit), plain.transform(X))
    edge = np.array([[-1.7e308], [1.7e308]])
    np.testing.assert_allclose(ColumnScaler.fit(edge).transform(edge), [[-1], [1]], rtol=1e-15)


def test_a_constant_column_is_refused():
    with pytest.raises(BadInput, match=r"constant columns \[0\]"):
        ColumnScaler.fit(np.full((7, 1), 0.1))  # whose mean is not quite 0.1
    with pytest.raises(BadInput, match=r"constant columns \[1\]"):
        ColumnScaler.fit([[0.0, 1.0], [1.0, 1.0]])


def test_spaces_of_columns():
    assert find_spaces([[0, 1, np.nan], [1, 1, 0]]) == {"x": Binary(3)}
    assert find_spaces([[0, 1], [2, 1]]) == {"x": Real(2)}
    assert find_spaces(digits()) == {"x": Binary(64)}
    assert find_spaces(digits(binary=False)) == {"x": Real(64)}
