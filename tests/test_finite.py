"""Numbering joint values and summing over them, in chunks of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import evaluate
from scipy.special import logsumexp

from energax._util import sizes
from energax.errors import Intractable
from energax.finite import Assignments, enumeration_limit, log_sum_exp, table
from energax.spaces import Binary, Categorical, Real


def test_assignments_are_all_joint_values():
    joint = Assignments({"a": Binary(2), "b": Categorical(3), "c": Binary()})
    rows = evaluate(lambda: jax.vmap(joint.at)(jnp.arange(joint.n)))
    flat = np.column_stack([np.asarray(rows["a"]), np.asarray(rows["b"]), np.asarray(rows["c"])])
    assert joint.n == 24 and len(np.unique(flat, axis=0)) == 24
    assert (
        flat[0].tolist() == [0, 0, 0, 0]
        and flat[1].tolist() == [0, 0, 0, 1]
        and flat[-1].tolist() == [1, 1, 2, 1]
    )
    assert Assignments({}).n == 1 and Assignments({}).at(0) == {}


@settings(max_examples=8)
@given(st.integers(1, 40), st.integers(1, 12))
def test_chunks_of_any_size(n, chunk):
    """Values of table and log-sum-exp, and the gradient, do not depend on the chunk."""
    terms = np.random.default_rng(n).normal(size=40).astype(np.float32) * 5
    before, sizes.JOINT_VALUES = sizes.JOINT_VALUES, sizes.Limit(chunk, chunk)
    try:
        f = lambda t: log_sum_exp(lambda i: t[i], n)
        value, slope = evaluate(lambda: jax.value_and_grad(f)(jnp.asarray(terms)))
        doubled = evaluate(lambda: table(lambda i: 2 * i, n))
        np.testing.assert_array_equal(doubled, 2 * np.arange(n))
    finally:
        sizes.JOINT_VALUES = before
    np.testing.assert_allclose(value, logsumexp(terms[:n]), rtol=1e-5)
    slope = np.asarray(slope)
    np.testing.assert_allclose(slope[:n], np.exp(terms[:n] - logsumexp(terms[:n])), atol=1e-5)
    assert (slope[n:] == 0).all()


def test_limits():
    joint = Assignments({"a": Binary(12)})
    joint.check_size("it", "do less")
    with pytest.raises(
        Intractable, match=r"it would need a sum over 4,096 joint values.*limit of 100\. do less"
    ):
        joint.check_size("it", "do less", 100)
    with enumeration_limit(100), pytest.raises(Intractable):
        joint.check_size("it", "do less")
    with enumeration_limit(2**24):
        Assignments({"a": Binary(22)}).check_size("it", "do less")
    with pytest.raises(Intractable, match=r"about 10\^236"):
        Assignments({"a": Binary(784)}).check_size("it", "do less")
    with pytest.raises(Intractable, match="an integral over 'a' in Real"):
        Assignments({"a": Real()}).check_size("it", "do less")
