"""Batches of weighted rows: padding is ignored, and sums over chunks are the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energax.batch import Batch
from energax.missing import Masked


@given(n=st.integers(1, 24), size=st.integers(1, 30), shards=st.sampled_from([1, 2, 3, 4]))
def test_chunks_add_up(n, size, shards):
    """Σ over chunks equals the plain sum for every n, chunk size and number of shards."""
    rng = np.random.default_rng(n)
    x, weight = rng.normal(size=(n, 2)), rng.random(n)
    masked = Masked(np.where(x > 0, x, 0.0), x > 0)
    batch = Batch({"x": jnp.asarray(x), "m": masked}, jnp.asarray(weight), shards)

    def sums(rows, w):
        assert rows["x"].shape[0] == w.shape[0] and rows["x"].shape[0] <= max(size, shards)
        return {"wx": w @ rows["x"], "w": w.sum(), "m": w @ rows["m"].fill(2.0)}

    got = batch.sum_chunks(sums, size)
    np.testing.assert_allclose(got["wx"], weight @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["w"], weight.sum(), rtol=1e-5)
    np.testing.assert_allclose(got["m"], weight @ np.where(x > 0, x, 2.0), rtol=1e-4, atol=1e-5)


def test_padding_counts_for_nothing():
    batch = Batch({"x": jnp.array([1.0, 3.0, jnp.inf])}, jnp.array([1.0, 1.0, 0.0]))
    assert float(batch.mean(batch.data["x"])) == 2
    assert float(jax.grad(lambda s: batch.mean(batch.map(lambda x: s * jnp.where(x < 9, x, 0))))(1.0)) == 2
    nothing = Batch({"x": jnp.ones(2)}, jnp.zeros(2))
    assert float(nothing.mean(nothing.data["x"])) == 0


def test_each_row_has_its_own_key():
    batch = Batch({"x": jnp.zeros(5)}, jnp.ones(5))
    drawn = batch.map_with_keys(lambda key, x: jax.random.normal(key), jax.random.key(0))
    assert batch.n == 5 and len(np.unique(drawn)) == 5


def test_weighted_mean():
    batch = Batch({"x": jnp.array([1.0, 2.0])}, jnp.array([3.0, 1.0]))
    assert float(batch.mean(batch.map(lambda x: x))) == pytest.approx(1.25)
