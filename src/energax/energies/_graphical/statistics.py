"""Expected statistics of Bayesian networks with finite and real nodes, from rows with missing entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from ...algorithms.gaussian.conditional import ConditionalGaussianModel, expectations, maximise_states
from ...algorithms.gaussian.linear_system import GaussianBlock
from ...energy import is_static_value
from ...missing import is_masked
from .conditional_table import ConditionalTable
from .linear_gaussian import Constant, LinearGaussian

if TYPE_CHECKING:
    from .bayesian_network import BayesianNetwork


def reference_means(network: BayesianNetwork) -> dict[str, Any]:
    """The approximate mean of each real variable under the network: sums of products are taken about it."""
    means: dict[str, Any] = {}
    for name in network.topological_order():
        node = network[name]
        if isinstance(node, LinearGaussian):
            means[name] = node.reference_mean(means)
        elif isinstance(node, Constant):
            means[name] = node.value
    return means


class _BlockMoments(NamedTuple):
    """The posterior of one Gaussian block: p(d | row) (n,), E[x | row, d] (n, r), Cov[x | row, d] or None."""

    block: GaussianBlock
    weights: Any
    mean: Any
    covariance: Any


def expected_statistics(network: BayesianNetwork, rows: Any, temperature: Any) -> tuple[Any, Any]:
    """The expected statistics of every node for every row, and log p(observed entries) of every row.

    For a table the probabilities of its entries; for a real node E[u uᵀ 1(d)] with u = (1, parents, child)
    about the reference means, for each value d of its finite parents. At temperature 0 all of them are
    taken at the most probable completion of the row.
    """
    model = network.conditional_gaussian()
    means = reference_means(network)
    hard = is_static_value(0, temperature)

    def one(row):
        if hard:
            tables, blocks, value = _at_maximum(network, model, row)
        else:
            tables, blocks, value = _in_expectation(model, row, temperature)
        tables, found = iter(tables), []
        for node in network.nodes:
            if isinstance(node, LinearGaussian):
                found.append(_moments(node, {**row, **model.constants}, blocks, means))
            else:
                found.append(next(tables) if isinstance(node, ConditionalTable) else jnp.zeros(()))
        return tuple(found), value

    return jax.vmap(one)(rows)


def _in_expectation(model: ConditionalGaussianModel, row: Any, temperature: Any) -> tuple[Any, Any, Any]:
    """The marginals of the tables, the moments of the blocks, and log p(row)."""
    found = expectations(model, row, temperature)
    blocks = [
        _BlockMoments(block, weights, block.conditional_mean(), block.conditional_covariance())
        for block, weights in zip(found.blocks, found.weights, strict=True)
    ]
    return found.tables, blocks, found.log_evidence


def _at_maximum(network: BayesianNetwork, model: ConditionalGaussianModel, row: Any) -> tuple[Any, Any, Any]:
    """The same at the most probable completion of the row, without covariances, and its log density."""
    states, blocks, value = maximise_states(model, row)
    at = {**{k: v for k, v in row.items() if not is_masked(v)}, **states}
    nodes = [node for node in network.nodes if isinstance(node, ConditionalTable)]
    tables = [_one_hot(node.table, node.names, at) for node in nodes]
    one_hot = lambda b: jax.nn.one_hot(b.index(states), len(b.mean), dtype=b.mean.dtype)
    return tables, [_BlockMoments(b, one_hot(b), b.conditional_mean(), None) for b in blocks], value


def _one_hot(table: Any, names: tuple[str, ...], at: Mapping[str, Any]) -> Any:
    return jnp.zeros_like(table).at[tuple(at[name] for name in names)].set(1)


def _moments(
    node: LinearGaussian, row: Mapping[str, Any], blocks: list[_BlockMoments], means: Mapping[str, Any]
) -> Any:
    """E[u uᵀ 1(d) | row], (*d, m, m)."""
    found = next(b for b in blocks if node.child in b.block.names)
    block = found.block
    mean, covariance = _select((*node.parents, node.child), found, row, means)
    ones = jnp.ones((len(mean), 1), mean.dtype)
    u = jnp.concatenate([ones, mean], 1)
    second = u[:, :, None] * u[:, None, :]
    if covariance is not None:
        second = second.at[:, 1:, 1:].add(covariance)
    weighted = (found.weights[:, None, None] * second).reshape(*block.cards, *second.shape[1:])
    # Sum over the finite variables that are not parents of this node, and put the others in its order.
    others = tuple(a for a, name in enumerate(block.finite_names) if name not in node.finite_parents)
    weighted = weighted.sum(others)
    hidden = [name for name in block.finite_names if name in node.finite_parents]
    order = [hidden.index(name) for name in node.finite_parents if name in hidden]
    weighted = jnp.transpose(weighted, (*order, len(order), len(order) + 1))
    at = tuple(slice(None) if name in hidden else row[name] for name in node.finite_parents)
    return jnp.zeros((*node.bias.shape, *second.shape[1:]), weighted.dtype).at[at].set(weighted)


def _select(
    names: tuple[str, ...], found: _BlockMoments, row: Mapping[str, Any], means: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Mean (n, m), minus the reference means, and covariance (n, m, m) of variables in the block or row."""
    members, dtype = found.block.names, found.mean.dtype
    n = len(found.mean)
    columns = [
        found.mean[:, members.index(name)] if name in members else jnp.full(n, row[name], dtype)
        for name in names
    ]
    mean = jnp.stack(columns, 1) - jnp.stack([means[name].astype(dtype) for name in names])
    if found.covariance is None:
        return mean, None
    # One row and column of zeros stands for all variables that are given in the row.
    padded = jnp.pad(found.covariance, ((0, 0), (0, 1), (0, 1)))
    at = jnp.array([members.index(n) if n in members else len(members) for n in names])
    return mean, padded[:, at[:, None], at[None, :]]
