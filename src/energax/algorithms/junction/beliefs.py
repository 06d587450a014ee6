"""Marginals of cliques and factors, summed from the beliefs of a junction tree."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from .layout import TreeLayout, factor_lists
from .passes import Beliefs, sum_to
from .ragged import Ragged, ragged_sum

if TYPE_CHECKING:
    from .tree import JunctionTree


def clique_marginal(layout: TreeLayout, beliefs: Beliefs, i: int) -> Any:
    """p(clique | evidence) of one clique, (entries, …); rows of evidence on the last axis."""
    return beliefs.core[i] if i in beliefs.core else beliefs.fringe[layout.entries[i]]


def factor_marginals(tree: JunctionTree, beliefs: Beliefs) -> tuple[Any, ...]:
    """p(scope | evidence) of every factor in the axes of its table; rows of evidence on the last axis."""
    layout, batch = tree.layout, beliefs.fringe.shape[1:]
    found = {}
    if layout.small_factors:
        flat = ragged_sum(beliefs.fringe, _factor_lists(tree))
        start = 0
        for f in layout.small_factors:
            shape = tuple(tree.cards[v] for v in tree.scopes[f])
            found[f] = flat[start : start + math.prod(shape)].reshape(*shape, *batch)
            start += math.prod(shape)
    for f in set(range(len(tree.scopes))) - set(layout.small_factors):
        at = layout.clique_of_factor[f]
        clique = layout.cliques[at]
        inside = [v for v in clique.variables if v in tree.scopes[f]]
        table = sum_to(beliefs.core[at], inside, clique)
        table = table.reshape(*(tree.cards[v] for v in inside), *batch)
        order = [inside.index(v) for v in tree.scopes[f]]
        found[f] = jnp.transpose(table, (*order, *range(len(order), len(order) + len(batch))))
    return tuple(found[f] for f in range(len(tree.scopes)))


@functools.lru_cache(maxsize=16)
def _factor_lists(tree: JunctionTree) -> Ragged:
    return factor_lists(tree.layout)
