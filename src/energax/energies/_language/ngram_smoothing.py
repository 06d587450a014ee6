"""Smoothing of n-gram counts: probability is moved from counted n-grams to others.

Every kind turns counts into two numbers per node, which define all probabilities: p(w | h) = `prob` of the
node h·w if it was counted, else `backoff` of the node h times p(w | h without its first word). A context
that was not counted has the backoff 1.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import equinox as eqx
import numpy as np

from ..._util.arguments import FINITE_NOT_NEGATIVE, check_arguments, number
from ...errors import BadInput
from .ngram_counts import NGramCounts, continuation_counts

Level = tuple[np.ndarray, np.ndarray]  # prob of every node, backoff of every context


class Smoothing(eqx.Module):
    """The base of smoothing methods of n-gram models."""

    #: Whether a word not counted in its context takes its probability from the shorter context, or 1 / V.
    backs_off: ClassVar[bool] = True

    @abstractmethod
    def levels(self, counts: list[NGramCounts], n_values: int) -> list[Level]:
        """(prob, backoff) for each order, unigrams first."""


class AddK(Smoothing):
    """p(w | h) = (c(h w) + k) / (c(h) + k V); with k = 0 maximum likelihood.

    Contexts always have their full length. In a context that was not counted all V words have probability
    1 / V, which is also the limit k → 0.

    Lidstone (1920), Note on the general case of the Bayes–Laplace formula; k = 1 is Laplace's rule.
    """

    k: float = 1.0

    backs_off: ClassVar[bool] = False

    def __check_init__(self):
        check_arguments(self, k=FINITE_NOT_NEGATIVE)

    def levels(self, counts, n_values):
        out = []
        for level in counts:
            total = level.per_context(level.count) + self.k * n_values
            total_or_one = np.where(total > 0, total, 1)
            prob = (level.count + self.k) / total_or_one[level.parent]
            # A context without counts leaves all probability to the uniform distribution.
            out.append((prob, np.where(total > 0, self.k * n_values / total_or_one, 1.0)))
        return out


class KneserNey(Smoothing):
    """p(w | h) = (c(h w) − D(c)) / c(h) + γ(h) p(w | h'), interpolated, h' being h without its first word.

    Below the highest order c is the number of distinct words before an n-gram instead of its occurrences
    (except right after the begin marker, which no word precedes), and below unigrams the distribution is
    uniform. γ(h) = Σ_w D(c(h w)) / c(h) makes the sum one. The discounts of an order come from the numbers
    n_r of n-grams with count r: with Y = n₁ / (n₁ + 2 n₂) one discount is D = Y; three are
    D_r = r − (r + 1) Y n_{r+1} / n_r for r = 1, 2 and 3 or more.

    If a text is too small for that (some n_r = 0), D_r = r / 2. Between whole counts, which occur with
    weights, D is linear.

    Kneser and Ney (1995), Improved backing-off for M-gram language modeling; Chen and Goodman
    (1999), An empirical study of smoothing techniques for language modeling.

    >>> KneserNey.estimate(np.array([1, 1, 1, 1, 2, 2, 3, 4]), 3)      # n₁ … n₄ = 4, 2, 1, 1: Y = ½
    array([0.5 , 1.25, 1.  ])
    """

    discounts: Literal[1, 3] = 3

    def __check_init__(self):
        check_arguments(self, discounts=number(lambda n: n in (1, 3), "1 or 3 (modified)"))

    def levels(self, counts, n_values):
        out, lower = [], np.full(1, 1.0 / n_values)
        for level, c in zip(counts, continuation_counts(counts), strict=True):
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
        """The discounts of counts 1, …, n; the last one is also that of all higher counts."""
        whole = np.ceil(counts).astype(np.int64)
        n1, n2, n3, n4 = (float(np.sum(whole == r)) for r in range(1, 5))
        y = n1 / (n1 + 2 * n2) if n1 else 0.0
        if n == 1:
            return np.array([y if 0 < y < 1 else 0.5])
        ratios = [n2 / n1 if n1 else 0, n3 / n2 if n2 else 0, n4 / n3 if n3 else 0]
        d = [r - (r + 1) * y * ratio if ratio else np.nan for r, ratio in enumerate(ratios, 1)]
        return np.array([x if 0 < x < r else r / 2 for r, x in enumerate(d, 1)])


class Katz(Smoothing):
    """p(w | h) = d_c c(h w) / c(h) if h w was counted, else α(h) p(w | h').

    Counts up to `k` are discounted by the Good-Turing estimate, higher ones are not: with
    r* = (r + 1) n_{r+1} / n_r and A = (k + 1) n_{k+1} / n₁, d_r = (r* / r − A) / (1 − A). The probability
    that this frees goes to the words not counted after h, in proportion to p(w | h').

    If the counts of counts do not allow that, a smaller k is taken. A context with uncounted words in which
    nothing is discounted gets one more count, for those.

    Args:
        k: the highest count that is discounted.
        cutoff: n-grams of three words or more with at most this count are taken as not counted; for long
            n-grams a cutoff of 1 does better than 0.

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
            c, counted = level.count, level.count > (self.cutoff if n > 2 else 0)
            total = level.per_context(c)
            discounts = [1.0, *self.estimate(c[c > 0], self.k), 1.0]
            kept = np.where(counted, c * np.interp(c, np.arange(self.k + 2), discounts), 0.0)
            room = 1.0 - level.per_context(np.where(counted, lower[level.suffix], 0.0))
            full = level.per_context(counted) >= n_values
            # If all words were counted nothing is freed; if nothing is freed for the others, add a count.
            kept = np.where(full[level.parent], c, kept)
            freed = total - level.per_context(kept)
            total = np.where(~full & (freed <= 1e-12 * total), total + 1, total)
            total_or_one = np.where(total > 0, total, 1)
            freed = np.where(full, 0.0, 1.0 - level.per_context(kept) / total_or_one)
            backoff = freed / np.maximum(room, np.finfo(float).eps)
            backoff = np.where(level.per_context(counted) > 0, backoff, 1.0)
            prob = kept / total_or_one[level.parent]
            prob = np.where(counted, prob, backoff[level.parent] * lower[level.suffix])
            out.append((prob, backoff))
            lower = prob
        return out

    @staticmethod
    def estimate(counts: np.ndarray, k: int) -> np.ndarray:
        """d₁, …, d_k; ones if nothing can be discounted."""
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
