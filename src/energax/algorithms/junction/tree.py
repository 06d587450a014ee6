"""Exact inference on a tree of cliques: log Z, marginals, joints, the most probable states, draws."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.keys import as_key
from ...errors import BadInput, Intractable
from ...graph import TableCost, Triangulation, junction_tree, triangulate_scopes
from ...programs import jit
from ..factors.checks import (
    as_evidence,
    as_tables,
    concatenate_evidence,
    split_by_variable,
    to_numpy_unless_traced,
)
from .beliefs import clique_marginal, factor_marginals
from .layout import SMALL, TreeLayout, make_layout
from .passes import PackedLogTables, Upward, downward, max_product, pack_tables, sum_product, upward
from .ragged import ragged_sum
from .traceback import best_column, descend, random_column

MAX_BYTES = 8 * 2**30
APPROXIMATE = (
    "Use an approximate method (loopy belief propagation, mean field, Gibbs or annealed importance "
    "sampling), or observe more variables."
)


@dataclasses.dataclass(frozen=True)
class JunctionTree:
    """Cliques joined into a tree (a forest, if the graph is not connected), rooted and laid out.

    A discrete model is `cards` (the number of states of each variable), `scopes` (the variables of each
    factor) and `log_tables` (one axis per variable of the scope, in its order): p(x) ∝ Π exp(log_tables).
    Evidence is one log-vector per variable, added to the model: 0 and −inf for an observed variable, any
    log-likelihood for uncertain evidence, zeros for none. Arrays (n, card) are n rows of evidence in one
    call, and every result then has a leading axis of n.

    The tree is static: hashable, built once for a structure, and its cost is known before anything runs.

    >>> import jax.numpy as jnp
    >>> tree = JunctionTree.build((2, 2, 2), ((0, 1), (1, 2)))
    >>> tree.width, tree.cliques
    (1, ((1, 2), (1, 0)))
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> evidence = (jnp.array([0.0, -jnp.inf]), jnp.zeros(2), jnp.zeros(2))  # the first is in state 0
    >>> log_z, marginals = tree.marginals((agree, agree), evidence)
    >>> [round(float(p), 4) for p in marginals[2]]
    [0.82, 0.18]

    References: Lauritzen and Spiegelhalter, J. R. Statist. Soc. B 50, 1988; Jensen, Lauritzen and
    Olesen, Comput. Statist. Quart. 4, 1990; Dawid, Stat. Comput. 2, 1992 (max-product, sampling).
    """

    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...] = ()
    small: int = SMALL
    cost: TableCost = dataclasses.field(default=TableCost(0, 0, 0), compare=False)
    layout: TreeLayout = dataclasses.field(default=None, compare=False, repr=False)  # type: ignore[assignment]

    # -- building -------------------------------------------------------------------------------

    @staticmethod
    def build(
        cards: Sequence[int],
        scopes: Sequence[Sequence[int]],
        *,
        together: Sequence[Sequence[int]] = (),
        small: int = SMALL,
        max_bytes: int = MAX_BYTES,
    ) -> JunctionTree:
        """Triangulate, join, root and lay out. Each set in `together` will lie within one clique.

        Cliques of up to `small` entries are computed many at once (no result depends on it).

        Raises `Intractable` if the tables of one calibration would take more than `max_bytes`.
        """
        cards = tuple(int(c) for c in cards)
        if not cards:
            raise BadInput("cards", "no variable", "at least one")
        factors = tuple(tuple(int(v) for v in scope) for scope in scopes)
        sets = tuple(tuple(sorted(int(v) for v in group)) for group in together)
        for scope in (*factors, *sets):
            if len(set(scope)) != len(scope) or any(not 0 <= v < len(cards) for v in scope):
                raise BadInput("scopes", f"{scope}", f"different variables from 0 to {len(cards) - 1}")
        triangulation = _triangulate(cards, factors, sets)
        itemsize = jnp.zeros(()).dtype.itemsize
        size = _bytes(triangulation.cost.entries, triangulation.cost.largest, itemsize)
        if size > max_bytes:
            raise Intractable(
                f"a junction tree of width {triangulation.width}",
                f"{size / 2**30:.3g} GiB ({triangulation.cost})",
                f"{max_bytes / 2**30:.3g} GiB",
                APPROXIMATE,
            )
        return _build(cards, factors, sets, small)

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """The maximal cliques, parents before children, each with its separator first."""
        return tuple(c.variables for c in self.layout.cliques[: self.layout.n_maximal])

    @property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """The variables each clique shares with its parent; none at a root."""
        return tuple(c.separator for c in self.layout.cliques[: self.layout.n_maximal])

    @property
    def width(self) -> int:
        """The size of the largest clique, less one."""
        return max(map(len, self.cliques)) - 1

    @property
    def bytes(self) -> int:
        """About the memory of one calibration (of one row), in the current precision."""
        return _bytes(self.cost.entries, self.cost.largest, jnp.zeros(()).dtype.itemsize)

    @property
    def operations(self) -> int:
        """Multiplications and additions of one calibration."""
        return self.cost.operations

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.cards, self.scopes, self.together, self.small))

    def __hash__(self) -> int:
        return self._hash  # every compiled call needs it, and the tuples are long

    def __repr__(self) -> str:
        return f"JunctionTree({len(self.cards)} variables, width {self.width}, {self.cost})"

    # -- queries --------------------------------------------------------------------------------

    def pack(self, log_tables: Sequence[Any]) -> PackedLogTables:
        """Check the tables and lay them out for this tree, for many queries of the same numbers.

        All methods but `joint` take the result in place of the tables. Evidence is then one array in a
        tuple, (card₁ + card₂ + …,) or (rows, card₁ + card₂ + …), and is not checked.
        """
        tables = as_tables(self.cards, self.scopes, log_tables)
        dtype = tables[0].dtype if tables else jnp.result_type(float)
        with jax.ensure_compile_time_eval():  # they are kept, and must outlive a trace in progress
            return jax.tree.map(asarray, pack_tables(self.layout, tables, dtype))

    def log_partition(self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None) -> Any:
        """log Σ_x Π factors · evidence; −inf if the evidence is impossible.

        Its gradient is exact and costs one pass down: the marginals of the factors and variables.
        """
        if isinstance(log_tables, PackedLogTables):
            return _log_z_of_packed(self, *self._inputs(log_tables, log_evidence))
        tables = as_tables(self.cards, self.scopes, log_tables)
        evidence, rows = as_evidence(self.cards, log_evidence, tables)
        return _log_z(self, tables, _rows_last(evidence) if rows else evidence)

    def marginals(
        self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """log Z and the marginal of every variable; all zeros where the evidence is impossible."""
        log_z, flat = self.flat_marginals(log_tables, log_evidence)
        return log_z, split_by_variable(flat, self.cards)

    def flat_marginals(self, log_tables: Any, log_evidence: Sequence[Any] | None = None) -> tuple[Any, Any]:
        """log Z and the marginals of all variables end to end in one array."""
        found = to_numpy_unless_traced(_log_z_and_marginals(self, *self._inputs(log_tables, log_evidence)))
        return found[..., 0], found[..., 1:]

    def maximise(
        self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None
    ) -> tuple[Any, Any]:
        """(states, value): the most probable explanation and its unnormalised log-probability."""
        return _maximise(self, *self._inputs(log_tables, log_evidence))

    def draw(
        self, n: int, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None, *, key: Any
    ) -> Any:
        """n independent draws of all variables given the evidence: (n, variables), or (rows, n, …)."""
        return _draw(self, n, *self._inputs(log_tables, log_evidence), as_key(key))

    def joint(
        self,
        variables: Sequence[int],
        log_tables: Sequence[Any],
        log_evidence: Sequence[Any] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> Any:
        """log p(variables | evidence), one axis per variable in the order given.

        Where no clique holds all of them, a tree in which one does is built (and cached).
        """
        targets = tuple(int(v) for v in variables)
        if not any(set(clique).issuperset(targets) for clique in self.cliques):
            wider = JunctionTree.build(
                self.cards,
                self.scopes,
                together=(*self.together, targets),
                small=self.small,
                max_bytes=max_bytes,
            )
            return wider.joint(targets, log_tables, log_evidence)
        tables, evidence, rows = self._inputs(log_tables, log_evidence)
        return _log_joint(self, targets, tables, evidence, rows)

    def _inputs(self, log_tables: Any, log_evidence: Any) -> tuple[Any, Any, bool]:
        """The tables, the evidence, and whether it has rows."""
        if isinstance(log_tables, PackedLogTables):
            return log_tables, log_evidence, log_evidence[0].ndim == 2
        tables = as_tables(self.cards, self.scopes, log_tables)
        evidence, rows = as_evidence(self.cards, log_evidence, tables)
        return tables, concatenate_evidence(evidence), rows


# -- built and compiled once for a tree -------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _triangulate(cards: Any, scopes: Any, together: Any) -> Triangulation:
    return triangulate_scopes(cards, (*scopes, *together))


@functools.lru_cache(maxsize=64)
def _build(cards: Any, scopes: Any, together: Any, small: int) -> JunctionTree:
    tree = junction_tree(_triangulate(cards, scopes, together).cliques, cards)
    layout = make_layout(tree, cards, scopes, small)
    return JunctionTree(cards, scopes, together, small, tree.cost(cards), layout)


def _bytes(entries: int, largest_table: int, itemsize: int) -> int:
    """The conditionals of all cliques, their separators on the way up and down, and work on one of them."""
    return (5 * entries // 2 + 3 * largest_table) * itemsize


def _rows_last(evidence: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(e.T for e in evidence)


def _sum_up(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> Upward:
    return upward(tree.layout, tables, _rows_last(evidence) if rows else evidence, sum_product)


@jit
def _log_z_and_marginals(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> Any:
    """log Z and all marginals end to end: one array to copy to the host instead of two."""
    up = _sum_up(tree, tables, evidence, rows)
    beliefs = downward(tree.layout, up)
    flat = jnp.concatenate([up.log_z[None], ragged_sum(beliefs.fringe, tree.layout.marginals)])
    return flat.T if rows else flat


@jit
def _log_z_of_packed(tree: JunctionTree, tables: PackedLogTables, evidence: Any, rows: bool) -> Any:
    return _sum_up(tree, tables, evidence, rows).log_z


@jit
def _log_joint(tree: JunctionTree, targets: tuple[int, ...], tables: Any, evidence: Any, rows: bool) -> Any:
    """log p(targets | evidence), from the smallest clique that holds them all."""
    beliefs = downward(tree.layout, _sum_up(tree, tables, evidence, rows))
    holders = [i for i, clique in enumerate(tree.cliques) if set(clique).issuperset(targets)]
    at = min(holders, key=lambda i: tree.layout.cliques[i].size)
    clique = tree.layout.cliques[at]
    flat = clique_marginal(tree.layout, beliefs, at)
    lead = int(rows)
    table = (flat.T if rows else flat).reshape(*flat.shape[1:], *clique.cards)
    table = jnp.sum(table, axis=tuple(lead + k for k, v in enumerate(clique.variables) if v not in targets))
    left = [v for v in clique.variables if v in targets]
    order = (*range(lead), *(lead + left.index(v) for v in targets))
    return jnp.log(jnp.transpose(table, order))


@jit
def _maximise(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> tuple[Any, Any]:
    def one(evidence):
        up = upward(tree.layout, tables, evidence, max_product)
        return descend(tree.layout, up, len(tree.cards), best_column), up.log_z

    # `vmap` inside the program: around it, every operation would run by itself.
    return jax.vmap(one)(evidence) if rows else one(evidence)


@jit
def _draw(tree: JunctionTree, n: int, tables: Any, evidence: Any, rows: bool, key: Any) -> Any:
    def one(evidence, key):
        up = upward(tree.layout, tables, evidence, sum_product)
        draw = lambda k: descend(tree.layout, up, len(tree.cards), random_column(k))
        return jax.vmap(draw)(jax.random.split(key, n))

    if not rows:
        return one(evidence, key)
    return jax.vmap(one)(evidence, jax.random.split(key, evidence[0].shape[0]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
@jit
def _log_z(tree: JunctionTree, tables: Any, evidence: Any) -> Any:
    return upward(tree.layout, tables, evidence, sum_product).log_z


@jit
def _log_z_forward(tree: JunctionTree, tables: Any, evidence: Any) -> tuple[Any, Upward]:
    up = upward(tree.layout, tables, evidence, sum_product)
    return up.log_z, up


@jit
def _log_z_backward(tree: JunctionTree, up: Upward, slope: Any) -> tuple[Any, Any]:
    """d log Z / d log table = p(scope), and the same for evidence."""
    beliefs = downward(tree.layout, up)
    scale = lambda p: jnp.sum(p * slope, axis=-1) if slope.ndim else p * slope
    tables = tuple(scale(p) for p in factor_marginals(tree, beliefs))
    flat = ragged_sum(beliefs.fringe, tree.layout.marginals) * slope
    ends = list(itertools.accumulate(tree.cards))
    return tables, tuple(jnp.split(flat, ends[:-1]))


_log_z.defvjp(_log_z_forward, _log_z_backward)
