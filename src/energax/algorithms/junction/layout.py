"""Where every number of a junction tree lives: layouts made once, in NumPy, before anything is computed.

Compiling an operation costs milliseconds, and a network has hundreds of cliques. So the tree has two
parts. The *core*, cliques with large tables and those between them and the root, is computed clique by
clique on dense arrays. All the rest, the *fringe*, is computed a level at a time: the rows of all cliques
at one depth are one padded matrix, and what flows along the tree is gathered by index. Small factors and
evidence on a core clique sit in *pockets*, small cliques within it that hang on it like any other child;
so the fringe alone has factors to gather, and the core only adds and sums whole messages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...graph import CliqueTree
from .rooted import Clique, assign, core_of, depth_of, rooted, split_core_cliques

SMALL = 1024  # entries; a clique up to this size is computed together with others
_OVERHEAD = 8192  # entries whose gathering costs as much as starting one more operation


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Sums over lists of different lengths, as a few padded matrices of indices and a permutation."""

    blocks: tuple[np.ndarray, ...]  # (rows, length), padded with the index of a zero
    order: np.ndarray | None  # where each result lies in the concatenated blocks

    @classmethod
    def build(
        cls, groups: Sequence[np.ndarray], pad: int, places: Sequence[np.ndarray] | None = None
    ) -> Ragged:
        """From matrices of indices, each the lists of as many results as it has rows.

        The results come in the order of the rows, or at the `places` given for the rows of each matrix.
        """
        lengths = np.array([group.shape[1] for group in groups], int)
        heights = np.array([group.shape[0] for group in groups], int)
        by_length = np.argsort(lengths, kind="stable")
        rows = np.concatenate([[0], np.cumsum(heights[by_length])])
        cost = lambda a, b, longest: float((rows[b] - rows[a]) * longest)
        blocks, start = [], 0
        for stop in cuts(lengths[by_length], cost):
            shape = (int(rows[stop] - rows[start]), int(lengths[by_length[stop - 1]]))
            block = np.full(shape, pad, np.int32)
            for at, row in zip(by_length[start:stop], rows[start:stop] - rows[start], strict=True):
                block[row : row + heights[at], : lengths[at]] = groups[at]
            blocks.append(block)
            start = stop
        first = np.empty(len(groups), int)
        first[by_length] = rows[:-1]
        found = [np.arange(a, a + h) for a, h in zip(first, heights, strict=True)]
        order = np.concatenate([np.zeros(0, int), *found]).astype(np.int32)
        if places is not None:
            order[np.concatenate(places)] = order.copy()
        return cls(tuple(blocks), None if np.array_equal(order, np.arange(len(order))) else order)


def cuts(lengths: np.ndarray, cost: Callable[[int, int, int], float], overhead: int = _OVERHEAD) -> list[int]:
    """Ends of the runs of sorted lengths that make padding and the number of runs cheapest together."""
    if not len(lengths):
        return []
    ends = [*np.flatnonzero(np.diff(lengths)) + 1, len(lengths)]
    best: list[tuple[float, int]] = []  # the cheapest way to cover up to this end, and its last start
    for j, stop in enumerate(ends):
        options = []
        for i in range(max(0, j - 24), j + 1):
            start = 0 if i == 0 else int(ends[i - 1])
            before = 0.0 if i == 0 else best[i - 1][0]
            options.append((before + overhead + cost(start, int(stop), int(lengths[stop - 1])), i))
        best.append(min(options))
    found, j = [], len(ends) - 1
    while j >= 0:
        found.append(int(ends[j]))
        j = best[j][1] - 1
    return found[::-1]


@dataclasses.dataclass(frozen=True)
class CliqueGroup:
    """Cliques of one level whose rows form one matrix, with the messages that enter each of its entries."""

    cliques: tuple[int, ...]
    shape: tuple[int, int]
    messages: np.ndarray  # (slots, rows, columns) indices into the messages of the level below, then 0


