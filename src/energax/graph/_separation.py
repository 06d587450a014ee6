"""Separation of sets of variables in graphs, and the paths that connect them.

The Bayes ball walks a directed graph in states (node, how it was entered). From a child, or at the
start, it may go on to parents and children of a node that is not observed. From a parent it may go
on to children of an unobserved node, and back to parents only if the node or one of its descendants
is observed: there two arrows meet, and explaining away connects their sources. A shortest walk of
the ball never visits a node twice, so an active path leads to every node that it reaches.

Reference: Shachter, Bayes-Ball, UAI 1998; Pearl, Probabilistic Reasoning in Intelligent Systems, 1988.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Set
from typing import TYPE_CHECKING, Any

from ._validation import Node, as_nodes, check_directed, check_disjoint, check_undirected

if TYPE_CHECKING:
    import networkx as nx

_BUDGET = 5000  # partial paths examined in the search for paths to list, beyond those of the first


@dataclasses.dataclass(frozen=True)
class Path:
    """A path of the graph with its arrows, and notes on the nodes that open or block it."""

    nodes: tuple[Node, ...]
    arrows: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = (f" {arrow} {node}" for arrow, node in zip(self.arrows, self.nodes[1:], strict=True))
        return f"{self.nodes[0]}{''.join(steps)}" + (f" ({'; '.join(self.notes)})" if self.notes else "")


@dataclasses.dataclass(frozen=True)
class Separation:
    """True if two sets are separated; its string lists the paths that show why or why not.

    `active` are the shortest paths that connect the sets (none if separated), `blocked` the shortest
    paths with the node where each is blocked (none if not separated).
    """

    separated: bool
    a: tuple[Node, ...]
    b: tuple[Node, ...]
    given: tuple[Node, ...]
    active: tuple[Path, ...] = ()
    blocked: tuple[Path, ...] = ()
    criterion: str = "separated"

    def __bool__(self) -> bool:
        return self.separated

    def __str__(self) -> str:
        names = lambda nodes: ", ".join(map(str, nodes))
        verb = "are" if self.separated else "are not"
        given = f"given {names(self.given)}" if self.given else "given nothing"
        head = f"{names(self.a)} and {names(self.b)} {verb} {self.criterion} {given}"
        paths = self.blocked if self.separated else self.active
        if not paths:
            return f"{head}: no path connects them"
        kind = "blocked" if self.separated else "active"
        return "\n".join([f"{head}; {kind} paths:", *(f"  {path}" for path in paths)])


def d_separated(graph: nx.DiGraph, a: Any, b: Any, given: Any = (), most: int = 5) -> Separation:
    """Whether `given` d-separates `a` from `b` (nodes or collections of nodes) in a directed graph.

    If so, a ⊥ b | given holds in every distribution that factorises along the graph. At most `most`
    paths are listed, the shortest first.

    >>> import networkx as nx
    >>> alarm = nx.DiGraph([("burglary", "alarm"), ("earthquake", "alarm"), ("alarm", "call")])
    >>> print(d_separated(alarm, "burglary", "earthquake"))
    burglary and earthquake are d-separated given nothing; blocked paths:
      burglary → alarm ← earthquake (blocked at alarm: an unobserved collider without observed descendants)
    >>> print(d_separated(alarm, "burglary", "earthquake", "call"))
    burglary and earthquake are not d-separated given call; active paths:
      burglary → alarm ← earthquake (call, a descendant of alarm, is observed)
    >>> bool(d_separated(alarm, "burglary", "call", "alarm"))
    True
    """
    check_directed(graph)
    first, second, given_nodes = _check_sets(graph, a, b, given)
    observed = set(given_nodes)
    opened = ancestors(graph, observed)

    def moves(state: tuple[Node, bool]) -> Iterable[tuple[Node, bool]]:
        node, from_parent = state
        if node not in observed:
            yield from ((child, True) for child in graph.successors(node))
        if node in opened if from_parent else node not in observed:
            yield from ((parent, False) for parent in graph.predecessors(node))

    starts = [(node, False) for node in first]
    walks = _paths(starts, lambda state: state[0] in set(second), moves, lambda state: state[0], most)
    if walks:
        active = [[state[0] for state in walk] for walk in walks]
        paths = tuple(_path(graph, nodes, _opening_notes(graph, nodes, observed)) for nodes in active)
        return Separation(False, first, second, given_nodes, active=paths, criterion="d-separated")
    near = lambda node: itertools.chain(graph.predecessors(node), graph.successors(node))
    found = _skeleton_paths(first, second, near, most)
    blocked = tuple(_path(graph, nodes, [_blocking_note(graph, nodes, observed, opened)]) for nodes in found)
    return Separation(True, first, second, given_nodes, blocked=blocked, criterion="d-separated")


def separated(graph: nx.Graph, a: Any, b: Any, given: Any = (), most: int = 5) -> Separation:
    """Whether every path between `a` and `b` in an undirected graph passes through `given`.

    >>> import networkx as nx
    >>> print(separated(nx.path_graph(4), 0, 3, given=[2]))
    0 and 3 are separated given 2; blocked paths:
      0 — 1 — 2 — 3 (blocked at 2, which is observed)
    """
    check_undirected(graph)
    first, second, given_nodes = _check_sets(graph, a, b, given)
    observed = set(given_nodes)
    open_moves = lambda node: [other for other in graph[node] if other not in observed]
    found = _skeleton_paths(first, second, open_moves, most)
    if found:
        active = tuple(_path(graph, nodes, []) for nodes in found)
        return Separation(False, first, second, given_nodes, active=active)
    paths = []
    for nodes in _skeleton_paths(first, second, graph.__getitem__, most):
        block = next(node for node in nodes if node in observed)
        paths.append(_path(graph, nodes, [f"blocked at {block}, which is observed"]))
    return Separation(True, first, second, given_nodes, blocked=tuple(paths))


def _check_sets(graph: nx.Graph, a: Any, b: Any, given: Any) -> tuple[tuple[Node, ...], ...]:
    """The nodes of the three arguments, which must not overlap."""
    first, second, given_nodes = (
        as_nodes(graph, a, "a"),
        as_nodes(graph, b, "b"),
        as_nodes(graph, given, "given"),
    )
    check_disjoint("a", "b", first, second)
    check_disjoint("a", "given", first, given_nodes)
    check_disjoint("b", "given", second, given_nodes)
    return first, second, given_nodes


def ancestors(graph: nx.DiGraph, nodes: Iterable[Node]) -> set[Node]:
    """The nodes themselves and all from which they can be reached."""
    return _closure(nodes, graph.predecessors)


def descendants(graph: nx.DiGraph, nodes: Iterable[Node]) -> set[Node]:
    """The nodes themselves and all that can be reached from them."""
    return _closure(nodes, graph.successors)


def _closure(nodes: Iterable[Node], step: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found = set(nodes)
    waiting = list(found)
    while waiting:
        new = set(step(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def _skeleton_paths(
    first: tuple[Node, ...], second: tuple[Node, ...], near: Callable[[Node], Iterable[Node]], most: int
) -> list[list[Node]]:
    ends = set(second)
    return _paths(first, ends.__contains__, near, lambda node: node, most)


def _paths(
    starts: Iterable[Any],
    is_goal: Callable[[Any], bool],
    moves: Callable[[Any], Iterable[Any]],
    node_of: Callable[[Any], Hashable],
    most: int,
) -> list[list[Any]]:
    """Up to `most` walks from a start to the first goal that visit no node twice, the shortest first.

    There is at least one if a goal can be reached at all: among equally long walks the search extends
    the longest begun, and a shortest walk visits no node twice. The search for more ends after a fixed
    number of partial walks.
    """
    starts = list(starts)
    distance = _distances(starts, is_goal, moves)
    count = itertools.count()
    heap = [(distance[s], 0, next(count), [s]) for s in starts if s in distance]
    heapq.heapify(heap)
    found: list[list[Any]] = []
    seen: set[tuple[Hashable, ...]] = set()
    for _ in range(_BUDGET + (heap[0][0] if heap else 0)):
        if not heap or len(found) >= max(most, 1):
            break
        walk = heapq.heappop(heap)[3]
        if is_goal(walk[-1]):
            nodes = tuple(map(node_of, walk))
            if nodes not in seen:
                seen.add(nodes)
                found.append(walk)
            continue
        visited = set(map(node_of, walk))
        for following in moves(walk[-1]):
            if following in distance and node_of(following) not in visited:
                length = len(walk) + distance[following]
                heapq.heappush(heap, (length, -len(walk), next(count), [*walk, following]))
    return found


def _distances(
    starts: list[Any], is_goal: Callable[[Any], bool], moves: Callable[[Any], Iterable[Any]]
) -> dict[Any, int]:
    """The moves from each state to the nearest goal, for the states on a walk from a start to a goal."""
    back: dict[Any, list[Any]] = {state: [] for state in starts}
    goals, waiting = [], deque(starts)
    while waiting:
        state = waiting.popleft()
        if is_goal(state):
            goals.append(state)
            continue
        for following in moves(state):
            if following not in back:
                back[following] = []
                waiting.append(following)
            back[following].append(state)
    distance = dict.fromkeys(goals, 0)
    waiting = deque(goals)
    while waiting:
        state = waiting.popleft()
        for before in back[state]:
            if before not in distance:
                distance[before] = distance[state] + 1
                waiting.append(before)
    return distance


def _path(graph: nx.Graph, nodes: list[Node], notes: list[str]) -> Path:
    arrows = (
        "—" if not graph.is_directed() else "→" if graph.has_edge(a, b) else "←"
        for a, b in itertools.pairwise(nodes)
    )
    return Path(tuple(nodes), tuple(arrows), tuple(notes))


def _is_collider(graph: nx.DiGraph, a: Node, node: Node, b: Node) -> bool:
    """Whether the arrows from a and b meet at a node."""
    return graph.has_edge(a, node) and graph.has_edge(b, node)


def _opening_notes(graph: nx.DiGraph, nodes: list[Node], observed: Set[Node]) -> list[str]:
    notes = []
    for a, node, b in zip(nodes, nodes[1:], nodes[2:], strict=False):
        if _is_collider(graph, a, node, b):
            found = _nearest_observed(graph, node, observed)
            relation = "" if found == node else f", a descendant of {node},"
            notes.append(f"{found}{relation} is observed")
    return notes


def _nearest_observed(graph: nx.DiGraph, node: Node, observed: Set[Node]) -> Node:
    waiting, seen = deque([node]), {node}
    while waiting:
        here = waiting.popleft()
        if here in observed:
            return here
        new = [child for child in graph.successors(here) if child not in seen]
        seen.update(new)
        waiting.extend(new)
    raise AssertionError("an active path through a collider without an observed descendant")


def _blocking_note(graph: nx.DiGraph, nodes: list[Node], observed: Set[Node], opened: Set[Node]) -> str:
    for a, node, b in zip(nodes, nodes[1:], nodes[2:], strict=False):
        if _is_collider(graph, a, node, b):
            if node not in opened:
                return f"blocked at {node}: an unobserved collider without observed descendants"
        elif node in observed:
            return f"blocked at {node}, which is observed"
    raise AssertionError("a path without a block between separated nodes")
