"""Triangulation: an elimination order, its maximal cliques, and the cost of their tables.

Eliminating a variable joins its neighbours; the cost of exact inference is the size of the tables over
the variable and those neighbours. The best order is NP-hard to find, so several rules compete and the
smallest sum of tables wins.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BadInput
from ._cost import TableCost, table_cost
from ._elimination import bits, eliminate_by_rule, eliminate_simplicial, maximal_cliques
from ._validation import check_undirected

if TYPE_CHECKING:
    import networkx as nx

#: The quantity that a rule makes small at every elimination; ties go to the smaller table.
RULES = {
    "min-fill": "edges added",
    "weighted-min-fill": "edges added, each counted as the product of its ends' numbers of states",
    "min-weight": "entries of the table",
    "min-degree": "neighbours",
    "sweep": "steps from a node at the rim, level by level: good for grids and other band graphs",
}
_WORK = 40_000  # variables eliminated in all random trials together, for graphs of any size


@dataclasses.dataclass(frozen=True)
class Triangulation:
    """An elimination order and the maximal cliques of the chordal graph it makes."""

    order: tuple[Any, ...]
    cliques: tuple[tuple[Any, ...], ...]
    fill: tuple[tuple[Any, Any], ...]  # the edges added
    rule: str
    cost: TableCost

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
    """Add edges until every cycle of four or more nodes has a chord, keeping the tables small.

    `cards` are the numbers of states. Without a `rule` all of `RULES` compete. Orders with ties broken at
    random compete too: `trials` of them, or by default the more, the larger the tables are. The same
    seed gives the same order.

    >>> import networkx as nx
    >>> ring = triangulate(nx.cycle_graph(6))
    >>> ring.width, len(ring.fill), nx.is_chordal(ring.chordal())
    (2, 3, True)

    References: Kjærulff, Triangulation of graphs, Aalborg R 90-09, 1990; Fishelson and Geiger,
    J. Artif. Intell. Res. 2004, for the weighted rules and the random ties.
    """
    check_undirected(graph)
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
    """Triangulate the graph of variables 0, 1, …, n − 1 in which each scope is a clique.

    Variables in `without` (observed ones) are left out of the graph, the order and the cliques.

    >>> triangulate_scopes([2, 2, 3], [(0, 1), (1, 2)]).cliques
    ((0, 1), (1, 2))
    """
    if rule is not None and rule not in RULES:
        raise BadInput("rule", repr(rule), f"one of {', '.join(RULES)}, or None")
    cards = [int(c) for c in cards]
    if any(c < 1 for c in cards):
        raise BadInput("cards", f"{min(cards)}", "at least one state for every node")
    excluded = set(without)
    masks = _neighbour_masks(len(cards), scopes, excluded)
    nodes = [v for v in range(len(cards)) if v not in excluded]
    if not nodes:
        return Triangulation((), (), (), rule or "min-fill", table_cost((), cards))
    best = _best_order(masks, nodes, cards, [rule] if rule else list(RULES), trials, random.Random(seed))
    cliques = tuple(tuple(bits(mask)) for mask in best.cliques)
    return Triangulation(tuple(best.order), cliques, tuple(best.fill), best.rule, table_cost(cliques, cards))


def _neighbour_masks(n: int, scopes: Iterable[Sequence[int]], excluded: set[int]) -> list[int]:
    """The neighbours of every variable, as bits."""
    masks = [0] * n
    for scope in scopes:
        group = 0
        for v in scope:
            if not 0 <= v < n:
                raise BadInput("scopes", f"the variable {v}", f"indices from 0 to {n - 1}")
            if v not in excluded:
                group |= 1 << v
        for v in scope:
            masks[v] |= group
    return [0 if v in excluded else mask & ~(1 << v) for v, mask in enumerate(masks)]


class _Order(NamedTuple):
    """An elimination order, its maximal cliques (as bits) and the edges it adds."""

    order: list[int]
    cliques: list[int]
    fill: list[tuple[int, int]]
    rule: str


class _Contest:
    """Elimination orders of one graph, of which the one with the smallest sum of tables is kept.

    Nodes whose neighbours are joined already can always be eliminated first, whatever the rule; the
    rules compete for the rest.
    """

    def __init__(self, masks: list[int], nodes: list[int], cards: list[int], rules: list[str]):
        simplicial = eliminate_simplicial(masks, nodes, cards)
        self.cards, self.first, self.masks = cards, simplicial.cliques, simplicial.neighbours
        self.nodes = [v for v in nodes if v not in self.first]
        self.totals = dict.fromkeys(rules, math.inf)  # rule -> its smallest sum of tables
        self.best: _Order | None = None

    @property
    def least(self) -> float:
        """The smallest sum of tables so far."""
        return min(self.totals.values())

    def attempt(self, rule: str, ties: list[float]) -> None:
        """Try one order, and give up as soon as a single table is larger than the smallest sum."""
        least = self.least
        limit = math.inf if self.best is None else math.log2(least)
        found = eliminate_by_rule(self.masks, self.nodes, self.cards, rule, ties, limit)
        if found is None:
            return
        cliques = self.first | found.cliques
        maximal = maximal_cliques(cliques)
        total = sum(math.prod(self.cards[v] for v in bits(mask)) for mask in maximal)
        self.totals[rule] = min(total, self.totals[rule])
        if self.best is None or total < least:
            self.best = _Order(list(cliques), maximal, found.added, rule)


def _best_order(
    masks: list[int],
    nodes: list[int],
    cards: list[int],
    rules: list[str],
    trials: int | None,
    rng: random.Random,
) -> _Order:
    """The order whose maximal cliques have the smallest sum of tables."""
    if len({cards[v] for v in nodes}) == 1 and len(rules) > 1:
        rules = ["min-fill", "min-degree", "sweep"]  # the weighted rules would give the same orders
    contest = _Contest(masks, nodes, cards, rules)
    for rule in rules:
        for ties in _sweeps(contest.masks, contest.nodes) if rule == "sweep" else [[0.0] * len(cards)]:
            contest.attempt(rule, ties)
    greedy = [rule for rule in rules if rule != "sweep"]
    limit = trials if trials is not None else _WORK // len(contest.nodes) if contest.nodes else 0
    done = 0
    while greedy and done < limit and (trials is not None or done < _random_trials(contest.least)):
        least = min(contest.totals[rule] for rule in greedy)
        close = [rule for rule in greedy if contest.totals[rule] <= 4 * least]
        contest.attempt(close[done % len(close)], [rng.random() for _ in cards])
        done += 1
    assert contest.best is not None
    return contest.best


def _sweeps(masks: list[int], nodes: list[int]) -> list[list[float]]:
    """Places in two orders that keep neighbours near each other: from one end of the band, and the other.

    Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices, Proc. 24th ACM Nat. Conf., 1969.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    number = {v: i for i, v in enumerate(nodes)}
    ends = [(i, number[u]) for v, i in number.items() for u in bits(masks[v])]
    places = [[0.0] * len(masks), [0.0] * len(masks)]
    if not ends:
        return places[:1]
    graph = csr_array(([True] * len(ends), tuple(zip(*ends, strict=True))), (len(nodes), len(nodes)))
    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    for place, i in enumerate(order):
        places[0][nodes[i]], places[1][nodes[i]] = place, -place
    return places


def _random_trials(entries: float) -> int:
    """How many orders with random ties to try: as many as are cheap beside computing with such tables."""
    ladder = ((2**14, 0), (2**18, 16), (2**22, 48), (2**36, 128))  # beyond, no order makes the tables fit
    return next((n for size, n in ladder if entries <= size), 16)
