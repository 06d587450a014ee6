"""Restricted Boltzmann machine, 784 × 500, minibatches of 100: updates a second."""

from __future__ import annotations

import numpy as np

from .case import Case

N, D, HIDDEN, BATCH, EPOCHS = 5000, 784, 500, 100, 4


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
    from energax.learn import ContrastiveDivergence

    X = _images()

    def ours(persistent: bool):
        def run():
            objective = ContrastiveDivergence(k=1, persistent=persistent)
            return Ours(HIDDEN, n_iter=EPOCHS, batch_size=BATCH, learner=objective, random_state=0).fit(X)

        return run

    def theirs():
        return Theirs(HIDDEN, n_iter=EPOCHS, batch_size=BATCH, learning_rate=0.05, random_state=0).fit(X)

    def quality(a, b):
        return f"reconstruction error {_error(a, X):.3f} and {_error(b, X):.3f}"

    updates = EPOCHS * N / BATCH
    return [
        Case(
            f"RBM {D}×{HIDDEN}, PCD",
            ours(True),
            theirs,
            target=1 / 3,
            units=updates,
            unit="updates",
            quality=quality,
        ),
        Case(
            f"RBM {D}×{HIDDEN}, CD-1",
            ours(False),
            theirs,
            target=1 / 3,
            units=updates,
            unit="updates",
            quality=quality,
        ),
    ]
