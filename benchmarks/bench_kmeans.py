"""k-means from the same start, for the same number of iterations."""

from __future__ import annotations

import warnings

import numpy as np

from .case import Case

N, D, K, ITERATIONS = 100_000, 32, 64, 20


def table(dtype, offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, D)) + 2 * rng.normal(size=(K, D))[rng.integers(0, K, N)]
    return (rows + offset).astype(dtype)


def cases() -> list[Case]:
    from sklearn.cluster import KMeans as Theirs

    from energax.estimators import KMeans as Ours

    def case(dtype, target, offset=0.0, where=""):
        X = table(dtype, offset)

        def run(model):
            def call():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return model(K, init=X[:K].copy(), n_init=1, max_iter=ITERATIONS, tol=0).fit(X)

            return call

        def quality(a, b):
            return f"inertia {a.inertia_:.8g} and {b.inertia_:.8g}, iterations {a.n_iter_} and {b.n_iter_}"

        name = f"k-means n = {N:,}, d = {D}, k = {K}, {ITERATIONS} iterations, {np.dtype(dtype)}{where}"
        return Case(name, run(Ours), run(Theirs), target=target, quality=quality)

    return [
        case(np.float32, 1.2),
        case(np.float64, 1.0),
        case(np.float32, 1.2, 300.0, ", 300 standard deviations from the origin"),
    ]
