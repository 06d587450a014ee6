"""What a person may write where nodes are asked for, and the graphs that are refused at the door."""

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
        raise _unknown(graph, value, argument)
    wanted = set(value)
    for node in wanted:
        if node not in graph:
            raise _unknown(graph, node, argument)
    return tuple(node for node in graph if node in wanted)


def as_node(graph: nx.Graph, value: Any, argument: str) -> Node:
    """Exactly one node."""
    nodes = as_nodes(graph, value, argument)
    if len(nodes) != 1:
        raise BadInput(argument, f"{len(nodes)} nodes", "one node of the graph")
    return nodes[0]


def _unknown(graph: nx.Graph, value: Any, argument: str) -> BadInput:
    near = difflib.get_close_matches(str(value), [str(node) for node in graph], n=3)
    some = ", ".join(str(node) for node in list(graph)[:6]) + (", …" if len(graph) > 6 else "")
    remedy = f"Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(argument, repr(value), f"a node of the graph ({some or 'which has none'})", remedy)


def apart(argument: str, other: str, first: Iterable[Node], second: Iterable[Node]) -> None:
    """Raise if two arguments name the same node."""
    both = set(first) & set(second)
    if both:
        raise BadInput(
            argument, f"{min(map(str, both))} in both {argument} and {other}", "sets without overlap"
        )


def directed(graph: nx.Graph, acyclic: bool = True) -> nx.DiGraph:
    """The graph itself, if it is directed and without cycles."""
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise BadInput("graph", type(graph).__name__, "a networkx.DiGraph")
    if not graph.is_directed():
        raise BadInput("graph", "an undirected graph", "a networkx.DiGraph", "Undirected: separated().")
    if acyclic and not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        walk = " → ".join(map(str, [*cycle, cycle[0]]))
        raise BadInput("graph", f"the cycle {walk}", "a directed graph without cycles")
    return graph


def undirected(graph: nx.Graph) -> nx.Graph:
    """The graph itself, if it is undirected."""
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise BadInput("graph", type(graph).__name__, "a networkx.Graph")
    if graph.is_directed():
        raise BadInput(
            "graph", "a directed graph", "a networkx.Graph", "Directed: d_separated() or moralise()."
        )
    return graph
