"""Block Gibbs: each variable in turn from its conditional; coordinate by coordinate where none is known."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.linalg import cholesky, solve_lower
from ..energy import Energy, FiniteDistribution, checked_energy, supports_call
from ..errors import BadInput, Unsuitable
from ._sampler import Sampler


class Gibbs(Sampler):
    """x_i ~ p(x_i | all others), one block after another.

    A block is a whole variable where the energy knows its `conditional`; a finite variable
    without that knowledge is swept coordinate by coordinate, each a softmax over its values.

    `order` names all variables as a sweep visits them. By default it is that of the energy's
    `spaces` from the end: hidden variables are named last and so drawn first, and a chain begun
    at x forgets where its hidden part began.

    Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian
    restoration of images.

    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.full(3, 9.0), jnp.zeros(2))
    >>> Gibbs().step(rbm, {"x": jnp.zeros(3), "z": jnp.zeros(2)}, jax.random.key(0))["x"]
    Array([1., 1., 1.], dtype=float32)
    """

    order: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.order is not None and (isinstance(self.order, str) or len(set(self.order)) < len(self.order)):
            raise BadInput("order", repr(self.order), "names of variables, each once", 'Try ("x", "z").')

    def check(self, energy: Energy) -> None:
        spaces = energy.spaces
        if self.order is not None and set(self.order) != set(spaces):
            raise BadInput(
                "order", repr(self.order), f"every variable of {type(energy).__name__}: {', '.join(spaces)}"
            )
        for name, space in spaces.items():
            others = {k: _abstract(v) for k, v in spaces.items() if k != name}
            if not space.is_finite and not knows_conditional(energy, name, others):
                instead = (
                    "Use Langevin, which needs only a gradient."
                    if space.is_real
                    else "Give the energy `conditional`."
                )
                raise Unsuitable(
                    f"Gibbs needs the conditional of {name!r}, which lies in {space!r} and which "
                    f"{type(energy).__name__} does not know. {instead}"
                )

    def _order(self, energy: Energy) -> tuple[str, ...]:
        return self.order or tuple(reversed(energy.spaces))

    def first_overwritten(self, energy, seen):
        first = self._order(energy)[0]
        return first if first in seen and not set(energy.spaces) <= set(seen) else None

    def step(self, energy, state, key, clamped=None):
        # The state itself is no guide to an order: JAX sorts dicts.
        names = [name for name in self._order(energy) if name in state]
        for name, sub in zip(names, jax.random.split(key, len(names)), strict=True):
            state = {**state, name: draw_block(energy, name, state, sub, (clamped or {}).get(name))}
        return state


def _abstract(space: Any) -> Any:
    return jax.ShapeDtypeStruct(space.shape, space.jax_dtype)


def knows_conditional(energy: Energy, name: str, others: dict[str, Any]) -> bool:
    """Whether the energy itself answers p(name | others): asked by tracing, nothing is computed."""
    return energy.knows("conditional", frozenset(others)) and supports_call(
        energy.conditional, name, **others
    )


def draw_block(energy: Energy, name: str, state: dict[str, Any], key: Any, clamped: Any) -> Any:
    """A new value of one variable given all others, and given its own coordinates that are held."""
    old = state[name]
    others = {k: v for k, v in state.items() if k != name}
    if not knows_conditional(energy, name, others):
        if not energy.spaces[name].is_finite:
            raise Unsuitable(
                f"Gibbs: {type(energy).__name__} does not know p({name} | {', '.join(others)}). "
                "Use Langevin, which needs only a gradient."
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


def draw_rest(distribution: Any, old: Any, key: Any, clamped: Any) -> Any:
    """The coordinates that are not held, exactly, given those that are: p(x_a | x_b)."""
    from numpyro import distributions as d

    base = distribution
    while isinstance(base, d.Independent):
        base = base.base_dist
    if isinstance(distribution, FiniteDistribution):
        values = distribution.space.values()
        clash = ((values != old) & clamped).reshape(len(values), -1).any(1)
        kept = FiniteDistribution(jnp.where(clash, -jnp.inf, distribution.log_probs), distribution.space)
        return kept.sample(key).astype(old.dtype)
    if isinstance(base, d.Distribution) and base.event_shape == ():
        # Coordinates that are independent of each other do not mind what is held.
        return jnp.where(clamped, old, distribution.sample(key).astype(old.dtype))
    if isinstance(distribution, d.MultivariateNormal):
        return jnp.where(clamped, old, _normal_rest(distribution, old, key, clamped))
    raise Unsuitable(
        f"Gibbs cannot draw some coordinates given the others under {type(distribution).__name__}. "
        "Use Langevin, which moves any of them."
    )


def _normal_rest(normal, old, key, clamped):
    """A draw of N(μ, Σ) corrected so that its held coordinates are as they are (Matheron's rule)."""
    covariance = normal.covariance_matrix
    drawn = normal.sample(key)
    both = clamped[:, None] & clamped[None, :]
    seen = jnp.where(both, covariance, jnp.eye(old.shape[0], dtype=covariance.dtype))
    gap = jnp.where(clamped, old - drawn, 0)
    factor = cholesky(seen)
    white = solve_lower(factor, jnp.stack([gap], -1))
    onto = solve_lower(factor, jnp.where(clamped[:, None], covariance, 0))
    return drawn + (onto.T @ white)[:, 0]


def _sweep_coordinates(
    energy: Energy, name: str, others: dict[str, Any], value: Any, key: Any, clamped: Any = None
) -> Any:
    space = energy.spaces[name]
    choices = jnp.arange(space.values_per_coordinate).astype(value.dtype)
    keys = jax.random.split(key, max(space.size, 1))
    stays = jnp.zeros(space.size, bool) if clamped is None else clamped.reshape(-1)

    def visit(i, flat):
        energies = jax.vmap(
            lambda choice: checked_energy(
                energy, {**others, name: flat.at[i].set(choice).reshape(space.shape)}
            )
        )(choices)
        drawn = choices[jax.random.categorical(keys[i], -energies)]
        return flat.at[i].set(jnp.where(stays[i], flat[i], drawn))

    return jax.lax.fori_loop(0, space.size, visit, value.reshape(-1)).reshape(space.shape)