@dataclasses.dataclass(frozen=True)
class Level:
    """All fringe cliques at one depth: its blocks, and how the level above (or the core) feeds them."""

    blocks: tuple[CliqueGroup, ...]
    start: dict[int, int]  # clique -> the place of its first row among the rows of the level
    rows: int
    inflow: Ragged | None  # separator marginals from the beliefs of the level above; None on top
    owner: np.ndarray  # rows of the top level that begin a tree: their separator is empty


@dataclasses.dataclass(frozen=True)
class TreeLayout:
    """The whole layout."""

    cliques: tuple[Clique, ...]  # the first `n_maximal` are those of the tree, then the pockets
    n_maximal: int
    core: tuple[int, ...]  # parents before children
    levels: tuple[Level, ...]  # from the top
    entry: dict[int, np.ndarray]  # fringe clique -> the place of each entry among all fringe beliefs
    n_beliefs: int
    small: tuple[int, ...]  # factors that are gathered, in the order they are concatenated
    factors: Ragged  # for every entry of the fringe, those of the small factors, then 0, then −inf
    evidence: np.ndarray  # (slots, entries) indices into the evidence of all variables, then 0
    marginals: Ragged  # of all variables, from all fringe beliefs
    home: tuple[int, ...]  # factor -> clique
    scopes: tuple[tuple[int, ...], ...]


def make_plan(
    tree: CliqueTree, cards: Sequence[int], scopes: Sequence[tuple[int, ...]], most: int = SMALL
) -> TreeLayout:
    """Lay out a tree; cliques of up to `most` entries make the fringe."""
    cliques = rooted(tree, cards, most)
    n_maximal = len(cliques)
    core = core_of(cliques, most)
    home = assign(cliques, cards, scopes, core, most)
    split_core_cliques(cliques, core, cards, scopes, home, most)
    small = tuple(f for f in range(len(scopes)) if f not in cliques[home[f]].large)
    levels, entry, n_beliefs = _levels(cliques, core)
    marginals = _marginal_lists(cliques, cards, entry, n_beliefs)
    base = _base_lists(cliques, cards, scopes, small, entry, n_beliefs)
    order = tuple(sorted(core, key=lambda i: depth_of(cliques, i)))
    shape = (tuple(cliques), n_maximal, order, levels, entry, n_beliefs)
    return TreeLayout(*shape, small, *base, marginals, tuple(home), tuple(scopes))


# -- the fringe, level by level ---------------------------------------------------------------------


