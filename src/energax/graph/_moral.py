"""Markov blankets and moral graphs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ._validation import Node, as_node, check_directed

if TYPE_CHECKING:
    import networkx as nx


def markov_blanket(graph: nx.Graph, node: Any) -> set[Node]:
    """The smallest set that separates a node from all others.

    Directed: parents, children and the children's other parents. Undirected: the neighbours.

    >>> import networkx as nx
    >>> alarm = nx.DiGraph([("burglary", "alarm"), ("earthquake", "alarm"), ("alarm", "call")])
    >>> sorted(markov_blanket(alarm, "burglary"))
    ['alarm', 'earthquake']

    Reference: Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, section 3.2.
    """
    if not graph.is_directed():
        return set(graph[as_node(graph, node, "node")]) - {node}
    check_directed(graph)
    node = as_node(graph, node, "node")
    children = set(graph.successors(node))
    parents = set(graph.predecessors(node))
    return parents.union(children, *(graph.predecessors(child) for child in children)) - {node}


def moralise(graph: nx.DiGraph) -> nx.Graph:
    """The undirected graph in which every family (a node with its parents) is a clique.

    It has an edge wherever two variables share a table, and separation in it implies d-separation.

    >>> import networkx as nx
    >>> sorted(map(sorted, moralise(nx.DiGraph([("a", "c"), ("b", "c")])).edges))
    [['a', 'b'], ['a', 'c'], ['b', 'c']]

    Reference: Lauritzen and Spiegelhalter, J. R. Statist. Soc. B 50, 1988.
    """
    import networkx as nx

    check_directed(graph)
    moral = nx.Graph()
    moral.add_nodes_from(graph.nodes(data=True))
    moral.add_edges_from(graph.edges)
    for node in graph:
        moral.add_edges_from(itertools.combinations(graph.predecessors(node), 2))
    return moral
