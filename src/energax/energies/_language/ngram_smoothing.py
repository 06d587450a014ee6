"""Smoothing: what is taken from the n-grams that were seen, and who gets it.

Each kind turns counts into two numbers a node, of which every probability is made:
p(w | h) = `prob` of the node h·w where that was seen, else `backoff` of the node h times
p(w | h less its first word). A context never seen has the backoff 1.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import equinox as eqx
import numpy as np

from ...errors import BadInput
from .ngram_counts import Counts, continuations

Level = tuple[np.ndarray, np.ndarray]  # prob of every node, backoff of every context


class Smoothing(eqx.Module):
    """How a language model of n-grams shares out probability."""

    #: Whether a word not seen in its context is asked of the shorter context, or is one of V alike.
    backs_off: ClassVar[bool] = True

    @abstractmethod
    def levels(self, counts: list[Counts], n_values: int) -> list[Level]:
        """(prob, backoff) for each order, unigrams first."""


class AddK(Smoothing):
    """p(w | h) = (c(h w) + k) / (c(h) + k V); with k = 0 maximum likelihood.

    Every history is taken at its full length. One that was never seen leaves all V words alike,
    which is also what k → 0 comes to.

    Lidstone (1920), Note on the general case of the Bayes–Laplace formula; k = 1 is Laplace's rule.
    """

    k: float = 1.0

    backs_off: ClassVar[bool] = False

    def __check_init__(self):
        if not 0 <= self.k < np.inf:
            raise BadInput("k", repr(self.k), "a finite number >= 0")

    def levels(self, counts, n_values):
        out = []
        for level in counts:
            total = level.per_context(level.count) + self.k * n_values
            total_or_one = np.where(total > 0, total, 1)
            prob = (level.count + self.k) / total_or_one[level.parent]
            # A context without a word after it says nothing, and leaves all to the uniform.
            out.append((prob, np.where(total > 0, self.k * n_values / total_or_one, 1.0)))
        return out


class KneserNey(Smoothing):
    """p(w | h) = (c(h w) − D(c)) / c(h) + γ(h) p(w | h'), interpolated, h' being h less its first word.

    Below the highest order c counts the different words before an n-gram instead of its
    occurrences (except right after the begin marker, where there are none), and below unigrams
    all words are alike. γ(h) = Σ_w D(c(h w)) / c(h) makes the sum one. The discounts of an order
    come from the number n_r of n-grams of count r: with Y = n₁ / (n₁ + 2 n₂) one discount is
    D = Y; three are D_r = r − (r + 1) Y n_{r+1} / n_r for r = 1, 2 and 3 or more.

    Where a text is too small for that (some n_r = 0), D_r = r / 2. Between whole counts, which
    weights may give, D is linear.

    Kneser and Ney (1995), Improved backing-off for M-gram language modeling; Chen and Goodman
    (1999), An empirical study of smoothing techniques for language modeling.

    >>> KneserNey.estimate(np.array([1, 1, 1, 1, 2, 2, 3, 4]), 3)      # n₁ … n₄ = 4, 2, 1, 1: Y = ½
    array([0.5 , 1.25, 1.  ])
    """

    discounts: Literal[1, 3] = 3

    def __check_init__(self):
        if self.discounts not in (1, 3):
            raise BadInput("discounts", repr(self.discounts), "1 or 3 (modified)")

    def levels(self, counts, n_values):
        out, lower = [], np.full(1, 1.0 / n_values)
        for level, c in zip(counts, continuations(counts), strict=True):
            d = self.estimate(c[c > 0], self.discounts)
            taken = np.interp(c, np.arange(len(d) + 1), [0.0, *d])
            total = level.per_context(c)
            total_or_one = np.where(total > 0, total, 1)
            gamma = np.where(total > 0, level.per_context(taken) / total_or_one, 1.0)
            prob = (c - taken) / total_or_one[level.parent] + gamma[level.parent] * lower[level.suffix]
            out.append((prob, gamma))
            lower = prob
        return out

    @staticmethod
    def estimate(counts: np.ndarray, n: int) -> np.ndarray:
        """The discounts of counts 1, …, n (the last of them for all higher counts too)."""
        whole = np.ceil(counts).astype(np.int64)
        n1, n2, n3, n4 = (float(np.sum(whole == r)) for r in range(1, 5))
        y = n1 / (n1 + 2 * n2) if n1 else 0.0
        if n == 1:
            return np.array([y if 0 < y < 1 else 0.5])
        ratios = [n2 / n1 if n1 else 0, n3 / n2 if n2 else 0, n4 / n3 if n3 else 0]
        d = [r - (r + 1) * y * ratio if ratio else np.nan for r, ratio in enumerate(ratios, 1)]
        return np.array([x if 0 < x < r else r / 2 for r, x in enumerate(d, 1)])


class Katz(Smoothing):
    """p(w | h) = d_c c(h w) / c(h) where h w was seen, else α(h) p(w | h').

    Counts up to `k` are discounted as Good and Turing have it, higher ones believed: with
    r* = (r + 1) n_{r+1} / n_r and A = (k + 1) n_{k+1} / n₁, d_r = (r* / r − A) / (1 − A). What this
    frees goes to the words never seen after h, in proportion to p(w | h').

    Where the counts of counts are too uneven for that, a smaller k is taken. A context in which
    nothing is discounted though words are unseen is taken to have seen one of those.

    Args:
        k: the highest count that is discounted.
        cutoff: n-grams of three words or more that occur no more often than this are taken for
            unseen; on large orders a 1 does better than believing what was seen once.

    Katz (1987), Estimation of probabilities from sparse data for the language model component of
    a speech recognizer; Good (1953), The population frequencies of species.
    """

    k: int = 5
    cutoff: int = 0

    def __check_init__(self):
        for name, least in (("k", 1), ("cutoff", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise BadInput(name, repr(value), f"a whole number >= {least}")

    def levels(self, counts, n_values):
        out, lower = [], np.full(1, 1.0 / n_values)
        for n, level in enumerate(counts, 1):
            c, seen = level.count, level.count > (self.cutoff if n > 2 else 0)
            total = level.per_context(c)
            share = [1.0, *self.estimate(c[c > 0], self.k), 1.0]
            kept = np.where(seen, c * np.interp(c, np.arange(self.k + 2), share), 0.0)
            room = 1.0 - level.per_context(np.where(seen, lower[level.suffix], 0.0))
            full = level.per_context(seen) >= n_values
            # Nobody is left to give to; or nothing was freed for those who are.
            kept = np.where(full[level.parent], c, kept)
            freed = total - level.per_context(kept)
            total = np.where(~full & (freed <= 1e-12 * total), total + 1, total)
            total_or_one = np.where(total > 0, total, 1)
            freed = np.where(full, 0.0, 1.0 - level.per_context(kept) / total_or_one)
            backoff = freed / np.maximum(room, np.finfo(float).eps)
            backoff = np.where(level.per_context(seen) > 0, backoff, 1.0)
            prob = kept / total_or_one[level.parent]
            prob = np.where(seen, prob, backoff[level.parent] * lower[level.suffix])
            out.append((prob, backoff))
            lower = prob
        return out

    @staticmethod
    def estimate(counts: np.ndarray, k: int) -> np.ndarray:
        """d₁, …, d_k; ones where nothing can be discounted."""
        whole = np.ceil(counts).astype(np.int64)
        n = np.bincount(np.minimum(whole, k + 2), minlength=k + 3).astype(np.float64)
        for most in range(k, 0, -1):
            r = np.arange(1, most + 1)
            if not n[1 : most + 2].all():
                continue
            a = (most + 1) * n[most + 1] / n[1]
            if a == 1:
                continue
            d = ((r + 1) * n[r + 1] / (r * n[r]) - a) / (1 - a)
            if ((d > 0) & (d < 1)).all():
                return np.append(d, np.ones(k - most))
        return np.ones(k)