def _levels(
    cliques: list[Clique],
    core: set[int],
) -> tuple[tuple[Level, ...], dict[int, np.ndarray], int]:
    depths: list[list[int]] = []
    now = [i for i, c in enumerate(cliques) if i not in core and (c.parent < 0 or c.parent in core)]
    while now:
        depths.append(now)
        now = [child for i in now for child in cliques[i].children]
    # In a deep tree every operation is compiled many times over: then padding is the lesser evil.
    overhead = _OVERHEAD * max(1, len(depths) // 12)
    grouped = [_blocks_of(group, cliques, overhead) for group in depths]
    starts = [_starts(groups, cliques) for groups in grouped]
    entry: dict[int, np.ndarray] = {}
    levels: list[Level] = []
    offset = above = 0
    for d, groups in enumerate(grouped):
        blocks, local, width = [], {}, 0
        for group in groups:
            n_rows = sum(cliques[i].rows for i in group)
            columns = max(cliques[i].columns for i in group)
            below, n_below = starts[d + 1] if d + 1 < len(starts) else ({}, 0)
            slots = max(len(cliques[i].children) for i in group)
            messages = np.full((slots, n_rows, columns), n_below, np.int32)
            row = 0
            for i in group:
                c = cliques[i]
                for k, child in enumerate(c.children):
                    digits = c.digits(cliques[child].separator).reshape(c.rows, c.columns)
                    messages[k, row : row + c.rows, : c.columns] = below[child] + digits
                place = (np.arange(row, row + c.rows) * columns)[:, None] + np.arange(c.columns)
                local[i] = width + place.ravel()
                entry[i] = (offset + local[i]).astype(np.int32)  # an index in either precision
                row += c.rows
            blocks.append(CliqueGroup(tuple(group), (n_rows, columns), messages))
            width += n_rows * columns
        start, n_rows = starts[d]
        inflow = None if d == 0 else _inflow(groups, cliques, entry, offset - above, above)
        owner = np.array([start[i] for i in depths[d] if cliques[i].parent < 0], np.int32)
        levels.append(Level(tuple(blocks), start, n_rows, inflow, owner))
        offset, above = offset + width, width
    return tuple(levels), entry, offset


def _blocks_of(group: list[int], cliques: list[Clique], overhead: int) -> list[list[int]]:
    """Cliques of like width together, as far as padding costs less than one more operation."""
    ordered = sorted(group, key=lambda i: cliques[i].columns)
    rows = np.cumsum([0, *(cliques[i].rows for i in ordered)])
    slots = np.array([len(cliques[i].children) for i in ordered])

    def cost(a: int, b: int, columns: int) -> float:
        return float((rows[b] - rows[a]) * columns * (4 + slots[a:b].max()))

    ends = cuts(np.array([cliques[i].columns for i in ordered]), cost, overhead)
    return [ordered[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _starts(groups: list[list[int]], cliques: list[Clique]) -> tuple[dict[int, int], int]:
    ordered = [i for group in groups for i in group]
    rows = np.cumsum([0, *(cliques[i].rows for i in ordered)])
    return dict(zip(ordered, rows[:-1].tolist(), strict=True)), int(rows[-1])


def _inflow(
    groups: list[list[int]], cliques: list[Clique], entry: dict[int, np.ndarray], base: int, pad: int
) -> Ragged:
    """For every row of a level, the entries of the parents' beliefs that agree with it."""
    lists = []
    for i in (i for group in groups for i in group):
        parent = cliques[cliques[i].parent]
        lists.append(classes(parent.digits(cliques[i].separator), entry[cliques[i].parent] - base))
    return Ragged.build(lists, pad)


def classes(digits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The places of equal digits in one row: each digit occurs equally often."""
    order = np.argsort(digits, kind="stable")
    return places[order].reshape(int(digits.max()) + 1, -1)


def _marginal_lists(
    cliques: list[Clique], cards: Sequence[int], entry: dict[int, np.ndarray], n_beliefs: int
) -> Ragged:
    lists = [np.zeros((0, 0), int)] * len(cards)
    for i, clique in enumerate(cliques):
        for v in clique.evidence:
            lists[v] = classes(clique.digits((v,)), entry[i])
    return Ragged.build(lists, n_beliefs)


def _base_lists(
    cliques: list[Clique],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    small: tuple[int, ...],
    entry: dict[int, np.ndarray],
    n_beliefs: int,
) -> tuple[Ragged, np.ndarray]:
    """For every entry of the fringe, the entries of the factors and of the evidence that agree with it."""
    sizes = np.cumsum([0, *(math.prod(cards[v] for v in scopes[f]) for f in small)])
    first = dict(zip(small, sizes[:-1].tolist(), strict=True))
    starts = np.cumsum([0, *cards])
    slots = max(len(cliques[i].evidence) for i in entry)
    evidence = np.full((slots, n_beliefs), starts[-1], np.int32)
    factors = []
    for i, places in entry.items():
        c = cliques[i]
        own = [first[f] + c.digits(scopes[f])[:, None] for f in c.factors]
        factors.append(np.hstack([np.zeros((c.size, 0), int), *own]))
        for k, v in enumerate(c.evidence):
            evidence[k, places] = starts[v] + c.digits((v,))
    used = list(entry.values())
    unused = np.setdiff1d(np.arange(n_beliefs), np.concatenate(used))  # beyond a clique's columns
    factors.append(np.full((len(unused), 1), sizes[-1] + 1))
    return Ragged.build(factors, int(sizes[-1]), [*used, unused]), evidence


def factor_lists(plan: TreeLayout) -> Ragged:
    """For every entry of every small factor, the fringe beliefs that agree with it."""
    groups = [
        classes(plan.cliques[plan.home[f]].digits(plan.scopes[f]), plan.entry[plan.home[f]])
        for f in plan.small
    ]
    return Ragged.build(groups, plan.n_beliefs)
