"""The finite unknowns of a query, numbered: hidden variables and missing coordinates."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util import sizes
from ...finite import Assignments
from ...spaces import Binary, Categorical, Space
from .._query import Query


class Unknowns(eqx.Module):
    """The joint values of some finite variables, numbered from 0 to n − 1, for every row of a query.

    Of a partially observed variable only the missing coordinates are numbered, as many as the row with the
    most has: 3 missing pixels of 784 are 8 joint values, not 2^784. In rows with fewer missing coordinates
    each completion occurs several times; `log_copies` is the log of how often.

    Attributes:
        spaces: (name, space) of every variable; of a partially observed one, of its missing coordinates.
        partially_observed: the names of the variables with missing coordinates.
    """

    spaces: tuple[tuple[str, Space], ...] = eqx.field(static=True)
    partially_observed: frozenset[str] = eqx.field(static=True)

    @property
    def joint(self) -> Assignments:
        return Assignments(dict(self.spaces))

    @property
    def n(self) -> int:
        """The number of joint values."""
        return self.joint.n

    @property
    def is_finite(self) -> bool:
        return all(space.is_finite for _, space in self.spaces)

    def log_copies(self, row: dict[str, Any]) -> Any:
        """Return the log of how often each completion of this row is numbered."""
        total = 0.0
        for name, space in self.spaces:
            if name in self.partially_observed:
                padded = jnp.sum(row["positions"][name] == row["given"][name].value.size)
                total = total + np.log(float(space.values_per_coordinate)) * padded
        return total

    def at(self, row: dict[str, Any], index: Any) -> dict[str, Any]:
        """Return the complete values of these variables in the joint value with this number."""
        out = self.joint.at(index)
        for name in self.partially_observed & set(out):
            value = row["given"][name].value
            drawn = out[name].astype(value.dtype)
            flat = value.reshape(-1).at[row["positions"][name]].set(drawn, mode="drop")
            out[name] = flat.reshape(value.shape)
        return out


def find_unknowns(
    query: Query, *, hidden: bool = True, without: frozenset[str] = frozenset()
) -> tuple[Unknowns, dict[str, Any]]:
    """Return the unknowns of a query, and its rows as `Unknowns` reads them.

    Args:
        query: the query.
        hidden: whether to number hidden variables; if not, only missing coordinates.
        without: partially observed variables whose missing coordinates are not numbered.
    """
    spaces, positions = {}, {}
    for name, space in query.targets.items():
        if name in query.partially_observed:
            if name in without:
                continue
            positions[name], m = _missing_positions(query.given[name].observed, query.n)
            spaces[name] = _resize(space, m)
        elif hidden:
            spaces[name] = space
    unknowns = Unknowns(tuple(spaces.items()), frozenset(positions))
    return unknowns, {"given": query.given, "positions": positions}


def _resize(space: Space, m: int) -> Space:
    if not space.is_finite:
        return space
    return Binary(m) if isinstance(space, Binary) else Categorical(space.values_per_coordinate, m)


def _missing_positions(observed: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """Return the flat positions of missing coordinates, (n, m), padded with the size of a row, and m."""
    flat = np.asarray(observed).reshape(n, -1)
    m = int((~flat).sum(1).max())
    # A stable sort puts the missing coordinates first, in their own order.
    order = np.argsort(flat, axis=1, kind="stable")[:, :m].astype(np.int32)
    is_missing = ~np.take_along_axis(flat, order, axis=1)
    return np.where(is_missing, order, flat.shape[1]).astype(np.int32), m


def expectation(function: Any, log_probs: Any) -> Any:
    """Return Σᵢ pᵢ f(i), computed in chunks."""
    n = log_probs.shape[0]
    p = jnp.exp(log_probs)
    p = p / p.sum()  # a float32 logsumexp of many terms is inexact in its last digits
    size = min(n, sizes.JOINT_VALUES.value)

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


def minimum(function: Any, n: int) -> tuple[Any, Any]:
    """Return the index of the smallest f(i), i < n, and its value, computed in chunks."""
    size = min(n, sizes.JOINT_VALUES.value)

    def chunk(start):
        indices = jnp.minimum(start + jnp.arange(size), n - 1)
        values = jax.vmap(function)(indices)
        best = jnp.argmin(values)
        return indices[best], values[best]

    if size == n:
        return chunk(0)

    def keep_lower(best, start):
        new = chunk(start)
        return jax.tree.map(lambda a, b: jnp.where(new[1] < best[1], b, a), best, new), None

    return jax.lax.scan(keep_lower, chunk(0), size * jnp.arange(1, -(-n // size)))[0]
