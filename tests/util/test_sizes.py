"""Sizes of chunks and of padding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax._util import sizes

LIMITS = {name: value for name, value in vars(sizes).items() if isinstance(value, sizes.Limit)}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_positive_and_a_gpu_has_no_smaller_one(name):
    limit = LIMITS[name]
    assert 0 < limit.cpu <= limit.gpu
    assert limit.value == (limit.cpu if jax.default_backend() == "cpu" else limit.gpu)


def test_the_limit_follows_the_device(monkeypatch):
    limit = sizes.Limit(10, 1000)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert limit.value == 1000 and limit.rows(30) == 33
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert limit.value == 10 and limit.rows(30) == 1 and limit.rows(0) == 10


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100, 4095, 4096, 4097, 10**6])
def test_padded_sizes_hold_the_rows(n):
    assert n <= sizes.pad_size(n) and n <= sizes.round_up(n) <= n + n // 8
    assert sizes.power_of_two(n) // 2 < n <= sizes.power_of_two(n)
    rows, steps = sizes.sequence_size(3, n)
    assert rows == 3 and steps >= n


@pytest.mark.parametrize(("n", "most"), [(1, 1), (7, 3), (4096, 4096), (4097, 4096), (10**5, 1000)])
def test_rows_of_a_chunk_stay_within_the_limit(n, most):
    assert 1 <= sizes.call_rows(n, most) <= most
    assert sizes.even_rows(n, most) <= min(n, most + 3)


@pytest.mark.parametrize("n", [1, 4, 5, 8])
def test_map_chunks_joins_all_rows_and_calls_with_one_size(n):
    called = []

    def double(rows):
        called.append(jax.tree.map(len, rows))
        return {"twice": 2 * rows["x"], "key": jax.random.key_data(rows["key"])}

    keys = jax.random.split(jax.random.key(0), n)
    found = sizes.map_chunks(double, {"x": np.arange(n), "key": keys}, 4)
    np.testing.assert_array_equal(found["twice"], 2 * np.arange(n))
    np.testing.assert_array_equal(found["key"], jax.random.key_data(keys))
    assert all(sizes_ == {"x": 4, "key": 4} for sizes_ in called) and len(called) == -(-n // 4)


def test_map_chunks_returns_arrays_that_can_be_written():
    found = sizes.map_chunks(jnp.square, np.arange(3.0), 8)
    found[0] = 1.0
    np.testing.assert_array_equal(found, [1.0, 1.0, 4.0])


def test_pad_rows_repeats_the_first_row_in_every_array():
    tree = {"x": np.array([[1, 2], [3, 4]]), "w": np.array([5.0, 6.0])}
    padded = sizes.pad_rows(tree, 3)
    np.testing.assert_array_equal(padded["x"], [[1, 2], [3, 4], [1, 2]])
    np.testing.assert_array_equal(padded["w"], [5.0, 6.0, 5.0])
    assert sizes.pad_rows(tree, 2) is tree
