"""Triangulation: an order of elimination, the cliques it leaves, and what their tables cost.

Eliminating a variable joins its neighbours; the cost of exact inference is the size of the
tables over the variable and those neighbours. The best order is NP-hard to find, so several
greedy rules compete and the smallest sum of tables wins. Sets of nodes are bits of Python
integers: intersections and counts then run at the speed of words, and the numbers of missing
edges (the fill) are kept up to date by differences, never counted again.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ._cost import Cost, table_cost
from ._validation import undirected

if TYPE_CHECKING:
    import networkx as nx

#: What a greedy rule makes small at every elimination; ties go to the smaller table.
RULES = {
    "min-fill": "edges added",
    "weighted-min-fill": "edges added, each counted as the product of its ends' numbers of states",
    "min-weight": "entries of the table",
    "min-degree": "neighbours",
    "sweep": "steps from a node at the rim, level by level: what grids and other bands like",
}
_WORK = 40_000  # variables eliminated in all random trials together, for graphs of any size


@dataclasses.dataclass(frozen=True)
class Triangulation:
    """An elimination order and the maximal cliques of the chordal graph it makes."""

    order: tuple[Any, ...]
    cliques: tuple[tuple[Any, ...], ...]
    fill: tuple[tuple[Any, Any], ...]  # the edges added
    rule: str
    cost: Cost

    @property
    def width(self) -> int:
        """The size of the largest clique, less one."""
        return max(map(len, self.cliques), default=0) - 1

    def chordal(self) -> nx.Graph:
        """The triangulated graph."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.order)
        for clique in self.cliques:
            graph.add_edges_from((a, b) for i, a in enumerate(clique) for b in clique[i + 1 :])
        return graph


def triangulate(
    graph: nx.Graph,
    cards: Mapping[Any, int] | int = 2,
    rule: str | None = None,
    trials: int | None = None,
    seed: int = 0,
) -> Triangulation:
    """Add edges until every cycle of four or more has a chord, so that the tables stay small.

    `cards` are the numbers of states. Without a `rule` all of `RULES` compete, and orders with ties
    broken at random join in, the more the larger the tables are, or `trials` of them. The same seed
    gives the same order.

    >>> import networkx as nx
    >>> ring = triangulate(nx.cycle_graph(6))
    >>> ring.width, len(ring.fill), nx.is_chordal(ring.chordal())
    (2, 3, True)

    References: Kjærulff, Triangulation of graphs, Aalborg R 90-09, 1990; Fishelson and Geiger,
    J. Artif. Intell. Res. 2004, for the weighted rules and the random ties.
    """
    undirected(graph)
    nodes = list(graph)
    index = {node: i for i, node in enumerate(nodes)}
    try:
        sizes = [cards if isinstance(cards, int) else cards[node] for node in nodes]
    except KeyError as error:
        raise BadInput(
            "cards", f"no entry for {error.args[0]!r}", "the number of states of every node"
        ) from None
    pairs = [(index[a], index[b]) for a, b in graph.edges]
    found = triangulate_scopes(sizes, pairs, rule=rule, trials=trials, seed=seed)
    named = lambda group: tuple(nodes[i] for i in group)
    return dataclasses.replace(
        found,
        order=named(found.order),
        cliques=tuple(map(named, found.cliques)),
        fill=tuple((nodes[a], nodes[b]) for a, b in found.fill),
    )


def triangulate_scopes(
    cards: Sequence[int],
    scopes: Iterable[Sequence[int]],
    rule: str | None = None,
    trials: int | None = None,
    seed: int = 0,
    without: Iterable[int] = (),
) -> Triangulation:
    """The same for variables 0, 1, …, n − 1 of which each scope is a clique: what inference needs.

    Variables in `without` (observed ones) are left out of the graph, the order and the cliques.

    >>> triangulate_scopes([2, 2, 3], [(0, 1), (1, 2)]).cliques
    ((0, 1), (1, 2))
    """
    if rule is not None and rule not in RULES:
        raise BadInput("rule", repr(rule), f"one of {', '.join(RULES)}, or None")
    cards = [int(c) for c in cards]
    if any(c < 1 for c in cards):
        raise BadInput("cards", f"{min(cards)}", "at least one state for every node")
    out = set(without)
    masks = _neighbours(len(cards), scopes, out)
    kept = [v for v in range(len(cards)) if v not in out]
    best = _compete(masks, kept, cards, [rule] if rule else list(RULES), trials, random.Random(seed))
    if best is None:
        return Triangulation((), (), (), rule or "min-fill", table_cost((), cards))
    order, cliques, fill, name = best
    groups = tuple(tuple(_bits(mask)) for mask in cliques)
    return Triangulation(tuple(order), groups, tuple(fill), name, table_cost(groups, cards))


