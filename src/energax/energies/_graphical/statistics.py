"""Learning a network of finite and real nodes: what is expected of every family, whatever is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ...algorithms.gaussian.conditional import Mixed, best, read
from ...algorithms.gaussian.linear_system import GaussianBlock
from ...energy import is_static_value
from ...missing import is_masked
from .linear_gaussian import LinearGaussian

if TYPE_CHECKING:
    from .bayesian_network import BayesianNetwork


def centres(network: BayesianNetwork, order: list[str]) -> dict[str, Any]:
    """About where each real variable lies under the network, causes first."""
    found: dict[str, Any] = {}
    for name in order:
        node: Any = network[name]
        if isinstance(node, LinearGaussian):
            found[name] = node.centre(found)
        elif hasattr(node, "value"):
            found[name] = node.value
    return found


def expected_families(network: BayesianNetwork, rows: Any, temperature: Any) -> tuple[Any, Any]:
    """For every row and node what `statistics` adds up, and log p(what is seen of the row).

    Of a table the probabilities of its entries; of a real node E[u uᵀ 1(d)], u = (1, parents, child)
    about the centres, for each value d of its finite parents. At temperature 0 all of it is at the best
    completion of the row.
    """
    mixed = network.mixed()
    about = centres(network, network.causes_first())
    cold = is_static_value(0, temperature)

    def one(row):
        if cold:
            states, blocks, value = best(mixed, row)
            at = {**{k: v for k, v in row.items() if not is_masked(v)}, **states}
            entries = [
                _one_hot(node.table, node.names, at) for node in network.nodes if hasattr(node, "table")
            ]
            shares = [jax.nn.one_hot(b.index(states), len(b.mean), dtype=b.mean.dtype) for b in blocks]
        else:
            answer = read(mixed, row, temperature)
            entries, shares, blocks, value = answer.entries, answer.shares, answer.blocks, answer.log_evidence
        spread = [(block.expected(), block.covariance()) for block in blocks]
        counts, found = iter(entries), []
        for node in network.nodes:
            if isinstance(node, LinearGaussian):
                found.append(
                    _moments(node, mixed, row, list(zip(blocks, shares, spread, strict=True)), about, cold)
                )
            else:
                found.append(next(counts) if hasattr(node, "table") else jnp.zeros(()))
        return tuple(found), value

    return jax.vmap(one)(rows)


def _moments(
    node: LinearGaussian, mixed: Mixed, row: Mapping[str, Any], read_blocks: Any, about: Any, cold: bool
) -> Any:
    """E[u uᵀ 1(d) | row], (*d, m, m)."""
    block, share, (inside, around) = next(b for b in read_blocks if node.child in b[0].names)
    names, known = (*node.parents, node.child), {**row, **mixed.constants}
    mean, spread = _of_variables(names, block, inside, around, known, about)
    ones = jnp.ones((len(mean), 1), mean.dtype)
    full = jnp.concatenate([ones, mean], 1)
    second = full[:, :, None] * full[:, None, :]
    if not cold:
        second = second.at[:, 1:, 1:].add(spread)
    weighted = (share[:, None, None] * second).reshape(*block.cards, *second.shape[1:])
    # The block's axes that this node does not look at are summed, the others put in its order.
    others = tuple(a for a, name in enumerate(block.over) if name not in node.finite_parents)
    weighted = weighted.sum(others)
    left = [name for name in block.over if name in node.finite_parents]
    mine = [name for name in node.finite_parents if name in left]
    order = [left.index(name) for name in mine]
    weighted = jnp.transpose(weighted, (*order, len(order), len(order) + 1))
    at = tuple(slice(None) if name in left else row[name] for name in node.finite_parents)
    return jnp.zeros((*node.bias.shape, *second.shape[1:]), weighted.dtype).at[at].set(weighted)


def _of_variables(
    names: Any, block: GaussianBlock, inside: Any, spread: Any, row: Mapping[str, Any], about: Any
) -> tuple[Any, Any]:
    """Mean (n, m), less the centres, and covariance (n, m, m) of some variables, in the block or known."""
    dtype = inside.dtype
    columns = [
        inside[:, block.names.index(name)] if name in block.names else jnp.full(len(inside), row[name], dtype)
        for name in names
    ]
    mean = jnp.stack(columns, 1) - jnp.stack([about[name].astype(dtype) for name in names])
    # One row of zeros stands for all that is known.
    padded = jnp.pad(spread, ((0, 0), (0, 1), (0, 1)))
    at = jnp.array([block.names.index(n) if n in block.names else len(block.names) for n in names])
    return mean, padded[:, at[:, None], at[None, :]]


def _one_hot(table: Any, names: tuple[str, ...], at: Mapping[str, Any]) -> Any:
    return jnp.zeros_like(table).at[tuple(at[name] for name in names)].set(1)
