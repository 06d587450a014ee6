"""Trees of cliques with the running intersection property."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, describe
from ._cost import TableCost, table_cost
from ._validation import Node

if TYPE_CHECKING:
    import networkx as nx


@dataclasses.dataclass(frozen=True)
class CliqueTree:
    """A tree of cliques in which the cliques that contain a variable are connected, for every variable.

    `edges` are pairs (parent, child) of positions in `cliques`. Each comes after the edge of its parent,
    so that read backwards they are a schedule from the leaves to the roots. `separators[i]` are the
    variables that both ends of edge i contain. A graph that is not connected makes a forest.
    """

    cliques: tuple[tuple[Node, ...], ...]
    edges: tuple[tuple[int, int], ...]
    separators: tuple[tuple[Node, ...], ...]

    @property
    def width(self) -> int:
        """The size of the largest clique, less one."""
        return max(map(len, self.cliques), default=0) - 1

    @property
    def roots(self) -> tuple[int, ...]:
        """One clique of each connected part."""
        children = {child for _, child in self.edges}
        return tuple(i for i in range(len(self.cliques)) if i not in children)

    def cost(self, cards: Mapping[Any, int] | Sequence[int], itemsize: int = 8) -> TableCost:
        """Bytes of the clique tables and operations of one calibration (both passes)."""
        return table_cost(self.cliques, cards, self.edges, itemsize)

    def graph(self) -> nx.Graph:
        """The tree as a NetworkX graph of positions, with `clique` and `separator` as attributes."""
        import networkx as nx

        tree = nx.Graph()
        for i, clique in enumerate(self.cliques):
            tree.add_node(i, clique=clique)
        for (a, b), separator in zip(self.edges, self.separators, strict=True):
            tree.add_edge(a, b, separator=separator)
        return tree


def _as_clique(clique: Any) -> tuple[Any, ...]:
    if isinstance(clique, str) or not isinstance(clique, Iterable):
        raise BadInput("cliques", repr(clique), "a sequence of variables for every clique")
    return tuple(clique)


def _cliques_of_graph(graph: Any, cards: Any) -> Iterable[Sequence[Any]]:
    """The cliques of a triangulated graph; of a directed one, after joining parents."""
    from ._moral import moralise
    from ._triangulation import triangulate

    return triangulate(moralise(graph) if graph.is_directed() else graph, cards).cliques


def junction_tree(
    cliques: Iterable[Sequence[Any]] | nx.Graph, cards: Mapping[Any, int] | Sequence[int] | None = None
) -> CliqueTree:
    """The tree of cliques with the largest separators: a maximum spanning tree (Prim's algorithm).

    For the maximal cliques of a chordal graph every such tree has the running intersection property:
    the cliques that contain a variable are connected. With `cards`, ties are broken so that small
    tables have many neighbours, which saves operations.

    A graph instead of cliques is triangulated first, a directed one after its parents are joined.

    >>> tree = junction_tree([("a", "b"), ("b", "c"), ("c", "d")])
    >>> tree.edges, tree.separators
    (((0, 1), (1, 2)), (('b',), ('c',)))

    References: Jensen and Jensen, Optimal junction trees, UAI 1994; Lauritzen and Spiegelhalter,
    J. R. Statist. Soc. B 50, 1988.
    """
    if hasattr(cliques, "nodes") and hasattr(cliques, "is_directed"):
        cliques = _cliques_of_graph(cliques, 2 if cards is None else cards)
    if not isinstance(cliques, Iterable):
        raise BadInput("cliques", describe(cliques), "a graph, or cliques: sequences of variables")
    groups = tuple(map(_as_clique, cliques))
    index: dict[Node, int] = {}
    for group in groups:
        if len(set(group)) != len(group):
            raise BadInput("cliques", f"a variable twice in {group}", "every variable once in a clique")
        for node in group:
            index.setdefault(node, len(index))
    if isinstance(cards, Mapping) and (unknown := index.keys() - cards.keys()):
        raise BadInput(
            "cards", f"no entry for {min(map(str, unknown))}", "the number of states of all variables"
        )
    masks = [sum(1 << index[node] for node in group) for group in groups]
    weights = [0.0 if cards is None else sum(math.log2(cards[v]) for v in group) for group in groups]
    edges = _maximum_spanning_edges(masks, weights)
    shared = [masks[a] & masks[b] for a, b in edges]
    if sum(mask.bit_count() for mask in masks) - sum(s.bit_count() for s in shared) != len(index):
        # In a tree, n cliques with a variable are connected exactly if n − 1 separators have it.
        raise BadInput(
            "cliques",
            "sets without a tree that has the running intersection property",
            "the maximal cliques of a chordal graph",
            "Use triangulate(graph).cliques.",
        )
    separators = (
        tuple(v for v in groups[a] if s >> index[v] & 1) for (a, _), s in zip(edges, shared, strict=True)
    )
    return CliqueTree(groups, tuple(edges), tuple(separators))


def _maximum_spanning_edges(masks: list[int], weights: list[float]) -> list[tuple[int, int]]:
    """Edges (inside, new) of a maximum spanning forest; ties go to the lighter clique."""
    outside = dict.fromkeys(range(len(masks)), (0, -math.inf, -1))  # -> shared, minus weight, inside
    edges: list[tuple[int, int]] = []
    while outside:
        new = max(outside, key=outside.__getitem__)
        shared, _, inside = outside.pop(new)
        if shared:
            edges.append((inside, new))
        mask, light = masks[new], -weights[new]
        for other, best in outside.items():
            size = (mask & masks[other]).bit_count()
            if size and (size, light) > best[:2]:
                outside[other] = (size, light, new)
    return edges
