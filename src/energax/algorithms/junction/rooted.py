"""The rooted tree of a junction tree: which clique hangs where, and which factor sits in which.

A clique is a matrix: the states of its separator (what it shares with its parent) by the states of its
residual (the variables it adds). With the variables numbered as they first appear on the way from the
root, the separator always comes first, and no axis ever has to be moved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

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


def rooted(tree: CliqueTree, cards: Sequence[int], small: int) -> list[Clique]:
    """Parents before children, variables in the order in which they first appear."""
    cliques: Any = tree.cliques
    near: list[list[int]] = [[] for _ in cliques]
    for a, b in tree.edges:
        near[a].append(b)
        near[b].append(a)
    sizes = [math.prod(cards[v] for v in clique) for clique in cliques]
    found: list[Clique] = []
    place: dict[int, int] = {}
    rank: dict[int, int] = {}
    for root in tree.roots:
        walk = [(_best_root(root, near, sizes, small), -1)]
        for at, above in walk:  # grows while it is walked: breadth first
            if above >= 0:
                old = set(cliques[above])
                shared = sorted((v for v in cliques[at] if v in old), key=rank.__getitem__)
            else:
                shared = []
            new = sorted(set(cliques[at]) - set(shared))
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


def _best_root(start: int, near: list[list[int]], sizes: list[int], small: int) -> int:
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
    if sizes[largest] > small:
        return largest
    path = farthest(end)
    return path[len(path) // 2]


def core_of(cliques: list[Clique], small: int) -> set[int]:
    """Cliques with more than `small` entries, and all on the way from them to their root."""
    core: set[int] = set()
    for i in reversed(range(len(cliques))):
        if cliques[i].size > small or i in core:
            core.add(i)
            if cliques[i].parent >= 0:
                core.add(cliques[i].parent)
    return core


def depth_of(cliques: list[Clique], i: int) -> int:
    depth = 0
    while (i := cliques[i].parent) >= 0:
        depth += 1
    return depth


def assign(
    cliques: list[Clique], cards: Sequence[int], scopes: Sequence[tuple[int, ...]], core: set[int], small: int
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
        large = home[f] in core and size > small
        (cliques[home[f]].large if large else cliques[home[f]].factors).append(f)
    return home


def split_core_cliques(
    cliques: list[Clique],
    core: set[int],
    cards: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    home: list[int],
    small: int,
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
                if size(group.union(scope)) <= max(small, size(group))
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
