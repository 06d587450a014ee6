"""Linear models: Bayesian ridge, least squares, ridge and lasso, on tall tables."""

from __future__ import annotations

import numpy as np

from .case import Case

N, D = 100_000, 100


def table(dtype) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    y = X @ (rng.normal(size=D) * (np.arange(D) < 20)) + rng.normal(size=N)
    return X.astype(dtype), y.astype(dtype)


def _quality(a, b):
    error = np.abs(a.coef_ - b.coef_).max() / np.abs(b.coef_).max()
    return f"relative difference of weights {error:.1e}, iterations {a.n_iter_} and {b.n_iter_}"


def _weights(a, b):
    return f"relative difference of weights {np.abs(a.coef_ - b.coef_).max() / np.abs(b.coef_).max():.1e}"


def cases() -> list[Case]:
    import sklearn.linear_model as theirs

    from energax import estimators as ours

    def case(name, target, quality, dtype=np.float64, **settings):
        X, y = table(dtype)
        run = lambda library: lambda: getattr(library, name)(**settings).fit(X, y)
        title = f"{name} n = {N:,}, d = {D}, {np.dtype(dtype)}"
        return Case(title, run(ours), run(theirs), target=target, quality=quality)

    return [
        case("BayesianRidge", 1.0, _quality),
        case("BayesianRidge", 1.0, _quality, np.float32),
        case("LinearRegression", 1.0, _weights),
        case("Ridge", None, _weights),
        case("Lasso", None, _weights, alpha=0.05, tol=1e-8),
    ]
