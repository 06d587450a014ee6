"""Bayesian networks learned from data, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from ..._util.frames import is_frame
from ...errors import BadInput, describe
from ...fitting import fit
from ...graph import Columns, Structure, hill_climb
from ...learn import EM


def learn_network(make: Any, data: Any, graph: Any, score: str, prior: float, weights: Any) -> Any:
    """Return the network of `BayesianNetwork.from_data`; `make` is the class."""
    columns = Columns.from_data(data, weights=weights)
    if graph is None:
        graph = hill_climb(data, score=score, weights=weights)
    cards = dict(zip(columns.names, columns.cards, strict=True))
    start = make(make.from_graph(graph, cards, _states_by_name(columns)).nodes, prior=prior)
    seen = np.ones_like(columns.codes, bool) if columns.observed is None else columns.observed
    rows = zip(columns.names, columns.codes, seen, strict=True)
    by_name = {str(name): np.where(present, codes, np.nan) for name, codes, present in rows}
    epochs = 1 if columns.observed is None else 100
    return fit(start, by_name, EM(), key=0, epochs=epochs, weights=weights).energy


def as_graph(graph: Any) -> Any:
    """Return the directed graph of a `Structure`, or the graph itself."""
    graph = graph.graph if isinstance(graph, Structure) else graph
    if not hasattr(graph, "is_directed"):
        raise BadInput("graph", describe(graph), "a directed graph of NetworkX, or a Structure")
    if not graph.is_directed():
        raise BadInput("graph", "an undirected graph", "a directed graph")
    return graph


def count_states(graph: Any, cards: Any, states: Mapping[str, Any] | None) -> tuple[dict[Any, int], Any]:
    """Return (the number of states, the names of states by the name of the node) of the nodes of a graph.

    `cards` is the number of states, for all or by name, or a frame of data.
    """
    if is_frame(cards):
        columns = Columns.from_data(cards)
        states = {**_states_by_name(columns), **(states or {})}
        cards = dict(zip(columns.names, columns.cards, strict=True))
    if states is not None and not isinstance(states, Mapping):
        raise BadInput("states", describe(states), "a dict from names of nodes to names of their states")
    named = {str(k): tuple(v) for k, v in (states or {}).items()}
    counts = {}
    for node in graph:
        found = cards.get(node) if isinstance(cards, Mapping) else cards
        found = len(named[str(node)]) if str(node) in named else found
        if not isinstance(found, Integral) or found < 1:
            expected = "a number of states >= 1, for all nodes or by name, or a frame of data"
            raise BadInput("cards", f"{found!r} for {node!r}", expected)
        counts[node] = int(found)
    return counts, named


def _states_by_name(columns: Columns) -> dict[str, tuple[str, ...]]:
    named = zip(columns.names, columns.states, strict=True)
    return {str(name): states for name, states in named if states is not None}
