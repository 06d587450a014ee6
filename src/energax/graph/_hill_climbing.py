"""Structure learning by hill climbing with a tabu list."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, ConvergenceWarning, check_whole_number
from ._contingency import Columns
from ._scores import FamilyScores
from ._validation import check_directed

if TYPE_CHECKING:
    import networkx as nx


@dataclasses.dataclass(frozen=True)
class Move:
    """One step of a search: an arrow added, removed or reversed, and the score after it."""

    kind: str
    source: Any
    target: Any
    score: float

    def __str__(self) -> str:
        return f"{self.kind} {self.source} → {self.target}: {self.score:.6g}"


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """The result of a search: the graph, its score in nats, and the moves that led to it.

    `history` begins at the start (or, with restarts, at the last one that helped) and ends at `graph`;
    `converged` is False if the search reached max_moves before a local optimum.
    """

    graph: nx.DiGraph
    score: float
    history: tuple[Move, ...]
    converged: bool
    status: str

    def __repr__(self) -> str:
        return f"Structure({len(self.graph)} nodes, {self.graph.size()} edges, score {self.score:.6g})"


def hill_climb(
    data: Any,
    cards: Mapping[Any, int] | Sequence[int] | None = None,
    *,
    score: str = "bic",
    required: Iterable[tuple[Any, Any]] = (),
    forbidden: Iterable[tuple[Any, Any]] = (),
    max_parents: int | None = None,
    start: nx.DiGraph | None = None,
    tabu: int = 100,
    restarts: int = 0,
    max_moves: int = 10_000,
    equivalent_sample_size: float = 1.0,
    names: Sequence[Any] | None = None,
    weights: Any = None,
    seed: int = 0,
) -> Structure:
    """Search for a directed graph of high score: repeatedly add, remove or reverse the best arrow.

    The scores are those of `family_score`; larger is better. At a local optimum the search goes on for
    up to `tabu` moves, each the best that leads to none of the last `tabu` graphs (with `tabu=0` it
    stops), and then starts `restarts` times more from the best graph with some arrows changed at random.
    The best graph of all is returned; the same seed gives the same one. Data determine the directions
    of only some arrows: see `cpdag`.

    The graph has all arrows in `required` and none in `forbidden`, at every move. `data` are as for
    `family_score`; missing entries raise an error.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(0, 2, (2, 1000))
    >>> c = (a & b) ^ (rng.random(1000) < 0.1)
    >>> found = hill_climb({"a": a, "b": b, "c": c})
    >>> sorted(found.graph.edges), found.converged
    ([('a', 'c'), ('b', 'c')], True)
    >>> print(found.history[0])
    add b → c: -1922.55

    References: Heckerman, Geiger and Chickering, Machine Learning 20, 1995; Tsamardinos, Brown and
    Aliferis, Machine Learning 65, 2006, for the tabu list; Zobrist, Wisconsin TR 88, 1970, for its keys.
    """
    columns = Columns.from_data(data, cards, names, weights)
    for name, value, least in (("tabu", tabu, 0), ("restarts", restarts, 0), ("max_moves", max_moves, 1)):
        check_whole_number(name, value, least)
    rules = _Rules.build(columns, required, forbidden, max_parents)
    arrows = rules.first_arrows(columns, start)
    rng = np.random.default_rng(seed)
    search = _Search(FamilyScores(columns, score, equivalent_sample_size), rules, tabu, max_moves, rng)
    best, history, done = search.climb(arrows)
    for _ in range(restarts):
        if not done:
            break
        again, steps, done = search.climb(search.perturb(best.arrows))
        if again.score > best.score + search.tolerance:
            best, history = again, steps
    status = (
        f"local optimum: no single move raises the score, nor do {tabu} tabu moves"
        if done
        else f"stopped after {max_moves} moves, before a local optimum: raise max_moves"
    )
    if not done:
        warnings.warn(f"hill_climb {status}.", ConvergenceWarning, stacklevel=2)
    moves = tuple(Move(kind, columns.names[u], columns.names[v], value) for kind, u, v, value in history)
    return Structure(_to_graph(columns, best.arrows), best.score, moves, done, status)


def _to_graph(columns: Columns, arrows: np.ndarray) -> nx.DiGraph:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(columns.names)
    graph.add_edges_from((columns.names[u], columns.names[v]) for u, v in np.argwhere(arrows))
    return graph


@dataclasses.dataclass(frozen=True)
class _Rules:
    """Constraints on the arrows of a graph."""

    required: np.ndarray  # (d, d): [u, v] is the arrow u → v
    forbidden: np.ndarray
    most: int  # parents of a node

    @classmethod
    def build(cls, columns: Columns, required: Any, forbidden: Any, most: int | None) -> _Rules:
        d = len(columns.names)
        if most is not None and most < 0:
            raise BadInput("max_parents", f"{most}", "a number >= 0, or None")
        must, must_not = (
            _adjacency(columns, edges, name)
            for edges, name in ((required, "required"), (forbidden, "forbidden"))
        )
        both = np.argwhere(must & must_not)
        if len(both):
            u, v = (columns.names[i] for i in both[0])
            raise BadInput("required", f"{u} → {v}, which is forbidden too", "no edge in both lists")
        rules = cls(must, must_not | np.eye(d, dtype=bool), d if most is None else most)
        rules.check_arrows(columns, must, "required")
        return rules

    def check_arrows(self, columns: Columns, arrows: np.ndarray, argument: str) -> None:
        """Raise if arrows make a cycle or give a node too many parents."""
        import networkx as nx

        graph = _to_graph(columns, arrows)
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [edge[0] for edge in nx.find_cycle(graph)]
            walk = " → ".join(map(str, [*cycle, cycle[0]]))
            raise BadInput(argument, f"the cycle {walk}", "arrows without cycles")
        many = int(arrows.sum(0).argmax())
        if arrows[:, many].sum() > self.most:
            raise BadInput(
                argument,
                f"{arrows[:, many].sum()} parents of {columns.names[many]}",
                f"at most max_parents = {self.most}",
            )

    def first_arrows(self, columns: Columns, start: nx.DiGraph | None) -> np.ndarray:
        """The arrows of `start` and the required ones."""
        if start is None:
            return self.required.copy()
        check_directed(start)
        arrows = _adjacency(columns, start.edges, "start")
        forbidden = np.argwhere(arrows & self.forbidden)
        if len(forbidden):
            u, v = (columns.names[i] for i in forbidden[0])
            raise BadInput("start", f"the forbidden {u} → {v}", "a graph without forbidden edges")
        arrows |= self.required
        self.check_arrows(columns, arrows, "start")
        return arrows


def _adjacency(columns: Columns, edges: Any, argument: str) -> np.ndarray:
    """(d, d) booleans: [u, v] is the arrow u → v."""
    result = np.zeros((len(columns.names),) * 2, bool)
    for edge in edges:
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise BadInput(argument, repr(edge), "pairs (from, to) of names")
        u, v = (columns.index(name, argument) for name in edge)
        if u == v:
            raise BadInput(argument, f"{edge[0]} → {edge[1]}", "edges between different columns")
        result[u, v] = True
    return result


class _State:
    """A graph during the search: its arrows, its directed paths, and the gain of toggling each arrow."""

    def __init__(self, scores: FamilyScores, arrows: np.ndarray):
        self.scores, self.arrows = scores, np.zeros_like(arrows)
        d = len(arrows)
        self.reach = np.eye(d, dtype=bool)  # [u, v]: a directed path from u to v, or u = v
        for u, v in np.argwhere(arrows):
            self._add(u, v)
        self.gains = np.empty((d, d))
        for v in range(d):
            self._update_gains(v)
        self.score = float(sum(scores.family(v, self.parents(v)) for v in range(d)))

    def parents(self, v: int) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.arrows[:, v]).tolist())

    def _update_gains(self, v: int) -> None:
        self.gains[:, v] = self.scores.toggle_gains(v, self.parents(v))

    def _add(self, u: int, v: int) -> None:
        self.arrows[u, v] = True
        self.reach |= np.outer(self.reach[:, u], self.reach[v])

    def _remove(self, u: int, v: int) -> None:
        self.arrows[u, v] = False
        above = self.reach[:, u].copy()
        for a in np.argsort(
            self.reach.sum(1), kind="stable"
        ):  # a node reaches fewer nodes than its ancestors
            if above[a]:
                self.reach[a] = self.reach[self.arrows[a]].any(0)
                self.reach[a, a] = True

    def apply(self, kind: str, u: int, v: int) -> None:
        """Make one move, and update the score, the paths and the gains."""
        self.score += float(self.gains[u, v] + (self.gains[v, u] if kind == "reverse" else 0.0))
        if kind == "add":
            self._add(u, v)
        else:
            self._remove(u, v)
        self._update_gains(v)
        if kind == "reverse":
            self._add(v, u)
            self._update_gains(u)


@dataclasses.dataclass(frozen=True)
class _Best:
    arrows: np.ndarray
    score: float


_KINDS = ("add", "remove", "reverse")
_Step = tuple[str, int, int, float]


class _Search:
    """Hill climbing with a tabu list of graphs, each represented by a hash key."""

    def __init__(
        self, scores: FamilyScores, rules: _Rules, tabu: int, max_moves: int, rng: np.random.Generator
    ):
        self.scores, self.rules, self.tabu, self.max_moves, self.rng = scores, rules, tabu, max_moves, rng
        d = len(rules.required)
        # One random word per arrow; the key of a graph is the exclusive or of the words of its arrows, so
        # that the keys of all graphs one move away are one array operation.
        self.words = np.random.default_rng(d).integers(0, 2**63, (d, d), dtype=np.int64)
        self.tolerance = 1e-10 * max(scores.columns.total, 1.0)

    def legal_moves(self, state: _State) -> np.ndarray:
        """(3, d, d): whether u → v may be added, removed, reversed."""
        arrows, reach = state.arrows, state.reach
        room = arrows.sum(0) < self.rules.most
        add = ~arrows & ~reach.T & ~self.rules.forbidden & room[None, :]
        remove = arrows & ~self.rules.required
        ways = arrows.astype(np.float32) @ reach.astype(np.float32)  # children of u that reach v
        reverse = remove & (ways < 1.5) & ~self.rules.forbidden.T & room[:, None]
        return np.stack([add, remove, reverse])

    def climb(self, arrows: np.ndarray) -> tuple[_Best, list[_Step], bool]:
        """The best graph found, the moves that led to it, and whether the search ended at an optimum."""
        state = _State(self.scores, arrows)
        history: list[_Step] = []
        best, kept, idle = _Best(arrows.copy(), state.score), 0, 0
        key = np.bitwise_xor.reduce(self.words[arrows], initial=0)
        recent = [key]
        while len(history) < self.max_moves:
            gains = np.stack([state.gains, state.gains, state.gains + state.gains.T])
            keys = key ^ np.stack([self.words, self.words, self.words ^ self.words.T])
            gains[~self.legal_moves(state)] = -np.inf
            if self.tabu:
                gains[np.isin(keys, recent)] = -np.inf
            where = np.unravel_index(np.argmax(gains), gains.shape)
            gain = gains[where]
            if gain <= self.tolerance and (idle >= self.tabu or gain == -np.inf):
                return best, history[:kept], True
            kind, u, v = _KINDS[where[0]], int(where[1]), int(where[2])
            state.apply(kind, u, v)
            key = keys[where]
            recent = [*recent, key][-max(self.tabu, 1) :]
            history.append((kind, u, v, state.score))
            idle += 1
            if state.score > best.score + self.tolerance:
                best, kept, idle = _Best(state.arrows.copy(), state.score), len(history), 0
        return best, history[:kept], False

    def perturb(self, arrows: np.ndarray) -> np.ndarray:
        """The arrows after some random legal moves."""
        state = _State(self.scores, arrows)
        for _ in range(max(4, len(arrows) // 2)):
            moves = np.argwhere(self.legal_moves(state))
            if not len(moves):
                break
            kind, u, v = moves[self.rng.integers(len(moves))]
            state.apply(_KINDS[kind], int(u), int(v))
        return state.arrows
