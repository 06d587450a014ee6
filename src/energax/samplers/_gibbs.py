"""`Gibbs`: each variable in turn from its conditional, or coordinate by coordinate."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import check_arguments, one_of
from ..distributions import draw_rest
from ..energy import Energy, checked_energy, supports_call
from ..errors import BadInput, Unsuitable, check_instance, describe
from ..finite import Assignments
from ..missing import Masked
from ._sampler import Sampler


class Gibbs(Sampler):
    """Gibbs sampling: x_i ~ p(x_i | all others), for each variable in turn or in random order.

    A variable for which the energy has `conditional` is drawn at once. Another finite variable is drawn
    coordinate by coordinate: p(x_ij = v | rest) ∝ exp(−e(x_ij = v, rest)). Variables of a lattice that
    depend only on the other colour, each with its `conditional`, make this chromatic Gibbs sampling.

    Args:
        order: all variables, in the order of a sweep; None is the reversed order of the energy's `spaces`.
            Hidden variables come last there and are drawn first, so that a chain that starts at x does
            not depend on the start of its hidden variables. A tuple of names is a block, drawn jointly from
            p(block | rest) by the energy's `draw`, or by enumeration if it is finite and small.
        scan: "systematic" draws in this order. "random" draws as many blocks, each chosen at random, and
            coordinates at random too; the chain is then reversible.

    Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of
    images; Jensen, Kjærulff and Kong (1995), Blocking Gibbs sampling in very large probabilistic expert
    systems; Gonzalez, Low, Gretton and Guestrin (2011), Parallel Gibbs sampling, for colours; Liu, Wong and
    Kong (1995), Covariance structure and convergence rate of the Gibbs sampler with various scans.

    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.full(3, 9.0), jnp.zeros(2))
    >>> Gibbs().step(rbm, {"x": jnp.zeros(3), "z": jnp.zeros(2)}, jax.random.key(0))["x"]
    Array([1., 1., 1.], dtype=float32)
    """

    order: tuple[str | tuple[str, ...], ...] | None = eqx.field(static=True, default=None)
    scan: str = eqx.field(static=True, default="systematic")

    automatic = True
    automatic_in_learning = True
    priority = 0
    can_start_impossible = True

    def __check_init__(self):
        check_arguments(self, scan=one_of("systematic", "random"))
        if self.order is None:
            return
        named = _names(self.order) if isinstance(self.order, tuple | list) else ()
        if not named or not all(isinstance(n, str) for n in named) or len(set(named)) < len(named):
            expected = "names of variables or tuples of them, each name once"
            raise BadInput("order", describe(self.order), expected, 'Try ("x", "z").')

    def check(self, energy: Energy) -> None:
        spaces, owner = energy.spaces, type(energy).__name__
        if self.order is not None and set(_names(self.order)) != set(spaces):
            raise BadInput("order", repr(self.order), f"every variable of {owner}: {', '.join(spaces)}")
        for block in self._blocks(energy):
            others = {
                k: jax.ShapeDtypeStruct(v.shape, v.jax_dtype) for k, v in spaces.items() if k not in block
            }
            if len(block) > 1:
                _check_block(energy, block, others)
                continue
            name, space = block[0], spaces[block[0]]
            if space.is_finite or knows_conditional(energy, name, others):
                continue
            real = "Use NUTS, or Langevin in a learner: they need only a gradient."
            remedy = real if space.is_real else "Give the energy `conditional`."
            raise Unsuitable(
                f"Gibbs needs the conditional of {name!r} in {space!r}, which {owner} does not have. {remedy}"
            )

    def _blocks(self, energy: Energy) -> tuple[tuple[str, ...], ...]:
        order = self.order or tuple(reversed(energy.spaces))
        return tuple((entry,) if isinstance(entry, str) else tuple(entry) for entry in order)

    def first_overwritten(self, energy: Energy, observed: Collection[str]) -> str | None:
        if set(energy.spaces) <= set(observed):
            return None
        # With a random scan any variable may come first.
        first = self._blocks(energy)[0] if self.scan == "systematic" else tuple(energy.spaces)
        return next((name for name in first if name in observed), None)

    def draw_hidden_first(self, energy: Energy, observed: Collection[str]) -> Gibbs:
        if self.scan == "random" or self.first_overwritten(energy, observed) is None:
            return self
        return Gibbs(tuple(sorted(energy.spaces, key=lambda name: name in observed)))

    def init_memory(self, energy, state, clamped=None):
        return checked_energy(energy, state)

    def is_valid_start(self, memory):
        return jnp.isfinite(memory)

    def step(self, energy, state, key, clamped=None):
        # The order of the state does not help: JAX sorts dicts.
        blocks = [b for b in self._blocks(energy) if all(name in state for name in b)]
        is_random = self.scan == "random"

        def draw(block, state, key):
            if len(block) > 1:
                return {**state, **_draw_jointly(energy, block, state, key, clamped)}
            (name,) = block
            return {**state, name: draw_block(energy, name, state, key, (clamped or {}).get(name), is_random)}

        keys = jax.random.split(key, len(blocks))
        if not is_random or len(blocks) == 1:
            for block, sub in zip(blocks, keys, strict=True):
                state = draw(block, state, sub)
            return state
        branches = [lambda state, key, b=block: draw(b, state, key) for block in blocks]

        def visit(i, state):
            pick_key, draw_key = jax.random.split(keys[i])
            return jax.lax.switch(jax.random.randint(pick_key, (), 0, len(blocks)), branches, state, draw_key)

        return jax.lax.fori_loop(0, len(blocks), visit, state)


def _names(order: Any) -> list[Any]:
    """Return the names of an order, without its blocks."""
    return [name for entry in order for name in (entry if isinstance(entry, tuple | list) else (entry,))]


def _knows_draw(energy: Energy, others: dict[str, Any]) -> bool:
    """Return whether the energy has exact draws of all variables given these; it is traced, not computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return energy.knows("draw", frozenset(others)) and supports_call(energy.draw, key, **others)


