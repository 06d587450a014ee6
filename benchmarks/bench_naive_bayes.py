"""Gaussian naive Bayes: one pass over a large table, and predictions for all of its rows."""

from __future__ import annotations

import functools

import numpy as np

from .case import Case

N, D = 1_000_000, 20


@functools.cache  # made when a case runs, not when it is listed
def table(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, N)
    return rng.normal(size=(N, D)) + 0.3 * rng.normal(size=(k, D))[y], y


def cases() -> list[Case]:
    from sklearn.naive_bayes import GaussianNB

    from energax.estimators import NaiveBayes

    def pair(k):
        ours = functools.cache(lambda: NaiveBayes("gaussian").fit(*table(k)))
        theirs = functools.cache(lambda: GaussianNB().fit(*table(k)))

        def same_variances(a, b):
            return f"largest difference of variances {np.abs(a.var_ / b.var_ - 1).max():.1g}"

        def same_labels(a, b):
            return f"{np.mean(a == b):.6%} equal labels"

        size = f"n = {N:,}, d = {D}, k = {k}"
        return [
            Case(
                f"naive Bayes, fit, {size}",
                lambda: NaiveBayes("gaussian").fit(*table(k)),
                lambda: GaussianNB().fit(*table(k)),
                target=1.0,
                units=N,
                unit="rows",
                quality=same_variances,
            ),
            Case(
                f"naive Bayes, predict, {size}",
                lambda: ours().predict(table(k)[0]),
                lambda: theirs().predict(table(k)[0]),
                target=1.0,
                units=N,
                unit="rows",
                quality=same_labels,
            ),
        ]

    return [*pair(2), *pair(10)]
