"""Proposals of importance sampling: the caller's own, or a Student t fitted in unconstrained space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..._util.arrays import asarray
from ...distributions import is_discrete
from ...energy import Energy, free_energy, supports_call
from ...errors import BadInput, describe
from ...samplers import Langevin, run_chains
from .._map_rows import map_rows
from .._optimise.lbfgs import start_in

_DEGREES = 5
_PILOT_DRAWS = 2048


# -- proposals of the caller ---------------------------------------------------------------------


def check_proposal(proposal: Any) -> None:
    """Raise `BadInput` for what can be no proposal; whether it fits the query is known later."""
    is_distribution = hasattr(proposal, "sample") and hasattr(proposal, "log_prob")
    is_known = proposal is None or isinstance(proposal, eqx.Module | dict) or callable(proposal)
    if isinstance(proposal, type) or not (is_known or is_distribution):
        expected = "a distribution, a dict of distributions, an energy, or a function that returns one"
        raise BadInput("proposal", describe(proposal), expected)


def log_weight(row: dict[str, Any], key: Any, energy: Energy, proposal: Any) -> Any:
    """Return −F(given, drawn) − log q(drawn) of one draw from the proposal."""
    return weighted_draw(row, key, energy, proposal)[1]


def weighted_draw(row: dict[str, Any], key: Any, energy: Energy, proposal: Any) -> tuple[dict[str, Any], Any]:
    """Return one draw from the proposal, by name, and −F(given, drawn) − log q(drawn)."""
    drawn, log_q = propose(row, key, energy, proposal)
    return drawn, -free_energy(energy, {**row, **drawn}) - log_q


def propose(row: dict[str, Any], key: Any, energy: Energy, proposal: Any) -> tuple[dict[str, Any], Any]:
    """Return a draw of hidden variables by name, and log q of it."""
    if isinstance(proposal, Energy):
        target = _given_row(row, proposal)
        names = [n for n in energy.spaces if n in target.spaces and n not in row]
        values = {n: v for n, v in target.draw(key).items() if n in names}
        return values, -free_energy(target, values) - target.log_partition()
    by_name = _distributions(row, key, energy, proposal)
    drawn: dict[str, Any] = {}
    log_q: Any = 0.0
    for (name, each), sub in zip(by_name.items(), jax.random.split(key, len(by_name)), strict=True):
        value = each.sample(sub)
        _check_proposal(name, energy.spaces[name], each, value)
        log_q = log_q + jnp.sum(each.log_prob(value))
        drawn[name] = value.astype(energy.spaces[name].jax_dtype)
    return drawn, log_q


def proposal_log_prob(row: dict[str, Any], values: dict[str, Any], energy: Energy, proposal: Any) -> Any:
    """Return log q of values of the hidden variables, by name."""
    if isinstance(proposal, Energy):
        target = _given_row(row, proposal)
        return -free_energy(target, values) - target.log_partition()
    by_name = _distributions(row, jax.random.key(0), energy, proposal)
    return sum(jnp.sum(each.log_prob(values[name])) for name, each in by_name.items())


def _given_row(row: dict[str, Any], proposal: Energy) -> Energy:
    return proposal.given(**row) if row and set(row) & set(proposal.spaces) else proposal


def _distributions(row: dict[str, Any], key: Any, energy: Energy, proposal: Any) -> dict[str, Any]:
    """Return the distributions of a proposal by name; a function is called with the row."""
    check_proposal(proposal)
    distribution = proposal(**row) if callable(proposal) and not hasattr(proposal, "log_prob") else proposal
    if isinstance(distribution, dict):
        return distribution
    hidden = [n for n in energy.spaces if n not in row]
    if len(hidden) > 1:
        shape = jnp.shape(distribution.sample(key))
        hidden = [n for n in hidden if energy.spaces[n].shape == shape and not energy.spaces[n].is_finite]
    if len(hidden) != 1:
        found = f"one distribution for {len(hidden)} hidden variables of its shape"
        raise BadInput("proposal", found, "a dict of distributions by name")
    return {hidden[0]: distribution}


def _check_proposal(name: str, space: Any, distribution: Any, value: Any) -> None:
    """Raise if draws have another shape than the space, or are discrete where it is real, or the reverse."""
    discrete = is_discrete(distribution)
    if jnp.shape(value) != space.shape or (discrete is not None and discrete is space.is_real):
        found = f"{type(distribution).__name__}, which draws shape {jnp.shape(value)}"
        raise BadInput("proposal", found, f"one over {name!r} in {space!r}", "Is .to_event(1) missing?")


# -- a fitted Student t in unconstrained space ---------------------------------------------------


class Student(NamedTuple):
    """A Student t in ℝᵈ: mean (d,), factor (d, d) and spread (d,), where |det factor| = Π spread."""

    mean: Any
    factor: Any
    spread: Any


def unconstrained_target(
    row: dict[str, Any], energy: Energy, real: tuple[str, ...]
) -> tuple[Callable[[Any], Any], Any, Callable[[Any], dict[str, Any]]]:
    """Return F(given, x(u)) − log |dx/du| as a function of a flat u in ℝᵈ, a start, and x(u) by name."""
    spaces = energy.spaces
    start, unravel = ravel_pytree({n: start_in(spaces[n], None) for n in real})

    def target(flat):
        u, x, log_det = unravel(flat), {}, 0.0
        for name in real:
            bijection = spaces[name].bijection
            x[name] = bijection(u[name])
            log_det = log_det + jnp.sum(bijection.log_abs_det_jacobian(u[name], x[name]))
        return free_energy(energy, {**row, **x}) - log_det

    def constrained(flat):
        u = unravel(flat)
        return {name: spaces[name].bijection(u[name]) for name in real}

    return target, start, constrained


def fit_laplace(target: Callable[[Any], Any], start: Any) -> Student:
    """Return a Student t at the mode of exp(−target), as wide as the curvature there."""
    mode = _newton(target, start)
    eigenvalues, vectors = jnp.linalg.eigh(jax.hessian(target)(mode))
    # Directions of zero or negative curvature get a wide but finite spread.
    spread = 1 / jnp.sqrt(jnp.maximum(jnp.abs(eigenvalues), 1e-2))
    return Student(mode, vectors * spread, spread)


def _newton(target, start, n_steps=30):
    """Return the end of damped Newton steps towards a minimum; the Hessian is needed there anyway."""

    def step(_, carry):
        x, value, damping = carry
        eigenvalues, vectors = jnp.linalg.eigh(jax.hessian(target)(x))
        slope = vectors.T @ jax.grad(target)(x)
        proposed = x - vectors @ (slope / (jnp.abs(eigenvalues) + damping))
        new = target(proposed)
        better = new < value
        x, value = jnp.where(better, proposed, x), jnp.where(better, new, value)
        return x, value, jnp.clip(jnp.where(better, damping / 4, damping * 8), 1e-6, 1e6)

    damping = asarray(1e-2, start.dtype)
    return jax.lax.fori_loop(0, n_steps, step, (start, target(start), damping))[0]


def fit_pilot(energy: Energy, real: tuple[str, ...], key: Any) -> Student:
    """Return a Student t with the mean and covariance of exact draws, or of short Langevin chains."""
    draws = _pilot_draws(energy, real, key)
    u = [np.asarray(energy.spaces[n].bijection.inv(draws[n])) for n in sorted(real)]
    flat = np.concatenate([v.reshape(len(v), -1) for v in u], axis=1)
    flat = flat[np.isfinite(flat).all(1)]
    covariance = np.atleast_2d(np.cov(flat.T)) + 1e-6 * np.eye(flat.shape[1])
    eigenvalues, vectors = np.linalg.eigh(covariance)
    # A little wider than the draws: weights are bounded only if the tails of the proposal are wide enough.
    spread = 1.2 * np.sqrt(np.maximum(eigenvalues, 1e-12))
    return Student(*(asarray(a, jnp.zeros(()).dtype) for a in (flat.mean(0), vectors * spread, spread)))


def _pilot_draws(energy: Energy, real: tuple[str, ...], key: Any) -> Any:
    if energy.knows("draw", ()) and supports_call(energy.draw, key):
        return map_rows(_draw_real, {}, _PILOT_DRAWS, energy, real, key=key, numbers_per_row=64)
    others = [n for n in energy.spaces if n not in real]
    marginal = energy.over(*others) if others else energy
    return run_chains(Langevin(), marginal, _PILOT_DRAWS, key=key, n_chains=32, warmup=500, thin=4)


def _draw_real(row, key, energy, real):
    drawn = energy.draw(key)
    return {n: drawn[n] for n in real}


def student_log_density(white: Any, df: int | None = _DEGREES) -> Any:
    """Return log q at `white` (d,) of a standard Student t with `df` degrees of freedom; None is a normal."""
    d = white.shape[0]
    if df is None:
        return -0.5 * (white @ white) - 0.5 * d * jnp.log(asarray(2 * jnp.pi, white.dtype))
    half = asarray(df / 2, white.dtype)
    lgamma = jax.scipy.special.gammaln
    log_q = lgamma(half + d / 2) - lgamma(half) - 0.5 * d * jnp.log(df * jnp.pi)
    return log_q - (half + d / 2) * jnp.log1p(white @ white / df)


def draw_student(key: Any, d: int, dtype: Any, df: int | None = _DEGREES) -> Any:
    """Return one draw of a standard Student t with `df` degrees of freedom in ℝᵈ, None for a normal."""
    if df is None:
        return jax.random.normal(key, (d,), dtype)
    # χ² with integer degrees is a sum of squared normals: faster to draw and to compile than a gamma variate.
    normals = jax.random.normal(key, (d + df,), dtype)
    return normals[:d] * jnp.sqrt(df / jnp.sum(normals[d:] ** 2))


def propose_student(key: Any, student: Student) -> tuple[Any, Any]:
    """Return one draw u of a Student t with 5 degrees of freedom, and log q(u)."""
    mean, factor, spread = student
    white = draw_student(key, mean.shape[0], mean.dtype)
    return mean + factor @ white, student_log_density(white) - jnp.log(spread).sum()
