"""Markov chains against enumeration of all paths, counts, and closed forms."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate
from scipy.stats import chisquare

import energax
from energax import BadInput, Energy, Masked, Sequence, fit
from energax.energies._sequence.markov import MarkovChain
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.spaces import Categorical

PI = np.array([0.2, 0.5, 0.3])
A = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.6, 0.0]])
T = 5
PATHS = np.array(list(itertools.product(range(3), repeat=T)))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def chain():
    return MarkovChain(PI, A, T)


def path_probs(initial=PI, transition=A):
    return initial[PATHS[:, 0]] * transition[PATHS[:, :-1], PATHS[:, 1:]].prod(1)


def ragged(n=40, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        row = [int(rng.choice(3, p=PI))]
        while len(row) < 1 + rng.integers(9):
            row.append(int(rng.choice(3, p=A[row[-1]])))
        out.append(np.array(row))
    return out


def counts_of(rows, weights=None):
    first, pairs = np.zeros(3), np.zeros((3, 3))
    for row, w in zip(rows, np.ones(len(rows)) if weights is None else weights, strict=True):
        first[row[0]] += w
        for a, b in itertools.pairwise(row):
            pairs[a, b] += w
    return first, pairs


def test_the_energy_is_minus_the_log_probability_of_the_path(chain):
    energies = evaluate(lambda: jax.vmap(lambda x: chain(x=x))(PATHS))
    np.testing.assert_allclose(np.exp(-np.asarray(energies)), path_probs(), rtol=1e-12)
    assert evaluate(lambda: Energy.log_partition(chain)) == pytest.approx(0, abs=1e-12)
    estimate = energax.log_prob(chain, {"x": PATHS[5:8]})
    assert estimate.kind == "exact"
    np.testing.assert_allclose(estimate.value, np.log(path_probs()[5:8]), rtol=1e-12)


@pytest.mark.parametrize("seen", list(itertools.product([True, False], repeat=T))[::3])
def test_missing_states_are_summed_out_wherever_they_are(chain, seen):
    x, seen = np.array([1, 2, 0, 0, 1]), np.array(seen)
    agree = (x == PATHS)[:, seen].all(1)
    masked = Masked(jnp.asarray(np.where(seen, x, 0)), jnp.asarray(seen))
    found = float(evaluate(lambda: chain(x=masked)))
    assert np.exp(-found) == pytest.approx(path_probs()[agree].sum(), rel=1e-12)


def test_a_padded_sequence_is_as_probable_as_itself():
    chain, rows = MarkovChain(PI, A), ragged(8)
    padded = jax.tree.map(jnp.asarray, Sequence(Categorical(3)).pad(rows))
    each = [float(evaluate(lambda row=row: chain(x=jnp.asarray(row)))) for row in rows]
    together = evaluate(lambda: jax.vmap(lambda x: chain(x=x))(padded))
    np.testing.assert_allclose(together, each, rtol=1e-12)


# -- learning ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_em_counts_sequences_of_differing_lengths_in_one_step(prior):
    rows, weights = ragged(), np.random.default_rng(1).uniform(0, 2, 40)
    first, pairs = counts_of(rows, weights)
    start = MarkovChain.uniform(3, prior=prior, initial_prior=prior)
    padded = Sequence(Categorical(3)).pad(rows)
    result = fit(start, {"x": padded}, EM(tol=1e-9), weights=weights, epochs=5, key=0)
    assert result.converged and result.n_epochs <= 3
    rates = lambda c: (c + prior) / (c + prior).sum(-1, keepdims=True)
    for learned in (
        result.energy,
        MarkovChain.from_sequences(rows, 3, weights=weights, prior=prior, initial_prior=prior),
    ):
        np.testing.assert_allclose(learned.initial, rates(first), atol=1e-6)
        np.testing.assert_allclose(learned.transition, rates(pairs), atol=1e-6)


def test_complete_rows_are_counted_without_a_recursion():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 3, (20, 6))
    first, pairs = counts_of(x)
    rows = {"x": jnp.asarray(x)}
    statistics = evaluate(lambda: MarkovChain.uniform(3).statistics(rows, jnp.ones((20, 1))))
    np.testing.assert_allclose(statistics["first"], first)
    np.testing.assert_allclose(statistics["pairs"], pairs)


def test_expected_counts_of_missing_states_are_those_of_all_paths(chain):
    x, seen = np.array([1, 0, 0, 2, 0]), np.array([True, False, False, True, False])
    data = {"x": Masked(jnp.asarray(x)[None], jnp.asarray(seen)[None])}
    found = evaluate(lambda: chain.statistics(data, jnp.full((1, 1), 2.0)))
    # Steps after the last observed state are not counted.
    short = PATHS[:, :4]
    weight = np.where((short == x[:4])[:, seen[:4]].all(1), path_probs(), 0)
    first, pairs = counts_of(short, 2 * weight / weight.sum())
    np.testing.assert_allclose(found["first"], first, atol=1e-12)
    np.testing.assert_allclose(found["pairs"], pairs, atol=1e-12)


def test_em_with_gaps_never_lowers_the_likelihood_and_ends_where_its_gradient_is_zero():
    """At the optimum the gradient of an interior entry along the simplex of its row is zero."""
    rng = np.random.default_rng(3)
    padded = Sequence(Categorical(3)).pad(ragged(60, seed=4))
    padded = Masked(padded.value, padded.observed & (rng.uniform(size=padded.shape) < 0.7))
    padded.observed[:, 0] = True
    start = MarkovChain(np.full(3, 1 / 3), np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]]))
    result = fit(start, {"x": padded}, EM(tol=1e-12), epochs=400, key=0)
    history = result.history["objective"]
    assert (np.diff(history) <= 1e-9).all() and history[0] - history[-1] > 0.01
    rows = jax.tree.map(jnp.asarray, padded)
    end = result.energy
    mean_energy = lambda a: jax.vmap(lambda x: eqx.tree_at(lambda c: c.transition, end, a)(x=x))(rows).mean()
    slope = np.asarray(evaluate(lambda: jax.grad(mean_energy)(end.transition)))
    transition = np.asarray(end.transition)
    slope = np.where(transition > 1e-3, slope - (slope * transition).sum(1, keepdims=True), 0)
    assert np.abs(slope).max() < 1e-3


def test_descent_through_the_simplex_finds_the_same_optimum():
    import optax

    rows = np.concatenate([ragged(200, seed=5)[i] for i in range(200)])[:300].reshape(60, 5)
    start = MarkovChain.uniform(3, length=5)
    counted = fit(start, {"x": rows}, EM(), key=0).energy
    learner = Descent(NegativeLogLikelihood(), optax.adam(0.1))
    descended = fit(start, {"x": rows}, learner, epochs=400, key=0).energy
    np.testing.assert_allclose(descended.transition, counted.transition, atol=2e-3)


def test_what_is_frozen_stays_and_a_state_never_left_keeps_its_row():
    x = np.array([[0, 1, 0], [1, 0, 1]])
    start = MarkovChain(np.array([0.6, 0.3, 0.1]), A, 3)
    frozen = fit(start, {"x": x}, EM(), key=0, freeze="transition").energy
    np.testing.assert_array_equal(frozen.transition, A)
    np.testing.assert_allclose(frozen.initial, [0.5, 0.5, 0])
    free = fit(MarkovChain(np.full(3, 1 / 3), A * 0.9 + 0.1 / 3, 3), {"x": x}, EM(), key=0).energy
    np.testing.assert_allclose(free.transition[:2], [[0, 1, 0], [1, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(free.transition[2], A[2] * 0.9 + 0.1 / 3)


# -- drawing ------------------------------------------------------------------------------------------------


def test_draws_have_the_frequencies_of_the_paths(chain):
    """Chi-square at level 1e-3, on the first three states, for `sample` and for `simulate`."""
    probs = path_probs().reshape(27, 9).sum(1)
    sampled = np.asarray(energax.sample(chain, 4000, key=1)["x"])
    walked = chain.simulate(3, key=2, n=4000)
    possible = probs > 0
    for drawn in (sampled[:, :3], walked):
        counts = np.bincount(drawn @ [9, 3, 1], minlength=27)
        assert not counts[~possible].any()
        assert chisquare(counts[possible], 4000 * probs[possible]).pvalue > 1e-3


def test_the_rest_of_a_path_is_drawn_given_what_is_seen(chain):
    x, seen = np.array([0, 0, 1, 0, 2]), np.array([True, False, True, False, True])
    weight = np.where((x == PATHS)[:, seen].all(1), path_probs(), 0)
    masked = Masked(jnp.asarray(x), jnp.asarray(seen))
    keys = jax.random.split(jax.random.key(3), 3000)
    drawn = np.asarray(evaluate(lambda: jax.vmap(lambda k: chain.draw(k, x=masked)["x"])(keys)))
    counts = np.bincount(drawn @ 3 ** np.arange(4, -1, -1), minlength=len(PATHS))
    possible = weight > 0
    assert not counts[~possible].any()
    assert chisquare(counts[possible], 3000 * weight[possible] / weight.sum()).pvalue > 1e-3


# -- names, analysis, input validation ----------------------------------------------------------------------


def test_states_with_names():
    rows = [["dry", "dry", "wet"], ["wet", "dry", "dry", "dry"]]
    weather = MarkovChain.from_sequences(rows, states=("dry", "wet", "snow"), prior=1)
    np.testing.assert_allclose(
        weather.transition, [[4 / 7, 2 / 7, 1 / 7], [2 / 4, 1 / 4, 1 / 4], [1 / 3] * 3]
    )
    numbers = MarkovChain.from_sequences([[0, 0, 1], [1, 0, 0, 0]], states=("dry", "wet", "snow"), prior=1)
    assert bool(eqx.tree_equal(numbers, weather))
    paths = weather.simulate(6, key=0, n=2, start="wet")
    assert (
        paths.shape == (2, 6) and set(paths.ravel()) <= {"dry", "wet", "snow"} and set(paths[:, 0]) == {"wet"}
    )
    np.testing.assert_allclose(weather.hitting_times("wet"), weather.hitting_times(1))
    assert weather.classes()[0].states == ("dry", "wet", "snow")
    torn = MarkovChain([1.0, 0.0], np.eye(2), states=("a", "b"))
    assert torn.unreachable_states() == ("b",)


def test_the_analysis_speaks_of_the_chain(chain):
    assert chain.is_irreducible and chain.is_aperiodic and chain.is_ergodic and not chain.is_reversible
    pi = chain.stationary_distribution()
    np.testing.assert_allclose(chain.forecast(500), pi, rtol=1e-10)
    np.testing.assert_allclose(chain.forecast(1), PI @ A, rtol=1e-12)
    time = chain.mixing_time(0.01)
    assert chain.distances(time)[-1] <= 0.01 < chain.distances(time)[-2]
    assert chain.distances(3, start=0)[0] == pytest.approx(1 - pi[0])
    swap = MarkovChain([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]])
    assert swap.is_irreducible and not swap.is_aperiodic and not swap.is_ergodic and swap.is_reversible
    assert swap.mixing_time() == np.inf
    with jax.enable_x64(False):
        single = MarkovChain(np.full(3, 1 / 3), [[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0.9, 0.1]])
        assert single.transition.dtype == jnp.float32 and single.is_reversible


def test_it_is_saved_and_loaded_and_one_state_is_a_chain(tmp_path, chain):
    energax.save(chain, tmp_path / "chain.safetensors")
    assert bool(eqx.tree_equal(energax.load(tmp_path / "chain.safetensors"), chain))
    one = MarkovChain.from_sequences([[0], [0, 0]])
    assert one.is_ergodic and one.mixing_time() == 0 and float(one(x=jnp.zeros(3, int))) == 0
    short = MarkovChain.from_sequences([[0], [2]])  # no transition at all
    np.testing.assert_allclose(short.initial, [0.5, 0, 0.5])
    np.testing.assert_allclose(short.transition, 1 / 3)


def test_bad_input_is_refused_by_name(chain):
    make = MarkovChain.from_sequences
    for sentence, call in {
        r"transition\[0\]: found a sum of 1.1": lambda: MarkovChain([0.5, 0.5], [[0.6, 0.5], [0.5, 0.5]]),
        r"transition\[0, 0\]: found -1": lambda: MarkovChain([0.5, 0.5], [[-1, 2], [0.5, 0.5]]),
        "transition: found shape": lambda: MarkovChain([0.5, 0.5], [[0.5, 0.5]]),
        "initial: found a sum": lambda: MarkovChain([0.5, 0.4], np.eye(2)),
        "initial: found shape": lambda: MarkovChain([1.0], np.eye(2)),
        "prior": lambda: MarkovChain([0.5, 0.5], np.eye(2), prior=-1),
        "states": lambda: MarkovChain([0.5, 0.5], np.eye(2), states=("a", "a")),
        r"sequences\[1\]: found shape \(0,\)": lambda: make([[0, 1], []]),
        "sequences: found none": lambda: make([]),
        "whole numbers from 0 to 1": lambda: make([[0, 2]], 2),
        "dtype float64": lambda: make([[0.0, np.nan]]),
        "the state 'c'": lambda: make([["a", "c"]], states=("a", "b")),
        "k: found 3": lambda: make([["a", "b"]], 3),
        "weights": lambda: make([[0, 1]], weights=[-1.0]),
        "state: found 'x'": lambda: chain.hitting_times("x"),
        "n_steps": lambda: chain.simulate(0, key=0),
        "length": lambda: MarkovChain(PI, A).draw(jax.random.key(0)),
    }.items():
        with pytest.raises(BadInput, match=sentence):
            call()
