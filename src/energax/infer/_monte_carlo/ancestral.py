"""Ancestral draws: from the energy's own `draw`, causes first."""

from __future__ import annotations

import jax
import numpy as np

from ...energy import answers
from ...samplers import Draws
from .._method import Cost, Method
from .._query import map_rows


class Ancestral(Method):
    """Independent exact draws of all hidden variables by the energy's `draw`.

    >>> from energax.energies import Decoder
    >>> from energax.infer import sample
    >>> coins = Decoder(lambda z: 0 * z, 2)
    >>> sample(coins, 5, method=Ancestral(), key=0).values["x"].shape
    (5, 2)
    """

    tasks = frozenset({"sample"})

    def unsuitable(self, task, question):
        energy, name = question.energy, type(question.energy).__name__
        if any(v not in energy.marginalises for v in question.partly):
            return f"cannot draw the missing coordinates of {list(question.partly)}"
        names = tuple(question.sought)
        if not (energy.knows("draw", question.names) and answers(_one_draw, question.row(), energy, names)):
            given = f" given {', '.join(question.given)}" if question.given else ""
            return f"needs exact draws{given}, which {name} does not know"
        return None

    def why(self, task, question):
        return f"{type(question.energy).__name__} draws exactly by itself"

    def cost(self, task, question):
        return Cost(evaluations=0)

    def sample(self, question, n, key):
        energy, names = question.energy, tuple(question.sought)
        width = sum(max(1, s.size) for s in question.spaces.values())
        if question.given:
            rows = (question.given, question.n, energy, names, n)
            drawn = map_rows(_row_draws, *rows, key=key, numbers_per_row=n * width)
        else:
            # Nothing is given: draws are rows of their own.
            drawn = map_rows(_row_draw, {}, n, energy, names, key=key, numbers_per_row=width)
            drawn = {k: v[None] for k, v in drawn.items()}
        if question.many:
            drawn = {k: np.swapaxes(v, 0, 1)[None] for k, v in drawn.items()}
        return Draws(drawn, method=self.label, exact=True)


def _one_draw(row, energy, names, key=None):
    key = jax.random.key(0) if key is None else key
    drawn = energy.draw(key, **row)
    return {n: drawn[n] for n in names}


def _row_draws(row, key, energy, names, n):
    return jax.vmap(lambda k: _one_draw(row, energy, names, k))(jax.random.split(key, n))


def _row_draw(row, key, energy, names):
    return _one_draw(row, energy, names, key)
