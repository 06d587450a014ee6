"""The n-gram language model with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np

from ..._util.keys import numpy_generator
from ...energies._language.ngram import NGram
from ...energies._language.ngram_smoothing import AddK, Katz, KneserNey, Smoothing
from ...errors import BadInput, check_memory, check_whole_number, describe
from ...estimate import Estimate
from ...vocabulary import Vocabulary
from .._base import EnergyEstimator, translate_sklearn_errors
from .._common.settings import NONE, RANDOM_STATE, WHOLE, instance, one_of

_SMOOTHINGS: dict[str, Callable[[], Smoothing]] = {
    "kneser-ney": KneserNey,
    "kneser-ney-1": lambda: KneserNey(discounts=1),
    "katz": Katz,
    "add-k": AddK,
    "likelihood": lambda: AddK(0.0),
}
_TOKENS: dict[str, Callable[[str], list[str]]] = {"words": str.split, "characters": list}
_EXPECTED = "a list of sentences, each a string or a list of words, and none of them empty"


class NGramModel(EnergyEstimator):
    """p(text) = Π p(word | the `order` − 1 words before it), by smoothed counts.

    A sentence is a string, split at white space (or into characters), or a list of words. A begin marker is
    put before it and an end marker, which is predicted too, after it; words that are not in the vocabulary
    are replaced by `"<unk>"`. `score` is the mean log probability per word, in nats, and
    `perplexity` = exp(−score): both include unknown words and end markers.

    Args:
        order: the length of the n-grams.
        smoothing: `"kneser-ney"` (interpolated, modified: three discounts), `"kneser-ney-1"` (one),
            `"katz"`, `"add-k"` (k = 1), `"likelihood"` (none); or an `energax.energies.KneserNey`,
            `Katz` or `AddK` with other settings.
        min_count: words that occur less often are unknown.
        max_size: the largest size of the vocabulary; the most frequent words are kept.
        vocabulary: an `energax.data.Vocabulary` to use instead of the words of the text.
        tokens: how strings are split, into `"words"` or `"characters"`.
        random_state: the random state of `sample`.

    Attributes:
        vocabulary_: the words and their ids.
        energy_: the `energax.energies.NGram`.
        classes_: the words that may be predicted, in the order of `predict_proba`.

    Chen and Goodman (1999), An empirical study of smoothing techniques for language modeling.

    >>> model = NGramModel(order=2, smoothing="likelihood").fit(["a b", "a c", "a b b"])
    >>> model.next_words("a")
    [('b', 0.6666666666666666), ('c', 0.3333333333333333)]
    >>> round(model.perplexity(["a b"]), 4)                  # (1 · 2/3 · 2/3)^(−1/3)
    1.3104
    """

    _settings = {
        "order": WHOLE,
        "smoothing": one_of(*_SMOOTHINGS) | instance(Smoothing, "KneserNey(), Katz() or AddK(k)"),
        "min_count": WHOLE,
        "max_size": WHOLE | NONE,
        "vocabulary": instance(Vocabulary, "an energax.data.Vocabulary") | NONE,
        "tokens": one_of(*_TOKENS),
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        order: int = 3,
        smoothing: str | Smoothing = "kneser-ney",
        *,
        min_count: int = 1,
        max_size: int | None = None,
        vocabulary: Vocabulary | None = None,
        tokens: Literal["words", "characters"] = "words",
        random_state: Any = None,
    ):
        self.order = order
        self.smoothing = smoothing
        self.min_count = min_count
        self.max_size = max_size
        self.vocabulary = vocabulary
        self.tokens = tokens
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Count the sentences in X; a sentence of weight 2 counts twice, one of weight 0 not at all."""
        smoothing = self._make_smoothing()
        X = self._check_rows(X)
        sentences, strings = self._sentences(X), isinstance(X[0], str)
        n_words = sum(map(len, sentences))
        check_memory("order", self.order, int(self.order) * n_words, "the counts of n-grams of all lengths")
        weight = self._check_sentence_weight(sample_weight, len(sentences))
        vocabulary = self._make_vocabulary(sentences, weight)
        ids = _encode_sentences(vocabulary, sentences)
        self.dtype_ = np.dtype(np.float64)
        with self._precision():
            self.energy_ = NGram.from_sequences(
                ids, vocabulary.n_predicted, order=self.order, smoothing=smoothing, weights=weight
            )
        self.vocabulary_, self.strings_ = vocabulary, strings
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The words that may be predicted, with the end marker."""
        self._check_fitted()
        return np.array(self.vocabulary_.words[: self.vocabulary_.n_predicted], dtype=object)

    # -- probabilities of texts ------------------------------------------------------------

    def word_log_probs(self, X: Any) -> list[np.ndarray]:
        """log p(word | the words before) of every word and end marker of every sentence, in nats."""
        self._check_fitted()
        return self.energy_.text_log_probs(_encode_sentences(self.vocabulary_, self._sentences(X)))

    def log_prob(self, X: Any) -> Estimate:
        """log p(sentence) of every sentence, in nats; exact."""
        sums = np.array([p.sum() for p in self.word_log_probs(X)])
        return Estimate(sums, kind="exact", method="exact")

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(sentence) of every sentence."""
        return self.log_prob(X).value

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability per word, end markers included, in nats: −log(perplexity)."""
        return float(np.mean(np.concatenate(self.word_log_probs(X))))

    def perplexity(self, X: Any) -> float:
        """exp(−mean log p) over all words and end markers of X; unknown words are `"<unk>"`."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.score(X)))

    # -- prediction --------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(next word | sentence so far), one row per sentence, one column per word of `classes_`."""
        self._check_fitted()
        histories = [self._history(context) for context in self._check_rows(X)]
        return np.stack([self.energy_.next_probs(h) for h in histories])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable next word after each sentence so far."""
        return self.classes_[self.predict_proba(X).argmax(1)]

    def next_words(self, context: Any = "", n: int = 5) -> list[tuple[str, float]]:
        """The `n` most probable next words and their probabilities; "" is the start of a sentence."""
        self._check_fitted()
        check_whole_number("n", n)
        probs = self.energy_.next_probs(self._history(context))
        best = np.argsort(-probs, kind="stable")[:n]
        return [(self.vocabulary_.words[i], float(probs[i])) for i in best if probs[i] > 0]

    def sample(self, n_samples: int = 1, *, context: Any = "", max_length: int = 100) -> list[Any]:
        """Draw sentences that continue `context`: strings if the model was fitted to strings.

        A sentence ends with the end marker, or after `max_length` words.
        """
        self._check_fitted()
        for name, value in (("n_samples", n_samples), ("max_length", max_length)):
            check_whole_number(name, value)
        check_memory("n_samples", n_samples, int(n_samples), "the sentences", itemsize=64)
        rng, history = numpy_generator(self._key(2)), self._history(context)
        options: dict[str, Any] = {"history": history, "end": self.vocabulary_.end_id, "most": max_length}
        draws = [self.energy_.generate(rng, **options) for _ in range(n_samples)]
        sentences = [self._tokenise(context) + self.vocabulary_.decode(ids) for ids in draws]
        separator = " " if self.tokens == "words" else ""
        return [separator.join(words) for words in sentences] if self.strings_ else sentences

    # -- arguments and input -------------------------------------------------------------------

    def _make_smoothing(self) -> Smoothing:
        """The argument `smoothing` as an object."""
        chosen = self.smoothing
        return _SMOOTHINGS[chosen]() if isinstance(chosen, str) else chosen

    def _make_vocabulary(self, sentences: list[list[str]], weight: np.ndarray | None) -> Vocabulary:
        """The argument `vocabulary`, or one made from the sentences."""
        given = self.vocabulary
        if given is None:
            # Sentences of weight 0 add no words.
            counted = [s for i, s in enumerate(sentences) if weight is None or weight[i] > 0]
            return Vocabulary.build(counted, min_count=self.min_count, max_size=self.max_size)
        if given.begin is None:
            raise BadInput("vocabulary", "one without a begin marker", "a begin marker", "Try begin='<s>'.")
        return given

    def _tokenise(self, sentence: Any, name: str = "context") -> list[str]:
        """A sentence as a list of words."""
        if isinstance(sentence, str):
            self._check_settings("tokens")  # it may have been set after `fit`
            return _TOKENS[self.tokens](sentence)
        if isinstance(sentence, bytes) or not isinstance(sentence, (Sequence, np.ndarray)):
            raise BadInput(name, f"{sentence!r:.40}", "a string or a list of words")
        invalid = [word for word in sentence if not isinstance(word, str)]
        if invalid:
            hint = "For a model of numbers see energax.energies.NGram.from_sequences."
            raise BadInput(name, f"{describe(invalid[0])} for a word", "words that are str", hint)
        return list(sentence)

    def _check_rows(self, X: Any) -> list[Any]:
        """X as a list of sentences; raises if it is empty or a single text."""
        single = isinstance(X, (str, bytes, dict)) or getattr(X, "shape", None) == ()
        if single or not isinstance(X, Iterable):
            raise BadInput("X", f"one {type(X).__name__}", _EXPECTED, "Put it in a list: [text].")
        rows = list(X)
        if not rows:
            raise BadInput("X", "no sentences", _EXPECTED)
        return rows

    def _sentences(self, X: Any) -> list[list[str]]:
        """Every sentence as a list of words; raises if one is not valid."""
        sentences = [self._tokenise(row, f"X[{i}]") for i, row in enumerate(self._check_rows(X))]
        empty = next((i for i, sentence in enumerate(sentences) if not sentence), None)
        if empty is not None:
            raise BadInput(f"X[{empty}]", "no words", _EXPECTED, "Leave out blank lines.")
        return sentences

    def _check_sentence_weight(self, sample_weight: Any, n: int) -> np.ndarray | None:
        if sample_weight is None:
            return None
        with translate_sklearn_errors("sample_weight", "one number per sentence"):
            weight = np.asarray(sample_weight, np.float64)
        return self._check_weight(weight, np.zeros((n, 1)))

    def _history(self, context: Any) -> np.ndarray:
        """The ids of the words of a context."""
        return self.vocabulary_.encode(self._tokenise(context))


def _encode_sentences(vocabulary: Vocabulary, sentences: list[list[str]]) -> list[np.ndarray]:
    markers = {m for m in (vocabulary.begin, vocabulary.end) if m is not None}
    for i, sentence in enumerate(sentences):
        if not markers.isdisjoint(sentence):
            found = f"the marker {next(w for w in sentence if w in markers)!r}"
            raise BadInput(f"X[{i}]", found, "words", "Leave out the markers: they are added automatically.")
    return [vocabulary.encode(sentence, end=vocabulary.end is not None) for sentence in sentences]
