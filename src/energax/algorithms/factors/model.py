"""A finite model as plain tables, as files store it and energies are built from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import BadInput

if TYPE_CHECKING:
    import networkx as nx

#: Rows of printed tables sum to one up to the digits printed; a larger deviation is an error.
TOLERANCE = 1e-4
_ROUNDING = 1e-12  # rows with sums this close to one are not changed, so that files read back the same


@dataclasses.dataclass(frozen=True, eq=False)
class TableModel:
    """Named finite variables and non-negative tables over some of them.

    `scopes[i]` are the variables (positions in `names`) of the axes of `tables[i]`. A "markov" model
    is p(x) ∝ Πᵢ tables[i][x restricted to scopes[i]]. A "bayes" model has one table per variable, in
    their order, with scope (*parents, child): p(child | parents), the child on the last axis.

    >>> coin = TableModel("bayes", ("coin",), (("heads", "tails"),), ((0,),), (np.array([0.5, 0.5]),))
    >>> coin.cards, coin.parents(0)
    ((2,), ())
    """

    kind: Literal["bayes", "markov"]
    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("bayes", "markov"):
            raise BadInput("kind", repr(self.kind), "'bayes' or 'markov'")
        _check_unique(self.names, "names", "variable")
        if len(self.states) != len(self.names):
            raise BadInput(
                "states", f"{len(self.states)} lists", f"one for each of {len(self.names)} variables"
            )
        for name, states in zip(self.names, self.states, strict=True):
            if not states:
                raise BadInput("states", f"no state for {name}", "at least one")
            _check_unique(states, f"states of {name}", "state")
        if len(self.tables) != len(self.scopes):
            raise BadInput("tables", f"{len(self.tables)}", f"one for each of {len(self.scopes)} scopes")
        for scope, table in zip(self.scopes, self.tables, strict=True):
            self._check_table(scope, table)
        if self.kind == "bayes":
            self._check_directed()

    def _check_table(self, scope: tuple[int, ...], table: np.ndarray) -> None:
        n = len(self.names)
        if len(set(scope)) != len(scope) or any(not 0 <= v < n for v in scope):
            raise BadInput("scopes", f"{scope}", f"different positions from 0 to {n - 1}")
        over = ", ".join(self.names[v] for v in scope)
        shape = tuple(len(self.states[v]) for v in scope)
        if np.shape(table) != shape:
            raise BadInput("tables", f"shape {np.shape(table)} over ({over})", f"shape {shape}")
        if not np.all(np.isfinite(table)) or np.any(table < 0):
            raise BadInput("tables", f"a negative or infinite entry over ({over})", "numbers from 0 up")

    def _check_directed(self) -> None:
        if tuple(scope[-1] if scope else -1 for scope in self.scopes) != tuple(range(len(self.names))):
            raise BadInput(
                "scopes", "other last variables", "one scope for each variable in order, ending with it"
            )
        for child, table in enumerate(self.tables):
            error = row_sum_error(table, self.names[child], self._parents_with_states(child))
            if error:
                raise BadInput("tables", *error)
        cycle = find_cycle([scope[:-1] for scope in self.scopes])
        if cycle:
            walk = " → ".join(self.names[v] for v in [*cycle, cycle[0]])
            raise BadInput("scopes", f"the cycle {walk}", "a directed graph without cycles")

    def _parents_with_states(self, child: int) -> list[tuple[str, tuple[str, ...]]]:
        return [(self.names[v], self.states[v]) for v in self.scopes[child][:-1]]

    @property
    def cards(self) -> tuple[int, ...]:
        """The number of states of every variable."""
        return tuple(map(len, self.states))

    def parents(self, variable: int) -> tuple[int, ...]:
        """The parents of a variable of a "bayes" model, in the order of its table's axes."""
        return self.scopes[variable][:-1]

    def graph(self) -> nx.Graph:
        """The names as a directed graph ("bayes"), or with an edge wherever two share a table."""
        import itertools

        import networkx as nx

        graph = nx.DiGraph() if self.kind == "bayes" else nx.Graph()
        graph.add_nodes_from(self.names)
        for scope in self.scopes:
            if self.kind == "bayes":
                graph.add_edges_from((self.names[parent], self.names[scope[-1]]) for parent in scope[:-1])
            else:
                graph.add_edges_from(itertools.combinations((self.names[v] for v in scope), 2))
        return graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableModel):
            return NotImplemented
        mine, theirs = (
            (m.kind, m.names, m.states, m.scopes, m.properties, len(m.tables)) for m in (self, other)
        )
        return mine == theirs and all(map(np.array_equal, self.tables, other.tables))

    def __repr__(self) -> str:
        return f"TableModel({self.kind!r}, {len(self.names)} variables, {len(self.tables)} tables)"


def _check_unique(names: Sequence[str], argument: str, what: str) -> None:
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise BadInput(argument, f"the {what} {twice!r} twice", "every name once")


def find_cycle(parents: Sequence[Sequence[int]]) -> list[int]:
    """The variables of one directed cycle in the direction of its arrows, or nothing."""
    left = {v: set(group) for v, group in enumerate(parents)}
    children: dict[int, list[int]] = {v: [] for v in left}
    for v, group in left.items():
        for parent in group:
            children[parent].append(v)
    ready = [v for v, group in left.items() if not group]
    while ready:
        v = ready.pop()
        del left[v]
        for child in children[v]:
            left[child].discard(v)
            if not left[child]:
                ready.append(child)
    if not left:
        return []
    walk = [min(left)]  # every variable left has a parent that is left: go up until one repeats
    while (parent := min(left[walk[-1]])) not in walk:
        walk.append(parent)
    cycle = walk[walk.index(parent) :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def row_sum_error(
    table: np.ndarray, child: str, parents: Sequence[tuple[str, Sequence[str]]], tolerance: float = TOLERANCE
) -> tuple[str, str] | None:
    """(found, expected) for the first row of p(child | parents) that does not sum to one."""
    sums = table.sum(-1)
    wrong = np.abs(sums - 1.0) > tolerance
    if not wrong.any():
        return None
    where = tuple(np.argwhere(wrong)[0])
    given = ", ".join(f"{name} = {states[i]}" for (name, states), i in zip(parents, where, strict=True))
    row = f"p({child}{' | ' if given else ''}{given})"
    return f"{row} with the sum {float(sums[where]):.6g}", "probabilities that sum to one"


def normalise_rows(table: np.ndarray) -> np.ndarray:
    """The rows divided by their sums, except those that sum to one up to rounding."""
    sums = table.sum(-1, keepdims=True)
    return np.where(np.abs(sums - 1.0) > _ROUNDING, table / sums, table)
