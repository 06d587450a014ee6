"""Causal adjustment: interventions on structure, back-door and front-door sets.

Reference: Pearl, Causality, 2nd edition, 2009, chapter 3.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ._moral import moralise
from ._separation import ancestors, d_separated, descendants
from ._validation import Node, as_node, as_nodes, check_directed, check_disjoint

if TYPE_CHECKING:
    import networkx as nx


@dataclasses.dataclass(frozen=True)
class Verdict:
    """True if a criterion holds; its string says which part fails."""

    holds: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return "holds" if self.holds else "fails: " + "; ".join(self.reasons)


def do(graph: nx.DiGraph, nodes: Any) -> nx.DiGraph:
    """The graph after an intervention on some nodes: without the arrows that point at them.

    >>> import networkx as nx
    >>> g = nx.DiGraph([("season", "rain"), ("season", "sprinkler"), ("sprinkler", "wet")])
    >>> sorted(do(g, "sprinkler").edges)
    [('season', 'rain'), ('sprinkler', 'wet')]
    """
    check_directed(graph)
    cut = as_nodes(graph, nodes, "nodes")
    result = graph.copy()
    result.remove_edges_from(list(result.in_edges(cut)))
    return result


def _without_arrows_from(graph: nx.DiGraph, nodes: tuple[Node, ...]) -> nx.DiGraph:
    result = graph.copy()
    result.remove_edges_from(list(result.out_edges(nodes)))
    return result


def _check_nodes(
    graph: nx.DiGraph, cause: Any, effect: Any, other: Any, name: str
) -> tuple[Node, Node, tuple]:
    """Cause, effect and other nodes, which must all be different."""
    check_directed(graph)
    x, y = as_node(graph, cause, "cause"), as_node(graph, effect, "effect")
    if x == y:
        raise BadInput("effect", f"{y!r}, the cause itself", "another node")
    nodes = as_nodes(graph, other, name)
    check_disjoint(name, "cause", nodes, [x])
    check_disjoint(name, "effect", nodes, [y])
    return x, y, nodes


def is_backdoor(graph: nx.DiGraph, cause: Any, effect: Any, adjust: Any = ()) -> Verdict:
    """Whether adjusting for some nodes gives the causal effect: the back-door criterion.

    None of them may be a descendant of the cause, and together they must block every path into the
    cause. Then p(y | do(x)) = Σ_z p(z) p(y | x, z).

    >>> import networkx as nx
    >>> g = nx.DiGraph([("age", "drug"), ("age", "cure"), ("drug", "cure")])
    >>> print(is_backdoor(g, "drug", "cure"))
    fails: the path drug ← age → cure is open
    >>> bool(is_backdoor(g, "drug", "cure", "age"))
    True
    """
    x, y, given = _check_nodes(graph, cause, effect, adjust, "adjust")
    follow = descendants(graph, [x])
    reasons = [f"{node} is a descendant of {x}" for node in given if node in follow]
    reasons += _open_paths(_without_arrows_from(graph, (x,)), x, y, given)
    return Verdict(not reasons, tuple(reasons))


def _open_paths(graph: nx.DiGraph, a: Any, b: Any, given: Any) -> list[str]:
    return [f"the path {path} is open" for path in d_separated(graph, a, b, given, most=3).active]


def backdoor_sets(
    graph: nx.DiGraph, cause: Any, effect: Any, hidden: Any = (), most: int = 100
) -> list[frozenset[Node]]:
    """All minimal back-door sets, small ones first: no proper subset of one is a back-door set.

    `hidden` are the nodes that cannot be observed. The sets are the minimal separators of the moral graph
    of the ancestors, without the arrows out of the cause, and with nodes that must not be adjusted for
    replaced by edges between their neighbours; at most `most` of them. An empty list means that there
    is none, and [frozenset()] that no adjustment is needed.

    >>> import networkx as nx
    >>> g = nx.DiGraph([("u", "x"), ("u", "z"), ("z", "y"), ("x", "y")])
    >>> [sorted(found) for found in backdoor_sets(g, "x", "y")]
    [['u'], ['z']]
    >>> [sorted(found) for found in backdoor_sets(g, "x", "y", hidden="u")]
    [['z']]

    References: van der Zander, Liśkiewicz and Textor, UAI 2014; Shen and Liang, Theoret. Comput. Sci.
    180, 1997, for listing the separators.
    """
    x, y, unobserved = _check_nodes(graph, cause, effect, hidden, "hidden")
    excluded = (set(unobserved) | descendants(graph, [x])) - {x, y}
    cut = _without_arrows_from(graph, (x,))
    near = _neighbour_sets(moralise(cut.subgraph(ancestors(cut, [x, y]))))
    for node in excluded & set(near):  # a path through it stays a path without it
        around = near.pop(node)
        for other in around:
            near[other] |= around
            near[other] -= {node, other}
    found = itertools.islice(_separators(near, x, y), most)
    place = {node: i for i, node in enumerate(graph)}
    return sorted(found, key=lambda group: (len(group), sorted(place[node] for node in group)))


def _neighbour_sets(graph: nx.Graph) -> dict[Node, set[Node]]:
    return {node: set(graph[node]) - {node} for node in graph}


def _separators(near: dict[Node, set[Node]], a: Node, b: Node) -> Iterator[frozenset[Node]]:
    """All minimal sets that separate a from b, starting with the one nearest to a."""
    if b in near[a]:
        return

    def side(start: Node, without: set[Node] | frozenset[Node]) -> set[Node]:
        found, waiting = {start}, [start]
        while waiting:
            new = near[waiting.pop()] - found - without
            found |= new
            waiting += new
        return found

    def border(group: set[Node]) -> set[Node]:
        return set().union(*(near[node] for node in group)) - group

    first = frozenset(border(side(b, near[a])))
    seen, waiting = {first}, [first]
    while waiting:
        here = waiting.pop(0)
        yield here
        inside = side(a, here)
        for node in here:  # move one node to the side of a, and separate again
            around = border(inside | {node})
            if b in around:
                continue
            following = frozenset(border(side(b, around)))
            if following not in seen:
                seen.add(following)
                waiting.append(following)


def is_frontdoor(graph: nx.DiGraph, cause: Any, effect: Any, through: Any = ()) -> Verdict:
    """Whether some nodes give the causal effect although back doors stay open: the front-door criterion.

    Every directed path from cause to effect must pass through them, no path into the cause may lead
    to them, and the cause must block every path into them from the effect. Then
    p(y | do(x)) = Σ_m p(m | x) Σ_x' p(x') p(y | x', m).

    >>> import networkx as nx
    >>> g = nx.DiGraph([("smoke", "tar"), ("tar", "cancer"), ("gene", "smoke"), ("gene", "cancer")])
    >>> bool(is_frontdoor(g, "smoke", "cancer", "tar"))
    True
    >>> print(is_frontdoor(g, "smoke", "cancer", "gene"))
    fails: smoke → tar → cancer avoids them; the path smoke ← gene is open
    """
    import networkx as nx

    x, y, middle = _check_nodes(graph, cause, effect, through, "through")
    reasons = []
    rest = graph.subgraph(set(graph) - set(middle))
    if nx.has_path(rest, x, y):
        reasons.append(f"{' → '.join(map(str, nx.shortest_path(rest, x, y)))} avoids them")
    if middle:
        reasons += _open_paths(_without_arrows_from(graph, (x,)), x, middle, ())
        reasons += _open_paths(_without_arrows_from(graph, middle), middle, y, x)
    return Verdict(not reasons, tuple(reasons))


def frontdoor_sets(
    graph: nx.DiGraph, cause: Any, effect: Any, hidden: Any = (), largest: int = 3
) -> list[frozenset[Node]]:
    """All minimal front-door sets of at most `largest` nodes, small ones first.

    If only larger ones exist, the list has one of them, from which no single node can be removed.
    `hidden` are the nodes that cannot be observed.

    >>> import networkx as nx
    >>> g = nx.DiGraph([("smoke", "tar"), ("tar", "cancer"), ("gene", "smoke"), ("gene", "cancer")])
    >>> [sorted(found) for found in frontdoor_sets(g, "smoke", "cancer", hidden="gene")]
    [['tar']]

    Reference: Jeong, Tian and Bareinboim, Finding and listing front-door adjustment sets, NeurIPS 2022.
    """
    x, y, unobserved = _check_nodes(graph, cause, effect, hidden, "hidden")
    without_x = _without_arrows_from(graph, (x,))
    excluded = {x, y, *unobserved}
    pool = [node for node in graph if node not in excluded and d_separated(without_x, x, node, most=1)]
    while True:  # nodes that even the whole pool cannot shield from the effect are in no front-door set
        cut = _without_arrows_from(graph, tuple(pool))
        shielded = [node for node in pool if d_separated(cut, node, y, x, most=1)]
        if len(shielded) == len(pool):
            break
        pool = shielded
    if not is_frontdoor(graph, x, y, pool):
        return []
    found: list[frozenset[Node]] = []
    for size in range(min(largest, len(pool)) + 1):
        for group in map(frozenset, itertools.combinations(pool, size)):
            if not any(small <= group for small in found) and is_frontdoor(graph, x, y, group):
                found.append(group)
    return found or [_shrink(graph, x, y, pool)]


def _shrink(graph: nx.DiGraph, x: Node, y: Node, pool: list[Node]) -> frozenset[Node]:
    """Remove nodes from a front-door set as long as it stays one."""
    group = set(pool)
    changed = True
    while changed:
        changed = False
        for node in pool:
            if node in group and is_frontdoor(graph, x, y, group - {node}):
                group.remove(node)
                changed = True
    return frozenset(group)
