"""n-gram language models: p(next word | the last few words), from smoothed counts."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...energy import Energy
from ...errors import BadInput
from ...missing import is_masked, mask_of, value_of
from ...spaces import Categorical, Sequence, fixed
from .ngram_counts import NGramCounts, concatenate_sequences, count_ngrams
from .ngram_smoothing import KneserNey, Smoothing


class NGramTable(eqx.Module):
    """The n-grams of one order as nodes of a tree, sorted by context and last word."""

    starts: Any  # (contexts + 1,) the first node of each context
    words: Any  # (nodes,) the last word
    log_prob: Any  # (nodes,) log p(w | h)
    log_backoff: Any  # (contexts,)
    steps: int = eqx.field(static=True)  # of the binary search for a word in one context

    def find(self, context: Any, word: Any) -> Any:
        """The node of `word` in each context, −1 if it has none or the context is −1.

        A binary search with a fixed number of steps, the same in NumPy and in compiled code.
        """
        xp = _array_module(self.words)
        safe = xp.where(context >= 0, context, 0)
        low, end = self.starts[safe], self.starts[safe + 1]
        high, last = end, len(self.words) - 1
        for _ in range(self.steps):
            middle = (low + high) // 2
            right = (low < high) & (self.words[xp.minimum(middle, last)] < word)
            low, high = xp.where(right, middle + 1, low), xp.where(right, high, middle)
        found = (context >= 0) & (low < end) & (self.words[xp.minimum(low, last)] == word)
        return xp.where(found, low, -1)

    def extend(self, context: Any, word: Any, lower: Any) -> tuple[Any, Any]:
        """(node, log p) of a word in a context, where `lower` is log p in the shorter context."""
        xp = _array_module(self.words)
        node = self.find(context, word)
        backoff = xp.where(context >= 0, self.log_backoff[xp.where(context >= 0, context, 0)], 0)
        return node, xp.where(node >= 0, self.log_prob[xp.where(node >= 0, node, 0)], backoff + lower)


def _array_module(array: Any) -> Any:
    return np if isinstance(array, np.ndarray) else jnp


class NGram(Energy):
    """e(x) = −Σ_t log p(x_t | x_{t−n+1}, …, x_{t−1}), x a sequence of V values; log Z = 0.

    Every sequence follows one begin marker, which is a context and never predicted: its number is V. An end
    marker, if a text has one, is a value like any other. A sequence may be padded at its end (`Masked`, as
    `Sequence.pad` returns it); a missing value inside a sequence makes the energy NaN, since missing words
    are not summed out.

    The tables hold probabilities from counts, which learners do not change: use `from_sequences`.

    Args:
        tables: for every order, unigrams first, the n-grams and their probabilities.
        n_values: V.
        backs_off: whether a word that was not counted in a context takes its probability from the shorter
            context; if not, it takes 1 / V.
        length: the number of values, for drawing and for enumeration; None for any.

    Chen and Goodman (1999), An empirical study of smoothing techniques for language modeling.

    >>> from energax.energies import AddK
    >>> bigram = NGram.from_sequences([[0, 1, 1], [0, 1]], 2, order=2, smoothing=AddK(1.0))
    >>> jnp.exp(-bigram(x=jnp.array([0, 1])))            # (2 + 1) / (2 + 2) · (2 + 1) / (2 + 2)
    Array(0.5625, dtype=float32)
    """

    tables: tuple[NGramTable, ...] = fixed()
    n_values: int = eqx.field(static=True)
    backs_off: bool = eqx.field(static=True, default=True)
    length: int | None = eqx.field(static=True, default=None)

    marginalises = frozenset({"x"})

    @classmethod
    def from_sequences(
        cls,
        sequences: Rows[Any],
        n_values: int,
        *,
        order: int = 3,
        smoothing: Smoothing | None = None,
        weights: Any = None,
        length: int | None = None,
    ) -> NGram:
        """Count and smooth (by default with `KneserNey()`); a sequence of weight 2 counts twice."""
        for name, value in (("n_values", n_values), ("order", order)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise BadInput(name, repr(value), "a whole number >= 1")
        smoothing = KneserNey() if smoothing is None else smoothing
        if not isinstance(smoothing, Smoothing):
            raise BadInput("smoothing", type(smoothing).__name__, "KneserNey(), Katz() or AddK(k)")
        text = concatenate_sequences(sequences, n_values, weights)
        counts = count_ngrams(*text, int(n_values), int(order))
        levels = smoothing.levels(counts, int(n_values))
        tables = tuple(_make_table(c, *level) for c, level in zip(counts, levels, strict=True))
        return cls(tables, int(n_values), smoothing.backs_off, length)

    @property
    def spaces(self):
        return {"x": Sequence(Categorical(self.n_values), self.length)}

    @property
    def order(self) -> int:
        """The order of the longest n-grams: as given, or shorter if the sequences were."""
        return len(self.tables)

    def __call__(self, *, x):
        ids = asarray(value_of(x))
        text = jnp.concatenate([jnp.full(1, self.n_values, ids.dtype), ids])
        log_p = self._log_probs(text, jnp.arange(len(text)), self.tables)[1:]
        if not is_masked(x):
            return -log_p.sum()
        observed = mask_of(x)
        gap = jnp.any(observed[1:] & ~observed[:-1])
        return jnp.where(gap, jnp.nan, -jnp.where(observed, log_p, 0).sum())

    def log_partition(self):
        return jnp.zeros((), self.tables[0].log_prob.dtype)

    def _log_probs(self, text, place, tables):
        """log p of every word of a text given the words before it in its sentence, order by order."""
        xp = _array_module(tables[0].words)
        node, log_p = text, tables[0].log_prob[text]
        for n, table in enumerate(tables[1:], 2):
            deep = place >= n - 1
            context = xp.where(deep, xp.concatenate([xp.full(1, -1, node.dtype), node[:-1]]), -1)
            node, log_p = self._extend(table, context, text, log_p, deep)
        return log_p

    def _extend(self, table, context, word, log_p, deep):
        """(node, log p) with contexts one word longer; log p is unchanged where `deep` is False."""
        xp = _array_module(table.words)
        lower = log_p if self.backs_off else -np.log(self.n_values)
        node, longer = table.extend(context, word, lower)
        return node, xp.where(deep, longer, log_p)

    def draw(self, key):
        """Draw one sequence of `length` values."""
        if self.length is None:
            raise BadInput("length", "None", "the number of values to draw", "Set the length of the NGram.")
        first, *rest = self.tables
        every = jnp.arange(self.n_values, dtype=first.words.dtype)
        begin = jnp.array([self.n_values, *[-1] * len(rest)], every.dtype)

        def step(contexts, place_and_key):
            place, key = place_and_key
            log_p, nodes = first.log_prob[:-1], [every]
            for n, table in enumerate(rest, 2):
                context = jnp.broadcast_to(contexts[n - 2], every.shape)
                node, log_p = self._extend(table, context, every, log_p, place >= n - 1)
                nodes.append(node)
            word = jax.random.categorical(key, log_p)
            return jnp.stack([node[word] for node in nodes]).astype(every.dtype), word

        places = jnp.arange(1, self.length + 1)
        _, words = jax.lax.scan(step, begin, (places, jax.random.split(key, self.length)))
        return {"x": words.astype(self.spaces["x"].jax_dtype)}

    # -- texts of any lengths, in NumPy, in the precision of the tables ------------------------

    def text_log_probs(self, sequences: Rows[Any]) -> list[np.ndarray]:
        """log p(x_t | values before) of every value of every sequence."""
        text, _, place = concatenate_sequences(sequences, self.n_values)
        log_p = self._log_probs(text, place, _to_numpy(self.tables))
        ends = np.cumsum([len(s) for s in sequences])[:-1]
        return np.split(log_p[place > 0], ends)

    def next_probs(self, history: Any = ()) -> np.ndarray:
        """p(next | history) of all V values, for one history after the begin marker."""
        return _next_probs(_to_numpy(self.tables), self._contexts(history), self)

    def _contexts(self, history: Any) -> list[int]:
        """The nodes of the last 1, 2, … values of a history, up to the longest context of an n-gram."""
        history = np.asarray(history, np.int64).reshape(-1)
        if len(history) and (history.min() < 0 or history.max() >= self.n_values):
            raise BadInput("history", f"{history!r:.60}", f"whole numbers from 0 to {self.n_values - 1}")
        tables, contexts = _to_numpy(self.tables), [self.n_values]
        for word in history:
            contexts = _advance(tables, contexts, int(word))
        return contexts

    def generate(
        self, rng: np.random.Generator, *, history: Any = (), end: int | None, most: int
    ) -> list[int]:
        """Draw values until `end`, which is left out, or until there are `most` of them."""
        tables, contexts = _to_numpy(self.tables), self._contexts(history)
        out: list[int] = []
        while len(out) < most:
            cumulative = np.cumsum(_next_probs(tables, contexts, self))
            word = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
            if word == end:
                break
            out.append(word)
            contexts = _advance(tables, contexts, word)
        return out


def _to_numpy(tables: tuple[NGramTable, ...]) -> tuple[NGramTable, ...]:
    return jax.tree.map(np.asarray, tables)


def _advance(tables: tuple[NGramTable, ...], contexts: list[int], word: int) -> list[int]:
    """The contexts after `word`: its nodes of every order up to that of the longest context."""
    nodes = [word]
    for table, context in zip(tables[1:-1], contexts, strict=False):
        nodes.append(int(table.find(np.asarray(context), np.asarray(word))))
    return nodes


def _next_probs(tables: tuple[NGramTable, ...], contexts: list[int], model: NGram) -> np.ndarray:
    """p(· | context) of all values: every order replaces the lower one for the words it has counted."""
    probs = np.exp(tables[0].log_prob[: model.n_values])
    for table, context in zip(tables[1:], contexts, strict=False):
        lower = probs if model.backs_off else np.full(model.n_values, 1.0 / model.n_values)
        if context < 0:
            probs = lower
            continue
        probs = np.exp(table.log_backoff[context]) * lower
        children = slice(*table.starts[context : context + 2])
        probs[table.words[children]] = np.exp(table.log_prob[children])
    return probs


def _make_table(counts: NGramCounts, prob: np.ndarray, backoff: np.ndarray) -> NGramTable:
    with np.errstate(divide="ignore"):
        log_prob, log_backoff = np.log(prob), np.log(backoff)
    most = int(np.max(np.diff(counts.starts), initial=1))
    starts, words = (asarray(a.astype(np.int32)) for a in (counts.starts, counts.words))
    return NGramTable(starts, words, asarray(log_prob), asarray(log_backoff), most.bit_length())