def _neighbours(n: int, scopes: Iterable[Sequence[int]], out: set[int]) -> list[int]:
    masks = [0] * n
    for scope in scopes:
        group = 0
        for v in scope:
            if not 0 <= v < n:
                raise BadInput("scopes", f"the variable {v}", f"indices from 0 to {n - 1}")
            if v not in out:
                group |= 1 << v
        for v in scope:
            masks[v] |= group
    return [0 if v in out else mask & ~(1 << v) for v, mask in enumerate(masks)]


_Order = tuple[list[int], list[int], list[tuple[int, int]], str]


def _compete(
    masks: list[int],
    kept: list[int],
    cards: list[int],
    rules: list[str],
    trials: int | None,
    rng: random.Random,
) -> _Order | None:
    """The order whose maximal cliques have the smallest sum of tables."""
    if not kept:
        return None
    if len({cards[v] for v in kept}) == 1 and len(rules) > 1:
        rules = ["min-fill", "min-degree", "sweep"]  # the weighted rules would say the same again
    # Variables whose neighbours are joined already can always go first; the contest is for the rest.
    start = _eliminate(masks, kept, cards, "min-fill", None, math.inf)
    assert start is not None
    first, masks = start.cliques, start.near
    kept = [v for v in kept if v not in first]
    best: _Order | None = None
    totals = dict.fromkeys(rules, math.inf)

    def attempt(rule: str, ties: list[float]) -> None:
        nonlocal best
        least = min(totals.values())
        found = _eliminate(masks, kept, cards, rule, ties, math.inf if best is None else math.log2(least))
        if found is None:
            return
        cliques = first | found.cliques
        maximal = _maximal(cliques)
        total = sum(_entries(mask, cards) for mask in maximal)
        totals[rule] = min(total, totals[rule])
        if best is None or total < least:
            best = (list(cliques), maximal, found.added, rule)

    for rule in rules:
        for ties in _sweeps(masks, kept) if rule == "sweep" else [[0.0] * len(cards)]:
            attempt(rule, ties)
    greedy = [rule for rule in rules if rule != "sweep"]
    limit = trials if trials is not None else _WORK // len(kept) if kept else 0
    done = 0
    while greedy and done < limit and (trials is not None or done < _worth(min(totals.values()))):
        close = [r for r in greedy if totals[r] <= 4 * min(totals[r] for r in greedy)]
        attempt(close[done % len(close)], [rng.random() for _ in cards])
        done += 1
    return best


