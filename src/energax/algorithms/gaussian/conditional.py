"""Conditional Gaussian models: tables over finite variables, linear-Gaussian equations over real ones.

Given the finite variables the real ones are jointly Gaussian, so integrating them out leaves a finite
model, which is solved on its junction tree.

Lauritzen (1992), Propagation of probabilities, means, and variances in mixed graphical association models.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ...missing import is_masked, mask_of, value_of
from ..factors.tables import Tables
from .linear_system import GaussianBlock, LinearSystem


class ConditionalGaussianModel(eqx.Module):
    """Tables over finite variables, linear-Gaussian equations over real ones, and real constants."""

    tables: Tables
    system: LinearSystem
    constants: dict[str, Any]

    def observed_names(self, given: Mapping[str, Any]) -> frozenset[str]:
        """The variables whose value is known in every row."""
        return frozenset({k for k, v in given.items() if not is_masked(v)} | set(self.constants))

    def blocks(self, row: Mapping[str, Any], temperature: Any = 1.0) -> tuple[GaussianBlock, ...]:
        """The Gaussians of the real variables given a row, one per independent block."""
        finite = {k: v for k, v in row.items() if k in self.tables.names}
        observed = {k: v for k, v in finite.items() if not is_masked(v)}
        values = {**{k: v for k, v in row.items() if k not in finite}, **self.constants}
        layouts = self.system.layouts(self.observed_names(row))
        return tuple(self.system.block(layout, values, observed, temperature) for layout in layouts)

    def finite_model(
        self, logs: Sequence[Any], block_logs: Sequence[Any], blocks: Sequence[GaussianBlock], row: Any
    ) -> tuple[Tables, Any]:
        """The tables of the hidden finite variables, and the evidence on them.

        `logs` replace the logs of the tables; `block_logs` are one more factor per block, over the
        block's finite variables; each constant adds a factor without variables.
        """
        tables = Tables(self.tables.names, self.tables.cards, self.tables.scopes, tuple(logs))
        rest, evidence = tables.given({k: v for k, v in row.items() if k in tables.names})
        scopes = tuple(tuple(rest.names.index(n) for n in block.finite_names) for block in blocks)
        constants = tuple(_log_agreement(name, value, row) for name, value in self.constants.items())
        scopes = (*rest.scopes, *scopes, *(() for _ in constants))
        return Tables(rest.names, rest.cards, scopes, (*rest.logs, *block_logs, *constants)), evidence

    def shapes_given(self, observed: Collection[str]) -> tuple[Any, Any, int]:
        """Cards and scopes of the finite model and the entries of all blocks, without computing them."""
        cards, scopes = self.tables.shapes_given(observed)
        hidden = [n for n in self.tables.names if n not in observed]
        layouts = self.system.layouts(frozenset(observed) | set(self.constants))
        factors = tuple(tuple(hidden.index(n) for n in layout.finite_names) for layout in layouts)
        return cards, (*scopes, *factors), sum(layout.entries for layout in layouts)


def _log_agreement(name: str, constant: Any, row: Mapping[str, Any]) -> Any:
    """0 if the row equals the constant in single precision or has no value of it, else −∞."""
    if name not in row:
        return jnp.zeros((), constant.dtype)
    same = asarray(value_of(row[name])).astype(jnp.float32) == constant.astype(jnp.float32)
    return jnp.where(same | ~mask_of(row[name]), 0, -jnp.inf).astype(constant.dtype)


def _integrate(
    model: ConditionalGaussianModel, row: Mapping[str, Any], blocks: Sequence[GaussianBlock]
) -> tuple[Tables, Any]:
    """The finite model after integrating out the real variables, and the evidence on it."""
    return model.finite_model(model.tables.logs, [b.log_density for b in blocks], blocks, row)


class RowExpectations(eqx.Module):
    """log p(row) and the posterior probabilities of all finite variables given the row."""

    log_evidence: Any
    tables: tuple[Any, ...]  # the marginal of each table, in its shape
    weights: tuple[Any, ...]  # p(d | row) of each block, (n,)
    marginals: dict[str, Any]
    blocks: tuple[GaussianBlock, ...]


def expectations(
    model: ConditionalGaussianModel, row: Mapping[str, Any], temperature: Any = 1.0
) -> RowExpectations:
    """Sum over the finite variables and integrate over the real ones, of densities to the power 1/T."""
    blocks = model.blocks(row, temperature)
    logs = tuple(asarray(log) / temperature for log in model.tables.logs)
    block_logs = tuple(block.log_density for block in blocks)
    rest, evidence = model.finite_model(logs, block_logs, blocks, row)

    def log_z(logs, block_logs, evidence):
        return model.finite_model(logs, block_logs, blocks, row)[0].log_partition(evidence)

    # The gradient of log Z in the logs of a factor is the marginal of its variables.
    value, gradient = jax.value_and_grad(log_z, argnums=(0, 1, 2))(logs, block_logs, evidence)
    weights = tuple(p.reshape(-1) for p in gradient[1])
    marginals = dict(zip(rest.names, gradient[2], strict=True))
    return RowExpectations(temperature * value, gradient[0], weights, marginals, blocks)


def posterior_moments(model: ConditionalGaussianModel, row: Mapping[str, Any]) -> dict[str, Any]:
    """Marginals of the finite variables, mean and variance of the real ones, and log p(row)."""
    found = expectations(model, row)
    means, variances = {}, {}
    for block, weights in zip(found.blocks, found.weights, strict=True):
        within = jnp.maximum(jnp.diagonal(block.conditional_covariance(), axis1=1, axis2=2), 0)
        each = block.conditional_mean()
        mean = weights @ each
        variance = weights @ (within + (each - mean) ** 2)
        for k, name in enumerate(block.names):
            means[name], variances[name] = mean[k], variance[k]
    for name, value in model.constants.items():
        means[name], variances[name] = value, jnp.zeros_like(value)
    return {
        "marginals": found.marginals,
        "log_evidence": found.log_evidence,
        "mean": means,
        "variance": variances,
    }


def log_evidence(model: ConditionalGaussianModel, row: Mapping[str, Any]) -> Any:
    """log p(row)."""
    rest, evidence = _integrate(model, row, model.blocks(row))
    return rest.log_partition(evidence)


def joint(model: ConditionalGaussianModel, row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """p(names | row) of finite variables, one axis each."""
    rest, evidence = _integrate(model, row, model.blocks(row))
    return jnp.exp(rest.joint(names, evidence))


def maximise_states(
    model: ConditionalGaussianModel, row: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[GaussianBlock, ...], Any]:
    """The finite states at the maximum of the joint density, the Gaussians, and the log density there."""
    blocks = model.blocks(row)
    rest, evidence = model.finite_model(model.tables.logs, [b.log_peak for b in blocks], blocks, row)
    states, value = rest.maximise(evidence)
    return states, blocks, value


def maximise(model: ConditionalGaussianModel, row: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The most probable values of all hidden variables, and their log density with the row."""
    states, blocks, value = maximise_states(model, row)
    values = {**states, **model.constants}
    for block in blocks:
        mean = block.conditional_mean()[block.index(states)]
        values.update({name: mean[k] for k, name in enumerate(block.names)})
    return _hidden(values, row), value


def draw(model: ConditionalGaussianModel, row: Mapping[str, Any], key: Any, n: int) -> dict[str, Any]:
    """n draws of all hidden variables: first the finite ones, then the real ones given them."""
    blocks = model.blocks(row)
    rest, evidence = _integrate(model, row, blocks)
    first, *others = jax.random.split(key, 1 + len(blocks))
    values = {name: jnp.broadcast_to(value, (n,)) for name, value in model.constants.items()}
    if rest.cards:
        values.update(rest.draw(first, n, evidence))
    for block, sub in zip(blocks, others, strict=True):
        index = jnp.broadcast_to(block.index(values), (n,))
        reals = jax.vmap(block.draw)(jax.random.split(sub, n), index)
        values.update({name: reals[:, k] for k, name in enumerate(block.names)})
    return _hidden(values, row)


def _hidden(values: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the variables that are missing from the row, in whole or in part."""
    return {k: v for k, v in values.items() if k not in row or is_masked(row[k])}
