"""A language model of n-grams with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np

from ..._util.keys import numpy_generator
from ...energies._language.ngram import NGram
from ...energies._language.ngram_smoothing import AddK, Katz, KneserNey, Smoothing
from ...errors import BadInput, check_whole_number
from ...estimate import Estimate
from ...vocabulary import Vocabulary
from .._base import EnergyEstimator, translate_sklearn_errors

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

    A sentence is a string, cut at white space (or into characters), or a list of words. Each
    is taken to follow one begin marker and to be ended by an end marker, which is predicted too;
    words that are not in the vocabulary are read as `"<unk>"`. `score` is the mean log
    probability of a word, in nats, and `perplexity` = exp(−score): both are over the words,
    unknown ones included, and the end markers.

    Args:
        order: the n of n-gram.
        smoothing: `"kneser-ney"` (interpolated, modified: three discounts), `"kneser-ney-1"` (one),
            `"katz"`, `"add-k"` (k = 1), `"likelihood"` (none); or an `energax.energies.KneserNey`,
            `Katz` or `AddK` with settings of its own.
        min_count: words that occur less often are read as unknown.
        max_size: so are all but this many of the commonest.
        vocabulary: an `energax.data.Vocabulary` to use instead of the words of the text.
        tokens: how a string is cut: into `"words"` or `"characters"`.
        random_state: for `sample`.

    Attributes:
        vocabulary_: words and their ids.
        energy_: the `energax.energies.NGram`.
        classes_: the words that may come next, in the order of `predict_proba`.

    Chen and Goodman (1999), An empirical study of smoothing techniques for language modeling.

    >>> model = NGramModel(order=2, smoothing="likelihood").fit(["a b", "a c", "a b b"])
    >>> model.next_words("a")
    [('b', 0.6666666666666666), ('c', 0.3333333333333333)]
    >>> round(model.perplexity(["a b"]), 4)                  # (1 · 2/3 · 2/3)^(−1/3)
    1.3104
    """

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
        self._check_counts("order")
        smoothing = self._chosen_smoothing()
        X = self._rows(X)
        sentences, strings = self._sentences(X), isinstance(X[0], str)
        weight = self._sentence_weight(sample_weight, len(sentences))
        vocabulary = self._chosen_vocabulary(sentences, weight)
        ids = _ids(vocabulary, sentences)
        self.dtype_ = np.dtype(np.float64)
        with self._precision():
            self.energy_ = NGram.from_sequences(
                ids, vocabulary.n_predicted, order=self.order, smoothing=smoothing, weights=weight
            )
        self.vocabulary_, self.strings_ = vocabulary, strings
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The words that may come next, end marker included."""
        self._check_fitted()
        return np.array(self.vocabulary_.words[: self.vocabulary_.n_predicted], dtype=object)

    # -- how probable a text is ------------------------------------------------------------

    def word_log_probs(self, X: Any) -> list[np.ndarray]:
        """log p(word | the words before) for every word and end marker of every sentence, in nats."""
        self._check_fitted()
        return self.energy_.text_log_probs(_ids(self.vocabulary_, self._sentences(X)))

    def log_prob(self, X: Any) -> Estimate:
        """log p(sentence) of every sentence, in nats; exact."""
        sums = np.array([p.sum() for p in self.word_log_probs(X)])
        return Estimate(sums, kind="exact", method="exact")

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(sentence) of every sentence."""
        return self.log_prob(X).value

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability of a word, end markers included, in nats: −log(perplexity)."""
        return float(np.mean(np.concatenate(self.word_log_probs(X))))

    def perplexity(self, X: Any) -> float:
        """exp(−mean log p) over all words and end markers of X; unknown words count, as `"<unk>"`."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.score(X)))

    # -- what comes next ---------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(next word | sentence so far), one row a sentence, one column a word of `classes_`."""
        self._check_fitted()
        histories = [self._history(context) for context in self._rows(X)]
        return np.stack([self.energy_.next_probs(h) for h in histories])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable next word after each sentence so far."""
        return self.classes_[self.predict_proba(X).argmax(1)]

    def next_words(self, context: Any = "", n: int = 5) -> list[tuple[str, float]]:
        """The `n` most probable words after a context, with their probabilities; "" is a sentence's start."""
        self._check_fitted()
        probs = self.energy_.next_probs(self._history(context))
        best = np.argsort(-probs, kind="stable")[:n]
        return [(self.vocabulary_.words[i], float(probs[i])) for i in best if probs[i] > 0]

    def sample(self, n_samples: int = 1, *, context: Any = "", max_length: int = 100) -> list[Any]:
        """Sentences drawn from the model, going on from `context`: strings if it was fitted to strings.

        A sentence ends where the end marker is drawn, or after `max_length` words.
        """
        self._check_fitted()
        for name, value in (("n_samples", n_samples), ("max_length", max_length)):
            check_whole_number(name, value)
        rng, history = numpy_generator(self._key(2)), self._history(context)
        options: dict[str, Any] = {"history": history, "end": self.vocabulary_.end_id, "most": max_length}
        drawn = [self.energy_.generate(rng, **options) for _ in range(n_samples)]
        spoken = [self._cut(context) + self.vocabulary_.decode(ids) for ids in drawn]
        gap = " " if self.tokens == "words" else ""
        return [gap.join(words) for words in spoken] if self.strings_ else spoken

    # -- the door ------------------------------------------------------------------------------

    def _chosen_smoothing(self) -> Smoothing:
        chosen = self.smoothing
        if isinstance(chosen, Smoothing):
            return chosen
        if not isinstance(chosen, str) or chosen not in _SMOOTHINGS:
            names = ", ".join(map(repr, _SMOOTHINGS))
            raise BadInput("smoothing", repr(chosen), f"{names}, or KneserNey(), Katz() or AddK(k)")
        return _SMOOTHINGS[chosen]()

    def _chosen_vocabulary(self, sentences: list[list[str]], weight: np.ndarray | None) -> Vocabulary:
        given = self.vocabulary
        if given is None:
            # What counts for nothing has no words either.
            counted = [s for i, s in enumerate(sentences) if weight is None or weight[i] > 0]
            return Vocabulary.build(counted, min_count=self.min_count, max_size=self.max_size)
        if not isinstance(given, Vocabulary):
            raise BadInput("vocabulary", type(given).__name__, "an energax.data.Vocabulary")
        if given.begin is None:
            raise BadInput("vocabulary", "one without a begin marker", "a begin marker", "Try begin='<s>'.")
        return given

    def _cut(self, sentence: Any, name: str = "context") -> list[str]:
        """A sentence as a list of words."""
        if isinstance(sentence, str):
            if self.tokens not in _TOKENS:
                raise BadInput("tokens", repr(self.tokens), f"one of {', '.join(map(repr, _TOKENS))}")
            return _TOKENS[self.tokens](sentence)
        if isinstance(sentence, bytes) or not isinstance(sentence, (Sequence, np.ndarray)):
            raise BadInput(name, f"{sentence!r:.40}", "a string or a list of words")
        odd = next((word for word in sentence if not isinstance(word, str)), None)
        if odd is not None:
            hint = "For a model of numbers see energax.energies.NGram.from_sequences."
            raise BadInput(name, f"{odd!r:.40} for a word", "words that are str", hint)
        return list(sentence)

    def _rows(self, X: Any) -> list[Any]:
        if isinstance(X, (str, bytes, dict)) or not isinstance(X, Iterable):
            raise BadInput("X", f"one {type(X).__name__}", _EXPECTED, "Put it in a list: [text].")
        rows = list(X)
        if not rows:
            raise BadInput("X", "no sentences", _EXPECTED)
        return rows

    def _sentences(self, X: Any) -> list[list[str]]:
        """Every sentence as a list of words, or a `BadInput` that says which is not."""
        sentences = [self._cut(row, f"X[{i}]") for i, row in enumerate(self._rows(X))]
        empty = next((i for i, sentence in enumerate(sentences) if not sentence), None)
        if empty is not None:
            raise BadInput(f"X[{empty}]", "no words", _EXPECTED, "Leave blank lines out.")
        return sentences

    def _sentence_weight(self, sample_weight: Any, n: int) -> np.ndarray | None:
        if sample_weight is None:
            return None
        with translate_sklearn_errors("sample_weight", "one number for each sentence"):
            weight = np.asarray(sample_weight, np.float64)
        return self._check_weight(weight, np.zeros((n, 1)))

    def _history(self, context: Any) -> np.ndarray:
        return self.vocabulary_.encode(self._cut(context))


def _ids(vocabulary: Vocabulary, sentences: list[list[str]]) -> list[np.ndarray]:
    markers = {m for m in (vocabulary.begin, vocabulary.end) if m is not None}
    for i, sentence in enumerate(sentences):
        if not markers.isdisjoint(sentence):
            found = f"the marker {next(w for w in sentence if w in markers)!r}"
            raise BadInput(f"X[{i}]", found, "words", "Markers are added by themselves: leave them out.")
    return [vocabulary.encode(sentence, end=vocabulary.end is not None) for sentence in sentences]
