"""Gaussian mixtures: full covariance, the same start; far from the origin; the first call of a process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import numpy as np

from .case import Case

N, D, K, ITERATIONS = 50_000, 16, 10, 20

_FIRST = """
    import sys, time, warnings
    import numpy as np
    warnings.simplefilter("ignore")
    from benchmarks.bench_mixture import table, start, ITERATIONS, K
    if sys.argv[1] == "ours":
        from energax.estimators import GaussianMixture
    else:
        from sklearn.mixture import GaussianMixture
    X = table(np.float64)
    model = GaussianMixture(K, tol=0.0, max_iter=ITERATIONS, **start(X))
    began = time.perf_counter()
    model.fit(X)
    print(time.perf_counter() - began)
"""


def table(dtype, offset: float = 0.0) -> np.ndarray:
    """Ten overlapping clusters with correlated columns of unit size."""
    rng = np.random.default_rng(0)
    mixing = np.eye(D) + 0.2 * rng.normal(size=(D, D))
    rows = rng.normal(size=(N, D)) @ mixing + 2 * rng.normal(size=(K, D))[rng.integers(0, K, N)]
    return (rows + offset).astype(dtype)


def start(X: np.ndarray) -> dict:
    eye = np.broadcast_to(0.05 * np.eye(D), (K, D, D))
    return {"weights_init": np.full(K, 1 / K), "means_init": X[:K], "precisions_init": eye}


def _in_a_fresh_process(program: str, *arguments: str) -> float:
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(out.stdout)


def _quality(a, b) -> str:
    return f"mean log-likelihood {a.lower_bound_:.6f} and {b.lower_bound_:.6f}"


def cases() -> list[Case]:
    from sklearn.mixture import GaussianMixture as Theirs

    from energax.estimators import GaussianMixture as Ours

    def pair(dtype, offset):
        X = table(dtype, offset)
        # scikit-learn's moments are not positive definite in float32 so far out: it gets float64.
        wide = X if dtype == np.float64 else X.astype(np.float64)

        def run(model, rows):
            def call():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return model(K, tol=0.0, max_iter=ITERATIONS, **start(rows)).fit(rows)

            return call

        return run(Ours, X), run(Theirs, wide)

    size = f"n = {N:,}, d = {D}, k = {K}, {ITERATIONS} iterations"
    double, single, far = pair(np.float64, 0.0), pair(np.float32, 0.0), pair(np.float32, 300.0)
    return [
        Case(f"Gaussian mixture, full, {size}, float64", *double, target=1 / 5, quality=_quality),
        Case(f"Gaussian mixture, full, {size}, float32", *single, target=1 / 5, quality=_quality),
        Case(
            "Gaussian mixture, the same 300 standard deviations from the origin, float32",
            *far,
            target=1 / 5,
            quality=_quality,
        ),
        Case(
            "Gaussian mixture, the same, first call of a fresh process, float64",
            lambda: _in_a_fresh_process(_FIRST, "ours"),
            lambda: _in_a_fresh_process(_FIRST, "theirs"),
            target=1.0,
            reported=True,
            repeats=3,
        ),
    ]
