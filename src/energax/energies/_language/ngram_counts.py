"""Counts of n-grams as a tree: one sort per order, and no dense tables over the vocabulary."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BadInput


@dataclasses.dataclass(frozen=True)
class NGramCounts:
    """All n-grams of one order that occur, sorted by (context, last word).

    The n-gram h·w is a node. Its `parent` is the node of h, one order shorter, and its `suffix` the node of
    h·w without its first word. So an n-gram of any length is a pair of 32-bit numbers, and the nodes of one
    context are neighbours.
    """

    words: np.ndarray  # (n,) the last word
    parent: np.ndarray  # (n,)
    suffix: np.ndarray  # (n,)
    starts: np.ndarray  # (contexts + 1,) the first node of each context
    count: np.ndarray  # (n,) weighted occurrences
    begins: np.ndarray  # (n,) whether the first word is the begin marker

    def per_context(self, values: np.ndarray) -> np.ndarray:
        """Σ over the nodes of every context, (contexts,)."""
        return np.bincount(self.parent, values, len(self.starts) - 1)


def concatenate_sequences(
    sequences: Sequence[Any], n_values: int, weights: Any = None, name: str = "sequences"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(all ids with a begin marker before each sequence, their weights, their places in the sequence)."""
    rows = [np.asarray(s) for s in sequences]
    if not rows:
        raise BadInput(name, "none", "at least one sequence of whole numbers")
    for i, row in enumerate(rows):
        if row.ndim != 1 or not len(row) or row.dtype.kind not in "iu":
            found = f"shape {row.shape}, dtype {row.dtype}"
            raise BadInput(f"{name}[{i}]", found, "whole numbers of shape (length >= 1,)")
    lengths = np.array([len(row) for row in rows])
    ids = np.concatenate(rows).astype(np.int64)
    if ids.min() < 0 or ids.max() >= n_values:
        invalid = int(ids.min() if ids.min() < 0 else ids.max())
        raise BadInput(name, f"the id {invalid}", f"whole numbers from 0 to {n_values - 1}")
    return _add_begin_markers(ids, lengths, n_values, _check_weights(weights, len(rows)))


def _add_begin_markers(ids, lengths, begin, weights):
    sentence = np.repeat(np.arange(len(lengths)), lengths + 1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    place = np.arange(len(sentence)) - first[sentence]
    text = np.full(len(sentence), begin, np.int32)
    text[place > 0] = ids
    return text, weights[sentence], place.astype(np.int32)


def _check_weights(weights: Any, n: int) -> np.ndarray:
    if weights is None:
        return np.ones(n)
    w = np.asarray(weights, np.float64)
    if w.shape != (n,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise BadInput("weights", f"shape {w.shape}", f"({n},): finite numbers >= 0, not all 0")
    return w


def count_ngrams(
    text: np.ndarray, weight: np.ndarray, place: np.ndarray, n_values: int, order: int
) -> list[NGramCounts]:
    """The n-grams of order 1, …, `order` in the result of `concatenate_sequences`; every value is a unigram.

    Orders longer than all sequences are left out.
    """
    kept = weight > 0
    text, weight, place = text[kept], weight[kept], place[kept]
    base = n_values + 1
    unigrams = np.bincount(text, weight, base)
    unigrams[n_values] = 0  # the begin marker is never predicted
    every = np.arange(base, dtype=np.int32)
    zeros = np.zeros(base, np.int32)
    levels = [NGramCounts(every, zeros, zeros, np.array([0, base]), unigrams, every == n_values)]
    node = text.astype(np.int64)  # the node of the order below that ends at each place
    for n in range(2, order + 1):
        at = np.flatnonzero(place >= n - 1)
        if not len(at):
            break
        pair = node[at - 1] * base + text[at]
        key, inverse = np.unique(pair, return_inverse=True)
        parent, words = np.divmod(key, base)
        suffix = np.empty(len(key), np.int32)
        suffix[inverse] = node[at]
        before = levels[-1]
        starts = np.searchsorted(parent, np.arange(len(before.words) + 1))
        total = np.bincount(inverse, weight[at])
        begins = before.begins[parent]
        levels.append(
            NGramCounts(words.astype(np.int32), parent.astype(np.int32), suffix, starts, total, begins)
        )
        node = np.full(len(text), -1, np.int64)
        node[at] = inverse
    return levels


def continuation_counts(levels: list[NGramCounts]) -> list[np.ndarray]:
    """The number of distinct words that precede each n-gram.

    The highest order and n-grams that start with the begin marker, which no word precedes, have plain counts.
    """
    out = [level.count for level in levels]
    for i, (level, longer) in enumerate(itertools.pairwise(levels)):
        before = np.bincount(longer.suffix, minlength=len(level.words)).astype(np.float64)
        out[i] = np.where(level.begins, level.count, before)
    out[0] = np.where(levels[0].begins, 0.0, out[0])
    return out