def _sweeps(masks: list[int], kept: list[int]) -> list[list[float]]:
    """Places in two orders that keep neighbours near each other: from one end of the band, and the other.

    Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices, Proc. 24th ACM Nat. Conf., 1969.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    number = {v: i for i, v in enumerate(kept)}
    ends = [(i, number[u]) for v, i in number.items() for u in _bits(masks[v])]
    places = [[0.0] * len(masks), [0.0] * len(masks)]
    if not ends:
        return places[:1]
    graph = csr_array(([True] * len(ends), tuple(zip(*ends, strict=True))), (len(kept), len(kept)))
    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    for place, i in enumerate(order):
        places[0][kept[i]], places[1][kept[i]] = place, -place
    return places


def _worth(entries: float) -> int:
    """How many more orders to try: as long as trying is cheap beside computing with such tables."""
    ladder = ((2**14, 0), (2**18, 16), (2**22, 48), (2**36, 128))  # beyond, no order will make it fit
    return next((n for size, n in ladder if entries <= size), 16)


def _entries(mask: int, cards: list[int]) -> int:
    return math.prod(cards[v] for v in _bits(mask))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclasses.dataclass(frozen=True)
class _Run:
    cliques: dict[int, int]  # variable -> itself and its neighbours when it went, in the order they went
    added: list[tuple[int, int]]
    near: list[int]  # neighbours among those that have not gone


def _eliminate(
    masks: list[int], kept: list[int], cards: list[int], rule: str, ties: list[float] | None, limit: float
) -> _Run | None:
    """Eliminate all; None as soon as one table has over 2^limit entries.

    Without `ties` only those go whose neighbours are joined already, which adds no edge.
    """
    near = list(masks)
    groups: dict[int, int] = {}  # cardinality -> the nodes that have it
    for v in kept:
        groups[cards[v]] = groups.get(cards[v], 0) | 1 << v
    by_card = [(card, math.log2(card), group) for card, group in groups.items()]
    weighted = rule == "weighted-min-fill"
    value = cards if weighted else [1] * len(cards)

    def measure(mask: int) -> int:  # the sum of `value` over a set
        if not weighted:
            return mask.bit_count()
        return sum(card * (mask & group).bit_count() for card, _, group in by_card)

    def weight(v: int) -> float:  # log2 of the table that eliminating v would make
        mask = near[v] | 1 << v
        return sum(log * (mask & group).bit_count() for _, log, group in by_card)

    by_fill = rule in ("min-fill", "weighted-min-fill")
    missing, tables = [0] * len(cards), [0.0] * len(cards)
    for v in kept:
        tables[v] = weight(v)
        if by_fill:
            gaps = (value[u] * measure(near[v] & ~near[u] & ~(1 << u)) for u in _bits(near[v]))
            missing[v] = sum(gaps) // 2

    def key(v: int) -> tuple[float, float, float, int]:
        tie = ties[v] if ties else 0.0
        if by_fill:
            return (missing[v], tables[v], tie, v)
        if rule == "min-degree":
            return (near[v].bit_count(), tables[v], tie, v)
        if rule == "sweep":
            return (tie, 0.0, 0.0, v)
        return (tables[v], near[v].bit_count(), tie, v)

    keys = {v: key(v) for v in kept}
    heap = list(keys.values())
    heapq.heapify(heap)
    run = _Run({}, [], near)
    while heap:
        entry = heapq.heappop(heap)
        v = entry[3]
        if keys.get(v) != entry:
            continue  # since then another elimination changed its key, and pushed the new one
        if ties is None and missing[v]:
            break
        if tables[v] > limit:
            return None
        del keys[v]
        around, bit = near[v], 1 << v
        run.cliques[v] = around | bit
        for u in _bits(around):
            near[u] ^= bit
            if by_fill:  # v's own missing edges no longer count
                missing[u] -= value[v] * measure(near[u] & ~around)
        touched = _join(run, around, missing if by_fill else None, value, measure)
        for u in _bits(around):
            tables[u] = weight(u)
        for u in _bits(touched):
            new = key(u)
            if new != keys[u]:
                keys[u] = new
                heapq.heappush(heap, new)
    return run


def _join(
    run: _Run, around: int, missing: list[int] | None, value: list[int], measure: Callable[[int], int]
) -> int:
    """All nodes `around` made neighbours, `missing` kept up to date; → the nodes whose keys may change."""
    near, touched = run.near, around
    for a in _bits(around):
        for b in _bits((around & ~near[a]) >> (a + 1) << (a + 1)):
            run.added.append((a, b))
            if missing is not None:
                common = near[a] & near[b]
                touched |= common
                for w in _bits(common):
                    missing[w] -= value[a] * value[b]
                missing[a] += value[b] * measure(near[a] & ~near[b])
                missing[b] += value[a] * measure(near[b] & ~near[a])
            near[a] |= 1 << b
            near[b] |= 1 << a
    return touched


def _maximal(cliques: dict[int, int]) -> list[int]:
    """Without the cliques that lie in an earlier one.

    The neighbours of v when it goes lie in the clique of the one among them that goes next, and a
    clique is not maximal exactly if it equals such a set (Blair and Peyton 1993).
    """
    place = {v: i for i, v in enumerate(cliques)}
    redundant = set()
    for v, clique in cliques.items():
        rest = clique & ~(1 << v)
        if rest:
            following = min(_bits(rest), key=place.__getitem__)
            if cliques[following] == rest:
                redundant.add(following)
    return [clique for v, clique in cliques.items() if v not in redundant]
