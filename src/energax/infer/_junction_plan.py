"""Where every number of a junction tree lives: layouts made once, in NumPy, before anything is computed.

A clique is a matrix: the states of its separator (what it shares with its parent) by the states of its
residual (the variables it adds). With the variables numbered as they first appear on the way from the
root, the separator always comes first, and no axis ever has to be moved.

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

from ..graph import CliqueTree

SMALL = 1024  # entries; a clique up to this size is computed together with others
_OVERHEAD = 1024  # entries whose gathering costs as much as starting one more operation


@dataclasses.dataclass
class Clique:
    """One node of the rooted tree; `variables` are separator then residual."""

    variables: tuple[int, ...]
    n_separator: int  # how many of them it shares with its parent
    parent: int  # -1 at a root
    cards: tuple[int, ...]
    factors: list[int] = dataclasses.field(default_factory=list)  # small ones, gathered
    large: list[int] = dataclasses.field(default_factory=list)  # dense ones, in the core only
    evidence: list[int] = dataclasses.field(default_factory=list)  # variables whose evidence enters here
    children: list[int] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        return math.prod(self.cards[: self.n_separator])

    @property
    def columns(self) -> int:
        return math.prod(self.cards[self.n_separator :])

    @property
    def size(self) -> int:
        return math.prod(self.cards)

    @property
    def separator(self) -> tuple[int, ...]:
        return self.variables[: self.n_separator]

    def digits(self, variables: Sequence[int], at: np.ndarray | None = None) -> np.ndarray:
        """The position in a table over `variables` (in this order) of every entry of the clique."""
        strides = np.cumprod([1, *self.cards[::-1]])[::-1][1:]
        where = {v: (int(s), c) for v, s, c in zip(self.variables, strides, self.cards, strict=True)}
        entries = np.arange(self.size) if at is None else at
        found = np.zeros_like(entries)
        for v in variables:
            stride, card = where[v]
            found = found * card + entries // stride % card
        return found


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Sums over lists of different lengths, as a few padded matrices of indices and a permutation."""

    blocks: tuple[np.ndarray, ...]  # (rows, length), padded with the index of a zero
    order: np.ndarray | None  # where each result lies in the concatenated blocks

    @classmethod
    def build(cls, lists: Sequence[np.ndarray], pad: int) -> Ragged:
        lengths = np.array([len(group) for group in lists], int)
        by_length = np.argsort(lengths, kind="stable")
        blocks, start = [], 0
        for stop in cuts(lengths[by_length], lambda a, b, longest: (b - a) * longest):
            block = np.full((stop - start, int(lengths[by_length[stop - 1]])), pad, np.int32)
            for i, at in enumerate(by_length[start:stop]):
                block[i, : lengths[at]] = lists[at]
            blocks.append(block)
            start = stop
        order = np.argsort(by_length, kind="stable").astype(np.int32)
        return cls(tuple(blocks), None if np.array_equal(order, np.arange(len(order))) else order)


def cuts(lengths: np.ndarray, cost: Callable[[int, int, int], float]) -> list[int]:
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
            options.append((before + _OVERHEAD + cost(start, int(stop), int(lengths[stop - 1])), i))
        best.append(min(options))
    found, j = [], len(ends) - 1
    while j >= 0:
        found.append(int(ends[j]))
        j = best[j][1] - 1
    return found[::-1]


@dataclasses.dataclass(frozen=True)
class Block:
    """Cliques of one level whose rows form one matrix, with what is added to each of its entries."""

    cliques: tuple[int, ...]
    shape: tuple[int, int]
    factors: np.ndarray  # (slots, rows, columns) indices into all small factors, then 0, then −inf
    evidence: np.ndarray  # the same into all evidence, then 0
    messages: np.ndarray  # the same into the messages of the level below, then 0


@dataclasses.dataclass(frozen=True)
class Level:
    """All fringe cliques at one depth: its blocks, and how the level above (or the core) feeds them."""

    blocks: tuple[Block, ...]
    start: dict[int, int]  # clique -> the place of its first row among the rows of the level
    rows: int
    inflow: Ragged | None  # separator marginals from the beliefs of the level above; None on top
    owner: np.ndarray  # rows of the top level that begin a tree: their separator is empty


