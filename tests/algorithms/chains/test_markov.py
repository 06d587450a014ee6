"""The structure of Markov chains: by hand, by closed forms, by eigenvectors and by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energax import BadInput
from energax.algorithms.chains import markov as m

#: 0 and 1 are transient, (2, 3) alternate, 4 is absorbing; no state leads to 5.
MIXED = np.array(
    [
        [0.2, 0.3, 0.5, 0.0, 0.0, 0.0],
        [0.5, 0.0, 0.0, 0.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        [0.1, 0.0, 0.0, 0.0, 0.9, 0.0],
    ]
)


@st.composite
def chains(draw):
    """Random chains with many transitions of probability zero."""
    k, seed = draw(st.integers(1, 6)), draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(k, k)) * (rng.uniform(size=(k, k)) < 0.5)
    rows[rows.sum(1) == 0, rng.integers(k)] = 1
    return rows / rows.sum(1, keepdims=True)


def test_classes_by_hand():
    found = {c.states: (c.period, c.recurrent) for c in m.communicating_classes(MIXED)}
    assert found == {(0, 1): (1, False), (2, 3): (2, True), (4,): (1, True), (5,): (0, False)}
    assert m.unreachable_states(MIXED, [1, 0, 0, 0, 0, 0]) == (5,)
    cycle = np.roll(np.eye(6), 1, axis=1)
    assert [(c.states, c.period) for c in m.communicating_classes(cycle)] == [(tuple(range(6)), 6)]
    cycle[0] = [0, 0.5, 0, 0.5, 0, 0]  # cycles of length 6 and 4
    assert m.communicating_classes(cycle)[0].period == 2


@given(chains())
def test_classes_and_periods_are_those_of_the_powers(matrix):
    """i and j communicate if some power of P leads from each to the other; the period is a gcd of powers."""
    k = len(matrix)
    steps = [np.linalg.matrix_power((matrix > 0).astype(object), t) > 0 for t in range(1, 2 * k * k + 1)]
    reach = np.eye(k, dtype=bool) | np.any(steps, axis=0)
    for c in m.communicating_classes(matrix):
        i = c.states[0]
        assert set(c.states) == {j for j in range(k) if reach[i, j] and reach[j, i]}
        assert c.period == math.gcd(*(t for t, s in enumerate(steps, 1) if s[i, i]))
        assert c.recurrent == all(reach[j, i] for j in range(k) if reach[i, j])


@given(chains())
def test_stationary_distributions_stay_and_there_is_one_a_closed_class(matrix):
    found = m.stationary_distributions(matrix)
    values, vectors = np.linalg.eig(matrix.T)
    assert len(found) == np.sum(np.abs(values - 1) < 1e-9)
    np.testing.assert_allclose(found @ matrix, found, atol=1e-14)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-14)
    if len(found) == 1:
        vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        np.testing.assert_allclose(found[0], vector / vector.sum(), atol=1e-9)


def test_a_nearly_torn_chain_keeps_its_digits():
    """π ∝ (b, a) for two states; 1 − P would have lost all of a and b."""
    a, b = 3e-18, 1e-18
    pi = m._eliminate_states(np.array([[1.0, a], [b, 1.0]]))
    np.testing.assert_allclose(pi, [0.25, 0.75], rtol=1e-14)


def test_several_stationary_distributions_are_told():
    np.testing.assert_allclose(
        m.stationary_distributions(MIXED), [[0, 0, 0.5, 0.5, 0, 0], [0, 0, 0, 0, 1, 0]], atol=1e-15
    )
    with pytest.raises(BadInput, match=r"2 closed classes of states: \(2, 3\), \(4,\)"):
        m.stationary_distribution(MIXED)


def test_reversible_are_birth_and_death_and_walks_on_weighted_graphs_but_not_a_circle():
    rng = np.random.default_rng(0)
    weights = rng.uniform(size=(5, 5))
    walk = (weights + weights.T) / (weights + weights.T).sum(1, keepdims=True)
    birth = [[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0.9, 0.1]]
    circle = [[0.0, 0.9, 0.1], [0.1, 0.0, 0.9], [0.9, 0.1, 0.0]]
    assert m.is_reversible(walk) and m.is_reversible(birth) and not m.is_reversible(circle)
    assert m.imbalance(walk) < 1e-15 and m.imbalance(circle) == pytest.approx(0.8 / 3)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.7, 0.8), (1e-5, 2e-5), (0.5, 0.5)])
@pytest.mark.parametrize("eps", [0.25, 1e-3])
def test_two_states_mix_as_the_second_eigenvalue_says(a, b, eps):
    """d(t) = max(a, b) / (a + b) · |1 − a − b|ᵗ."""
    chain, far, rate = [[1 - a, a], [b, 1 - b]], max(a, b) / (a + b), abs(1 - a - b)
    np.testing.assert_allclose(m.distances(chain, 20), far * rate ** np.arange(21), atol=1e-15)
    closed = 1 if rate < 1e-12 else math.ceil(math.log(eps / far) / math.log(rate))
    assert m.mixing_time(chain, eps) == closed


@given(chains(), st.sampled_from([0.4, 0.1, 1e-3]))
def test_the_mixing_time_is_the_first_that_is_near_enough(matrix, eps):
    closed = [c for c in m.communicating_classes(matrix) if c.recurrent]
    time = m.mixing_time(matrix, eps)
    if len(closed) > 1 or closed[0].period > 1:
        assert time == math.inf
        return
    d = m.distances(matrix, int(time))
    assert d[-1] <= eps + 1e-12 and (time == 0 or d[-2] > eps - 1e-12)
    assert (np.diff(d) <= 1e-12).all()


def test_hitting_times_of_the_gamblers_ruin():
    """A fair game from i of n: i/n to win, i (n − i) rounds to its end."""
    n = 8
    game = np.zeros((n + 1, n + 1))
    game[0, 0] = game[n, n] = 1
    for i in range(1, n):
        game[i, i - 1] = game[i, i + 1] = 0.5
    i = np.arange(n + 1)
    np.testing.assert_allclose(m.absorption_probabilities(game), np.stack([1 - i / n, i / n], 1), atol=1e-12)
    np.testing.assert_allclose(m.hitting_times(game, [0, n]), i * (n - i), atol=1e-10)
    np.testing.assert_array_equal(m.hitting_times(game, n), [np.inf] * n + [0])
    np.testing.assert_allclose(m.hitting_probabilities(game, n), i / n, atol=1e-12)


@given(chains(), st.integers(0, 2**20))
def test_hitting_probabilities_are_the_limit_of_steps(matrix, seed):
    k = len(matrix)
    target = seed % k
    stopped = matrix.copy()
    stopped[target] = np.eye(k)[target]
    limit = np.linalg.matrix_power(stopped, 2**16)[:, target]
    np.testing.assert_allclose(m.hitting_probabilities(matrix, target), limit, atol=1e-6)
    times = m.hitting_times(matrix, target)
    sure = np.isfinite(times)
    np.testing.assert_array_equal(sure, limit > 1 - 1e-6)
    expected = np.where(np.arange(k) == target, 0, 1 + matrix @ np.where(sure, times, 0))
    np.testing.assert_allclose(times[sure], expected[sure], rtol=1e-8)


def test_absorption_by_hand():
    """From 0: p = 0.2 p + 0.3 q + 0.5, from 1: q = 0.5 p, into the pair; the rest ends in 4."""
    p = 0.5 / (0.8 - 0.15)
    into = [p, p / 2, 1, 1, 0, 0.1 * p]
    np.testing.assert_allclose(
        m.absorption_probabilities(MIXED), np.stack([into, 1 - np.array(into)], 1), atol=1e-15
    )


def test_bad_matrices_are_refused_by_name():
    good = [[0.5, 0.5], [0.5, 0.5]]
    for sentence, call in {
        r"transition\[1\]: found a sum of 0.9": lambda: m.communicating_classes([[0.5, 0.5], [0.5, 0.4]]),
        r"transition\[0, 1\]: found -0.5": lambda: m.stationary_distributions([[1.5, -0.5], [0.5, 0.5]]),
        r"transition\[1, 0\]: found nan": lambda: m.is_reversible([[1, 0], [np.nan, 1]]),
        r"shape \(1, 2\)": lambda: m.mixing_time([[0.5, 0.5]]),
        r"shape \(0, 0\)": lambda: m.mixing_time(np.zeros((0, 0))),
        "square matrix": lambda: m.mixing_time([["a"]]),
        "eps": lambda: m.mixing_time(good, 0.0),
        "n_steps": lambda: m.distances(good, -1),
        r"start: found a sum": lambda: m.distances(good, 1, [1, 1]),
        "initial: found shape": lambda: m.unreachable_states(good, [1.0]),
        "targets": lambda: m.hitting_times(good, 2),
        "at least one": lambda: m.hitting_times(good, []),
    }.items():
        with pytest.raises(BadInput, match=sentence):
            call()
