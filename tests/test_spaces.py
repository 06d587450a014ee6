"""Spaces: invalid values raise an error that says why; valid ones pass unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energax import fit
from energax.energy import Energy
from energax.errors import BadInput
from energax.learn import Descent, NegativeLogLikelihood
from energax.missing import Masked, mask_of, value_of
from energax.spaces import (
    Binary,
    Categorical,
    Count,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Real,
    Sequence,
    Simplex,
)

BAD = [
    (Real(2), [1.0, np.inf], "finite real numbers"),
    (Real(2), [1.0, -np.inf], "finite real numbers"),
    (Real(2), [1.0, 2.0, 3.0], r"shape \(3,\)"),
    (Real(2), 1.0, r"shape \(\)"),
    (Real(2), np.zeros((2, 3)), "rows of shape"),
    (Real(2), ["a", "b"], "numbers"),
    (Real(2), np.array([1, 2], object), "dtype object"),
    (Real(2), np.array([1 + 1j, 0]), "dtype complex128"),
    (Real(2), [[1.0, 2.0], [3.0]], "an array of numbers"),
    (Real(2), None, "numbers"),
    (Positive(), 0.0, "> 0"),
    (Positive(), -1.0, "> 0"),
    (Positive(), np.inf, "> 0"),
    (Interval(0, 1), 1.5, r"\[0, 1\]"),
    (Interval(0, 1), np.inf, r"\[0, 1\]"),
    (Simplex(2), [0.5, 0.6], "sum to 1"),
    (Simplex(2), [-0.5, 1.5], "sum to 1"),
    (Simplex(2), [np.inf, -np.inf], "sum to 1"),
    (Ordered(3), [1.0, 1.0, 2.0], "increasing order"),
    (Ordered(2), [2.0, 1.0], "increasing order"),
    (Ordered(2), [0.0, np.inf], "increasing order"),
    (PositiveDefinite(2), [[1.0, 2.0], [2.0, 1.0]], "positive eigenvalues"),
    (PositiveDefinite(2), [[1.0, 0.5], [0.0, 1.0]], "symmetric"),
    (PositiveDefinite(2), [[np.inf, 0.0], [0.0, 1.0]], "positive eigenvalues"),
    (Binary(2), [0, 2], "zeros and ones"),
    (Binary(2), [0.5, 1], "zeros and ones"),
    (Binary(2), [-1, 1], "zeros and ones"),
    (Categorical(3), 3, "whole numbers from 0 to 2"),
    (Categorical(3), -1, "whole numbers from 0 to 2"),
    (Categorical(3), 1.5, "whole numbers from 0 to 2"),
    (Categorical(3), np.inf, "whole numbers from 0 to 2"),
    (Count(), -1, "whole numbers"),
    (Count(), 0.5, "whole numbers"),
    (Count(), 1e30, "whole numbers"),
    (Count(), np.inf, "whole numbers"),
]


@pytest.mark.parametrize(("space", "value", "message"), BAD, ids=range(len(BAD)))
def test_bad_values(space, value, message):
    with pytest.raises(BadInput, match=message) as error:
        space.check(value, "weight")
    assert str(error.value).startswith("weight: found") and "expected" in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Real(-1),
        lambda: Real(1.5),
        lambda: Interval(1, 1),
        lambda: Interval(2, 1),
        lambda: Interval(0, np.inf),
        lambda: Interval(np.nan, 1),
        lambda: Categorical(0),
        lambda: Categorical(2.5),
    ],
)
def test_bad_spaces(make):
    with pytest.raises(BadInput):
        make()


def test_missing_values_are_marked():
    """NaN, NumPy masks and `Masked` give the same result, or raise where missing values are not allowed."""
    expected = [True, False]
    for value in (
        [1.0, np.nan],
        np.ma.masked_array([1.0, 5.0], [0, 1]),
        Masked(np.ones(2), np.array(expected)),
    ):
        got = Real(2).check(value)
        assert isinstance(got, Masked) and got.observed.tolist() == expected and np.isfinite(got.value).all()
        with pytest.raises(BadInput, match="1 missing values"):
            Real(2).check(value, missing=False)
    ints = Categorical(3, 2).check(np.ma.masked_array([1, 99], [0, 1]))
    assert ints.value.dtype == np.int32 and ints.observed.tolist() == expected
    assert Binary(2).check([1, np.nan]).value.tolist() == [1, 0]
    assert (Positive(2).check([np.nan, 2.0]).value > 0).all()


def test_good_values_keep_their_precision():
    assert Real(2).check(np.ones((3, 2), np.float32)).dtype == np.float32
    assert Real(2).check(np.ones((3, 2))).dtype == np.float64
    assert Real().check(3).dtype.kind == "f" and Binary().check(True).dtype == np.float32
    assert Categorical(5).check(np.array([4.0, 0.0])).dtype == np.int32
    assert Real(2).check(np.zeros((0, 2))).shape == (0, 2)


@given(st.integers(1, 4), st.integers(1, 4))
def test_finite_spaces_list_their_values(k, size):
    """All k^size values, each once, numbered with coordinate 0 slowest."""
    space = Categorical(k, size)
    values = np.asarray(space.values())
    assert values.shape == (k**size, size) and len(np.unique(values, axis=0)) == space.n_values == k**size
    np.testing.assert_array_equal(values @ (k ** np.arange(size)[::-1]), np.arange(k**size))
    assert Binary(size).n_values == 2**size and Binary(784).n_values == 2**784


@pytest.mark.parametrize(
    "space",
    [Real(3), Positive(3), Interval(-2, 5, 3), Simplex(4), Ordered(3), PositiveDefinite(3)],
    ids=repr,
)
def test_bijections(space):
    """The bijection maps ℝⁿ into the space, and its inverse maps back."""
    u = jax.random.normal(jax.random.key(0), space.bijection.inverse_shape(space.shape))
    x = space.bijection(u)
    space.check(np.asarray(x))
    np.testing.assert_allclose(space.bijection.inv(x), u, atol=2e-4)


def test_spaces_without_a_bijection_or_a_list_raise():
    with pytest.raises(BadInput, match="bijection"):
        _ = Binary(2).bijection
    with pytest.raises(BadInput, match="finite space"):
        Real(2).at(0)
    assert Count().n_values is None and not Count().is_finite and not Count().is_real


def test_equality_is_by_arguments():
    assert Real(3) == Real(3) and hash(Real(3)) == hash(Real(3)) and Real(3) != Real(4) != Positive(4)
    assert Interval(0, 1, 2) == Interval(0.0, 1.0, 2) and Categorical(3) != Categorical(3, 1)
    assert (
        repr(Interval(0, 1, 2)) == "Interval(0.0, 1.0, 2)" and repr(Sequence(Real(2))) == "Sequence(Real(2))"
    )


def test_ragged_sequences():
    space = Sequence(Categorical(3))
    padded = space.pad([[0, 1, 2], [2]])
    assert padded.observed.tolist() == [[True] * 3, [True, False, False]] and padded.value.dtype == np.int32
    for wrong in ([], [[]], [np.ones((2, 2))]):
        with pytest.raises(BadInput, match="at least one sequence"):
            space.pad(wrong)
    with pytest.raises(BadInput, match="at most 2"):
        Sequence(Real(), 2).pad([[1.0, 2.0, 3.0]])
    assert jnp.asarray(padded.value).shape == (2, 3)


def test_sequences_keep_the_checks_of_their_steps():
    """Any number of steps without a length, that number with one; each step is in its space."""
    endless, three = Sequence(Simplex(2)), Sequence(Simplex(2), 3)
    rows = np.full((4, 3, 2), 0.5)
    assert three.shape == (3, 2) and three.event_ndim == 1
    for n in (1, 3, 5):
        assert endless.check(np.full((4, n, 2), 0.5)).shape == (4, n, 2)
    assert three.check(rows).shape == (4, 3, 2) and endless.check(rows[0]).shape == (3, 2)
    with pytest.raises(BadInput, match="rows of shape"):
        three.check(rows[:, :2])
    with pytest.raises(BadInput, match="steps"):
        endless.check(rows[0, 0])
    for space in (endless, three):
        with pytest.raises(BadInput, match="sum to 1"):
            space.check(rows + 0.1)
        with pytest.raises(BadInput, match="rows of shape"):
            space.check(np.ones((4, 3, 9)))
    assert Sequence(Binary(2), 2).check([[True, False]] * 2).dtype == np.float32


@pytest.mark.parametrize(
    "inner", [Real(2), Simplex(2), Ordered(2), PositiveDefinite(2), Categorical(3), Positive()], ids=repr
)
def test_a_sequence_takes_what_it_padded(inner):
    one = np.eye(2) if isinstance(inner, PositiveDefinite) else np.ones(inner.shape) / max(inner.size, 1)
    one = np.ones((), int) if isinstance(inner, Categorical) else one
    one = np.array([2.0, 5.0]) if isinstance(inner, Ordered) else one
    for space in (Sequence(inner), Sequence(inner, 4)):
        padded = space.pad([np.stack([one] * 3), np.stack([one])])
        again = space.check(padded)
        np.testing.assert_array_equal(again.observed, padded.observed)
        np.testing.assert_array_equal(again.value, padded.value)


class Walk(Energy):
    """Steps of a sequence about one mean; steps past the end are integrated out."""

    mean: jax.Array
    marginalises = frozenset({"x"})

    @property
    def spaces(self):
        return {"x": Sequence(Real(2), 3)}

    def __call__(self, *, x):
        return 0.5 * jnp.sum(jnp.where(mask_of(x), value_of(x) - self.mean, 0) ** 2)

    def log_partition(self):
        return jnp.zeros(())


def test_an_energy_over_padded_sequences_is_fitted():
    """The mean of the observed steps, without the padding."""
    padded = Sequence(Real(2), 3).pad([np.full((3, 2), 1.0), np.full((1, 2), 5.0)])
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.4))
    done = fit(Walk(jnp.zeros(2)), {"x": padded}, learner, epochs=60, key=0)
    np.testing.assert_allclose(done.energy.mean, 2.0, rtol=1e-3)
