"""Brute force in NumPy for energies that are tables."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energax.energy import Energy
from energax.missing import Masked, is_masked
from energax.programs import jit
from energax.spaces import Binary, Categorical


class Table(Energy):
    """e = table[index of x, index of y, …]: any energy over finite variables, without closed forms."""

    table: jax.Array
    variables: tuple = eqx.field(static=True)

    @property
    def spaces(self):
        return dict(self.variables)

    def __call__(self, **values):
        index = []
        for name, space in self.variables:
            place = jnp.zeros((), int)
            for digit in jnp.reshape(values[name], (-1,)).astype(int):
                place = place * space.values_per_coordinate + digit
            index.append(place)
        return self.table[tuple(index)]


STRUCTURES = (
    (("x", Binary(3)), ("z", Categorical(3))),
    (("x", Categorical(3, 2)), ("y", Binary()), ("z", Binary(2))),
)


def random_table(structure: int, seed: int, scale: float = 2.0) -> Table:
    variables = STRUCTURES[structure]
    rng = np.random.default_rng(seed)
    shape = tuple(space.n_values for _, space in variables)
    return Table(jnp.asarray(scale * rng.normal(size=shape), jnp.float32), variables)


def values(space: Any) -> np.ndarray:
    """All values of a finite space, by itertools."""
    digits = list(itertools.product(range(space.values_per_coordinate), repeat=space.size))
    return np.array(digits, float).reshape(-1, *space.shape)


def consistent(space: Any, given: Any) -> np.ndarray:
    """Which values of the space agree with the given value; all, if it is None."""
    every = values(space)
    if given is None:
        return np.ones(len(every), bool)
    value, observed = (given.value, given.observed) if is_masked(given) else (given, True)
    agree = (every == np.asarray(value)) | ~np.broadcast_to(np.asarray(observed), np.shape(value))
    return agree.reshape(len(every), -1).all(1)


def restricted(energy: Table, given: dict[str, Any]) -> np.ndarray:
    """exp(−e) over all joint values, zero where they disagree with the given values; float64."""
    weights = np.exp(-np.asarray(energy.table, float))
    for axis, (name, space) in enumerate(energy.variables):
        keep = consistent(space, given.get(name))
        weights = weights * keep.reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
    return weights


def table_of(energy: Any) -> np.ndarray:
    """e of every joint value of an energy over finite variables, one axis per variable."""
    spaces = energy.spaces
    shape = tuple(s.n_values for s in spaces.values())
    rows = list(itertools.product(*(range(n) for n in shape)))
    data = {}
    for axis, (name, space) in enumerate(spaces.items()):
        column = values(space)[[r[axis] for r in rows]]
        data[name] = jnp.asarray(column, space.jax_dtype)
    return np.asarray(_energies(energy, data)).reshape(shape)


@jit
def _energies(energy, data):
    return jax.vmap(lambda row: energy(**row))(data)


def random_given(energy: Table, names: Any, rng: Any, n: int | None = None) -> dict[str, Any]:
    """Random values of some variables: one example, or rows."""
    out = {}
    for name in names:
        space = energy.spaces[name]
        shape = space.shape if n is None else (n, *space.shape)
        out[name] = rng.integers(0, space.values_per_coordinate, shape).astype(np.dtype(space.dtype))
    return out


def masked(value: Any, rng: Any, share: float = 0.5) -> Masked:
    """The same value with coordinates missing at random, at least one of them."""
    seen = np.atleast_1d(rng.random(np.shape(value)) > share)
    seen.reshape(-1)[rng.integers(seen.size)] = False
    seen = seen.reshape(np.shape(value))
    return Masked(np.where(seen, value, np.zeros_like(value)), seen)
