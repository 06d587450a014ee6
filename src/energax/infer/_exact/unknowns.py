"""The finite unknowns of a question, numbered: hidden variables, and coordinates that are missing."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ... import finite
from ...finite import Assignments
from ...spaces import Binary, Categorical, Space
from .._query import Query


class Unknowns(eqx.Module):
    """Joint values of some finite variables, for every row of a question.

    Of a variable that is partly known only the missing coordinates are numbered, at most `m` of
    them in any row: 3 missing pixels of 784 are 8 joint values, not 2^784. A row with fewer
    than `m` has its completions counted several times, `log_copies` says how often.
    """

    spaces: tuple[tuple[str, Space], ...] = eqx.field(static=True)
    partially_observed: frozenset[str] = eqx.field(static=True)

    @property
    def joint(self) -> Assignments:
        return Assignments(dict(self.spaces))

    @property
    def n(self) -> int:
        return self.joint.n

    @property
    def is_finite(self) -> bool:
        return all(space.is_finite for _, space in self.spaces)

    def log_copies(self, row: dict[str, Any]) -> Any:
        total = 0.0
        for name, space in self.spaces:
            if name in self.partially_observed:
                padded = jnp.sum(row["positions"][name] == row["given"][name].value.size)
                total = total + np.log(float(space.values_per_coordinate)) * padded
        return total

    def at(self, row: dict[str, Any], index: Any) -> dict[str, Any]:
        """Complete values of these variables in the joint value with this number."""
        out = self.joint.at(index)
        for name in self.partially_observed & set(out):
            value = row["given"][name].value
            flat = (
                value.reshape(-1).at[row["positions"][name]].set(out[name].astype(value.dtype), mode="drop")
            )
            out[name] = flat.reshape(value.shape)
        return out


def unknowns(
    query: Query, *, hidden: bool = True, left: frozenset[str] = frozenset()
) -> tuple[Unknowns, dict[str, Any]]:
    """The unknowns of a question, and its rows as `Unknowns` reads them.

    With `hidden=False` only the missing coordinates, for energies that sum out the hidden
    variables by themselves; `left` names variables whose missing coordinates the energy sums out.
    """
    spaces, positions = {}, {}
    for name, space in query.targets.items():
        if name in query.partially_observed:
            if name in left:
                continue
            positions[name], m = _missing_positions(query.given[name].observed, query.n)
            spaces[name] = _of_size(space, m)
        elif hidden:
            spaces[name] = space
    these = Unknowns(tuple(spaces.items()), frozenset(positions))
    return these, {"given": query.given, "positions": positions}


def _of_size(space: Space, m: int) -> Space:
    if not space.is_finite:
        return space
    return Binary(m) if isinstance(space, Binary) else Categorical(space.values_per_coordinate, m)


def _missing_positions(observed: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """For every row the flat places of its missing coordinates, padded with a place that is none."""
    flat = np.asarray(observed).reshape(n, -1)
    m = int((~flat).sum(1).max())
    # A stable sort puts the missing coordinates first, in their own order.
    order = np.argsort(flat, axis=1, kind="stable")[:, :m].astype(np.int32)
    is_missing = ~np.take_along_axis(flat, order, axis=1)
    return np.where(is_missing, order, flat.shape[1]).astype(np.int32), m


def expected(function: Any, log_probs: Any) -> Any:
    """Σᵢ pᵢ f(i), one chunk at a time."""
    n = log_probs.shape[0]
    p = jnp.exp(log_probs)
    p = p / p.sum()  # a logsumexp of many float32 terms is off in its last digits
    size = min(n, finite._CHUNK)

    def chunk(start):
        indices = start + jnp.arange(size)
        weight = jnp.where(indices < n, p[jnp.minimum(indices, n - 1)], 0)
        values = jax.vmap(function)(jnp.minimum(indices, n - 1))
        return jax.tree.map(lambda v: jnp.tensordot(weight, v.astype(p.dtype), axes=1), values)

    if size == n:
        return chunk(0)
    add = lambda total, start: (jax.tree.map(jnp.add, total, chunk(start)), None)
    starts = size * jnp.arange(1, -(-n // size))
    return jax.lax.scan(add, chunk(0), starts)[0]


def lowest(function: Any, n: int) -> tuple[Any, Any]:
    """The index of the smallest f(i), and that value, one chunk at a time."""
    size = min(n, finite._CHUNK)

    def chunk(start):
        indices = jnp.minimum(start + jnp.arange(size), n - 1)
        values = jax.vmap(function)(indices)
        best = jnp.argmin(values)
        return indices[best], values[best]

    if size == n:
        return chunk(0)

    def keep(best, start):
        new = chunk(start)
        return jax.tree.map(lambda a, b: jnp.where(new[1] < best[1], b, a), best, new), None

    return jax.lax.scan(keep, chunk(0), size * jnp.arange(1, -(-n // size)))[0]
