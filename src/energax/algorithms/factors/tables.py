"""A finite model as tables of logs: what message passing reads, whatever energy they came from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...missing import is_masked, known
from ..junction.tree import JunctionTree
from .checks import split, to_numpy_unless_traced


class _TreeQueries:
    """What tables are asked, on their tree and by their names."""

    names: tuple[str, ...]
    logs: Any
    tree: Any

    def log_partition(self, evidence: tuple[Any, ...]) -> Any:
        """log Σ_x p̃(x) · evidence."""
        if not self.names:  # nothing is hidden: what is left of the tables are numbers
            return sum(self.logs)
        return self.tree.log_partition(self.logs, evidence)

    def marginals(self, evidence: tuple[Any, ...]) -> tuple[Any, Any]:
        """log Σ_x p̃(x) · evidence, and p(v | evidence) of all variables end to end."""
        if not self.names:
            return self.log_partition(evidence), np.zeros(0)
        return self.tree.states(self.logs, evidence)

    def joint(self, names: tuple[str, ...], evidence: tuple[Any, ...]) -> Any:
        """log p(names | evidence), an axis each."""
        return self.tree.joint(tuple(map(self.names.index, names)), self.logs, evidence)

    def maximise(self, evidence: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
        """The most probable states by name, and their log p̃."""
        if not self.names:
            return {}, sum(self.logs)
        states, value = self.tree.maximise(self.logs, evidence)
        states = to_numpy_unless_traced(states)
        return {n: states[..., i].astype(jnp.int32) for i, n in enumerate(self.names)}, value

    def draw(self, key: Any, n: int, evidence: tuple[Any, ...]) -> dict[str, Any]:
        """n draws by name, (n,) each."""
        drawn = self.tree.draw(n, self.logs, evidence, key=key)
        return {name: drawn[..., i].astype(jnp.int32) for i, name in enumerate(self.names)}


class Tables(_TreeQueries, eqx.Module):
    """log p̃(x) = Σ_f log φ_f(x_f) over named finite variables.

    `scopes[f]` are the variables, by position in `names`, of the axes of `logs[f]`. The structure is
    static and the numbers are traced, so that one compiled program serves all values of the tables.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    cards: tuple[int, ...] = eqx.field(static=True)
    scopes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    logs: tuple[Any, ...]

    @property
    def tree(self) -> JunctionTree:  # type: ignore[override]
        return JunctionTree.build(self.cards, self.scopes)

    def given(self, row: Mapping[str, Any]) -> tuple[Tables, tuple[Any, ...]]:
        """The tables over what is hidden in a row, and a log-vector of evidence for each hidden variable.

        A value that is known for certain is read out of its tables, which makes them smaller. One
        that is missing in some rows stays a variable, with evidence that says nothing there.
        """
        seen = {self.names.index(k): v for k, v in row.items() if not is_masked(v)}
        kept = tuple(i for i in range(len(self.names)) if i not in seen)
        place = {v: i for i, v in enumerate(kept)}
        logs, scopes = [], []
        for scope, table in zip(self.scopes, self.logs, strict=True):
            where = tuple(seen.get(v, slice(None)) for v in scope)
            traced = any(not isinstance(i, (slice, int, np.integer, np.ndarray)) for i in where)
            logs.append((jnp.asarray(table) if traced else table)[where])
            scopes.append(tuple(place[v] for v in scope if v in place))
        names, cards = tuple(self.names[v] for v in kept), tuple(self.cards[v] for v in kept)
        rest = Tables(names, cards, tuple(scopes), tuple(logs))
        host = all(isinstance(log, (np.ndarray, np.floating)) for log in logs)
        zeros, dtype = (np.zeros if host else jnp.zeros), (logs[0].dtype if logs else float)
        evidence = tuple(_evidence(row.get(n), zeros(k, dtype)) for n, k in zip(names, cards, strict=True))
        return rest, evidence

    def on_host(self) -> Tables:
        """The same as NumPy: reading known values out of hundreds of tables needs no compilation."""
        return Tables(self.names, self.cards, self.scopes, tuple(np.asarray(t) for t in self.logs))

    def shapes_given(self, names: Any) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """(cards, scopes) once these variables are known: what a plan needs, and nothing computed."""
        kept = tuple(i for i, n in enumerate(self.names) if n not in names)
        place = {v: i for i, v in enumerate(kept)}
        scopes = tuple(tuple(place[v] for v in scope if v in place) for scope in self.scopes)
        return tuple(self.cards[v] for v in kept), scopes


class PackedTables(_TreeQueries):
    """The tables of a whole network, checked and handed over once for all questions in one precision."""

    def __init__(self, tables: Tables, tree: JunctionTree):
        self._tables, self.names = tables, tables.names
        self.tree, self.logs = tree, tree.packed(tables.logs)
        each = zip(tables.names, tables.cards, itertools.accumulate(tables.cards), strict=True)
        self._states = {name: slice(end - card, end) for name, card, end in each}
        self._n_states, self._dtype = sum(tables.cards), self.logs.small.dtype

    def evidence(self, rows: Mapping[str, Any], n: int) -> np.ndarray:
        """Of n rows, all variables end to end: 0 for every state that is possible, −∞ for the others."""
        evidence = np.zeros((n, self._n_states), self._dtype)
        for name, value in rows.items():
            about = evidence[:, self._states[name]]
            excluded = np.asarray(known(value))[:, None] != np.arange(about.shape[1])
            if is_masked(value):
                excluded &= np.asarray(value.observed)[:, None]
            about[excluded] = -np.inf
        return evidence

    def joint(self, names: tuple[str, ...], evidence: tuple[Any, ...]) -> Any:
        # It may take another tree, for which the tables are laid out otherwise.
        return self._tables.joint(names, split(evidence[0], self._tables.cards))


def _evidence(value: Any, nothing: Any) -> Any:
    """0 for every state that is possible, −∞ for the others."""
    if value is None:
        return nothing
    excluded = value.observed & (jnp.arange(nothing.shape[0]) != value.value)
    return jnp.where(excluded, -jnp.inf, nothing)