def _check_block(energy: Energy, block: tuple[str, ...], others: dict[str, Any]) -> None:
    """Raise unless p(block | others) has exact draws."""
    if _knows_draw(energy, others):
        return
    spaces = {name: energy.spaces[name] for name in block}
    if not all(space.is_finite for space in spaces.values()):
        raise Unsuitable(
            f"Gibbs cannot draw {', '.join(block)} jointly: {type(energy).__name__} has no `draw` given "
            f"{', '.join(others) or 'nothing'}. Name them one by one in `order`."
        )
    Assignments(spaces).check_size("Gibbs, which lists all values of a block,", "Use smaller blocks.")


def _draw_jointly(
    energy: Energy, block: tuple[str, ...], state: dict[str, Any], key: Any, clamped: Any
) -> dict[str, Any]:
    """Return new values of the variables of a block given all others and their own clamped coordinates."""
    others = {k: v for k, v in state.items() if k not in block}
    draw = energy.draw if _knows_draw(energy, others) else functools.partial(Energy.draw, energy)
    partial = {k: Masked(state[k], clamped[k]) for k in block if k in (clamped or {})}
    drawn = draw(key, **others, **partial)
    return {k: jnp.asarray(drawn[k], state[k].dtype) for k in block}


def knows_conditional(energy: Energy, name: str, others: dict[str, Any]) -> bool:
    """Return whether the energy has p(name | others) in closed form; it is traced, not computed."""
    check_instance("energy", energy, Energy, "an energy")
    check_arguments(locals(), name=one_of(*energy.spaces))
    if not isinstance(others, dict):
        raise BadInput("others", describe(others), "a dict from names of variables to values")
    return energy.knows("conditional", frozenset(others)) and supports_call(
        energy.conditional, name, **others
    )


def draw_block(
    energy: Energy, name: str, state: dict[str, Any], key: Any, clamped: Any, is_random: bool = False
) -> Any:
    """Return a new value of one variable given all others and its own clamped coordinates."""
    old = state[name]
    others = {k: v for k, v in state.items() if k != name}
    if not knows_conditional(energy, name, others):
        if not energy.spaces[name].is_finite:
            raise Unsuitable(
                f"Gibbs needs p({name} | {', '.join(others)}), which {type(energy).__name__} does not have. "
                "Use NUTS, or Langevin in a learner: they need only a gradient."
            )
        return _sweep_coordinates(energy, name, others, old, key, clamped, is_random)
    distribution = energy.conditional(name, **others)
    if clamped is None:
        return distribution.sample(key).astype(old.dtype)
    try:
        return draw_rest(distribution, old, key, clamped)
    except Unsuitable:
        if not energy.spaces[name].is_finite:
            raise
        return _sweep_coordinates(energy, name, others, old, key, clamped, is_random)


def _sweep_coordinates(
    energy: Energy,
    name: str,
    others: dict[str, Any],
    value: Any,
    key: Any,
    clamped: Any = None,
    is_random: bool = False,
) -> Any:
    """Return a new value of a finite variable, its coordinates drawn one after another or at random."""
    space = energy.spaces[name]
    choices = jnp.arange(space.values_per_coordinate).astype(value.dtype)
    places = None
    if is_random:
        order_key, key = jax.random.split(key)
        places = jax.random.randint(order_key, (space.size,), 0, max(space.size, 1))
    keys = jax.random.split(key, max(space.size, 1))
    fixed = jnp.zeros(space.size, bool) if clamped is None else clamped.reshape(-1)

    known = energy.knows("coordinate_logits")

    def logits_of(i, flat):
        if known:
            return energy.coordinate_logits(name, i, **others, **{name: flat.reshape(space.shape)})
        with_choice = lambda choice: flat.at[i].set(choice).reshape(space.shape)
        energies = jax.vmap(lambda choice: checked_energy(energy, {**others, name: with_choice(choice)}))
        return -energies(choices)

    def visit(step, flat):
        i = step if places is None else places[step]
        drawn = choices[jax.random.categorical(keys[step], logits_of(i, flat))]
        return flat.at[i].set(jnp.where(fixed[i], flat[i], drawn))

    return jax.lax.fori_loop(0, space.size, visit, value.reshape(-1)).reshape(space.shape)
