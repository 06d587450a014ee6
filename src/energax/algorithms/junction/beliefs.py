"""What a calibrated tree says of its variables, cliques and factors: beliefs, summed."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..factors.checks import split, to_numpy_unless_traced
from .layout import factor_lists
from .passes import ragged_sum, sum_to

if TYPE_CHECKING:
    from .tree import JunctionTree


class Calibrated(eqx.Module):
    """A calibrated tree: p(clique | evidence) of all cliques, and what follows from them by summing.

    `fringe` and `core` are the beliefs as they lie in memory; with rows of evidence, the first axis.
    """

    tree: JunctionTree = eqx.field(static=True)
    log_z: Any
    states: Any  # p(v | evidence) of all variables end to end
    fringe: Any
    core: dict[int, Any]

    @property
    def variables(self) -> tuple[Any, ...]:
        """p(v | evidence) of every variable."""
        return split(to_numpy_unless_traced(self.states), self.tree.cards)

    @property
    def cliques(self) -> tuple[Any, ...]:
        """p(clique | evidence), an axis each in the order of `tree.cliques`."""
        return _cliques(self)

    @property
    def clique_log_marginals(self) -> tuple[Any, ...]:
        """log p(clique | evidence)."""
        return tuple(jnp.log(table) for table in self.cliques)

    @property
    def factors(self) -> tuple[Any, ...]:
        """p(scope of the factor | evidence) in the axes of its table: expected counts of one row."""
        return _factors(self)

    def clique(self, i: int) -> Any:
        """p(clique | evidence) of one of them."""
        clique = self.tree.plan.cliques[i]
        flat = self.core[i] if i in self.core else self.fringe[..., self.tree.plan.entry[i]]
        return flat.reshape(*jnp.shape(self.log_z), *clique.cards)


@jax.jit
def _cliques(calibrated: Calibrated) -> tuple[Any, ...]:
    return tuple(calibrated.clique(i) for i in range(calibrated.tree.plan.n_maximal))


@jax.jit
def _factors(calibrated: Calibrated) -> tuple[Any, ...]:
    rows = jnp.ndim(calibrated.log_z) > 0
    fringe, core = jax.tree.map(
        lambda a: jnp.moveaxis(a, 0, -1) if rows else a, (calibrated.fringe, calibrated.core)
    )
    found = factor_marginals(calibrated.tree, fringe, core)
    return tuple(jnp.moveaxis(a, -1, 0) for a in found) if rows else found


def factor_marginals(tree: JunctionTree, fringe: Any, core: dict[int, Any]) -> tuple[Any, ...]:
    """(entries of the scope, …) for every factor; rows of evidence on the last axis."""
    plan, found = tree.plan, {}
    batch = fringe.shape[1:]
    sizes = [math.prod(tree.cards[v] for v in tree.scopes[f]) for f in plan.small]
    if plan.small:
        flat = ragged_sum(fringe, _lists(tree))
        start = 0
        for f, size in zip(plan.small, sizes, strict=True):
            shape = tuple(tree.cards[v] for v in tree.scopes[f])
            found[f] = flat[start : start + size].reshape(*shape, *batch)
            start += size
    for f in set(range(len(tree.scopes))) - set(plan.small):
        clique = plan.cliques[plan.home[f]]
        inside = [v for v in clique.variables if v in tree.scopes[f]]
        table = sum_to(core[plan.home[f]], inside, clique)
        table = table.reshape(*(tree.cards[v] for v in inside), *batch)
        order = [inside.index(v) for v in tree.scopes[f]]
        found[f] = jnp.transpose(table, (*order, *range(len(order), len(order) + len(batch))))
    return tuple(found[f] for f in range(len(tree.scopes)))


@functools.lru_cache(maxsize=16)
def _lists(tree: JunctionTree) -> Any:
    return factor_lists(tree.plan)