@dataclasses.dataclass(frozen=True)
class Plan:
    """The whole layout."""

    cliques: tuple[Clique, ...]  # the first `n_maximal` are those of the tree, then the pockets
    n_maximal: int
    core: tuple[int, ...]  # parents before children
    levels: tuple[Level, ...]  # from the top
    entry: dict[int, np.ndarray]  # fringe clique -> the place of each entry among all fringe beliefs
    n_beliefs: int
    small: tuple[int, ...]  # factors that are gathered, in the order they are concatenated
    marginals: Ragged  # of all variables, from all fringe beliefs
    home: tuple[int, ...]  # factor -> clique
    scopes: tuple[tuple[int, ...], ...]


def make_plan(tree: CliqueTree, cards: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> Plan:
    cliques = _rooted(tree, cards)
    n_maximal = len(cliques)
    core = _core(cliques)
    home = _assign(cliques, cards, scopes, core)
    _pockets(cliques, core, cards, scopes, home)
    small = tuple(f for f in range(len(scopes)) if f not in cliques[home[f]].large)
    levels, entry, n_beliefs = _levels(cliques, core, cards, scopes, small)
    marginals = _marginal_lists(cliques, cards, entry, n_beliefs)
    order = tuple(sorted(core, key=lambda i: _depth(cliques, i)))
    return Plan(
        tuple(cliques), n_maximal, order, levels, entry, n_beliefs, small, marginals, tuple(home), tuple(scopes)
    )


# -- the rooted tree --------------------------------------------------------------------------------


def _rooted(tree: CliqueTree, cards: Sequence[int]) -> list[Clique]:
    """Parents before children, variables in the order in which they first appear."""
    near: list[list[int]] = [[] for _ in tree.cliques]
    for a, b in tree.edges:
        near[a].append(b)
        near[b].append(a)
    sizes = [math.prod(cards[v] for v in clique) for clique in tree.cliques]
    found: list[Clique] = []
    place: dict[int, int] = {}
    rank: dict[int, int] = {}
    for root in tree.roots:
        walk = [(_best_root(root, near, sizes), -1)]
        for at, above in walk:  # grows while it is walked: breadth first
            if above >= 0:
                old = set(tree.cliques[above])
                shared = sorted((v for v in tree.cliques[at] if v in old), key=rank.__getitem__)
            else:
                shared = []
            new = sorted(set(tree.cliques[at]) - set(shared))
            for v in new:
                rank[v] = len(rank)
            variables = (*shared, *new)
            parent = place[above] if above >= 0 else -1
            place[at] = len(found)
            if parent >= 0:
                found[parent].children.append(len(found))
            found.append(Clique(variables, len(shared), parent, tuple(cards[v] for v in variables)))
            walk += [(other, at) for other in near[at] if other != above]
    return found


def _best_root(start: int, near: list[list[int]], sizes: list[int]) -> int:
    """The largest clique if it is large, so that the core is small; else the middle, for few levels."""

    def farthest(origin: int) -> list[int]:
        before = {origin: -1}
        queue = [origin]
        for at in queue:
            for other in near[at]:
                if other not in before:
                    before[other] = at
                    queue.append(other)
        path = [queue[-1]]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        reached.extend(queue)
        return path

    reached: list[int] = []
    end = farthest(start)[0]
    largest = max(reached, key=sizes.__getitem__)
    if sizes[largest] > SMALL:
        return largest
    path = farthest(end)
    return path[len(path) // 2]


def _core(cliques: list[Clique]) -> set[int]:
    core: set[int] = set()
    for i in reversed(range(len(cliques))):
        if cliques[i].size > SMALL or i in core:
            core.add(i)
            if cliques[i].parent >= 0:
                core.add(cliques[i].parent)
    return core


def _depth(cliques: list[Clique], i: int) -> int:
    depth = 0
    while (i := cliques[i].parent) >= 0:
        depth += 1
    return depth


def _assign(
    cliques: list[Clique], cards: Sequence[int], scopes: Sequence[tuple[int, ...]], core: set[int]
) -> list[int]:
    """Every factor to the smallest clique that holds it, and so the evidence of every variable."""
    holders: dict[int, list[int]] = {}
    for i, clique in enumerate(cliques):
        for v in clique.variables:
            holders.setdefault(v, []).append(i)
    for v in holders:
        holders[v].sort(key=lambda i: cliques[i].size)
    sets = [set(clique.variables) for clique in cliques]
    for v in range(len(cards)):
        cliques[holders[v][0]].evidence.append(v)
    home = []
    for f, scope in enumerate(scopes):
        if scope:
            rarest = min(scope, key=lambda v: len(holders[v]))
            home.append(next(i for i in holders[rarest] if sets[i].issuperset(scope)))
        else:
            home.append(0)
        size = math.prod(cards[v] for v in scope)
        large = home[f] in core and size > SMALL
        (cliques[home[f]].large if large else cliques[home[f]].factors).append(f)
    return home


def _pockets(
    cliques: list[Clique],
    core: set[int],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    home: list[int],
) -> None:
    """Move what is small on a core clique into as few small cliques within it as a greedy rule finds."""
    for i in sorted(core):
        clique = cliques[i]
        fringe = [c for c in clique.children if c not in core]
        items = [(cliques[c].separator, "child", c) for c in fringe]
        items += [(scopes[f], "factor", f) for f in clique.factors]
        items += [((v,), "evidence", v) for v in clique.evidence]
        size = lambda group: math.prod(cards[v] for v in group)
        items.sort(key=lambda item: -size(item[0]))
        pockets: list[tuple[set[int], list[tuple[str, int]]]] = []
        for scope, kind, what in items:
            options = [
                (size(group.union(scope)) / size(group), n)
                for n, (group, _) in enumerate(pockets)
                if size(group.union(scope)) <= max(SMALL, size(group))
            ]
            if not options:
                pockets.append((set(scope), []))
            group, members = pockets[min(options)[1]] if options else pockets[-1]
            group.update(scope)
            members.append((kind, what))
        clique.children = [c for c in clique.children if c in core]
        clique.factors, clique.evidence = [], []
        for group, members in pockets:
            inside = tuple(v for v in clique.variables if v in group)
            pocket = Clique(inside, len(inside), i, tuple(cards[v] for v in inside))
            clique.children.append(len(cliques))
            for kind, what in members:
                if kind == "child":
                    cliques[what].parent = len(cliques)
                    pocket.children.append(what)
                elif kind == "factor":
                    home[what] = len(cliques)
                    pocket.factors.append(what)
                else:
                    pocket.evidence.append(what)
            cliques.append(pocket)


# -- the fringe, level by level ---------------------------------------------------------------------


def _levels(
    cliques: list[Clique],
    core: set[int],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    small: tuple[int, ...],
) -> tuple[tuple[Level, ...], dict[int, np.ndarray], int]:
    sizes = [math.prod(cards[v] for v in scopes[f]) for f in small]
    first = dict(zip(small, np.cumsum([0, *sizes])[:-1].tolist(), strict=True))
    n_factors = int(sum(sizes))
    evidence = np.cumsum([0, *cards])
    depths: list[list[int]] = []
    now = [i for i, c in enumerate(cliques) if i not in core and (c.parent < 0 or c.parent in core)]
    while now:
        depths.append(now)
        now = [child for i in now for child in cliques[i].children]
    grouped = [_blocks_of(group, cliques) for group in depths]
    starts = [_starts(groups, cliques) for groups in grouped]
    entry: dict[int, np.ndarray] = {}
    levels: list[Level] = []
    offset = above = 0
    for d, groups in enumerate(grouped):
        blocks, local, width = [], {}, 0
        for group in groups:
            n_rows = sum(cliques[i].rows for i in group)
            columns = max(cliques[i].columns for i in group)
            slots = [_slots(cliques[i]) for i in group]
            f, e, m = (max(column) for column in zip(*slots, strict=True))
            below, n_below = starts[d + 1] if d + 1 < len(starts) else ({}, 0)
            arrays = (
                np.full((max(f, 1), n_rows, columns), n_factors, np.int32),
                np.full((e, n_rows, columns), evidence[-1], np.int32),
                np.full((m, n_rows, columns), n_below, np.int32),
            )
            row = 0
            for i in group:
                c = cliques[i]
                own = tuple(a[:, row : row + c.rows] for a in arrays)
                own[0][0, :, c.columns :] = n_factors + 1  # beyond its columns: impossible
                inside = lambda found, c=c: found.reshape(c.rows, c.columns)
                for k, what in enumerate(c.factors):
                    own[0][k, :, : c.columns] = first[what] + inside(c.digits(scopes[what]))
                for k, v in enumerate(c.evidence):
                    own[1][k, :, : c.columns] = evidence[v] + inside(c.digits((v,)))
                for k, child in enumerate(c.children):
                    digits = inside(c.digits(cliques[child].separator))
                    own[2][k, :, : c.columns] = below[child] + digits
                place = (np.arange(row, row + c.rows) * columns)[:, None] + np.arange(c.columns)
                local[i] = width + place.ravel()
                entry[i] = offset + local[i]
                row += c.rows
            blocks.append(Block(tuple(group), (n_rows, columns), *arrays))
            width += n_rows * columns
        start, n_rows = starts[d]
        inflow = None if d == 0 else _inflow(groups, cliques, entry, offset - above, above)
        owner = np.array([start[i] for i in depths[d] if cliques[i].parent < 0], np.int32)
        levels.append(Level(tuple(blocks), start, n_rows, inflow, owner))
        offset, above = offset + width, width
    return tuple(levels), entry, offset


def _slots(c: Clique) -> tuple[int, int, int]:
    return len(c.factors), len(c.evidence), len(c.children)


def _blocks_of(group: list[int], cliques: list[Clique]) -> list[list[int]]:
    """Cliques of like width together, as far as padding costs less than one more operation."""
    ordered = sorted(group, key=lambda i: cliques[i].columns)
    rows = np.cumsum([0, *(cliques[i].rows for i in ordered)])
    slots = np.array([sum(_slots(cliques[i])) for i in ordered])

    def cost(a: int, b: int, columns: int) -> float:
        return float((rows[b] - rows[a]) * columns * (2 + slots[a:b].max()))

    ends = cuts(np.array([cliques[i].columns for i in ordered]), cost)
    return [ordered[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _starts(groups: list[list[int]], cliques: list[Clique]) -> tuple[dict[int, int], int]:
    ordered = [i for group in groups for i in group]
    rows = np.cumsum([0, *(cliques[i].rows for i in ordered)])
    return dict(zip(ordered, rows[:-1].tolist(), strict=True)), int(rows[-1])


def _inflow(
    groups: list[list[int]], cliques: list[Clique], entry: dict[int, np.ndarray], base: int, pad: int
) -> Ragged:
    """For every row of a level, the entries of the parents' beliefs that agree with it."""
    lists: list[np.ndarray] = []
    for group in groups:
        for i in group:
            parent = cliques[cliques[i].parent]
            lists += _classes(parent.digits(cliques[i].separator), entry[cliques[i].parent] - base)
    return Ragged.build(lists, pad)


def _classes(digits: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    """The places of equal digits together: each digit occurs equally often."""
    order = np.argsort(digits, kind="stable")
    return list(places[order].reshape(int(digits.max()) + 1, -1))


def _marginal_lists(
    cliques: list[Clique], cards: Sequence[int], entry: dict[int, np.ndarray], n_beliefs: int
) -> Ragged:
    lists: list[list[np.ndarray]] = [[] for _ in cards]
    for i, clique in enumerate(cliques):
        for v in clique.evidence:
            lists[v] = _classes(clique.digits((v,)), entry[i])
    return Ragged.build([row for group in lists for row in group], n_beliefs)
