"""What a chain is: a state of named variables, and a step that leaves p ∝ exp(−e) as it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.keys import unrolled_threefry_key
from ..energy import Energy
from ..missing import is_masked, known, mask_of


class Sampler(eqx.Module):
    """A Markov kernel over all variables of an energy, written for one chain.

    A kernel is `step`. One that would compute the same thing twice keeps it in a memory
    (`remember`, `move`), and one with settings to find finds them in `tune`.
    """

    @property
    def label(self) -> str:
        """The name that draws carry."""
        return type(self).__name__

    @property
    def caveat(self) -> str:
        """A sentence on a known bias of the draws, if there is one."""
        return ""

    @abstractmethod
    def check(self, energy: Energy) -> None:
        """Raise `Unsuitable`, naming what would fit, where this kernel makes no sense."""

    @abstractmethod
    def step(
        self, energy: Energy, state: dict[str, Any], key: Any, clamped: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """One move of one chain. `clamped` marks coordinates that stay (True), by variable."""

    def first_overwritten(self, energy: Energy, seen: Collection[str]) -> str | None:
        """The variable, among those seen, that a move draws before it has drawn what is hidden, if any.

        A chain begun at rows of data would lose them there: its hidden part began anywhere.
        """
        return None

    def remember(self, energy: Energy, state: dict[str, Any], clamped: dict[str, Any] | None = None) -> Any:
        """What the next move would otherwise compute again, such as a gradient."""
        return None

    def move(
        self,
        energy: Energy,
        state: dict[str, Any],
        memory: Any,
        key: Any,
        clamped: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """(state, memory, what the kernel tells about this move)."""
        return self.step(energy, state, key, clamped), memory, {}

    def tune(
        self, energy: Energy, state: dict[str, Any], key: Any, clamped: dict[str, Any] | None, n: int
    ) -> tuple[Sampler, dict[str, Any]]:
        """This kernel with its settings found in `n` moves, and the state after them."""
        move = lambda i, state: self.step(energy, state, jax.random.fold_in(key, i), clamped)
        return self, jax.lax.fori_loop(0, n, move, state)

    def start(self, energy: Energy, given: dict[str, Any], key: Any) -> dict[str, Any]:
        """A complete state: what is given, and anything for the rest."""
        spaces = energy.spaces
        hidden = [name for name in spaces if name not in given]
        keys = jax.random.split(key, len(hidden) + 1)
        drawn = {n: random_value(spaces[n], k) for n, k in zip(hidden, keys, strict=False)}
        return {**drawn, **{n: given[n] for n in spaces if n in given}}

    def begin(self, energy: Energy, rows: dict[str, Any], key: Any) -> dict[str, Any]:
        """`start` for every row."""
        keys = jax.random.split(key, jax.tree.leaves(rows)[0].shape[0])
        return jax.vmap(lambda row, k: self.start(energy, row, k))(rows, keys)

    def advance(
        self, energy: Energy, rows: dict[str, Any], n_steps: int, key: Any, clamped: Any = None
    ) -> dict[str, Any]:
        """`n_steps` moves of one chain for every row; hidden variables that are not given start anywhere."""
        n = jax.tree.leaves(rows)[0].shape[0]
        if any(name not in rows for name in energy.spaces):
            start_key, key = jax.random.split(key)
            rows = self.begin(energy, rows, unrolled_threefry_key(start_key))
        rows = {name: rows[name] for name in energy.spaces}

        def move(state, key):
            by = lambda keys: jax.vmap(lambda s, k, h: self.step(energy, s, k, h))(state, keys, clamped)
            try:
                return by(jax.random.split(unrolled_threefry_key(key), n))
            except NotImplementedError:  # some draws of JAX take its own keys alone: Poisson
                return by(jax.random.split(key, n))

        if n_steps == 1:  # a key made from a key made from a key takes longer than some moves
            return move(rows, key)
        return jax.lax.fori_loop(0, n_steps, lambda i, s: move(s, jax.random.fold_in(key, i)), rows)

    def complete(self, energy: Energy, rows: dict[str, Any], n_steps: int, key: Any) -> dict[str, Any]:
        """Rows with their missing coordinates drawn, what is known held fixed."""
        clamped = {name: mask_of(value) for name, value in rows.items()}
        fill_key, key = jax.random.split(key)
        filled = {}
        for i, (name, value) in enumerate(rows.items()):
            if is_masked(value):
                n = value.shape[0]
                keys = jax.random.split(jax.random.fold_in(fill_key, i), n)
                anything = jax.vmap(lambda k, s=energy.spaces[name]: random_value(s, k))(keys)
                filled[name] = value.fill(anything.astype(known(value).dtype))
            else:
                filled[name] = value
        drawn = self.advance(energy, filled, n_steps, key, clamped)
        return {name: drawn[name] for name in rows}


def random_value(space: Any, key: Any) -> Any:
    """Some value of the space: uniform if finite, standard normal through the bijection if real."""
    if space.is_finite:
        index = jax.random.randint(key, space.shape, 0, space.values_per_coordinate)
        return index.astype(space.jax_dtype)
    if space.is_real:
        flat_shape = space.bijection.inverse_shape(space.shape)
        return space.bijection(jax.random.normal(key, flat_shape))
    return jnp.zeros(space.shape, space.jax_dtype)
