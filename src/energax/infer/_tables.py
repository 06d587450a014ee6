"""A finite model as tables of logs: what message passing reads, whatever energy they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..missing import is_masked, known
from ._junction import JunctionTree


class Tables(eqx.Module):
    """log p̃(x) = Σ_f log φ_f(x_f) over named finite variables.

    `scopes[f]` are the variables, by position in `names`, of the axes of `logs[f]`. The structure is
    static and the numbers are traced, so that one compiled program serves all values of the tables.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    cards: tuple[int, ...] = eqx.field(static=True)
    scopes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    logs: tuple[Any, ...]

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

    def evidence(self, rows: Mapping[str, Any], n: int) -> tuple[np.ndarray, ...]:
        """For each variable its evidence in n rows, (n, card)."""
        dtype = self.logs[0].dtype
        evidence = []
        for name, k in zip(self.names, self.cards, strict=True):
            vector = np.zeros((n, k), dtype)
            if name in rows:
                excluded = np.asarray(known(rows[name]))[:, None] != np.arange(k)
                seen = np.asarray(rows[name].observed)[:, None] if is_masked(rows[name]) else True
                vector[excluded & seen] = -np.inf
            evidence.append(vector)
        return tuple(evidence)

    def log_partition(self, evidence: tuple[Any, ...]) -> Any:
        """log Σ_x p̃(x) · evidence."""
        if not self.names:  # nothing is hidden: what is left of the tables are numbers
            return sum(self.logs)
        return JunctionTree.build(self.cards, self.scopes).log_partition(self.logs, evidence)

    def maximise(self, evidence: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
        """The most probable states by name, and their log p̃."""
        if not self.names:
            return {}, sum(self.logs)
        states, value = JunctionTree.build(self.cards, self.scopes).maximise(self.logs, evidence)
        return {n: states[..., i].astype(jnp.int32) for i, n in enumerate(self.names)}, value

    def draw(self, key: Any, n: int, evidence: tuple[Any, ...]) -> dict[str, Any]:
        """n draws by name, (n,) each."""
        drawn = JunctionTree.build(self.cards, self.scopes).draw(n, self.logs, evidence, key=key)
        return {name: drawn[..., i].astype(jnp.int32) for i, name in enumerate(self.names)}

    def shapes_given(self, names: Any) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """(cards, scopes) once these variables are known: what a plan needs, and nothing computed."""
        kept = tuple(i for i, n in enumerate(self.names) if n not in names)
        place = {v: i for i, v in enumerate(kept)}
        scopes = tuple(tuple(place[v] for v in scope if v in place) for scope in self.scopes)
        return tuple(self.cards[v] for v in kept), scopes


def _evidence(value: Any, nothing: Any) -> Any:
    """0 for every state that is possible, −∞ for the others."""
    if value is None:
        return nothing
    excluded = value.observed & (jnp.arange(nothing.shape[0]) != value.value)
    return jnp.where(excluded, -jnp.inf, nothing)
