"""n-gram models against enumeration, a second implementation by dictionaries, and sums done by hand."""

from __future__ import annotations

import itertools
from collections import defaultdict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import evaluate
from scipy.stats import chisquare

import energax
from energax import BadInput, Energy, Masked, Sequence
from energax.energies._language.ngram import NGram
from energax.energies._language.ngram_smoothing import AddK, Katz, KneserNey
from energax.spaces import Categorical

SMOOTHINGS = [KneserNey(), KneserNey(1), Katz(), Katz(3, 1), AddK(0.5), AddK(0.0)]
name = lambda smoothing: repr(smoothing)

texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=25)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def some_text(n=60, values=4, seed=0):
    """Sentences from a non-uniform process, so that counts are uneven."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(values, 0.4), values)
    out = []
    for _ in range(n):
        row = [int(rng.integers(values))]
        while len(row) < 1 + rng.integers(12):
            row.append(int(rng.choice(values, p=rows[row[-1]])))
        out.append(row)
    return out


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=name)
@given(text=texts, order=st.integers(1, 4))
def test_every_context_has_probabilities_that_sum_to_one(smoothing, text, order):
    """Also of words and contexts that do not occur: value 3 is in no text."""
    model = NGram.from_sequences(text, 4, order=order, smoothing=smoothing)
    histories = [h for n in range(4) for h in itertools.product(range(4), repeat=n)]
    rows = [[*h, w] for h in histories for w in range(4)]
    one_by_one = np.array([p[-1] for p in model.text_log_probs(rows)]).reshape(-1, 4)
    np.testing.assert_allclose(np.exp(one_by_one).sum(1), 1, rtol=1e-10)
    at_once = np.stack([model.next_probs(h) for h in histories])
    np.testing.assert_allclose(at_once, np.exp(one_by_one), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=name)
def test_the_energy_is_minus_the_log_probability_of_the_text(smoothing):
    text = some_text()
    model = NGram.from_sequences(text, 4, order=3, smoothing=smoothing, length=5)
    rows = np.array(list(itertools.product(range(4), repeat=5)))
    energies = np.asarray(evaluate(lambda: jax.vmap(lambda x: model(x=x))(jnp.asarray(rows))))
    host = np.array([p.sum() for p in model.text_log_probs(list(rows))])
    np.testing.assert_allclose(-energies, host, rtol=1e-12)
    log_z = evaluate(lambda: Energy.log_partition(model))
    assert log_z == pytest.approx(float(model.log_partition()), abs=1e-12)


# -- against a second implementation ----------------------------------------------------------------


def by_dictionaries(text, values, order, n_discounts):
    """Interpolated Kneser–Ney as a plain recursion, only for texts that need no fallback."""
    raw = [defaultdict(int) for _ in range(order + 1)]
    for row in text:
        padded = ("s", *row)
        for n in range(1, order + 1):
            for i in range(max(1, n - 1), len(padded)):
                raw[n][padded[i - n + 1 : i + 1]] += 1
    adjusted = [None] * (order + 1)
    for n in range(1, order + 1):
        before = defaultdict(set)
        for gram in raw[n + 1] if n < order else ():
            before[gram[1:]].add(gram[0])
        adjusted[n] = {g: c if n == order or g[0] == "s" else len(before[g]) for g, c in raw[n].items()}
    discount = {}
    for n in range(1, order + 1):
        n1, n2, n3, n4 = (sum(c == r for c in adjusted[n].values()) for r in (1, 2, 3, 4))
        y = n1 / (n1 + 2 * n2)
        three = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        discount[n] = three if n_discounts == 3 else (y, y, y)

    def p(word, history):
        history = history[len(history) - order + 1 :] if len(history) >= order else history
        n = len(history) + 1
        lower = p(word, history[1:]) if history else 1 / values
        after = [c for g, c in adjusted[n].items() if g[:-1] == history]
        if not after:
            return lower
        d = lambda c: discount[n][min(c, 3) - 1] if c else 0
        c = adjusted[n].get((*history, word), 0)
        return (c - d(c)) / sum(after) + sum(map(d, after)) / sum(after) * lower

    return p


@pytest.mark.parametrize("n_discounts", [1, 3])
@pytest.mark.parametrize("order", [2, 3])
def test_kneser_ney_is_its_recursion(order, n_discounts):
    values, rng = 60, np.random.default_rng(3)
    common = 1 / np.arange(1, values + 1)
    draw = lambda n: [
        rng.choice(values, rng.integers(1, 10), p=common / common.sum()).tolist() for _ in range(n)
    ]
    text, rows = draw(120), draw(10)
    p = by_dictionaries(text, values, order, n_discounts)
    model = NGram.from_sequences(text, values, order=order, smoothing=KneserNey(n_discounts))
    for row, found in zip(rows, model.text_log_probs(rows), strict=True):
        truth = [p(w, ("s", *row[:i])) for i, w in enumerate(row)]
        np.testing.assert_allclose(np.exp(found), truth, rtol=1e-12)


def test_kneser_ney_by_hand():
    """Bigrams s0 ×3, 01 ×2, 02 ×1: D = 1/(1 + 2·1). Each word has one word before it: p(w) = 1/3."""
    model = NGram.from_sequences([[0, 1], [0, 1], [0, 2]], 3, order=2, smoothing=KneserNey(1))
    below = 1 / 3
    expected = [0 + 2 / 9 * below, 5 / 9 + 2 / 9 * below, 2 / 9 + 2 / 9 * below]
    np.testing.assert_allclose(model.next_probs([0]), expected, rtol=1e-12)
    # 1 occurs, but no word follows it: the unigrams decide.
    np.testing.assert_allclose(model.next_probs([0, 1]), [below] * 3, rtol=1e-12)


def test_katz_by_hand():
    """n₁, n₂, n₃ = 6, 2, 1 and k = 2: A = ½, d₁ = 1/3, d₂ = ½; a count of 3 is not discounted."""
    counts = [1] * 6 + [2] * 2 + [3]
    model = NGram.from_sequences([[w] for w in range(9)], 11, order=1, smoothing=Katz(2), weights=counts)
    expected = np.array([1 / 3] * 6 + [1] * 2 + [3] + [3] * 2) / 13  # 6/13 freed, for two words
    np.testing.assert_allclose(model.next_probs(), expected, rtol=1e-12)
    np.testing.assert_allclose(Katz.estimate(np.array(counts), 2), [1 / 3, 1 / 2])


def test_katz_backs_off_in_proportion_to_the_shorter_context():
    text = some_text(200, 6, seed=5)
    longer = NGram.from_sequences(text, 7, order=3, smoothing=Katz())
    shorter = NGram.from_sequences(text, 7, order=2, smoothing=Katz())
    seen = {(a, b, c) for row in text for a, b, c in zip(row, row[1:], row[2:], strict=False)}
    history = next(
        h for h in itertools.product(range(6), repeat=2) if 1 <= sum((*h, w) in seen for w in range(7)) < 6
    )
    unseen = [w for w in range(7) if (*history, w) not in seen]
    ratio = longer.next_probs(history)[unseen] / shorter.next_probs(history)[unseen]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


def test_katz_drops_rare_ngrams_of_three_words_and_none_of_two():
    """A context whose trigrams all occur once is, with a cutoff of 1, one without trigrams."""
    text = [[0, 1, 2, 0, 1, 2, 3], [3, 1, 0, 1, 2], [3, 1, 1, 4], [2, 0, 4], [4, 0, 3]]
    pairs = NGram.from_sequences(text, 5, order=2, smoothing=Katz(2))
    for order in (2, 3):
        rare = NGram.from_sequences(text, 5, order=order, smoothing=Katz(2, cutoff=1))
        for history in ([3, 1], [4, 0]):
            np.testing.assert_allclose(rare.next_probs(history), pairs.next_probs(history), rtol=1e-12)
    all_three = NGram.from_sequences(text, 5, order=3, smoothing=Katz(2))
    assert np.abs(all_three.next_probs([3, 1]) - pairs.next_probs([3, 1])).max() > 0.01
    np.testing.assert_allclose(rare.next_probs([0, 1])[2], all_three.next_probs([0, 1])[2], rtol=1e-12)


def test_maximum_likelihood_and_add_k_are_ratios_of_counts():
    text = [[0, 1, 1, 0], [0, 1], [1]]
    exact = NGram.from_sequences(text, 3, order=2, smoothing=AddK(0.0))
    np.testing.assert_allclose(exact.next_probs([0]), [0, 1, 0], atol=1e-15)
    np.testing.assert_allclose(exact.next_probs([]), [2 / 3, 1 / 3, 0], atol=1e-15)
    np.testing.assert_allclose(exact.next_probs([2]), [1 / 3] * 3)  # a context that does not occur: uniform
    added = NGram.from_sequences(text, 3, order=2, smoothing=AddK(0.5))
    np.testing.assert_allclose(added.next_probs([1]), np.array([1.5, 1.5, 0.5]) / 3.5)
    # Contexts have their full length; after the begin marker alone there is no longer one.
    third = NGram.from_sequences(text, 3, order=3, smoothing=AddK(0.5))
    np.testing.assert_allclose(third.next_probs([]), np.array([2.5, 1.5, 0.5]) / 4.5)
    np.testing.assert_allclose(third.next_probs([1, 1]), np.array([1.5, 0.5, 0.5]) / 2.5)


# -- weights, lengths, draws -----------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=name)
def test_a_weight_of_two_is_a_sentence_twice_and_of_zero_none(smoothing):
    text = some_text(30)
    weights = np.arange(30) % 3
    weighted = NGram.from_sequences(text, 4, order=3, smoothing=smoothing, weights=weights)
    repeated = [row for row, w in zip(text, weights, strict=True) for _ in range(w)]
    plain = NGram.from_sequences(repeated, 4, order=3, smoothing=smoothing)
    for a, b in zip(jax.tree.leaves(weighted), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=name)
def test_fractional_weights_still_give_probabilities(smoothing):
    text = some_text(30)
    weights = np.random.default_rng(1).uniform(0, 2, 30)
    model = NGram.from_sequences(text, 5, order=3, smoothing=smoothing, weights=weights)
    for history in ([], [0], [1, 2], [4, 4]):
        probs = model.next_probs(history)
        assert (probs >= 0).all() and probs.sum() == pytest.approx(1, abs=1e-10)


def test_a_padded_sequence_is_as_probable_as_itself_and_a_gap_is_refused():
    text = some_text()
    model = NGram.from_sequences(text, 4, order=4)
    padded = Sequence(Categorical(4)).pad(text[:6])
    rows = jax.tree.map(jnp.asarray, padded)
    energies = evaluate(lambda: jax.vmap(lambda x: model(x=x))(rows))
    host = [p.sum() for p in model.text_log_probs(text[:6])]
    np.testing.assert_allclose(-np.asarray(energies), host, rtol=1e-12)
    gap = Masked(jnp.array([0, 1, 2]), jnp.array([True, False, True]))
    assert np.isnan(evaluate(lambda: model(x=gap)))


def test_inference_finds_the_energy_exact():
    model = NGram.from_sequences(some_text(), 4, order=3, length=6)
    rows = np.array([[0, 1, 2, 3, 0, 1], [3, 3, 3, 3, 3, 3]])
    estimate = energax.log_prob(model, {"x": rows})
    assert estimate.kind == "exact"
    np.testing.assert_allclose(
        estimate.value, [p.sum() for p in model.text_log_probs(list(rows))], rtol=1e-12
    )


@pytest.mark.parametrize("smoothing", [KneserNey(), Katz(), AddK(0.5)], ids=name)
def test_draws_have_the_frequencies_of_the_model(smoothing):
    """Chi-square at level 1e-3, for compiled draws and for those on the host."""
    model = NGram.from_sequences(some_text(200, 3), 3, order=3, smoothing=smoothing, length=3)
    rows = np.array(list(itertools.product(range(3), repeat=3)))
    probs = np.exp([p.sum() for p in model.text_log_probs(list(rows))])
    compiled = np.asarray(energax.sample(model, 4000, key=1)["x"])
    rng = np.random.default_rng(2)
    host = np.array([model.generate(rng, end=None, most=3) for _ in range(4000)])
    for drawn in (compiled, host):
        counts = np.bincount(drawn @ [9, 3, 1], minlength=27)
        assert chisquare(counts, 4000 * probs).pvalue > 1e-3


def test_an_order_that_no_sentence_is_long_enough_for_is_left_out():
    model = NGram.from_sequences([[0], [1], [1]], 2, order=5)
    assert model.order == 2
    assert model.next_probs().sum() == pytest.approx(1)
    assert np.isfinite(model.text_log_probs([[0, 1, 0, 1, 0, 1]])[0]).all()


def test_it_is_saved_and_loaded(tmp_path):
    model = NGram.from_sequences(some_text(), 4, order=3)
    energax.save(model, tmp_path / "model.safetensors")
    assert bool(eqx.tree_equal(energax.load(tmp_path / "model.safetensors"), model))


def test_bad_input_is_refused_by_name():
    make = NGram.from_sequences
    for argument, call in {
        "sequences": lambda: make([], 3),
        r"sequences\[1\]": lambda: make([[0], []], 3),
        "the id 3": lambda: make([[0, 3]], 3),
        "the id -1": lambda: make([[0, -1]], 3),
        "dtype float": lambda: make([[0.5, 1.0]], 3),
        "order": lambda: make([[0]], 3, order=0),
        "n_values": lambda: make([[0]], 0),
        "weights": lambda: make([[0], [1]], 3, weights=[1.0, -1.0]),
        "smoothing": lambda: make([[0]], 3, smoothing="katz"),
        "discounts": lambda: KneserNey(2),
        "k: ": lambda: AddK(-1.0),
        "cutoff": lambda: Katz(5, -1),
        "length": lambda: make([[0]], 3).draw(jax.random.key(0)),
        "history": lambda: make([[0]], 3).next_probs([3]),
    }.items():
        with pytest.raises(BadInput, match=argument):
            call()
