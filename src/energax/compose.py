"""Energies made of energies: sums, clamped variables, marginals. (`tempering` has temperatures.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ._util.arrays import asarray
from ._util.methods import plain_method
from .energy import Energy, free_energy, supports_call
from .errors import BadInput
from .missing import is_masked, value_of
from .parameters import precision_of
from .spaces import Space, fixed, is_concrete
from .tempering import Tempered as Tempered


class Sum(Energy):
    """e₁ + e₂ + …: a product of experts over the union of their variables.

    Variables of the same name are the same variable, and must lie in the same space.
    Hinton (2002), Training products of experts by minimizing contrastive divergence.
    """

    parts: tuple[Energy, ...]

    def __check_init__(self):
        seen: dict[str, Space] = {}
        for part in self.parts:
            for name, space in part.spaces.items():
                if seen.setdefault(name, space) != space:
                    raise BadInput(
                        f"variable {name!r}", f"{seen[name]!r} and {space!r}", "one space in all terms"
                    )

    @property
    def spaces(self):
        return {k: v for part in self.parts for k, v in part.spaces.items()}

    @property
    def inputs(self):  # type: ignore[override]
        """The variables that are an input of every part that has them."""
        every = frozenset().union(*(part.inputs for part in self.parts))
        return frozenset(n for n in every if all(n in p.inputs for p in self.parts if n in p.spaces))

    def __call__(self, **variables):
        return sum(part(**{k: variables[k] for k in part.spaces}) for part in self.parts)


def _check_value(space: Any, value: Any, name: str) -> Any:
    """`value` as one value of the space, NaN as missing. A traced value was checked before."""
    if not all(is_concrete(leaf) for leaf in jax.tree.leaves(value)):
        return value
    value = space.check(value, name)
    if np.ndim(value_of(value)) > space.ndim:
        found, expected = f"shape {np.shape(value_of(value))}", f"one value of shape {space.shape}"
        raise BadInput(name, found, expected, "For many rows, use the argument given= of the query.")
    return jax.tree.map(asarray, value)


class Clamped(Energy):
    """An energy with some variables fixed at given values: `energy.given(x=…)`."""

    energy: Energy
    values: dict[str, Any] = fixed()

    def __init__(self, energy: Energy, values: Mapping[str, Any]):
        unknown = sorted(set(values) - set(energy.spaces))
        if unknown:
            raise BadInput("given", f"the names {unknown}", f"some of {sorted(energy.spaces)}")
        self.energy = energy
        with precision_of(energy):
            self.values = {k: _check_value(energy.spaces[k], v, k) for k, v in values.items()}
        partial = sorted(k for k in energy.inputs if is_masked(self.values.get(k)))
        if partial:
            found, expected = f"missing values in {partial}", "complete inputs"
            raise BadInput("given", found, expected, "The energy has no distribution of its inputs.")

    @property
    def spaces(self):
        return {k: v for k, v in self.energy.spaces.items() if k not in self.values}

    @property
    def inputs(self):  # type: ignore[override]
        return self.energy.inputs - frozenset(self.values)

    @property
    def marginalises(self):  # type: ignore[override]
        return self.energy.marginalises

    @plain_method
    def knows(self, what, names=None):
        if what == "log_partition":
            complete = not any(map(is_masked, self.values.values()))
            return complete and self.energy.knows("free_energy", frozenset(self.values))
        if what not in ("free_energy", "conditional", "draw", "score"):
            return super().knows(what, names)
        inner = None if names is None else frozenset(names) | frozenset(self.values)
        return self.energy.knows(what, inner)

    def __call__(self, **variables):
        # Not `self.energy(...)`: a fixed value may have missing coordinates.
        return free_energy(self.energy, {**variables, **self.values})

    def free_energy(self, **given):
        return free_energy(self.energy, {**given, **self.values})

    def conditional(self, name, **given):
        return self.energy.conditional(name, **given, **self.values)

    def log_partition(self):
        return -free_energy(self.energy, self.values)

    def draw(self, key, **given):
        return self.energy.draw(key, **given, **self.values)

    def score(self, name="x", **given):
        return self.energy.score(name, **given, **self.values)


class Marginal(Energy):
    """An energy with some variables summed out, −log Σ exp(−e): `energy.over("z")`."""

    energy: Energy
    names: tuple[str, ...] = eqx.field(static=True)

    def __check_init__(self):
        unknown = sorted(set(self.names) - set(self.energy.spaces))
        if unknown:
            raise BadInput("over", f"the names {unknown}", f"some of {sorted(self.energy.spaces)}")
        given = sorted(set(self.names) & self.energy.inputs)
        if given:
            found = f"{given}, inputs of {type(self.energy).__name__}"
            raise BadInput("over", found, "variables that it has a distribution of", "Give them values.")

    @property
    def spaces(self):
        return {k: v for k, v in self.energy.spaces.items() if k not in self.names}

    @property
    def inputs(self):  # type: ignore[override]
        return self.energy.inputs

    @property
    def marginalises(self):  # type: ignore[override]
        return self.energy.marginalises

    @plain_method
    def knows(self, what, names=None):
        if what not in ("free_energy", "conditional", "log_partition", "draw"):
            return super().knows(what, names)
        return self.energy.knows(what, names)

    def __call__(self, **variables):
        return free_energy(self.energy, variables)

    def free_energy(self, **given):
        return free_energy(self.energy, given)

    def conditional(self, name, **given):
        if self.energy.knows("conditional", given) and supports_call(self.energy.conditional, name, **given):
            return self.energy.conditional(name, **given)
        return Energy.conditional(self, name, **given)

    def log_partition(self):
        return self.energy.log_partition()

    def draw(self, key, **given):
        values = self.energy.draw(key, **given)
        return {k: v for k, v in values.items() if k not in self.names}
