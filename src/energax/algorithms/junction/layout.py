"""Where every number of a junction tree lies in memory: index arrays made once, in NumPy.

Compiling an operation costs milliseconds, and a network has hundreds of cliques. So the tree has two
parts. The *core*, cliques with large tables and those between them and the root, is computed clique by
clique on dense arrays. All other cliques, the *fringe*, are computed a level at a time: the rows of all
cliques at one depth form a few padded matrices, and messages along the tree are gathered by index. Small
factors and evidence on a core clique belong to *subcliques*, small cliques within it that are its children
like any other; so only the fringe has factors to gather, and the core only adds and sums whole messages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ...graph import CliqueTree
from .ragged import OVERHEAD, Ragged, cheapest_cuts
from .rooted import Clique, assign_factors, depth_of, find_core, root_tree, split_core_cliques

SMALL = 1024  # entries; a clique up to this size is computed together with others


@dataclasses.dataclass(frozen=True)
class CliqueGroup:
    """Cliques of one level whose rows form one matrix, with the messages that enter each of its entries."""

    cliques: tuple[int, ...]
    shape: tuple[int, int]
    messages: np.ndarray  # (slots, rows, columns) indices into the messages of the level below, then 0


@dataclasses.dataclass(frozen=True)
class Level:
    """All fringe cliques at one depth, and the way from the beliefs of the level above to theirs."""

    groups: tuple[CliqueGroup, ...]
    first_row: dict[int, int]  # clique -> its first row among the rows of the level
    inflow: Ragged | None  # separator marginals from the beliefs of the level above; None at the top
    root_rows: np.ndarray  # the rows of the top level that are roots, whose separator is empty


@dataclasses.dataclass(frozen=True)
class TreeLayout:
    """The layout of a whole tree."""

    cliques: tuple[Clique, ...]  # the first `n_maximal` are those of the tree, then the subcliques
    n_maximal: int
    core: tuple[int, ...]  # parents before children
    levels: tuple[Level, ...]  # from the top
    entries: dict[int, np.ndarray]  # fringe clique -> the place of each entry among all fringe beliefs
    n_beliefs: int
    small_factors: tuple[int, ...]  # those that are gathered, in the order they are concatenated
    factors: Ragged  # for every entry of the fringe, those of the small factors, then 0, then −inf
    evidence: np.ndarray  # (slots, entries) indices into the evidence of all variables, then 0
    marginals: Ragged  # of all variables, from all fringe beliefs
    clique_of_factor: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]


def make_layout(
    tree: CliqueTree, cards: Sequence[int], scopes: Sequence[tuple[int, ...]], small: int = SMALL
) -> TreeLayout:
    """Lay out a tree; cliques of up to `small` entries make the fringe."""
    cliques = root_tree(tree, cards, small)
    n_maximal = len(cliques)
    core = find_core(cliques, small)
    clique_of_factor = assign_factors(cliques, cards, scopes, core, small)
    split_core_cliques(cliques, core, cards, scopes, clique_of_factor, small)
    small_factors = tuple(f for f in range(len(scopes)) if f not in cliques[clique_of_factor[f]].large)
    fringe = _Fringe(cliques, core)
    factors, evidence = _gathered_inputs(cliques, cards, scopes, small_factors, fringe)
    return TreeLayout(
        cliques=tuple(cliques),
        n_maximal=n_maximal,
        core=tuple(sorted(core, key=lambda i: depth_of(cliques, i))),
        levels=tuple(fringe.level(depth) for depth in range(len(fringe.groups))),
        entries=fringe.entries,
        n_beliefs=fringe.n_beliefs,
        small_factors=small_factors,
        factors=factors,
        evidence=evidence,
        marginals=_variable_lists(cliques, cards, fringe),
        clique_of_factor=tuple(clique_of_factor),
        scopes=tuple(scopes),
    )


# -- the fringe, level by level ---------------------------------------------------------------------


class _Fringe:
    """The places of all rows and entries of the fringe cliques.

    `groups[d]` are the groups of cliques at depth d. The rows of a level are those of its groups, one
    after the other; the beliefs of the fringe are the matrices of all groups of all levels, flattened.
    """

    def __init__(self, cliques: list[Clique], core: set[int]):
        self.cliques = cliques
        depths = _cliques_by_depth(cliques, core)
        # In a deep tree every operation is compiled many times over, so that padding costs less.
        overhead = OVERHEAD * max(1, len(depths) // 12)
        self.depths = depths
        self.groups = [_group_by_width(level, cliques, overhead) for level in depths]
        self.first_row: list[dict[int, int]] = []  # of each level: clique -> its first row
        self.n_rows: list[int] = []  # of each level
        self.level_start: list[int] = []  # of each level: its first belief
        self.entries: dict[int, np.ndarray] = {}  # clique -> the places of its entries among all beliefs
        self.n_beliefs = 0
        for groups in self.groups:
            self._place_level(groups)

    def _place_level(self, groups: list[list[int]]) -> None:
        first_row, n_rows = {}, 0
        self.level_start.append(self.n_beliefs)
        for group in groups:
            columns = max(self.cliques[i].columns for i in group)
            for i in group:
                clique = self.cliques[i]
                rows = self.n_beliefs + np.arange(clique.rows) * columns
                places = rows[:, None] + np.arange(clique.columns)
                self.entries[i] = places.ravel().astype(np.int32)  # the same dtype in either precision
                first_row[i] = n_rows
                n_rows += clique.rows
                self.n_beliefs += clique.rows * columns
        self.first_row.append(first_row)
        self.n_rows.append(n_rows)

    def level(self, depth: int) -> Level:
        """The index arrays of one level."""
        roots = [i for i in self.depths[depth] if self.cliques[i].parent < 0]
        first_row = self.first_row[depth]
        return Level(
            groups=tuple(self._clique_group(group, depth) for group in self.groups[depth]),
            first_row=first_row,
            inflow=None if depth == 0 else self._inflow(depth),
            root_rows=np.array([first_row[i] for i in roots], np.int32),
        )

    def _clique_group(self, group: list[int], depth: int) -> CliqueGroup:
        cliques = self.cliques
        below, n_below = {}, 0
        if depth + 1 < len(self.groups):
            below, n_below = self.first_row[depth + 1], self.n_rows[depth + 1]
        n_rows = sum(cliques[i].rows for i in group)
        n_columns = max(cliques[i].columns for i in group)
        n_slots = max(len(cliques[i].children) for i in group)
        messages = np.full((n_slots, n_rows, n_columns), n_below, np.int32)
        row = 0
        for i in group:
            clique = cliques[i]
            for k, child in enumerate(clique.children):
                positions = clique.positions_in(cliques[child].separator).reshape(clique.rows, clique.columns)
                messages[k, row : row + clique.rows, : clique.columns] = below[child] + positions
            row += clique.rows
        return CliqueGroup(tuple(group), (n_rows, n_columns), messages)

    def _inflow(self, depth: int) -> Ragged:
        """For every row of a level, the beliefs of the parents that agree with it."""
        start, stop = self.level_start[depth - 1], self.level_start[depth]  # of the level above
        lists = []
        for i in self.first_row[depth]:
            parent = self.cliques[i].parent
            positions = self.cliques[parent].positions_in(self.cliques[i].separator)
            lists.append(_group_by_position(positions, self.entries[parent] - start))
        return Ragged.build(lists, stop - start)


def _cliques_by_depth(cliques: list[Clique], core: set[int]) -> list[list[int]]:
    """The fringe cliques level by level; the top ones are roots or children of the core."""
    depths: list[list[int]] = []
    level = [i for i, c in enumerate(cliques) if i not in core and (c.parent < 0 or c.parent in core)]
    while level:
        depths.append(level)
        level = [child for i in level for child in cliques[i].children]
    return depths


def _group_by_width(level: list[int], cliques: list[Clique], overhead: int) -> list[list[int]]:
    """Cliques of similar width together, as far as padding costs less than one more operation."""
    ordered = sorted(level, key=lambda i: cliques[i].columns)
    rows = np.cumsum([0, *(cliques[i].rows for i in ordered)])
    slots = np.array([len(cliques[i].children) for i in ordered])

    def cost(a: int, b: int, columns: int) -> float:
        return float((rows[b] - rows[a]) * columns * (4 + slots[a:b].max()))

    ends = cheapest_cuts(np.array([cliques[i].columns for i in ordered]), cost, overhead)
    return [ordered[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


# -- lists of entries that are summed ---------------------------------------------------------------


def _group_by_position(positions: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The places with equal positions, one row per position; each position occurs equally often."""
    order = np.argsort(positions, kind="stable")
    return places[order].reshape(int(positions.max()) + 1, -1)


