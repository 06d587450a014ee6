"""The n-gram estimator: texts in, probabilities and texts out, and its error messages."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from energax import BadInput, NotFitted
from energax.energies._language.ngram_smoothing import AddK, Katz, KneserNey
from energax.estimators._language.ngram import NGramModel
from energax.vocabulary import Vocabulary

TEXT = ["the cat sat on the mat", "the dog sat on the cat", "a cat ran", "the dog ran home", "a dog sat"] * 3


def test_perplexity_is_over_words_and_ends_and_agrees_with_the_next_word():
    model = NGramModel(order=3).fit(TEXT)
    sentence = ["the", "cat", "ran"]
    probs = model.predict_proba([sentence[:i] for i in range(4)])
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-10)
    words = list(model.classes_)
    chain = [probs[i, words.index(w)] for i, w in enumerate([*sentence, "</s>"])]
    assert model.perplexity([sentence]) == pytest.approx(np.prod(chain) ** (-1 / 4), rel=1e-10)
    assert model.score(["the cat ran"]) == pytest.approx(np.log(chain).mean(), rel=1e-10)
    estimate = model.log_prob([sentence, "a dog sat"])
    assert estimate.kind == "exact" and estimate.value.shape == (2,)
    assert estimate.value[0] == pytest.approx(np.log(chain).sum(), rel=1e-10)
    assert "<s>" not in words


def test_strings_and_lists_of_words_are_the_same_text():
    a = NGramModel(random_state=0).fit(TEXT)
    b = NGramModel(random_state=0).fit([s.split() for s in TEXT])
    assert a.perplexity(TEXT) == b.perplexity(np.array(TEXT))
    assert [s.split() for s in a.sample(5)] == b.sample(5)


def test_unknown_words_are_one_word():
    model = NGramModel(order=2, min_count=4).fit(TEXT)
    assert set(model.vocabulary_.words) == {
        "<unk>",
        "</s>",
        "<s>",
        "the",
        "cat",
        "sat",
        "dog",
        "on",
        "ran",
        "a",
    }
    assert model.score(["a bird sang"]) == model.score(["a <unk> <unk>"])
    assert NGramModel(max_size=1).fit(TEXT).vocabulary_.words == ("<unk>", "</s>", "the", "<s>")


def test_a_vocabulary_can_be_given_and_words_never_seen_still_have_probability():
    v = Vocabulary.build([*(s.split() for s in TEXT), ["zebra"]])
    model = NGramModel(2, vocabulary=v).fit(TEXT)
    assert model.vocabulary_ is v
    assert 0 < np.exp(model.word_log_probs(["zebra"])[0][0]) < 0.1
    assert NGramModel(2, "likelihood", vocabulary=v).fit(TEXT).perplexity(["zebra"]) == np.inf


def test_smoothings_by_name_and_as_objects():
    pairs = {
        "kneser-ney": KneserNey(),
        "kneser-ney-1": KneserNey(1),
        "katz": Katz(),
        "add-k": AddK(),
        "likelihood": AddK(0.0),
    }
    for name, smoothing in pairs.items():
        scores = [NGramModel(2, s).fit(TEXT).score(TEXT) for s in (name, smoothing)]
        assert scores[0] == scores[1]


def test_the_weight_of_a_sentence_is_its_number():
    weight = np.arange(len(TEXT)) % 3
    a = NGramModel().fit(TEXT, sample_weight=weight)
    b = NGramModel().fit(np.repeat(np.array(TEXT), weight).tolist())
    assert a.vocabulary_ == b.vocabulary_
    assert a.score(TEXT[:4]) == pytest.approx(b.score(TEXT[:4]), rel=1e-12)


def test_samples_repeat_go_on_from_a_context_and_end():
    model = NGramModel(order=2, smoothing="likelihood", random_state=1).fit(TEXT)
    drawn = model.sample(20, context="the dog")
    assert drawn == model.sample(20, context="the dog")
    assert all(s.startswith("the dog") for s in drawn) and len(set(drawn)) > 1
    seen = {pair for s in TEXT for pair in zip(s.split(), s.split()[1:], strict=False)}
    assert all(set(zip(s.split(), s.split()[1:], strict=False)) <= seen for s in drawn)
    assert all(len(s.split()) <= 3 for s in model.sample(5, max_length=3))


def test_characters():
    model = NGramModel(3, tokens="characters", random_state=0).fit(["abcabc", "abcab"])
    assert model.next_words("ab", 1)[0][0] == "c" and model.predict(["bca"]).tolist() == ["b"]
    assert set("".join(model.sample(5))) <= {*"abc", *"<unk>"}


def test_manners(tmp_path):
    model = NGramModel(order=4, smoothing=Katz(3), random_state=2)
    assert clone(model).get_params() | {"smoothing": 0} == model.get_params() | {"smoothing": 0}
    assert repr(clone(model)) == repr(model)
    with pytest.raises(NotFitted, match="NGramModel"):
        model.perplexity(TEXT)
    model.fit(TEXT)
    model.save(tmp_path / "model.safetensors")
    for copy in (NGramModel.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert copy.perplexity(TEXT) == model.perplexity(TEXT)
        assert copy.sample(3) == model.sample(3) and copy.vocabulary_ == model.vocabulary_
    search = GridSearchCV(NGramModel(), {"order": [1, 3]}, cv=3).fit(TEXT)
    assert search.best_params_ == {"order": 3}


def test_bad_input_is_refused_by_name():
    good = NGramModel().fit(TEXT)
    for sentence, call in {
        "X: found one str.*in a list": lambda: NGramModel().fit("the cat"),
        "no sentences": lambda: NGramModel().fit([]),
        r"X\[1\]: found no words.*blank lines": lambda: NGramModel().fit(["a", " "]),
        r"X\[0\]: found 1 for a word": lambda: NGramModel().fit([[1, 2]]),
        r"X\[0\]: found 3": lambda: NGramModel().fit([3]),
        r"X\[1\]: found nan": lambda: good.score(["a", float("nan")]),
        "the marker '</s>'": lambda: NGramModel().fit(["the cat </s>"]),
        "order": lambda: NGramModel(0).fit(TEXT),
        "smoothing: found 'kneser'": lambda: NGramModel(2, "kneser").fit(TEXT),
        "min_count": lambda: NGramModel(min_count=0).fit(TEXT),
        "max_size": lambda: NGramModel(max_size=0).fit(TEXT),
        "vocabulary": lambda: NGramModel(vocabulary=["a"]).fit(TEXT),
        "tokens": lambda: NGramModel(tokens="bytes").fit(TEXT),
        "sample_weight": lambda: NGramModel().fit(TEXT, sample_weight=[1.0]),
        "n_samples": lambda: good.sample(0),
        "context": lambda: good.next_words(5),
    }.items():
        with pytest.raises(BadInput, match=sentence):
            call()
