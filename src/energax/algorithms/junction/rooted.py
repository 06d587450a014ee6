"""The rooted tree of cliques: the parent of every clique, and the clique of every factor.

A clique is a matrix: the states of its separator (the variables it shares with its parent) by the states
of its residual (the variables it adds). With the variables numbered as they first appear on the way from
the root, the separator always comes first, and no axis ever has to be moved.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph import CliqueTree


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

    def positions_in(self, variables: Sequence[int]) -> np.ndarray:
        """For every entry of the clique, its position in a table over `variables`, in this order."""
        strides = np.cumprod([1, *self.cards[::-1]])[::-1][1:]
        axes = {v: (int(s), c) for v, s, c in zip(self.variables, strides, self.cards, strict=True)}
        entries = np.arange(self.size)
        positions = np.zeros_like(entries)
        for v in variables:
            stride, card = axes[v]
            positions = positions * card + entries // stride % card
        return positions


def root_tree(tree: CliqueTree, cards: Sequence[int], small: int) -> list[Clique]:
    """The cliques, parents before children, with variables in the order in which they first appear."""
    cliques: Any = tree.cliques
    neighbours: list[list[int]] = [[] for _ in cliques]
    for a, b in tree.edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    sizes = [math.prod(cards[v] for v in clique) for clique in cliques]
    found: list[Clique] = []
    place: dict[int, int] = {}  # position in the unrooted tree -> position in `found`
    rank: dict[int, int] = {}  # variable -> when it first appeared
    for start in tree.roots:
        walk = [(_choose_root(start, neighbours, sizes, small), -1)]
        for at, above in walk:  # grows during the loop: breadth first
            parent = place.get(above, -1)
            place[at] = len(found)
            found.append(
                _orient(cliques[at], found[parent].variables if parent >= 0 else (), parent, cards, rank)
            )
            if parent >= 0:
                found[parent].children.append(place[at])
            walk += [(other, at) for other in neighbours[at] if other != above]
    return found


def _orient(
    clique: Sequence[int], above: Sequence[int], parent: int, cards: Sequence[int], rank: dict[int, int]
) -> Clique:
    """A clique with its separator first; new variables get the next ranks."""
    shared = sorted(set(clique).intersection(above), key=rank.__getitem__)
    new = sorted(set(clique).difference(shared))
    for v in new:
        rank[v] = len(rank)
    variables = (*shared, *new)
    return Clique(variables, len(shared), parent, tuple(cards[v] for v in variables))


def _choose_root(start: int, neighbours: list[list[int]], sizes: list[int], small: int) -> int:
    """The largest clique if it is large, so that the core is small; else the middle, for few levels."""
    reached, path = _walk_to_farthest(start, neighbours)
    largest = max(reached, key=sizes.__getitem__)
    if sizes[largest] > small:
        return largest
    _, path = _walk_to_farthest(path[0], neighbours)
    return path[len(path) // 2]


def _walk_to_farthest(origin: int, neighbours: list[list[int]]) -> tuple[list[int], list[int]]:
    """All cliques connected with `origin`, nearest first, and the path from the farthest back to it."""
    before = {origin: -1}
    reached = [origin]
    for at in reached:  # grows during the loop: breadth first
        for other in neighbours[at]:
            if other not in before:
                before[other] = at
                reached.append(other)
    path = [reached[-1]]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return reached, path


def find_core(cliques: list[Clique], small: int) -> set[int]:
    """Cliques with more than `small` entries, and all between them and their root."""
    core: set[int] = set()
    for i in reversed(range(len(cliques))):
        if cliques[i].size > small or i in core:
            core.add(i)
            if cliques[i].parent >= 0:
                core.add(cliques[i].parent)
    return core


def depth_of(cliques: list[Clique], i: int) -> int:
    """The number of ancestors of a clique."""
    depth = 0
    while (i := cliques[i].parent) >= 0:
        depth += 1
    return depth


def assign_factors(
    cliques: list[Clique], cards: Sequence[int], scopes: Sequence[tuple[int, ...]], core: set[int], small: int
) -> list[int]:
    """Put every factor, and the evidence of every variable, into the smallest clique that holds it.

    Returns the clique of every factor.
    """
    holders: dict[int, list[int]] = {}
    for i, clique in enumerate(cliques):
        for v in clique.variables:
            holders.setdefault(v, []).append(i)
    for v in holders:
        holders[v].sort(key=lambda i: cliques[i].size)
    sets = [set(clique.variables) for clique in cliques]
    for v in range(len(cards)):
        cliques[holders[v][0]].evidence.append(v)
    clique_of_factor = []
    for f, scope in enumerate(scopes):
        at = 0
        if scope:
            rarest = min(scope, key=lambda v: len(holders[v]))
            at = next(i for i in holders[rarest] if sets[i].issuperset(scope))
        clique_of_factor.append(at)
        is_large = at in core and math.prod(cards[v] for v in scope) > small
        (cliques[at].large if is_large else cliques[at].factors).append(f)
    return clique_of_factor


# -- subcliques of the core -------------------------------------------------------------------------


class _Kind(enum.Enum):
    CHILD = enum.auto()  # a clique of the fringe
    FACTOR = enum.auto()
    EVIDENCE = enum.auto()


class _Attachment(NamedTuple):
    """A small function that enters a core clique, and its variables."""

    scope: tuple[int, ...]
    kind: _Kind
    number: int  # of the clique, the factor or the variable


class _Subclique:
    """Variables of a core clique, few enough for the fringe, and the attachments moved to them."""

    def __init__(self) -> None:
        self.variables: set[int] = set()
        self.members: dict[_Kind, list[int]] = {kind: [] for kind in _Kind}

    def add(self, attachment: _Attachment) -> None:
        self.variables.update(attachment.scope)
        self.members[attachment.kind].append(attachment.number)


def split_core_cliques(
    cliques: list[Clique],
    core: set[int],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    clique_of_factor: list[int],
    small: int,
) -> None:
    """Move the small attachments of every core clique into small subcliques, its new children.

    Appends the subcliques to `cliques` and updates `clique_of_factor`.
    """
    for i in sorted(core):
        clique = cliques[i]
        attachments = _attachments(clique, cliques, core, scopes)
        clique.children = [c for c in clique.children if c in core]
        clique.factors, clique.evidence = [], []
        for part in _group_attachments(attachments, cards, small):
            _append_subclique(part, i, cliques, cards, clique_of_factor)


def _attachments(
    clique: Clique, cliques: list[Clique], core: set[int], scopes: Sequence[tuple[int, ...]]
) -> list[_Attachment]:
    fringe = [c for c in clique.children if c not in core]
    return [
        *(_Attachment(cliques[c].separator, _Kind.CHILD, c) for c in fringe),
        *(_Attachment(scopes[f], _Kind.FACTOR, f) for f in clique.factors),
        *(_Attachment((v,), _Kind.EVIDENCE, v) for v in clique.evidence),
    ]


def _group_attachments(attachments: list[_Attachment], cards: Sequence[int], small: int) -> list[_Subclique]:
    """Greedily few subcliques: each attachment, large ones first, goes where it adds the fewest entries."""
    size = lambda variables: math.prod(cards[v] for v in variables)
    parts: list[_Subclique] = []
    for attachment in sorted(attachments, key=lambda a: -size(a.scope)):
        options = []
        for n, part in enumerate(parts):
            before, after = size(part.variables), size(part.variables.union(attachment.scope))
            if after <= max(small, before):
                options.append((after / before, n))
        if not options:
            parts.append(_Subclique())
        (parts[min(options)[1]] if options else parts[-1]).add(attachment)
    return parts


def _append_subclique(
    part: _Subclique, parent: int, cliques: list[Clique], cards: Sequence[int], clique_of_factor: list[int]
) -> None:
    at = len(cliques)
    variables = tuple(v for v in cliques[parent].variables if v in part.variables)
    children, factors = part.members[_Kind.CHILD], part.members[_Kind.FACTOR]
    cliques.append(
        Clique(
            variables,
            len(variables),
            parent,
            tuple(cards[v] for v in variables),
            factors=factors,
            evidence=part.members[_Kind.EVIDENCE],
            children=children,
        )
    )
    cliques[parent].children.append(at)
    for child in children:
        cliques[child].parent = at
    for factor in factors:
        clique_of_factor[factor] = at
