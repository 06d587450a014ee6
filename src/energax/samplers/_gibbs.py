"""Block Gibbs: each variable in turn from its conditional; coordinate by coordinate where none is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..energy import Energy
from ..errors import Unsuitable
from ._sampler import Sampler


class Gibbs(Sampler):
    """x_i ~ p(x_i | all others), one block after another.

    A block is a whole variable where the energy knows its `conditional`; a finite variable
    without that knowledge is swept coordinate by coordinate, each a softmax over its values.

    Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian
    restoration of images.
    """

    def check(self, energy: Energy) -> None:
        for name, space in energy.spaces.items():
            if not space.is_finite and not energy.knows("conditional"):
                raise Unsuitable(
                    f"Gibbs needs the conditional of {name!r}, which lies in {space!r} and which "
                    f"{type(energy).__name__} does not know. Use Langevin, which needs only a gradient."
                )

    def step(self, energy, state, key, held=None):
        # Hidden variables are named last and drawn first, so that a chain begun at x forgets
        # where its hidden part began. (The state itself is no guide: JAX sorts dicts.)
        names = [name for name in reversed(energy.spaces) if name in state]
        for name, sub in zip(names, jax.random.split(key, len(names)), strict=True):
            state = {**state, name: _draw_block(energy, name, state, sub, (held or {}).get(name))}
        return state


def _draw_block(energy: Energy, name: str, state: dict[str, Any], key: Any, held: Any) -> Any:
    old = state[name]
    others = {k: v for k, v in state.items() if k != name}
    if energy.knows("conditional"):
        new = energy.conditional(name, **others).sample(key).astype(old.dtype)
    else:
        new = _sweep_coordinates(energy, name, others, old, key)
    return new if held is None else jnp.where(held, old, new)


def _sweep_coordinates(energy: Energy, name: str, others: dict[str, Any], value: Any, key: Any) -> Any:
    space = energy.spaces[name]
    choices = jnp.arange(space.values_per_coordinate).astype(value.dtype)
    keys = jax.random.split(key, max(space.size, 1))

    def visit(i, flat):
        energies = jax.vmap(
            lambda choice: energy(**others, **{name: flat.at[i].set(choice).reshape(space.shape)})
        )(choices)
        return flat.at[i].set(choices[jax.random.categorical(keys[i], -energies)])

    return jax.lax.fori_loop(0, space.size, visit, value.reshape(-1)).reshape(space.shape)
