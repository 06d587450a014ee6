"""Ancestral sampling: exact draws by the energy's own `draw`."""

from __future__ import annotations

import jax
import numpy as np

from ...samplers import Draws
from .._map_rows import map_rows
from .._method import Cost, Method


class Ancestral(Method):
    """Independent exact draws of all hidden variables by the energy's `draw`.

    For p(x₁, …, x_d) = Π p(x_i | parents of x_i), parents are drawn before their children.

    Henrion (1988), Propagating uncertainty in Bayesian networks by probabilistic logic sampling.

    >>> from energax.energies import Decoder
    >>> from energax.infer import sample
    >>> coins = Decoder(lambda z: 0 * z, 2)
    >>> sample(coins, 5, method=Ancestral(), key=0)["x"].shape
    (5, 2)
    """

    tasks = frozenset({"sample"})
    automatic = True
    priority = 10

    def unsupported_reason(self, task, query):
        energy, names = query.energy, tuple(query.targets)
        if any(v not in energy.marginalises for v in query.partially_observed):
            return f"cannot draw the missing coordinates of {list(query.partially_observed)}"
        draw = lambda row: _draw(row, jax.random.key(0), energy, names)
        if not (energy.knows("draw", query.names) and query.supports(f"draw of {names}", draw)):
            given = f" given {', '.join(query.given)}" if query.given else ""
            return f"needs exact draws{given}, which {type(energy).__name__} does not have"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} has exact draws"

    def cost(self, task, query):
        return Cost(evaluations=0)

    def sample(self, query, n, key):
        energy, names, width = query.energy, tuple(query.targets), query.width
        if query.given:
            arguments = (query.given, query.n, energy, names, n)
            values = map_rows(_draw_rows, *arguments, key=key, numbers_per_row=n * width)
        else:
            # Nothing is given, so that draws can be computed as rows, in chunks.
            values = map_rows(_draw, {}, n, energy, names, key=key, numbers_per_row=width)
            problem = energy.draws_problem(values) if energy.knows("draws_problem") else ""
            values = {k: v[None] for k, v in values.items()}
            return Draws(values, method=self.label, exact=True, flaw=problem)
        if query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        return Draws(values, method=self.label, exact=True)


def _draw(row, key, energy, names):
    drawn = energy.draw(key, **row)
    return {n: drawn[n] for n in names}


def _draw_rows(row, key, energy, names, n):
    return jax.vmap(lambda k: _draw(row, k, energy, names))(jax.random.split(key, n))
