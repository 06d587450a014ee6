"""`Gibbs`: each variable in turn from its conditional, or coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..distributions import draw_rest
from ..energy import Energy, checked_energy, supports_call
from ..errors import BadInput, Unsuitable
from ._sampler import Sampler


class Gibbs(Sampler):
    """Gibbs sampling: x_i ~ p(x_i | all others), for each variable in turn.

    A variable for which the energy has `conditional` is drawn as a block. Another finite variable is drawn
    coordinate by coordinate: p(x_ij = v | rest) ∝ exp(−e(x_ij = v, rest)).

    Args:
        order: all variables, in the order of a sweep; None is the reversed order of the energy's `spaces`.
            Hidden variables come last there and are drawn first, so that a chain that starts at x does
            not depend on the start of its hidden variables.

    Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of
    images.

    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.full(3, 9.0), jnp.zeros(2))
    >>> Gibbs().step(rbm, {"x": jnp.zeros(3), "z": jnp.zeros(2)}, jax.random.key(0))["x"]
    Array([1., 1., 1.], dtype=float32)
    """

    order: tuple[str, ...] | None = eqx.field(static=True, default=None)

    automatic = True
    automatic_in_learning = True
    priority = 0

    def __check_init__(self):
        if self.order is not None and (isinstance(self.order, str) or len(set(self.order)) < len(self.order)):
            raise BadInput("order", repr(self.order), "names of variables, each once", 'Try ("x", "z").')

    def check(self, energy: Energy) -> None:
        spaces, owner = energy.spaces, type(energy).__name__
        if self.order is not None and set(self.order) != set(spaces):
            raise BadInput("order", repr(self.order), f"every variable of {owner}: {', '.join(spaces)}")
        for name, space in spaces.items():
            others = {k: jax.ShapeDtypeStruct(v.shape, v.jax_dtype) for k, v in spaces.items() if k != name}
            if space.is_finite or knows_conditional(energy, name, others):
                continue
            real = "Use NUTS, or Langevin in a learner: they need only a gradient."
            remedy = real if space.is_real else "Give the energy `conditional`."
            raise Unsuitable(
                f"Gibbs needs the conditional of {name!r} in {space!r}, which {owner} does not have. {remedy}"
            )

    def _order(self, energy: Energy) -> tuple[str, ...]:
        return self.order or tuple(reversed(energy.spaces))

    def first_overwritten(self, energy: Energy, observed: Collection[str]) -> str | None:
        first = self._order(energy)[0]
        return first if first in observed and not set(energy.spaces) <= set(observed) else None

    def draw_hidden_first(self, energy: Energy, observed: Collection[str]) -> Gibbs:
        if self.first_overwritten(energy, observed) is None:
            return self
        return Gibbs(tuple(sorted(energy.spaces, key=lambda name: name in observed)))

    def step(self, energy, state, key, clamped=None):
        # The order of the state does not help: JAX sorts dicts.
        names = [name for name in self._order(energy) if name in state]
        for name, sub in zip(names, jax.random.split(key, len(names)), strict=True):
            state = {**state, name: draw_block(energy, name, state, sub, (clamped or {}).get(name))}
        return state


def knows_conditional(energy: Energy, name: str, others: dict[str, Any]) -> bool:
    """Return whether the energy has p(name | others) in closed form; it is traced, not computed."""
    return energy.knows("conditional", frozenset(others)) and supports_call(
        energy.conditional, name, **others
    )


def draw_block(energy: Energy, name: str, state: dict[str, Any], key: Any, clamped: Any) -> Any:
    """Return a new value of one variable given all others and its own clamped coordinates."""
    old = state[name]
    others = {k: v for k, v in state.items() if k != name}
    if not knows_conditional(energy, name, others):
        if not energy.spaces[name].is_finite:
            raise Unsuitable(
                f"Gibbs needs p({name} | {', '.join(others)}), which {type(energy).__name__} does not have. "
                "Use NUTS, or Langevin in a learner: they need only a gradient."
            )
        return _sweep_coordinates(energy, name, others, old, key, clamped)
    distribution = energy.conditional(name, **others)
    if clamped is None:
        return distribution.sample(key).astype(old.dtype)
    try:
        return draw_rest(distribution, old, key, clamped)
    except Unsuitable:
        if not energy.spaces[name].is_finite:
            raise
        return _sweep_coordinates(energy, name, others, old, key, clamped)


def _sweep_coordinates(
    energy: Energy, name: str, others: dict[str, Any], value: Any, key: Any, clamped: Any = None
) -> Any:
    """Return a new value of a finite variable, its coordinates drawn one after another."""
    space = energy.spaces[name]
    choices = jnp.arange(space.values_per_coordinate).astype(value.dtype)
    keys = jax.random.split(key, max(space.size, 1))
    fixed = jnp.zeros(space.size, bool) if clamped is None else clamped.reshape(-1)

    known = energy.knows("coordinate_logits")

    def logits_of(i, flat):
        if known:
            return energy.coordinate_logits(name, i, **others, **{name: flat.reshape(space.shape)})
        with_choice = lambda choice: flat.at[i].set(choice).reshape(space.shape)
        energies = jax.vmap(lambda choice: checked_energy(energy, {**others, name: with_choice(choice)}))
        return -energies(choices)

    def visit(i, flat):
        drawn = choices[jax.random.categorical(keys[i], logits_of(i, flat))]
        return flat.at[i].set(jnp.where(fixed[i], flat[i], drawn))

    return jax.lax.fori_loop(0, space.size, visit, value.reshape(-1)).reshape(space.shape)
