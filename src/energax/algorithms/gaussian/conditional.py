"""Tables over finite variables joined with linear-Gaussian equations over real ones.

Lauritzen (1992), Propagation of probabilities, means, and variances in mixed graphical association models.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...missing import is_masked, known, mask_of
from ..factors.tables import Tables
from .linear_system import GaussianBlock, LinearSystem


class Mixed(eqx.Module):
    """Tables over finite variables, linear equations with noise over real ones, and constants."""

    tables: Tables
    system: LinearSystem
    constants: dict[str, Any]

    def known_names(self, given: Mapping[str, Any]) -> frozenset[str]:
        """The variables that every row knows."""
        return frozenset({k for k, v in given.items() if not is_masked(v)} | set(self.constants))

    def blocks(self, row: Mapping[str, Any], temperature: Any = 1.0) -> tuple[GaussianBlock, ...]:
        """The Gaussians of the real variables given a row, those apart that do not touch."""
        finite = {k: v for k, v in row.items() if k in self.tables.names}
        chosen = {k: v for k, v in finite.items() if not is_masked(v)}
        values = {**{k: v for k, v in row.items() if k not in finite}, **self.constants}
        layouts = self.system.layouts(self.known_names(row))
        return tuple(self.system.block(layout, values, chosen, temperature) for layout in layouts)

    def joined(self, logs: Any, factors: Any, blocks: Any, row: Mapping[str, Any]) -> tuple[Tables, Any]:
        """The finite problem: the tables, and for each block what its real variables say of the choices."""
        tables = Tables(self.tables.names, self.tables.cards, self.tables.scopes, tuple(logs))
        rest, evidence = tables.given({k: v for k, v in row.items() if k in tables.names})
        scopes = tuple(tuple(rest.names.index(n) for n in block.over) for block in blocks)
        set_aside = tuple(self._as_set(name, value, row) for name, value in self.constants.items())
        scopes = (*rest.scopes, *scopes, *(() for _ in set_aside))
        return Tables(rest.names, rest.cards, scopes, (*rest.logs, *factors, *set_aside)), evidence

    def _as_set(self, name: str, value: Any, row: Mapping[str, Any]) -> Any:
        """0 where a row agrees with a constant, in single precision, or says nothing of it; else −∞."""
        if name not in row:
            return jnp.zeros((), value.dtype)
        same = jnp.asarray(known(row[name])).astype(jnp.float32) == value.astype(jnp.float32)
        return jnp.where(same | ~mask_of(row[name]), 0, -jnp.inf).astype(value.dtype)

    def shapes_given(self, certain: Collection[str]) -> tuple[Any, Any, int]:
        """(cards, scopes) of the finite problem and how many numbers its Gaussians hold; nothing computed."""
        cards, scopes = self.tables.shapes_given(certain)
        left = [n for n in self.tables.names if n not in certain]
        layouts = self.system.layouts(frozenset(certain) | set(self.constants))
        factors = tuple(tuple(left.index(n) for n in layout.over) for layout in layouts)
        return cards, (*scopes, *factors), sum(layout.numbers for layout in layouts)


class Read(eqx.Module):
    """What a row says: log p of it, and the probabilities of all that is finite."""

    log_evidence: Any
    entries: tuple[Any, ...]  # of every table, in its shape
    shares: tuple[Any, ...]  # p(over | row) of every block, flat
    marginals: dict[str, Any]
    blocks: tuple[GaussianBlock, ...]


def read(mixed: Mixed, row: Mapping[str, Any], temperature: Any = 1.0) -> Read:
    """Sum over the choices, integrate over the reals; at a temperature T of densities to the power 1/T."""
    blocks = mixed.blocks(row, temperature)
    logs = tuple(jnp.asarray(log) / temperature for log in mixed.tables.logs)
    factors = tuple(block.log_density for block in blocks)
    rest, evidence = mixed.joined(logs, factors, blocks, row)

    def total(logs, factors, evidence):
        return mixed.joined(logs, factors, blocks, row)[0].log_partition(evidence)

    # The gradient of log Z in the logs of a factor is the marginal of its variables.
    value, gradient = jax.value_and_grad(total, argnums=(0, 1, 2))(logs, factors, evidence)
    shares = tuple(share.reshape(-1) for share in gradient[1])
    marginals = dict(zip(rest.names, gradient[2], strict=True))
    return Read(temperature * value, gradient[0], shares, marginals, blocks)


def log_evidence(mixed: Mixed, row: Mapping[str, Any]) -> Any:
    """log p(row)."""
    rest, evidence = finite_problem(mixed, row, mixed.blocks(row))
    return rest.log_partition(evidence)


def best(mixed: Mixed, row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[GaussianBlock, ...], Any]:
    """The choices at the peak of the joint density, the Gaussians, and the log of that density."""
    blocks = mixed.blocks(row)
    rest, evidence = mixed.joined(mixed.tables.logs, [b.log_peak for b in blocks], blocks, row)
    states, value = rest.maximise(evidence)
    return states, blocks, value


def finite_problem(
    mixed: Mixed, row: Mapping[str, Any], blocks: tuple[GaussianBlock, ...]
) -> tuple[Tables, Any]:
    """The tables that are left once the real variables are integrated out, and the evidence on them."""
    return mixed.joined(mixed.tables.logs, [b.log_density for b in blocks], blocks, row)


def joint(mixed: Mixed, row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """p(names | row), an axis each."""
    rest, evidence = finite_problem(mixed, row, mixed.blocks(row))
    return jnp.exp(rest.joint(names, evidence))


def targets(found: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of variables that a row does not know, or knows in part."""
    return {k: v for k, v in found.items() if k not in row or is_masked(row[k])}


def draw(mixed: Mixed, row: Mapping[str, Any], key: Any, n: int) -> dict[str, Any]:
    """n draws of all that is hidden: the choices by the junction tree, then the real variables given them."""
    blocks = mixed.blocks(row)
    rest, evidence = finite_problem(mixed, row, blocks)
    first, *others = jax.random.split(key, 1 + len(blocks))
    found = {name: jnp.broadcast_to(value, (n,)) for name, value in mixed.constants.items()}
    if rest.cards:
        found.update(rest.draw(first, n, evidence))
    for block, sub in zip(blocks, others, strict=True):
        index = jnp.broadcast_to(block.index(found), (n,))
        drawn = jax.vmap(block.draw)(jax.random.split(sub, n), index)
        found.update({name: drawn[:, k] for k, name in enumerate(block.names)})
    return targets(found, row)
