"""Exact inference on a tree of cliques: everything that tables over finite variables can be asked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.keys import as_key
from ...errors import BadInput, Intractable
from ...graph import Cost, junction_tree, triangulate_scopes
from ..factors.checks import as_evidence, as_tables, joined, split, to_numpy_unless_traced
from .beliefs import Calibrated, factor_marginals
from .layout import SMALL, TreeLayout, make_plan
from .passes import Packed, best, conditional, downward, pack, ragged_sum, upward
from .traceback import descend, largest, random_column

MAX_BYTES = 8 * 2**30
APPROXIMATE = (
    "Approximate: loopy belief propagation, mean field, Gibbs or annealed importance sampling; "
    "or observe more variables, which cuts the graph."
)


@dataclasses.dataclass(frozen=True)
class JunctionTree:
    """Cliques joined into a tree (a forest, if the graph is not connected), rooted and laid out.

    A discrete model is `cards` (how many states each variable has), `scopes` (the variables of each
    factor) and `log_tables` (one axis a variable of the scope, in its order): p(x) ∝ Π exp(log_tables).
    Evidence is one log-vector a variable, added to the model: 0 and −inf for a variable that is
    observed, any log-likelihood for uncertain evidence, zeros for none. An array (n, card) for every
    variable is n rows of evidence in one call, and every answer then has a leading axis of n.

    The tree is static: hashable, made once for a structure, and told its cost before anything runs.

    >>> import jax.numpy as jnp
    >>> tree = JunctionTree.build((2, 2, 2), ((0, 1), (1, 2)))
    >>> tree.width, tree.cliques
    (1, ((1, 2), (1, 0)))
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> seen = (jnp.array([0.0, -jnp.inf]), jnp.zeros(2), jnp.zeros(2))      # the first is in state 0
    >>> log_z, marginals = tree.marginals((agree, agree), seen)
    >>> [round(float(p), 4) for p in marginals[2]]
    [0.82, 0.18]

    References: Lauritzen and Spiegelhalter, J. R. Statist. Soc. B 50, 1988; Jensen, Lauritzen and
    Olesen, Comput. Statist. Quart. 4, 1990; Dawid, Stat. Comput. 2, 1992 (max-product, sampling).
    """

    cards: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...] = ()
    small: int = SMALL
    cost: Cost = dataclasses.field(default=Cost(0, 0, 0), compare=False)
    plan: TreeLayout = dataclasses.field(default=None, compare=False, repr=False)  # type: ignore[assignment]

    # -- made once ------------------------------------------------------------------------------

    @staticmethod
    def build(
        cards: Sequence[int],
        scopes: Sequence[Sequence[int]],
        *,
        together: Sequence[Sequence[int]] = (),
        small: int = SMALL,
        max_bytes: int = MAX_BYTES,
    ) -> JunctionTree:
        """Triangulate, join, root, lay out. Sets in `together` will each lie within one clique.

        Cliques of up to `small` entries are computed many at once (no answer depends on it).

        Raises `Intractable` if the tables of one calibration would take more than `max_bytes`.
        """
        cards = tuple(int(c) for c in cards)
        if not cards:
            raise BadInput("cards", "no variable", "at least one")
        groups = tuple(tuple(int(v) for v in scope) for scope in scopes)
        joined = tuple(tuple(sorted(int(v) for v in group)) for group in together)
        for scope in (*groups, *joined):
            if len(set(scope)) != len(scope) or any(not 0 <= v < len(cards) for v in scope):
                raise BadInput("scopes", f"{scope}", f"different variables from 0 to {len(cards) - 1}")
        triangulated = _triangulated(cards, groups, joined)
        itemsize = jnp.zeros(()).dtype.itemsize
        size = _bytes(triangulated.cost.entries, triangulated.cost.largest, itemsize)
        if size > max_bytes:
            raise Intractable(
                f"a junction tree of width {triangulated.width}",
                f"{size / 2**30:.3g} GiB ({triangulated.cost})",
                f"{max_bytes / 2**30:.3g} GiB",
                APPROXIMATE,
            )
        return _built(cards, groups, joined, small)

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """The maximal cliques, parents before children, each with its separator first."""
        return tuple(c.variables for c in self.plan.cliques[: self.plan.n_maximal])

    @property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """What each clique shares with its parent; nothing at a root."""
        return tuple(c.separator for c in self.plan.cliques[: self.plan.n_maximal])

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
        return self._hash  # every compiled call asks for it, and the tuples are long

    def __repr__(self) -> str:
        return f"JunctionTree({len(self.cards)} variables, width {self.width}, {self.cost})"

    # -- asked often ----------------------------------------------------------------------------

    def packed(self, log_tables: Sequence[Any]) -> Packed:
        """The tables checked and laid out for this tree, for many questions of the same numbers.

        All but `joint` take them in the place of the tables, with evidence that is one array in a tuple,
        (card₁ + card₂ + …) or (rows, card₁ + card₂ + …), and look no further.
        """
        tables = as_tables(self.cards, self.scopes, log_tables)
        dtype = tables[0].dtype if tables else jnp.result_type(float)
        with jax.ensure_compile_time_eval():  # they are kept, and must outlive whatever is being traced
            return jax.tree.map(jnp.asarray, pack(self.plan, tables, dtype))

    def log_partition(self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None) -> Any:
        """log Σ_x Π factors · evidence; −inf if the evidence is impossible.

        Its gradient is exact and costs one pass down: the marginals of the factors and variables.
        """
        if isinstance(log_tables, Packed):
            return _log_z_alone(self, *self._inputs(log_tables, log_evidence))
        tables = as_tables(self.cards, self.scopes, log_tables)
        evidence, rows = as_evidence(self.cards, log_evidence, tables)
        return _log_z(self, tables, _trailing(evidence) if rows else evidence)

    def marginals(
        self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """log Z and the marginal of every variable; all zeros where the evidence is impossible."""
        log_z, states = self.states(log_tables, log_evidence)
        return log_z, split(states, self.cards)

    def states(self, log_tables: Any, log_evidence: Sequence[Any] | None = None) -> tuple[Any, Any]:
        """The same with all marginals end to end in one array."""
        found = to_numpy_unless_traced(_marginals(self, *self._inputs(log_tables, log_evidence)))
        return found[..., 0], found[..., 1:]

    def calibrate(self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None) -> Calibrated:
        """Both passes: log Z and the marginals of all variables, cliques and factors."""
        tables, evidence, rows = self._inputs(log_tables, log_evidence)
        return _calibrated(self, tables, evidence, rows)

    def maximise(
        self, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None
    ) -> tuple[Any, Any]:
        """(states, value): the most probable explanation and its unnormalised log-probability."""
        tables, evidence, rows = self._inputs(log_tables, log_evidence)
        one = functools.partial(_maximised, self, tables)
        return jax.vmap(one)(evidence) if rows else one(evidence)

    def draw(
        self, n: int, log_tables: Sequence[Any], log_evidence: Sequence[Any] | None = None, *, key: Any
    ) -> Any:
        """n independent draws of all variables given the evidence: (n, variables), or (rows, n, …)."""
        tables, evidence, rows = self._inputs(log_tables, log_evidence)
        if not rows:
            return _drawn(self, n, tables, evidence, as_key(key))
        keys = jax.random.split(as_key(key), evidence[0].shape[0])
        return jax.vmap(lambda e, k: _drawn(self, n, tables, e, k))(evidence, keys)

    def joint(
        self,
        variables: Sequence[int],
        log_tables: Sequence[Any],
        log_evidence: Sequence[Any] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> Any:
        """log p(variables | evidence), an axis each in the order asked; of any set, in one clique or not.

        Where no clique holds the set, a tree in which one does is made (and kept).
        """
        asked = tuple(int(v) for v in variables)
        if not any(set(clique).issuperset(asked) for clique in self.cliques):
            wanted = (*self.together, asked)
            wider = JunctionTree.build(
                self.cards, self.scopes, together=wanted, small=self.small, max_bytes=max_bytes
            )
            return wider.joint(asked, log_tables, log_evidence)
        tables, evidence, rows = self._inputs(log_tables, log_evidence)
        return _joint(self, asked, tables, evidence, rows)

    def _inputs(self, log_tables: Any, log_evidence: Any) -> tuple[Any, Any, bool]:
        if isinstance(log_tables, Packed):
            return log_tables, log_evidence, log_evidence[0].ndim == 2
        tables = as_tables(self.cards, self.scopes, log_tables)
        evidence, rows = as_evidence(self.cards, log_evidence, tables)
        return tables, joined(evidence), rows


# -- compiled once for a tree -----------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _triangulated(cards: Any, scopes: Any, together: Any) -> Any:
    return triangulate_scopes(cards, (*scopes, *together))


@functools.lru_cache(maxsize=64)
def _built(cards: Any, scopes: Any, together: Any, small: int) -> JunctionTree:
    tree = junction_tree(_triangulated(cards, scopes, together).cliques, cards)
    plan = make_plan(tree, cards, scopes, small)
    return JunctionTree(cards, scopes, together, small, tree.cost(cards), plan)


def _bytes(entries: int, largest_table: int, itemsize: int) -> int:
    """The conditionals of all cliques, their separators on the way up and down, and work on one of them."""
    return (5 * entries // 2 + 3 * largest_table) * itemsize


def _trailing(evidence: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(e.T for e in evidence)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _marginals(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> Any:
    """log Z and all marginals end to end: one array to bring back instead of two."""
    up = upward(tree.plan, tables, _trailing(evidence) if rows else evidence, conditional)
    beliefs = downward(tree.plan, up)
    flat = jnp.concatenate([up.log_z[None], ragged_sum(beliefs.fringe, tree.plan.marginals)])
    return flat.T if rows else flat


@functools.partial(jax.jit, static_argnums=(0, 3))
def _log_z_alone(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> Any:
    return upward(tree.plan, tables, _trailing(evidence) if rows else evidence, conditional).log_z


@functools.partial(jax.jit, static_argnums=(0, 3))
def _calibrated(tree: JunctionTree, tables: Any, evidence: Any, rows: bool) -> Calibrated:
    up = upward(tree.plan, tables, _trailing(evidence) if rows else evidence, conditional)
    beliefs = downward(tree.plan, up)
    flat = ragged_sum(beliefs.fringe, tree.plan.marginals)
    first = lambda a: jnp.moveaxis(a, -1, 0) if rows else a
    core = {i: first(table) for i, table in beliefs.core.items()}
    return Calibrated(tree, up.log_z, first(flat), first(beliefs.fringe), core)


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def _joint(tree: JunctionTree, asked: tuple[int, ...], tables: Any, evidence: Any, rows: bool) -> Any:
    calibrated = _calibrated(tree, tables, evidence, rows)
    holding = [i for i, c in enumerate(tree.cliques) if set(c).issuperset(asked)]
    at = min(holding, key=lambda i: tree.plan.cliques[i].size)
    clique = tree.cliques[at]
    lead = int(rows)
    table = calibrated.clique(at)
    table = jnp.sum(table, axis=tuple(lead + k for k, v in enumerate(clique) if v not in asked))
    left = [v for v in clique if v in asked]
    order = (*range(lead), *(lead + left.index(v) for v in asked))
    return jnp.log(jnp.transpose(table, order))


@functools.partial(jax.jit, static_argnums=0)
def _maximised(tree: JunctionTree, tables: Any, evidence: Any) -> tuple[Any, Any]:
    up = upward(tree.plan, tables, evidence, best)
    return descend(tree.plan, up, len(tree.cards), largest), up.log_z


@functools.partial(jax.jit, static_argnums=(0, 1))
def _drawn(tree: JunctionTree, n: int, tables: Any, evidence: Any, key: Any) -> Any:
    up = upward(tree.plan, tables, evidence, conditional)
    one = lambda k: descend(tree.plan, up, len(tree.cards), random_column(k))
    return jax.vmap(one)(jax.random.split(key, n))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _log_z(tree: JunctionTree, tables: Any, evidence: Any) -> Any:
    return upward(tree.plan, tables, evidence, conditional).log_z


@functools.partial(jax.jit, static_argnums=0)
def _log_z_forward(tree: JunctionTree, tables: Any, evidence: Any) -> tuple[Any, Any]:
    up = upward(tree.plan, tables, evidence, conditional)
    return up.log_z, up


@functools.partial(jax.jit, static_argnums=0)
def _log_z_backward(tree: JunctionTree, up: Any, slope: Any) -> tuple[Any, Any]:
    """d log Z / d log table = p(scope), and the same for evidence."""
    beliefs = downward(tree.plan, up)
    pulled = lambda p: jnp.sum(p * slope, axis=-1) if slope.ndim else p * slope
    tables = tuple(pulled(p) for p in factor_marginals(tree, beliefs.fringe, beliefs.core))
    flat = ragged_sum(beliefs.fringe, tree.plan.marginals) * slope
    ends = list(itertools.accumulate(tree.cards))
    return tables, tuple(jnp.split(flat, ends[:-1]))


_log_z.defvjp(_log_z_forward, _log_z_backward)
