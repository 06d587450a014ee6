"""Unconstrained coordinates: the real variables of an energy as one vector u in ℝⁿ, and log p(u)."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..energy import Energy, free_energy
from ..errors import Unsuitable
from ..finite import Assignments
from ..spaces import Space
from ._gibbs import knows_conditional


def split_spaces(energy: Energy) -> tuple[dict[str, Space], dict[str, Space], list[str]]:
    """Return the real variables, the finite ones, and the names of the others."""
    spaces = energy.spaces
    real = {k: v for k, v in spaces.items() if v.is_real}
    finite = {k: v for k, v in spaces.items() if v.is_finite}
    return real, finite, [k for k in spaces if k not in real and k not in finite]


def check_gradient(energy: Energy, sampler: str) -> None:
    """Raise `Unsuitable` unless the energy has a gradient in real variables, and sums over all others."""
    real, finite, other = split_spaces(energy)
    if not real or other:
        raise Unsuitable(
            f"{sampler} needs real variables, but {type(energy).__name__} has {other or list(finite)} "
            f"without a gradient. Use {'Compound' if real else 'RandomWalk' if other else 'Gibbs'}."
        )
    if finite and not energy.knows("free_energy", frozenset(real)):
        Assignments(finite).check_size(
            f"{sampler}, which sums out finite variables,",
            "Use Compound, or give the energy `free_energy`.",
        )


def to_unconstrained(energy: Energy, state: dict[str, Any]) -> Any:
    """Return the real variables of a state as one vector u, (n,)."""
    real, _, _ = split_spaces(energy)
    return jnp.concatenate([jnp.ravel(s.chain_bijection.inv(state[n])) for n, s in real.items()])


def from_unconstrained(energy: Energy, u: Any) -> dict[str, Any]:
    """Return the real variables at u, by name."""
    return {n: s.chain_bijection(v) for (n, s), v in zip(*_split_vector(energy, u), strict=True)}


def _split_vector(energy: Energy, u: Any) -> tuple[Any, list[Any]]:
    """Return the real spaces by name, and the part of u of each, in its shape."""
    real, _, _ = split_spaces(energy)
    shapes = [s.chain_bijection.inverse_shape(s.shape) for s in real.values()]
    sizes = [math.prod(shape) for shape in shapes]
    parts = jnp.split(u, [sum(sizes[:i]) for i in range(1, len(sizes))])
    return real.items(), [p.reshape(shape) for p, shape in zip(parts, shapes, strict=True)]


def log_density(energy: Energy, state: dict[str, Any], clamped: Any) -> Any:
    """Return log p(u) = −F(b(u)) + log |db/du| as a function of u; finite variables are summed out.

    Clamped coordinates keep the value of `state`. Theirs in u are standard normal and independent of the
    rest, so that they neither drift nor affect the other ones.
    """

    def log_p(u):
        x, total = {}, 0.0
        for (name, space), v in zip(*_split_vector(energy, u), strict=True):
            value = space.chain_bijection(v)
            log_det = space.chain_bijection.log_abs_det_jacobian(v, value)
            fixed = (clamped or {}).get(name)
            if fixed is not None:
                fixed_event = fixed.all() if space.event_ndim else fixed
                log_det = jnp.where(
                    fixed_event, -0.5 * jnp.sum(v**2) if space.event_ndim else -0.5 * v**2, log_det
                )
            total = total + jnp.sum(log_det)
            x[name] = clamp(state[name], value, clamped, name)
        return total - free_energy(energy, x)

    return log_p


def clamp(old: Any, new: Any, clamped: Any, name: str) -> Any:
    """Return `new` with the clamped coordinates of `old`."""
    mask = (clamped or {}).get(name)
    return new if mask is None else jnp.where(mask, old, new)


def complete_state(energy: Energy, state: dict[str, Any], u: Any, key: Any, clamped: Any) -> dict[str, Any]:
    """Return the state at u: real variables without the clamped coordinates, finite ones drawn given them."""
    _, finite, _ = split_spaces(energy)
    real = {n: clamp(state[n], v, clamped, n) for n, v in from_unconstrained(energy, u).items()}
    return {**real, **_draw_finite(energy, real, finite, key)}


def _draw_finite(energy: Energy, real: dict[str, Any], finite: dict[str, Any], key: Any) -> dict[str, Any]:
    """Return an exact draw of all finite variables given the real ones."""
    if not finite:
        return {}
    if len(finite) == 1:
        ((name, space),) = finite.items()
        if knows_conditional(energy, name, real):
            return {name: energy.conditional(name, **real).sample(key).astype(space.jax_dtype)}
    return Energy.draw(energy, key, **real)


def unmoved_when_clamped(spaces: dict[str, Space]) -> list[str]:
    """Return the variables whose coordinates cannot be clamped one by one: finite or constrained together."""
    return [n for n, s in spaces.items() if s.is_finite or s.event_ndim]


def random_start(energy: Energy, key: Any) -> Any:
    """Return a standard normal u."""
    real, _, _ = split_spaces(energy)
    n = sum(math.prod(s.chain_bijection.inverse_shape(s.shape)) for s in real.values())
    return jax.random.normal(key, (n,))
