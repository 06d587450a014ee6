"""Restricted Boltzmann machine, 784 × 500, minibatches of 100, plain gradient steps: updates a second."""

from __future__ import annotations

import numpy as np
import optax
from sklearn.base import clone

from .case import Case

N, D, HIDDEN, BATCH, EPOCHS, RATE = 5000, 784, 500, 100, 4, 0.05


def _images() -> np.ndarray:
    """Binary images with structure: overlapping random strokes, as an RBM would like."""
    rng = np.random.default_rng(0)
    strokes = rng.random((40, D)) < 0.08
    used = rng.random((N, 40)) < 0.1
    return ((used.astype(np.float32) @ strokes > 0) ^ (rng.random((N, D)) < 0.02)).astype(np.float32)


def _error(model, X) -> float:
    """Mean absolute error of one mean-field reconstruction: the same measure for both."""
    sigmoid = lambda a: 1 / (1 + np.exp(-a))
    W = model.components_
    hidden = sigmoid(X @ W.T + model.intercept_hidden_)
    return float(np.abs(X - sigmoid(hidden @ W + model.intercept_visible_)).mean())


def cases() -> list[Case]:
    from sklearn.neural_network import BernoulliRBM as Theirs

    from energax.estimators import BernoulliRBM as Ours
    from energax.learn import ContrastiveDivergence, Descent
    from energax.samplers import Gibbs

    X = _images()

    # PCD as scikit-learn has it keeps the hidden units from one update to the next; energax redraws
    # them by the new weights unless told otherwise, which is one product of matrices more.
    objectives = {
        "PCD as the peer's": ContrastiveDivergence(k=1, persistent=True, sampler=Gibbs(("x", "z"))),
        "PCD": ContrastiveDivergence(k=1, persistent=True),
        "CD-1": ContrastiveDivergence(k=1),
    }

    def ours(objective):
        def run():
            learner = Descent(objective, optax.sgd(RATE))
            return Ours(HIDDEN, n_iter=EPOCHS, batch_size=BATCH, learner=learner, random_state=0).fit(X)

        return run

    def theirs(dtype: str):
        table = X.astype(dtype)
        model = Theirs(HIDDEN, n_iter=EPOCHS, batch_size=BATCH, learning_rate=RATE, random_state=0)
        return lambda: clone(model).fit(table)

    def quality(a, b):
        return f"reconstruction error {_error(a, X):.3f} and {_error(b, X):.3f}"

    # scikit-learn works in the precision of its table; energax in single unless x64 is switched on.
    return [
        Case(
            f"RBM {D}×{HIDDEN}, {name}, the peer's table {dtype}",
            ours(objective),
            theirs(dtype),
            target=1 / 3,
            units=EPOCHS * N / BATCH,
            unit="updates",
            quality=quality,
            rest=0.1,
        )
        for name, objective in objectives.items()
        for dtype in ("float32", "float64")
    ]
