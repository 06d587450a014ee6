"""Exact queries of a finite model for many rows of evidence: which tree to use, and rows per call."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..._util.sizes import TREE_NUMBERS, call_rows, map_chunks
from ...errors import Intractable
from ...missing import is_masked
from ..junction.tree import JunctionTree
from .elimination import eliminate
from .tables import PackedTables, Tables

_MAX_SHARED_ENTRIES = 2**18  # larger trees are built anew for each set of observed variables
_MAX_SEPARATE_ROWS = 16  # more rows than this always share the tree of the whole model


class TableSolver:
    """Exact queries of one model's tables, for n rows of evidence by name, `Masked` if partly missing.

    Results are NumPy arrays with a leading axis of rows. A tree of moderate size is that of the whole model:
    compiled once for any evidence, with many rows in one call. A large tree is built for the hidden
    variables only, which makes it smaller, and rows are computed one by one.
    """

    def __init__(self, tables: Tables):
        self.tables = tables.to_numpy()
        self._packed: dict[int, PackedTables] = {}

    @functools.cached_property
    def tree(self) -> JunctionTree | None:
        """The junction tree of the whole model; None if it is too large."""
        with contextlib.suppress(Intractable):
            return JunctionTree.build(self.tables.cards, self.tables.scopes)
        return None

    def tree_given(self, given: Mapping[str, Any], n: int) -> JunctionTree | None:
        """The junction tree that queries with this evidence use; None if no variable is hidden."""
        if self._shares_tree(n):
            return self.tree
        observed = [k for k, v in given.items() if not is_masked(v)]
        cards, scopes = self.tables.shapes_given(observed)
        return JunctionTree.build(cards, scopes) if cards else None

    def log_partition(self, given: Mapping[str, Any], n: int) -> np.ndarray:
        """log Σ_hidden p̃(hidden, given), (n,)."""
        return np.asarray(self._solve(_log_partition, given, n))

    def marginals(self, given: Mapping[str, Any], n: int) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
        """log Σ_hidden p̃(hidden, given), the names of variables, and their marginals end to end.

        Variables that were removed from the tree because they are observed are not among them.
        """
        log_z, by_names = self._solve(_flat_marginals, given, n)
        ((names, states),) = by_names.items()
        return log_z, names, states

    def maximise(self, given: Mapping[str, Any], n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The most probable states by name, and log p̃ of them with the evidence."""
        return self._solve(_maximise, given, n)

    def joint(self, names: tuple[str, ...], given: Mapping[str, Any], n: int) -> np.ndarray:
        """p(names | given), one axis per variable."""
        return self._solve(functools.partial(_joint, names=names), given, n)

    def draw(self, n_draws: int, given: Mapping[str, Any], n: int, key: Any) -> dict[str, np.ndarray]:
        """Draws of the states by name, (n, n_draws)."""
        return self._solve(functools.partial(_draw, n=n_draws), given, n, key)

    def eliminate(self, names: tuple[str, ...], given: Mapping[str, Any], n: int) -> np.ndarray:
        """p(names | given) by variable elimination; without names, log Σ_hidden p̃(hidden, given)."""
        function = functools.partial(_eliminate, names=names)
        return self._solve(function, given, n, share_tree=False)

    # -- rows ----------------------------------------------------------------------------------

    def _shares_tree(self, n: int) -> bool:
        if self.tree is None:
            return False
        return self.tree.cost.entries <= _MAX_SHARED_ENTRIES or n > _MAX_SEPARATE_ROWS

    def _solve(
        self,
        function: Callable[..., Any],
        given: Mapping[str, Any],
        n: int,
        key: Any = None,
        *,
        share_tree: bool = True,
    ) -> Any:
        """`function(tables, evidence, key)` of every row."""
        if n == 1 or key is not None:
            rows, n_rows, inverse = given, n, None
        else:  # rows of finite values repeat: compute each distinct row once
            rows, n_rows, inverse = _unique_rows(given)
        together = share_tree and self._shares_tree(n_rows)
        solve = self._solve_together if together else self._solve_separately
        result = solve(function, rows, n_rows, key)
        return result if inverse is None else jax.tree.map(lambda a: a[inverse], result)

    def _solve_separately(self, function: Any, given: Mapping[str, Any], n: int, key: Any) -> Any:
        keys = [None] * n if key is None else jax.random.split(key, n)
        rows = [jax.tree.map(lambda a, i=i: a[i], given) for i in range(n)]
        each = [function(*self.tables.given(row), k) for row, k in zip(rows, keys, strict=True)]
        return jax.tree.map(lambda *parts: np.stack(parts), *each)

    def _solve_together(self, function: Any, given: Mapping[str, Any], n: int, key: Any) -> Any:
        tables = self._packed_tables()
        evidence = tables.evidence(given, n)
        if n == 1:
            result = function(tables, (evidence[0],), key)
            return jax.tree.map(lambda a: np.asarray(a)[None], result)

        def call(chunk):
            rows, index = chunk
            sub = None if key is None else jax.random.fold_in(key, int(index[0]))
            return function(tables, (rows,), sub)

        size = call_rows(n, TREE_NUMBERS.rows(tables.tree.cost.entries))
        return map_chunks(call, (evidence, np.arange(n)), size)

    def _packed_tables(self) -> PackedTables:
        """The tables laid out for the whole tree, in the current precision."""
        itemsize = jax.dtypes.canonicalize_dtype(float).itemsize
        if itemsize not in self._packed:
            assert self.tree is not None
            self._packed[itemsize] = PackedTables(self.tables, self.tree)
        return self._packed[itemsize]


def _unique_rows(given: Mapping[str, Any]) -> tuple[dict[str, Any], int, np.ndarray]:
    """The distinct rows, their number, and for every row the position of its distinct row."""
    code = lambda v: np.where(v.observed, v.value, -1) if is_masked(v) else np.asarray(v)
    codes = np.stack([code(v) for v in given.values()], axis=1)
    _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return jax.tree.map(lambda a: np.asarray(a)[first], given), len(first), inverse.reshape(-1)


# -- functions of tables with one row of evidence, or with many --------------------------------------


def _log_partition(tables, evidence, key):
    return tables.log_partition(evidence)


def _flat_marginals(tables, evidence, key):
    log_z, states = tables.flat_marginals(evidence)
    return log_z, {tables.names: states}


def _maximise(tables, evidence, key):
    return tables.maximise(evidence)


def _joint(tables, evidence, key, names):
    return np.exp(tables.joint(names, evidence))


def _draw(tables, evidence, key, n):
    return tables.draw(key, n, evidence)


def _eliminate(tables, evidence, key, names):
    if not tables.names:
        return np.asarray(sum(tables.logs))
    keep = tuple(tables.names.index(n) for n in names)
    log_joint = np.asarray(eliminate(tables.cards, tables.scopes, tables.logs, evidence, keep))
    if not names:
        return log_joint
    table = np.exp(log_joint - log_joint.max())
    return table / table.sum()
