"""Ancestral draws: from the energy's own `draw`, causes first."""

from __future__ import annotations

import jax
import numpy as np

from ...energy import supports_call
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

    def unsupported_reason(self, task, query):
        energy, name = query.energy, type(query.energy).__name__
        if any(v not in energy.marginalises for v in query.partially_observed):
            return f"cannot draw the missing coordinates of {list(query.partially_observed)}"
        names = tuple(query.targets)
        if not (energy.knows("draw", query.names) and supports_call(_one_draw, query.row(), energy, names)):
            given = f" given {', '.join(query.given)}" if query.given else ""
            return f"needs exact draws{given}, which {name} does not know"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} draws exactly by itself"

    def cost(self, task, query):
        return Cost(evaluations=0)

    def sample(self, query, n, key):
        energy, names = query.energy, tuple(query.targets)
        width = sum(max(1, s.size) for s in query.spaces.values())
        if query.given:
            rows = (query.given, query.n, energy, names, n)
            drawn = map_rows(_row_draws, *rows, key=key, numbers_per_row=n * width)
        else:
            # Nothing is given: draws are rows of their own.
            drawn = map_rows(_row_draw, {}, n, energy, names, key=key, numbers_per_row=width)
            drawn = {k: v[None] for k, v in drawn.items()}
        if query.many:
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
