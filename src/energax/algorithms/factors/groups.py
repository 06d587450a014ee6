"""Factor graphs with factors of equal shape stacked, for vectorised message passing and sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...errors import BadInput


@dataclasses.dataclass(frozen=True)
class Group:
    """Factors whose tables have one shape, once the axes are sorted by size."""

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]  # the order of each factor's own axes
    variables: np.ndarray  # (factors, axes)


@dataclasses.dataclass(frozen=True, eq=False)
class FactorGroups:
    """A factor graph laid out for vector operations; beliefs are (variables, states), padded with −inf."""

    cards: tuple[int, ...]
    groups: tuple[Group, ...]
    constants: tuple[int, ...]  # factors of no variable
    degree: np.ndarray  # the number of factors of each variable

    @classmethod
    def build(cls, cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> FactorGroups:
        """Group the factors of a model by shape."""
        if not cards:
            raise BadInput("cards", "no variable", "at least one")
        found: dict[tuple[int, ...], list[tuple[int, tuple[int, ...], list[int]]]] = {}
        degree = np.zeros(len(cards), int)
        for f, scope in enumerate(scopes):
            if len(set(scope)) != len(scope) or any(not 0 <= v < len(cards) for v in scope):
                raise BadInput("scopes", f"{scope}", f"different variables from 0 to {len(cards) - 1}")
            axes = tuple(sorted(range(len(scope)), key=lambda a: -cards[scope[a]]))
            variables = [scope[a] for a in axes]
            found.setdefault(tuple(cards[v] for v in variables), []).append((f, axes, variables))
            degree[list(scope)] += 1
        constants = tuple(f for f, _, _ in found.pop((), []))
        groups = tuple(
            Group(
                shape,
                tuple(f for f, _, _ in rows),
                tuple(a for _, a, _ in rows),
                np.array([v for *_, v in rows]),
            )
            for shape, rows in sorted(found.items())
        )
        return cls(tuple(cards), groups, constants, degree)

    @property
    def states(self) -> int:
        """The largest number of states of a variable."""
        return max(self.cards)

    def stack(self, log_tables: Sequence[Any]) -> tuple[Any, ...]:
        """(factors, *shape) for every group."""
        return tuple(
            jnp.stack([jnp.transpose(log_tables[f], axes) for f, axes in zip(g.factors, g.axes, strict=True)])
            for g in self.groups
        )

    def constant(self, log_tables: Sequence[Any], dtype: Any) -> Any:
        """The logarithm of the product of all factors of no variable."""
        return sum((log_tables[f] for f in self.constants), jnp.zeros((), dtype))

    def pad(self, log_evidence: Sequence[Any]) -> Any:
        """(variables, states), −inf beyond the states a variable has."""
        rows = [jnp.pad(e, (0, self.states - e.shape[0]), constant_values=-jnp.inf) for e in log_evidence]
        return jnp.stack(rows)

    def split(self, beliefs: Any) -> tuple[Any, ...]:
        """The rows of a padded matrix, each as long as its variable has states."""
        return tuple(beliefs[v, :card] for v, card in enumerate(self.cards))

    def unstack(self, stacked: Sequence[Any], constant: Any) -> tuple[Any, ...]:
        """The inverse of `stack`: one table per factor, in its own axes."""
        found = dict.fromkeys(self.constants, constant)
        for group, tables in zip(self.groups, stacked, strict=True):
            for k, (f, axes) in enumerate(zip(group.factors, group.axes, strict=True)):
                found[f] = jnp.transpose(tables[k], np.argsort(axes).tolist())
        return tuple(found[f] for f in sorted(found))

    def colours(self) -> np.ndarray:
        """(colours, variables) masks: variables of one colour share no factor, and are updated at once."""
        near: list[set[int]] = [set() for _ in self.cards]
        for group in self.groups:
            for row in group.variables.tolist():
                for v in row:
                    near[v].update(row)
        colour: dict[int, int] = {}
        for v in sorted(range(len(near)), key=lambda v: -len(near[v])):
            taken = {colour[u] for u in near[v] if u in colour}
            colour[v] = next(c for c in range(len(near)) if c not in taken)
        return np.array([[colour[v] == c for v in range(len(near))] for c in range(max(colour.values()) + 1)])


def broadcast_along(vector: Any, axis: int, n_axes: int) -> Any:
    """(factors, states) reshaped to broadcast along one axis of (factors, *shape)."""
    shape = [1] * n_axes
    shape[axis] = vector.shape[1]
    return vector.reshape(vector.shape[0], *shape)
