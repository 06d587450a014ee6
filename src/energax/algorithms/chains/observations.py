"""What the observations say at every step of a chain, laid out for messages to pass along it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp


class Coded(NamedTuple):
    """log p(x_t | z_t) where few rows repeat: a table (m, k), and which of its rows each step shows.

    codes: (steps,), or (n, steps). What takes k exponentials a step then takes them once a symbol.

    >>> coins = Coded(jnp.log(jnp.array([[0.5, 0.25], [0.5, 0.75]])), jnp.array([0, 1, 1]))
    >>> coins.table[coins.codes].shape                      # what it stands for
    (3, 2)
    """

    table: Any
    codes: Any


class StepLikelihoods(NamedTuple):
    """The same, step by step: steps first, states last, and sequences side by side between them, if many.

    weight: (steps, *lanes, k), p(x_t | z_t) relative to the largest of its step; top: (steps, *lanes), the
    logarithm of that one. at: the weights of step t, read where they are stored once. log: log p(x_t | z_t)
    with lanes last, (steps, k, *lanes). All are functions: what is not asked for is not computed.
    """

    shape: tuple[int, ...]
    weight: Callable[[], Any]
    top: Callable[[], Any]
    at: Callable[[Any], Any]
    log: Callable[[], Any]


def mask_after_end(ends: Any, log_likelihood: Any) -> Any:
    """Of (n, steps, k), an array or coded: the same with nothing seen from step `ends` (n,) on.

    >>> mask_after_end(jnp.array([1]), jnp.ones((1, 2, 3)))[0, :, 0].tolist()
    [1.0, 0.0]
    """
    if isinstance(log_likelihood, Coded):
        table, codes = log_likelihood
        nothing = jnp.zeros((1, table.shape[1]), table.dtype)
        past = jnp.arange(codes.shape[1]) >= ends[:, None]
        return Coded(jnp.concatenate([table, nothing]), jnp.where(past, len(table), codes))
    past = jnp.arange(log_likelihood.shape[1]) >= ends[:, None]
    return jnp.where(past[..., None], 0, log_likelihood)


def tempered(
    log_initial: Any, log_transition: Any, log_likelihood: Any, temperature: Any, lengths: Any = None
) -> tuple[Any, Any, Any]:
    """log π, log A and log b (n, steps, k) of p^(1/T), A again of rows that sum to one.

    What a row of A^(1/T) sums to is counted with the step that is left: steps past an end leave nothing,
    and so still change nothing.
    """
    log_transition, steps = log_transition / temperature, log_likelihood.shape[1]
    leaving = logsumexp(log_transition, axis=1)
    goes_on = jnp.arange(1, steps + 1) < (steps if lengths is None else lengths[:, None])
    log_likelihood = log_likelihood / temperature + jnp.where(goes_on[..., None], leaving, 0)
    return log_initial / temperature, log_transition - leaving[:, None], log_likelihood


def finite_max(log_values: Any, axis: int) -> Any:
    """The maximum, or 0 where all are −∞: what may be subtracted."""
    top = jnp.max(log_values, axis)
    return jnp.where(jnp.isfinite(top), top, 0)


def to_time_major(log_likelihood: Any) -> tuple[StepLikelihoods, bool]:
    """Of (steps, k) or (n, steps, k), an array or coded; and whether there are lanes. One row has none."""
    if isinstance(log_likelihood, Coded):
        return _decoded(log_likelihood)
    many = log_likelihood.ndim == 3 and log_likelihood.shape[0] > 1
    x = log_likelihood.swapaxes(0, 1) if many else log_likelihood.reshape(log_likelihood.shape[-2:])
    top = finite_max(x, -1)
    weight = jnp.exp(x - top[..., None])
    lanes_last = lambda: jnp.moveaxis(x, -1, 1)
    return StepLikelihoods(x.shape, lambda: weight, lambda: top, lambda t: row(weight, t), lanes_last), many


def in_lanes(log_likelihood: Any, ragged: bool = False) -> tuple[Any, bool]:
    """(steps, k) as it is, and many rows (or one that ends early, if `ragged`) as (steps, k, n)."""
    many = log_likelihood.ndim == 3 and (log_likelihood.shape[0] > 1 or ragged)
    if many:
        # Turned once and for all: fused into all that reads it, it would be turned in each of them.
        return lax.optimization_barrier(jnp.transpose(log_likelihood, (1, 2, 0))), True
    return log_likelihood.reshape(log_likelihood.shape[-2:]), False


def _decoded(coded: Coded) -> tuple[StepLikelihoods, bool]:
    table, codes = coded.table, coded.codes
    many = codes.ndim == 2 and codes.shape[0] > 1
    codes = codes.T if many else codes.reshape(-1)
    tops = finite_max(table, 1)
    weights = jnp.exp(table - tops[:, None])
    shape, spelled_out = (*codes.shape, table.shape[1]), lambda: jnp.moveaxis(table[codes], -1, 1)
    top = lambda: tops[codes]
    if not many:
        at = lambda t: row(weights, row(codes, t))
        return StepLikelihoods(shape, lambda: weights[codes], top, at, spelled_out), False
    weight = lax.optimization_barrier(weights[codes])  # else looked up in all that reads it
    return StepLikelihoods(shape, lambda: weight, top, lambda t: row(weight, t), spelled_out), True


def as_rows(values: Any, like: Any, many: bool, lanes: int) -> Any:
    """Values with their lanes at that axis, as the rows were given."""
    if many:
        return jnp.moveaxis(values, lanes, 0)
    batch = like.codes.ndim == 2 if isinstance(like, Coded) else like.ndim == 3
    return values[None] if batch else values


def row(array: Any, t: Any) -> Any:
    """array[t], a slice that a native loop can read; a code that has no row reads the last."""
    zero = jnp.zeros((), jnp.int32)
    return lax.dynamic_slice(array, (t, *(zero,) * (array.ndim - 1)), (1, *array.shape[1:]))[0]
