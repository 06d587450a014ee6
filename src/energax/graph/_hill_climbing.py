"""Structure by hill climbing: one arrow at a time, as long as the score rises."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, ConvergenceWarning
from ._contingency import Columns
from ._scores import FamilyScores
from ._validation import directed

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
    """What a search found: the graph, its score in nats, and the moves that led to it.

    `history` begins at the start (or, with restarts, at the last one that helped) and ends at `graph`;
    `converged` is False if the moves ran out before no move helped.
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
    """A directed graph of high score: add, remove or reverse the arrow that helps most, and again.

    The scores are those of `family_score`; larger is better. At a local optimum the search goes on for
    up to `tabu` moves, each the best that leads to none of the last `tabu` graphs (`tabu=0`: it stops),
    and then starts `restarts` times more from the best graph with some arrows changed at random. The
    best graph of all is returned; the same seed gives the same one. Only directions that data can tell
    are to be believed: see `cpdag`.

    Arrows in `required` are there from the beginning and stay; those in `forbidden` never come. `data`
    are as for `family_score`; missing entries are refused.

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
    columns = Columns.check(data, cards, names, weights)
    for name, value, least in (("tabu", tabu, 0), ("restarts", restarts, 0), ("max_moves", max_moves, 1)):
        if value < least:
            raise BadInput(name, f"{value}", f"a whole number >= {least}")
    rules = _Rules.check(columns, required, forbidden, max_parents)
    arrows = rules.begin(columns, start)
    rng = np.random.default_rng(seed)
    search = _Search(FamilyScores(columns, score, equivalent_sample_size), rules, tabu, max_moves, rng)
    best, history, done = search.climb(arrows)
    for _ in range(restarts):
        if not done:
            break
        again, steps, done = search.climb(search.perturbed(best.arrows))
        if again.score > best.score + search.tolerance:
            best, history = again, steps
    status = (
        f"no arrow added, removed or reversed raises the score, nor {tabu} moves beyond"
        if done
        else f"stopped after {max_moves} moves, before a local optimum: raise max_moves"
    )
    if not done:
        warnings.warn(f"hill_climb {status}.", ConvergenceWarning, stacklevel=2)
    moves = tuple(Move(kind, columns.names[u], columns.names[v], value) for kind, u, v, value in history)
    return Structure(_named(columns, best.arrows), best.score, moves, done, status)


def _named(columns: Columns, arrows: np.ndarray) -> nx.DiGraph:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(columns.names)
    graph.add_edges_from((columns.names[u], columns.names[v]) for u, v in np.argwhere(arrows))
    return graph


@dataclasses.dataclass(frozen=True)
class _Rules:
    required: np.ndarray  # (d, d): [u, v] is the arrow u → v
    forbidden: np.ndarray
    most: int  # parents of a node

    @classmethod
    def check(cls, columns: Columns, required: Any, forbidden: Any, most: int | None) -> _Rules:
        d = len(columns.names)
        if most is not None and most < 0:
            raise BadInput("max_parents", f"{most}", "a number >= 0, or None")
        wanted, barred = (
            _matrix(columns, edges, name)
            for edges, name in ((required, "required"), (forbidden, "forbidden"))
        )
        both = np.argwhere(wanted & barred)
        if len(both):
            u, v = (columns.names[i] for i in both[0])
            raise BadInput("required", f"{u} → {v}, which is forbidden too", "no edge in both lists")
        rules = cls(wanted, barred | np.eye(d, dtype=bool), d if most is None else most)
        rules.refuse(columns, wanted, "required")
        return rules

    def refuse(self, columns: Columns, arrows: np.ndarray, argument: str) -> None:
        """Raise if arrows make a cycle or give a node too many parents."""
        import networkx as nx

        graph = _named(columns, arrows)
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

    def begin(self, columns: Columns, start: nx.DiGraph | None) -> np.ndarray:
        """The arrows to begin with: those of `start`, and the required ones."""
        if start is None:
            return self.required.copy()
        directed(start)
        arrows = _matrix(columns, start.edges, "start")
        barred = np.argwhere(arrows & self.forbidden)
        if len(barred):
            u, v = (columns.names[i] for i in barred[0])
            raise BadInput("start", f"the forbidden {u} → {v}", "a graph without forbidden edges")
        arrows |= self.required
        self.refuse(columns, arrows, "start")
        return arrows


def _matrix(columns: Columns, edges: Any, argument: str) -> np.ndarray:
    result = np.zeros((len(columns.names),) * 2, bool)
    for edge in edges:
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise BadInput(argument, repr(edge), "pairs (from, to) of names")
        u, v = (columns.place(name, argument) for name in edge)
        if u == v:
            raise BadInput(argument, f"{edge[0]} → {edge[1]}", "edges between different columns")
        result[u, v] = True
    return result


class _State:
    """A graph under change: its arrows, who reaches whom, what each toggled arrow would be worth."""

    def __init__(self, scores: FamilyScores, arrows: np.ndarray):
        self.scores, self.arrows = scores, np.zeros_like(arrows)
        d = len(arrows)
        self.reach = np.eye(d, dtype=bool)  # [u, v]: a directed path from u to v, or u = v
        for u, v in np.argwhere(arrows):
            self._add(u, v)
        self.worth = np.empty((d, d))
        for v in range(d):
            self._weigh(v)
        self.score = float(sum(scores.family(v, self.parents(v)) for v in range(d)))

    def parents(self, v: int) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.arrows[:, v]).tolist())

    def _weigh(self, v: int) -> None:
        self.worth[:, v] = self.scores.toggled(v, self.parents(v))

    def _add(self, u: int, v: int) -> None:
        self.arrows[u, v] = True
        self.reach |= np.outer(self.reach[:, u], self.reach[v])

    def _remove(self, u: int, v: int) -> None:
        self.arrows[u, v] = False
        above = self.reach[:, u].copy()
        for a in np.argsort(self.reach.sum(1), kind="stable"):  # who reaches less comes later in the graph
            if above[a]:
                self.reach[a] = self.reach[self.arrows[a]].any(0)
                self.reach[a, a] = True

    def apply(self, kind: str, u: int, v: int) -> None:
        self.score += float(self.worth[u, v] + (self.worth[v, u] if kind == "reverse" else 0.0))
        if kind == "add":
            self._add(u, v)
        else:
            self._remove(u, v)
        self._weigh(v)
        if kind == "reverse":
            self._add(v, u)
            self._weigh(u)


@dataclasses.dataclass(frozen=True)
class _Best:
    arrows: np.ndarray
    score: float


_KINDS = ("add", "remove", "reverse")
_Step = tuple[str, int, int, float]


class _Search:
    def __init__(
        self, scores: FamilyScores, rules: _Rules, tabu: int, max_moves: int, rng: np.random.Generator
    ):
        self.scores, self.rules, self.tabu, self.max_moves, self.rng = scores, rules, tabu, max_moves, rng
        d = len(rules.required)
        # A random word for each arrow; a graph's key is the exclusive or of those it has, so that the
        # keys of all graphs one move away are one array operation.
        self.words = np.random.default_rng(d).integers(0, 2**63, (d, d), dtype=np.int64)
        self.tolerance = 1e-10 * max(scores.columns.total, 1.0)

    def legal(self, state: _State) -> np.ndarray:
        """(3, d, d): whether u → v may be added, removed, reversed."""
        arrows, reach = state.arrows, state.reach
        room = arrows.sum(0) < self.rules.most
        add = ~arrows & ~reach.T & ~self.rules.forbidden & room[None, :]
        remove = arrows & ~self.rules.required
        ways = arrows.astype(np.float32) @ reach.astype(np.float32)  # children of u that reach v
        reverse = remove & (ways < 1.5) & ~self.rules.forbidden.T & room[:, None]
        return np.stack([add, remove, reverse])

    def climb(self, arrows: np.ndarray) -> tuple[_Best, list[_Step], bool]:
        state = _State(self.scores, arrows)
        history: list[_Step] = []
        best, kept, idle = _Best(arrows.copy(), state.score), 0, 0
        key = np.bitwise_xor.reduce(self.words[arrows], initial=0)
        recent = [key]
        while len(history) < self.max_moves:
            gains = np.stack([state.worth, state.worth, state.worth + state.worth.T])
            keys = key ^ np.stack([self.words, self.words, self.words ^ self.words.T])
            gains[~self.legal(state)] = -np.inf
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

    def perturbed(self, arrows: np.ndarray) -> np.ndarray:
        """The arrows after some legal moves at random."""
        state = _State(self.scores, arrows)
        for _ in range(max(4, len(arrows) // 2)):
            moves = np.argwhere(self.legal(state))
            if not len(moves):
                break
            kind, u, v = moves[self.rng.integers(len(moves))]
            state.apply(_KINDS[kind], int(u), int(v))
        return state.arrows
