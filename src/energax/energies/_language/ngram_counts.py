"""Counts of n-grams as a tree: one sort for every order, and no table of words by words."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BadInput


@dataclasses.dataclass(frozen=True)
class Counts:
    """All n-grams of one order that were seen, sorted by (context, last word).

    The n-gram h·w is a node; its `parent` is the node of h among those one order shorter, and its
    `suffix` the node of the same words less the first one. So an n-gram is a pair of 32-bit
    numbers, however long it is, and all nodes of one context lie side by side.
    """

    words: np.ndarray  # (n,) the last word
    parent: np.ndarray  # (n,)
    suffix: np.ndarray  # (n,)
    starts: np.ndarray  # (contexts + 1,) where the nodes of each context begin
    count: np.ndarray  # (n,) weighted occurrences
    begins: np.ndarray  # (n,) whether the first word is the begin marker

    def per_context(self, values: np.ndarray) -> np.ndarray:
        """Σ over the nodes of every context, (contexts,)."""
        return np.bincount(self.parent, values, len(self.starts) - 1)


def as_text(
    sequences: Sequence[Any], n_values: int, weights: Any = None, name: str = "sequences"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of ids as one text with a begin marker before each: (text, weight, place in sentence)."""
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
        odd = int(ids.min() if ids.min() < 0 else ids.max())
        raise BadInput(name, f"the id {odd}", f"whole numbers from 0 to {n_values - 1}")
    return _with_begins(ids, lengths, n_values, _weights(weights, len(rows)))


def _with_begins(ids, lengths, begin, weights):
    sentence = np.repeat(np.arange(len(lengths)), lengths + 1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    place = np.arange(len(sentence)) - first[sentence]
    text = np.full(len(sentence), begin, np.int32)
    text[place > 0] = ids
    return text, weights[sentence], place.astype(np.int32)


def _weights(weights: Any, n: int) -> np.ndarray:
    if weights is None:
        return np.ones(n)
    w = np.asarray(weights, np.float64)
    if w.shape != (n,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise BadInput("weights", f"shape {w.shape}", f"({n},): finite numbers >= 0, not all 0")
    return w


def count(text: np.ndarray, weight: np.ndarray, place: np.ndarray, n_values: int, order: int) -> list[Counts]:
    """The n-grams of order 1, 2, …, `order` in a text that `as_text` made; every unigram has a node.

    Orders of which the text has none (all its sentences are shorter) are left out.
    """
    kept = weight > 0
    text, weight, place = text[kept], weight[kept], place[kept]
    base = n_values + 1
    seen = np.bincount(text, weight, base)
    seen[n_values] = 0  # the begin marker is nobody's next word
    every = np.arange(base, dtype=np.int32)
    none = np.zeros(base, np.int32)
    levels = [Counts(every, none, none, np.array([0, base]), seen, every == n_values)]
    node = text.astype(np.int64)  # the node, of the order before, that ends at each place
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
        levels.append(Counts(words.astype(np.int32), parent.astype(np.int32), suffix, starts, total, begins))
        node = np.full(len(text), -1, np.int64)
        node[at] = inverse
    return levels


def continuations(levels: list[Counts]) -> list[np.ndarray]:
    """How many different words were seen before each n-gram; plain counts where there can be none.

    That is for the highest order, and after the begin marker, before which nothing stands.
    """
    out = [level.count for level in levels]
    for i, (level, longer) in enumerate(itertools.pairwise(levels)):
        before = np.bincount(longer.suffix, minlength=len(level.words)).astype(np.float64)
        out[i] = np.where(level.begins, level.count, before)
    out[0] = np.where(levels[0].begins, 0.0, out[0])
    return out
