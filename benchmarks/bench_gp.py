"""Gaussian processes: the evidence and its gradient at one point, for 3000 rows."""

from __future__ import annotations

import functools
import warnings

import numpy as np

from .case import Case

N, D = 3000, 8


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, np.sin(X.sum(1)) + 0.1 * rng.normal(size=N)


def cases() -> list[Case]:
    from sklearn.gaussian_process import GaussianProcessRegressor as Theirs
    from sklearn.gaussian_process import kernels as their

    from energax.estimators import GaussianProcessRegressor as Ours
    from energax.kernels import RBF, Matern, White

    X, y = table()
    scales = np.full(D, 2.0)
    pairs = {
        "RBF": (1.3 * RBF(2.0) + White(0.1), 1.3 * their.RBF(2.0) + their.WhiteKernel(0.1)),
        "Matérn 5/2, one scale a column": (
            1.3 * Matern(scales, nu=2.5) + White(0.1),
            1.3 * their.Matern(scales, nu=2.5) + their.WhiteKernel(0.1),
        ),
    }

    def case(name, ours, theirs):
        def run(model, kernel):
            @functools.cache  # at the first call, which is not timed
            def fitted():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return model(kernel, optimizer=None).fit(X, y)

            return lambda: fitted().log_marginal_likelihood(fitted().kernel_.theta, eval_gradient=True)

        def quality(a, b):
            return f"evidence {a[0]:.10g} and {b[0]:.10g}, gradients to {np.abs(a[1] - b[1]).max():.1g}"

        title = f"evidence of a Gaussian process and its gradient, n = {N:,}, d = {D}, {name}"
        return Case(title, run(Ours, ours), run(Theirs, theirs), target=1 / 1.2, quality=quality, repeats=3)

    return [case(name, *pair) for name, pair in pairs.items()]
