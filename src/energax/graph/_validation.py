"""Input validation: nodes and graphs."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import BadInput

if TYPE_CHECKING:
    import networkx as nx

Node = Hashable


def as_nodes(graph: nx.Graph, value: Any, argument: str) -> tuple[Node, ...]:
    """One node or several, as a tuple without repetition in the order of the graph."""
    if isinstance(value, Hashable) and value in graph:
        return (value,)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _unknown_node(graph, value, argument)
    nodes = set(value)
    for node in nodes:
        if node not in graph:
            raise _unknown_node(graph, node, argument)
    return tuple(node for node in graph if node in nodes)


def as_node(graph: nx.Graph, value: Any, argument: str) -> Node:
    """Exactly one node."""
    nodes = as_nodes(graph, value, argument)
    if len(nodes) != 1:
        raise BadInput(argument, f"{len(nodes)} nodes", "one node of the graph")
    return nodes[0]


def _unknown_node(graph: nx.Graph, value: Any, argument: str) -> BadInput:
    near = difflib.get_close_matches(str(value), [str(node) for node in graph], n=3)
    some = ", ".join(str(node) for node in list(graph)[:6]) + (", …" if len(graph) > 6 else "")
    remedy = f"Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(argument, repr(value), f"a node of the graph ({some or 'it has none'})", remedy)


def check_disjoint(argument: str, other: str, first: Iterable[Node], second: Iterable[Node]) -> None:
    """Raise if two arguments name the same node."""
    both = set(first) & set(second)
    if both:
        raise BadInput(
            argument, f"{min(map(str, both))} in both {argument} and {other}", "sets without overlap"
        )


def check_directed(graph: nx.Graph, acyclic: bool = True) -> nx.DiGraph:
    """Return the graph; raise unless it is directed and, by default, acyclic."""
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise BadInput("graph", type(graph).__name__, "a networkx.DiGraph")
    if not graph.is_directed():
        raise BadInput("graph", "an undirected graph", "a networkx.DiGraph", "Use separated().")
    if acyclic and not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        walk = " → ".join(map(str, [*cycle, cycle[0]]))
        raise BadInput("graph", f"the cycle {walk}", "a directed graph without cycles")
    return graph


def check_undirected(graph: nx.Graph) -> nx.Graph:
    """Return the graph; raise unless it is undirected."""
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise BadInput("graph", type(graph).__name__, "a networkx.Graph")
    if graph.is_directed():
        raise BadInput("graph", "a directed graph", "a networkx.Graph", "Use d_separated() or moralise().")
    return graph
