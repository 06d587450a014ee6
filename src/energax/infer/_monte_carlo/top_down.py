"""Draws of models with an undirected top: chains there, and exact draws of all other variables given it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ...programs import jit
from ...samplers import Draws
from .._method import Method
from .._query import Query


class TopDown(Method):
    """Draws of an energy: first its `undirected` part, then all else by the energy's `draw` given it.

    p(x, z) = p(x | z) p(z) with p(z) ∝ exp(−e_top(z)), as in a deep belief network: z by enumeration where
    the top is small, else by Gibbs chains, then x by ancestral sampling.

    Args:
        method: the method for the top; None chooses one.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    >>> from energax.energies import DeepBeliefNetwork
    >>> from energax.infer import sample
    >>> network = DeepBeliefNetwork.random((6, 4, 3), key=0)
    >>> sample(network, 5, key=0)["x"].shape
    (5, 6)
    """

    method: Any = None

    def __check_init__(self):
        from .._choose import as_method

        if self.method is not None:
            as_method(self.method)

    tasks = frozenset({"sample"})

    def unsupported_reason(self, task, query):
        if query.given:
            return "draws all variables, not some given others"
        if not query.energy.knows("undirected"):
            return f"needs an undirected part, which {type(query.energy).__name__} does not have"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} has exact draws given its undirected part"

    def cost(self, task, query):
        return self._chosen(query)[1].cost("sample", self._chosen(query)[0])

    def kind(self, task, query):
        return self._chosen(query)[1].kind("sample", self._chosen(query)[0])

    def _chosen(self, query: Query) -> tuple[Query, Any]:
        from .._choose import choose

        energy: Any = query.energy
        top = Query(energy.undirected()[0], {})
        return top, choose("sample", top, self.method)

    def sample(self, query, n, key):
        top_key, rest_key = jax.random.split(key)
        top, method = self._chosen(query)
        drawn = method.sample(top, n, top_key)
        network: Any = query.energy
        names = network.undirected()[1]
        lead = next(iter(drawn.chains.values())).shape[:2]
        rows = {names[k]: np.asarray(v).reshape(-1, *v.shape[2:]) for k, v in drawn.chains.items()}
        keys = jax.random.split(rest_key, int(np.prod(lead)))
        rest = _draw_rest(query.energy, {k: asarray(v) for k, v in rows.items()}, keys)
        every = {**rows, **rest}
        values = {k: np.asarray(every[k]).reshape(*lead, *every[k].shape[1:]) for k in query.targets}
        checked = None if drawn.exact else drawn
        return Draws(values, method=self.label, exact=drawn.exact, n=n, chains_checked=checked)


@jit
def _draw_rest(energy, rows, keys):
    return jax.vmap(lambda row, key: energy.draw(key, **row))(rows, keys)
