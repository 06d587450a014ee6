"""`Masked`: observed values, and fillers where they are missing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax._util.sizes import number_of_rows
from energax.missing import Masked, is_masked, mask_of, value_of


def test_round_trip():
    array = np.array([[1.0, np.nan], [np.nan, 4.0]])
    masked = Masked.from_nan(array, filler=7.0)
    np.testing.assert_array_equal(masked.to_nan(), array)
    np.testing.assert_array_equal(masked.value, [[1, 7], [7, 4]])
    np.testing.assert_array_equal(masked.fill(jnp.zeros((2, 2))), [[1, 0], [0, 4]])
    assert masked.shape == (2, 2) and masked.ndim == 2 and is_masked(masked) and not is_masked(array)
    whole = Masked(np.array([1, 2]), np.array([True, False])).to_nan()
    np.testing.assert_array_equal(whole, [1, np.nan])


def test_plain_arrays_are_fully_observed():
    assert value_of(np.ones(2)).tolist() == [1, 1] and mask_of(np.ones(2)).all()
    assert number_of_rows({"x": Masked.from_nan(np.ones((3, 2)))}) == 3


def test_passes_through_vmap_and_jit():
    masked = Masked.from_nan(np.array([[1.0, np.nan], [3.0, 4.0]], np.float32))
    total = jax.jit(jax.vmap(lambda m: jnp.sum(m.fill(10.0))))(masked)
    np.testing.assert_array_equal(total, [11, 7])


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="observed: found shape"):
        Masked(np.ones(2), np.ones(3, bool))
