"""Finite nodes of a Bayesian network: tables of conditional probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.factors.model import row_sum_error
from ...energy import Energy
from ...errors import BadInput, describe
from ...parameters import with_energy_precision
from ...spaces import Categorical, Simplex, is_concrete, parameter
from .factor_graph import as_array, read_states


class ConditionalTable(Energy):
    """e = −log p(child | parents): a table with one axis per parent, and the child on the last axis.

    >>> wet = ConditionalTable("wet", ("rain",), [[0.9, 0.1], [0.2, 0.8]])
    >>> round(float(jnp.exp(-wet(rain=1, wet=1))), 6)
    0.8
    """

    table: jax.Array = parameter(Simplex())
    child: str = eqx.field(static=True)
    parents: tuple[str, ...] = eqx.field(static=True)
    states: tuple[tuple[str, ...] | None, ...] = eqx.field(static=True)

    def __init__(self, child: str, parents: Iterable[str], table: Any, states: Iterable[Any] | None = None):
        if not isinstance(parents, Iterable) or isinstance(parents, bytes):
            raise BadInput("parents", describe(parents), "names of variables")
        self.child, self.parents = str(child), tuple(map(str, parents))
        self.table = as_array(table)
        over = (*self.parents, self.child)
        self.states = read_states(states, over)
        shape = self.table.shape
        if len(shape) != len(over) or len(set(over)) != len(over) or 0 in shape:
            found = f"shape {shape} for p({self.child} | {', '.join(self.parents)})"
            raise BadInput("table", found, "one axis per parent, and the child on the last axis")
        if is_concrete(self.table):
            self._check_probabilities(np.asarray(self.table))

    def _check_probabilities(self, table: np.ndarray) -> None:
        argument = f"the table of {self.child}"
        if not np.isfinite(table).all() or (table < 0).any():
            raise BadInput(argument, "an entry that is negative or not finite", "probabilities >= 0")
        each = zip(self.parents, self.states, table.shape[:-1], strict=False)
        parents = [(p, s or tuple(map(str, range(k)))) for p, s, k in each]
        error = row_sum_error(table, self.child, parents)
        if error:
            raise BadInput(argument, *error)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.parents, self.child)

    @property
    @with_energy_precision
    def log_table(self):
        return jnp.log(self.table)

    @property
    def spaces(self):
        each = zip(self.names, self.table.shape, self.states, strict=True)
        return {name: Categorical(k, labels=labels) for name, k, labels in each}

    @with_energy_precision
    def __call__(self, **values):
        return -jnp.log(self.table[tuple(values[name] for name in self.names)])

    def draw_child(self, key: Any, values: Mapping[str, Any]) -> Any:
        """One draw of the child given its parents."""
        row = self.log_table[tuple(values[name] for name in self.parents)]
        return jax.random.categorical(key, row).astype(jnp.int32)

    def with_table(self, table: Any) -> ConditionalTable:
        """The same node with another table."""
        return ConditionalTable(self.child, self.parents, table, self.states)
