"""Vertex elimination on an undirected graph: cliques, added edges and table sizes.

Eliminating a node joins its neighbours and makes a table over the node and these neighbours. Sets of
nodes are bits of Python integers, so that intersections and counts run at the speed of machine words.
The number of edges an elimination would add (the fill) is updated by differences and never recounted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, in increasing order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class EliminationGraph:
    """An undirected graph whose nodes are eliminated one by one.

    `masks[v]` are the neighbours of node v, as bits, and `nodes` the nodes of the graph. With `weighted`,
    an added edge counts as the product of the numbers of states of its ends, and otherwise as 1; without
    `count_fill` it is not counted, which is faster.
    """

    def __init__(
        self,
        masks: list[int],
        nodes: list[int],
        cards: list[int],
        *,
        count_fill: bool,
        weighted: bool = False,
    ):
        self.nodes = nodes
        self.neighbours = list(masks)  # among the nodes that are not eliminated, as bits
        self.cliques: dict[int, int] = {}  # eliminated node -> itself and its neighbours at that time
        self.added: list[tuple[int, int]] = []  # edges
        groups: dict[int, int] = {}  # number of states -> the nodes that have it
        for v in nodes:
            groups[cards[v]] = groups.get(cards[v], 0) | 1 << v
        self._groups = [(card, math.log2(card), group) for card, group in groups.items()]
        self._weights = cards if weighted else [1] * len(cards)
        self._weight: Callable[[int], int] = self._sum_of_cards if weighted else int.bit_count
        self._count_fill = count_fill
        self.log2_entries = [0.0] * len(cards)  # of the table that eliminating the node would make
        self.fill = [0] * len(cards)  # edges that eliminating the node would add
        for v in nodes:
            self.log2_entries[v] = self._log2_entries(v)
            if count_fill:
                self.fill[v] = self._fill(v)

    def _sum_of_cards(self, mask: int) -> int:
        return sum(card * (mask & group).bit_count() for card, _, group in self._groups)

    def _log2_entries(self, v: int) -> float:
        mask = self.neighbours[v] | 1 << v
        return sum(log * (mask & group).bit_count() for _, log, group in self._groups)

    def _fill(self, v: int) -> int:
        around = self.neighbours[v]
        gaps = (
            self._weights[u] * self._weight(around & ~self.neighbours[u] & ~(1 << u)) for u in bits(around)
        )
        return sum(gaps) // 2  # every missing edge is counted from both ends

    def eliminate(self, v: int) -> int:
        """Join the neighbours of v and remove it; return the nodes whose numbers may change, as bits."""
        around, bit = self.neighbours[v], 1 << v
        self.cliques[v] = around | bit
        for u in bits(around):
            self.neighbours[u] ^= bit
            if self._count_fill:  # edges that v lacks no longer count
                self.fill[u] -= self._weights[v] * self._weight(self.neighbours[u] & ~around)
        changed = self._join(around)
        for u in bits(around):
            self.log2_entries[u] = self._log2_entries(u)
        return changed

    def _join(self, nodes: int) -> int:
        """Add all missing edges between some nodes; return the nodes whose fill may change, as bits."""
        neighbours, changed = self.neighbours, nodes
        for a in bits(nodes):
            for b in bits((nodes & ~neighbours[a]) >> (a + 1) << (a + 1)):
                self.added.append((a, b))
                if self._count_fill:
                    changed |= self._update_fill(a, b)
                neighbours[a] |= 1 << b
                neighbours[b] |= 1 << a
        return changed

    def _update_fill(self, a: int, b: int) -> int:
        """Update the fill for a new edge between a and b; return their common neighbours, as bits."""
        near_a, near_b, weights = self.neighbours[a], self.neighbours[b], self._weights
        common = near_a & near_b
        for u in bits(common):
            self.fill[u] -= weights[a] * weights[b]
        self.fill[a] += weights[b] * self._weight(near_a & ~near_b)
        self.fill[b] += weights[a] * self._weight(near_b & ~near_a)
        return common


# The key of a node under a rule, the smallest of which is eliminated next; the last number is the node.
_Key = tuple[float, float, float, int]


def _fill_key(graph: EliminationGraph, v: int, tie: float) -> _Key:
    return (graph.fill[v], graph.log2_entries[v], tie, v)


def _weight_key(graph: EliminationGraph, v: int, tie: float) -> _Key:
    return (graph.log2_entries[v], graph.neighbours[v].bit_count(), tie, v)


def _degree_key(graph: EliminationGraph, v: int, tie: float) -> _Key:
    return (graph.neighbours[v].bit_count(), graph.log2_entries[v], tie, v)


def _place_key(graph: EliminationGraph, v: int, place: float) -> _Key:
    return (place, 0.0, 0.0, v)


_KEYS = {
    "min-fill": _fill_key,
    "weighted-min-fill": _fill_key,
    "min-weight": _weight_key,
    "min-degree": _degree_key,
    "sweep": _place_key,
}


def eliminate_by_rule(
    masks: list[int], nodes: list[int], cards: list[int], rule: str, ties: list[float], limit: float
) -> EliminationGraph | None:
    """Eliminate all nodes by a rule; None as soon as one table would have more than 2^limit entries.

    `ties` has one number per node: the smaller one goes first among equals, and with the rule "sweep"
    always.
    """
    weighted = rule == "weighted-min-fill"
    graph = EliminationGraph(
        masks, nodes, cards, count_fill=weighted or rule == "min-fill", weighted=weighted
    )
    done = _eliminate_smallest(graph, _KEYS[rule], ties, lambda v: graph.log2_entries[v] <= limit)
    return graph if done else None


def eliminate_simplicial(masks: list[int], nodes: list[int], cards: list[int]) -> EliminationGraph:
    """Eliminate nodes whose neighbours are joined already, which adds no edge, until none is left."""
    graph = EliminationGraph(masks, nodes, cards, count_fill=True)
    _eliminate_smallest(graph, _fill_key, [0.0] * len(cards), lambda v: not graph.fill[v])
    return graph


def _eliminate_smallest(
    graph: EliminationGraph,
    key: Callable[[EliminationGraph, int, float], _Key],
    ties: list[float],
    is_allowed: Callable[[int], bool],
) -> bool:
    """Eliminate the node of the smallest key until none is left (True) or one is not allowed (False)."""
    keys = {v: key(graph, v, ties[v]) for v in graph.nodes}
    heap = list(keys.values())
    heapq.heapify(heap)
    while heap:
        entry = heapq.heappop(heap)
        v = entry[3]
        if keys.get(v) != entry:
            continue  # another elimination changed its key, and pushed the new one
        if not is_allowed(v):
            return False
        del keys[v]
        for u in bits(graph.eliminate(v)):
            new = key(graph, u, ties[u])
            if new != keys[u]:
                keys[u] = new
                heapq.heappush(heap, new)
    return True


def maximal_cliques(cliques: dict[int, int]) -> list[int]:
    """The cliques of an elimination without those that lie in an earlier one, as bits.

    The neighbours of v at its elimination lie in the clique of the one among them that goes next, and
    a clique is not maximal exactly if it equals such a set (Blair and Peyton 1993).
    """
    place = {v: i for i, v in enumerate(cliques)}
    redundant = set()
    for v, clique in cliques.items():
        rest = clique & ~(1 << v)
        if rest:
            following = min(bits(rest), key=place.__getitem__)
            if cliques[following] == rest:
                redundant.add(following)
    return [clique for v, clique in cliques.items() if v not in redundant]
