"""`ResumedLearner`: a learner that continues from the state of an earlier fit."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax

from ...errors import BadInput
from ...fitting import Learner


class ResumedLearner(Learner):
    """A learner that starts in a given state: moments of the optimizer, chains, running sums."""

    learner: Learner
    state: Any

    def check(self, energy, data):
        self.learner.check(energy, data)

    def init(self, energy, batch, key, trainable):
        fresh = eqx.filter_eval_shape(self.learner.init, energy, batch, key, trainable)
        if jax.tree.structure(fresh) != jax.tree.structure(self.state):
            raise BadInput(
                "learner",
                f"{type(self.learner).__name__} with other settings than in earlier calls",
                "the same learner in every call of partial_fit",
                "Call fit to start again.",
            )
        return self.state

    def step(self, energy, state, batch, key, trainable):
        return self.learner.step(energy, state, batch, key, trainable)

    def evaluate(self, energy, state, batch, key):
        return self.learner.evaluate(energy, state, batch, key)

    def partner(self, state):
        return self.learner.partner(state)

    def converged(self, before, after, old, new):
        return self.learner.converged(before, after, old, new)
