"""Directed graphs with the same independences, which data cannot distinguish.

Reference: Verma and Pearl, Equivalence and synthesis of causal models, UAI 1990.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ._validation import Node, check_directed

if TYPE_CHECKING:
    import networkx as nx


def skeleton(graph: nx.DiGraph) -> nx.Graph:
    """The edges without their directions.

    >>> import networkx as nx
    >>> sorted(map(sorted, skeleton(nx.DiGraph([("a", "b"), ("c", "b")])).edges))
    [['a', 'b'], ['b', 'c']]
    """
    import networkx as nx

    check_directed(graph, acyclic=False)
    bare = nx.Graph()
    bare.add_nodes_from(graph)
    bare.add_edges_from(graph.edges)
    return bare


def v_structures(graph: nx.DiGraph) -> set[tuple[Node, Node, Node]]:
    """Every (a, c, b) with a → c ← b and no edge between a and b; a comes before b in the graph.

    >>> import networkx as nx
    >>> v_structures(nx.DiGraph([("burglary", "alarm"), ("earthquake", "alarm")]))
    {('burglary', 'alarm', 'earthquake')}
    """
    check_directed(graph)
    place = {node: i for i, node in enumerate(graph)}
    return {
        (a, node, b)
        for node in graph
        for a, b in itertools.combinations(sorted(graph.predecessors(node), key=place.__getitem__), 2)
        if not graph.has_edge(a, b) and not graph.has_edge(b, a)
    }


def equivalent(graph: nx.DiGraph, other: nx.DiGraph) -> bool:
    """Whether two graphs have the same independences: the same skeleton and the same v-structures.

    >>> import networkx as nx
    >>> chain, fork = nx.DiGraph([("a", "b"), ("b", "c")]), nx.DiGraph([("b", "a"), ("b", "c")])
    >>> equivalent(chain, fork), equivalent(chain, nx.DiGraph([("a", "b"), ("c", "b")]))
    (True, False)
    """
    colliders = [{(c, frozenset((a, b))) for a, c, b in v_structures(g)} for g in (graph, other)]
    if set(graph) != set(other) or colliders[0] != colliders[1]:
        return False
    return {frozenset(e) for e in graph.edges} == {frozenset(e) for e in other.edges}


def cpdag(graph: nx.DiGraph) -> nx.DiGraph:
    """The equivalence class as one graph: an edge whose direction differs within it goes both ways.

    An arrow is compelled if it belongs to a v-structure, or if reversing it would make a new one or a
    cycle; Meek's first three rules find all of these.

    >>> import networkx as nx
    >>> sorted(cpdag(nx.DiGraph([("a", "c"), ("b", "c"), ("c", "d"), ("e", "a")])).edges)
    [('a', 'c'), ('a', 'e'), ('b', 'c'), ('c', 'd'), ('e', 'a')]

    Reference: Meek, Causal inference and causal explanation with background knowledge, UAI 1995.
    """
    import networkx as nx

    near = skeleton(graph)
    arrows = {(u, c) for a, c, b in v_structures(graph) for u in (a, b)}
    # `graph` is a member of the class, so only its directions need to be tried.
    waiting = [edge for edge in graph.edges if edge not in arrows]
    compelled = waiting
    while compelled:
        compelled = [(u, v) for u, v in waiting if _is_compelled(near, arrows, u, v)]
        arrows.update(compelled)
        waiting = [edge for edge in waiting if edge not in arrows]
    result = nx.DiGraph()
    result.add_nodes_from(graph)
    result.add_edges_from(arrows)
    result.add_edges_from(pair for u, v in waiting for pair in ((u, v), (v, u)))
    return result


def _is_compelled(near: nx.Graph, arrows: set[tuple[Node, Node]], u: Node, v: Node) -> bool:
    """Whether one of Meek's first three rules compels u → v, given the compelled arrows so far."""
    into_u = [w for w in near[u] if (w, u) in arrows]
    into_v = [w for w in near[v] if (w, v) in arrows and w in near[u]]
    return (
        any(w not in near[v] for w in into_u)  # else w → u ← v
        or any((u, w) in arrows for w in into_v)  # else u → w → v → u
        or any(  # else a → v → u makes a → u, likewise b → u: a v-structure, which the graph must have
            b not in near[a] and not {(a, u), (b, u)} <= arrows for a, b in itertools.combinations(into_v, 2)
        )
    )