def _variable_lists(cliques: list[Clique], cards: Sequence[int], fringe: _Fringe) -> Ragged:
    """For every state of every variable, the fringe beliefs that agree with it."""
    lists = [np.zeros((0, 0), int)] * len(cards)
    for i, clique in enumerate(cliques):
        for v in clique.evidence:
            lists[v] = _group_by_position(clique.positions_in((v,)), fringe.entries[i])
    return Ragged.build(lists, fringe.n_beliefs)


def _gathered_inputs(
    cliques: list[Clique],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    small_factors: tuple[int, ...],
    fringe: _Fringe,
) -> tuple[Ragged, np.ndarray]:
    """For every entry of the fringe, the entries of the factors and of the evidence that agree with it."""
    sizes = np.cumsum([0, *(math.prod(cards[v] for v in scopes[f]) for f in small_factors)])
    first = dict(zip(small_factors, sizes[:-1].tolist(), strict=True))
    starts = np.cumsum([0, *cards])
    slots = max(len(cliques[i].evidence) for i in fringe.entries)
    evidence = np.full((slots, fringe.n_beliefs), starts[-1], np.int32)
    factors = []
    for i, places in fringe.entries.items():
        clique = cliques[i]
        own = [first[f] + clique.positions_in(scopes[f])[:, None] for f in clique.factors]
        factors.append(np.hstack([np.zeros((clique.size, 0), int), *own]))
        for k, v in enumerate(clique.evidence):
            evidence[k, places] = starts[v] + clique.positions_in((v,))
    used = list(fringe.entries.values())
    unused = np.setdiff1d(np.arange(fringe.n_beliefs), np.concatenate(used))  # beyond a clique's columns
    factors.append(np.full((len(unused), 1), sizes[-1] + 1))
    return Ragged.build(factors, int(sizes[-1]), [*used, unused]), evidence


def factor_lists(layout: TreeLayout) -> Ragged:
    """For every entry of every small factor, the fringe beliefs that agree with it."""
    lists = []
    for f in layout.small_factors:
        at = layout.clique_of_factor[f]
        positions = layout.cliques[at].positions_in(layout.scopes[f])
        lists.append(_group_by_position(positions, layout.entries[at]))
    return Ragged.build(lists, layout.n_beliefs)
