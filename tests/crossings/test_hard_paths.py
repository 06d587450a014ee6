"""Hard EM of hidden Markov chains on ragged sequences, against a search over all paths in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from energax import fit
from energax.energies import Categoricals, HiddenChain
from energax.learn import EM
from energax.missing import Masked
from energax.spaces import Categorical, Sequence

INITIAL = np.array([0.6, 0.4])
TRANSITION = np.array([[0.7, 0.3], [0.45, 0.55]])
PROBS = np.array([[0.5, 0.3, 0.2], [0.15, 0.25, 0.6]])
RNG = np.random.default_rng(4)
SEQUENCES = [RNG.integers(0, 3, n) for n in (5, 2, 1, 4, 3)]
WEIGHTS = np.array([1.0, 0.5, 2.0, 3.0, 1.5])


def chain(prior: float = 0.0) -> HiddenChain:
    return HiddenChain(INITIAL, TRANSITION, Categoricals(PROBS, prior), prior=prior, initial_prior=prior)


def best_path(x: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The most probable path of one sequence, by trying all of them; NaN is a missing step."""

    def log_p(path):
        steps = np.log(INITIAL[path[0]]) + sum(np.log(TRANSITION[a, b]) for a, b in itertools.pairwise(path))
        return steps + sum(np.log(PROBS[z, int(v)]) for z, v in zip(path, x, strict=True) if v == v)

    path = max(itertools.product(range(2), repeat=len(x)), key=log_p)
    return path, log_p(path)


def hard_step(sequences: list[np.ndarray], weights: np.ndarray, prior: float = 0.0) -> tuple:
    """(π, A, p, mean objective) after one step of hard EM: counts along the best paths."""
    first, pairs, symbols, total = np.full(2, prior), np.full((2, 2), prior), np.full((2, 3), prior), 0.0
    for x, w in zip(sequences, weights, strict=True):
        path, log_p = best_path(x)
        total += w * log_p
        first[path[0]] += w
        for a, b in itertools.pairwise(path):
            pairs[a, b] += w
        for z, v in zip(path, x, strict=True):
            if v == v:
                symbols[z, int(v)] += w
    normalise = lambda counts: counts / counts.sum(-1, keepdims=True)
    return normalise(first), normalise(pairs), normalise(symbols), -total / np.sum(weights)


def check(data, weights, expected, prior=0.0, **settings) -> None:
    done = fit(
        chain(prior), {"x": data}, EM(hard=True, tol=-1.0), key=0, epochs=1, weights=weights, **settings
    )
    found = done.energy.initial, done.energy.transition, done.energy.emission.probs
    for a, b in zip(found, expected[:3], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert done.objective == pytest.approx(expected[3], rel=1e-5)


@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("length", [5, 8])
def test_hard_em_counts_the_steps_of_each_sequence_and_no_padding(prior, length):
    padded = Sequence(Categorical(3), length).pad(SEQUENCES)
    check(padded, WEIGHTS, hard_step(SEQUENCES, WEIGHTS, prior), prior)


def test_hard_em_ignores_what_padding_holds():
    """The values past the ends are arbitrary."""
    padded = Sequence(Categorical(3), 6).pad(SEQUENCES)
    other = Masked(np.where(padded.observed, padded.value, 2), padded.observed)
    check(other, WEIGHTS, hard_step(SEQUENCES, WEIGHTS, 1.0), 1.0)


def test_hard_em_counts_transitions_through_missing_steps():
    """A missing step inside a sequence has a state but no symbol; missing steps at its end have neither."""
    rows = [np.array([0.0, np.nan, 2.0, 1.0]), np.array([2.0, 2.0, np.nan, np.nan]), np.array([1.0, 0, 0, 2])]
    table = np.stack(rows)
    weights = np.array([1.0, 2.0, 0.5])
    expected = hard_step([rows[0], rows[1][:2], rows[2]], weights, 0.5)
    check(Masked.from_nan(table), weights, expected, 0.5)


def test_hard_em_with_complete_sequences_has_no_mask():
    table = RNG.integers(0, 3, (4, 5))
    check(table, np.ones(4), hard_step(list(table), np.ones(4), 0.5), 0.5)
