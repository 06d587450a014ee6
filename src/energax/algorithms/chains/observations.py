"""log p(x_t | z_t) of every step of a chain, in the layouts that the recursions read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp


class CodedLikelihoods(NamedTuple):
    """log p(x_t | z_t) as a table (m, k) of distinct rows, and the index of every step's row.

    codes: (steps,) or (n, steps). Exponentials are then computed once per symbol, not once per step.

    >>> coins = CodedLikelihoods(jnp.log(jnp.array([[0.5, 0.25], [0.5, 0.75]])), jnp.array([0, 1, 1]))
    >>> coins.table[coins.codes].shape                      # the array that it represents
    (3, 2)
    """

    table: Any
    codes: Any


class StepLikelihoods(NamedTuple):
    """p(x_t | z_t) in the layout (steps, *lanes, k); lanes are sequences side by side, if there are several.

    weight: (steps, *lanes, k), p(x_t | z_t) divided by the largest value of its step. top: (steps, *lanes),
    the logarithm of that largest value. at: the weights of step t. log: log p(x_t | z_t) with lanes last,
    (steps, k, *lanes). All are functions, so that only what is used is computed.
    """

    shape: tuple[int, ...]
    weight: Callable[[], Any]
    top: Callable[[], Any]
    at: Callable[[Any], Any]
    log: Callable[[], Any]


def mask_after_end(ends: Any, log_likelihood: Any) -> Any:
    """log p(x_t | z_t) (n, steps, k), an array or coded, with zeros from step `ends` (n,) on.

    >>> mask_after_end(jnp.array([1]), jnp.ones((1, 2, 3)))[0, :, 0].tolist()
    [1.0, 0.0]
    """
    if isinstance(log_likelihood, CodedLikelihoods):
        table, codes = log_likelihood
        zeros = jnp.zeros((1, table.shape[1]), table.dtype)
        past = jnp.arange(codes.shape[1]) >= ends[:, None]
        return CodedLikelihoods(jnp.concatenate([table, zeros]), jnp.where(past, len(table), codes))
    past = jnp.arange(log_likelihood.shape[1]) >= ends[:, None]
    return jnp.where(past[..., None], 0, log_likelihood)


def temper(
    log_initial: Any, log_transition: Any, log_likelihood: Any, temperature: Any, lengths: Any = None
) -> tuple[Any, Any, Any]:
    """log π, log A and log b (n, steps, k) of p^(1/T), where the rows of A sum to one again.

    The row sums of A^(1/T) are added to the log-likelihood of the step before the transition. Steps past an
    end have no transition, so they still do not change the result.
    """
    log_transition, steps = log_transition / temperature, log_likelihood.shape[1]
    row_sums = logsumexp(log_transition, axis=1)
    has_next = jnp.arange(1, steps + 1) < (steps if lengths is None else lengths[:, None])
    log_likelihood = log_likelihood / temperature + jnp.where(has_next[..., None], row_sums, 0)
    return log_initial / temperature, log_transition - row_sums[:, None], log_likelihood


def finite_max(log_values: Any, axis: int) -> Any:
    """The maximum, or 0 where all values are −∞, so that it can be subtracted."""
    top = jnp.max(log_values, axis)
    return jnp.where(jnp.isfinite(top), top, 0)


def to_time_major(log_likelihood: Any) -> tuple[StepLikelihoods, bool]:
    """(step likelihoods of (steps, k) or (n, steps, k), an array or coded; whether they have lanes).

    A batch of one sequence has no lanes.
    """
    if isinstance(log_likelihood, CodedLikelihoods):
        return _coded_to_time_major(log_likelihood)
    many = log_likelihood.ndim == 3 and log_likelihood.shape[0] > 1
    x = log_likelihood.swapaxes(0, 1) if many else log_likelihood.reshape(log_likelihood.shape[-2:])
    top = finite_max(x, -1)
    weight = jnp.exp(x - top[..., None])
    lanes_last = lambda: jnp.moveaxis(x, -1, 1)
    return StepLikelihoods(x.shape, lambda: weight, lambda: top, lambda t: row(weight, t), lanes_last), many


def _coded_to_time_major(coded: CodedLikelihoods) -> tuple[StepLikelihoods, bool]:
    table, codes = coded.table, coded.codes
    many = codes.ndim == 2 and codes.shape[0] > 1
    codes = codes.T if many else codes.reshape(-1)
    tops = finite_max(table, 1)
    weights = jnp.exp(table - tops[:, None])
    shape, lanes_last = (*codes.shape, table.shape[1]), lambda: jnp.moveaxis(table[codes], -1, 1)
    top = lambda: tops[codes]
    if not many:
        at = lambda t: row(weights, row(codes, t))
        return StepLikelihoods(shape, lambda: weights[codes], top, at, lanes_last), False
    weight = lax.optimization_barrier(weights[codes])  # else XLA repeats the look-up for every reader
    return StepLikelihoods(shape, lambda: weight, top, lambda t: row(weight, t), lanes_last), True


def to_lanes_last(log_likelihood: Any, ragged: bool = False) -> tuple[Any, bool]:
    """((steps, k) unchanged, or (n, steps, k) as (steps, k, n); whether there are lanes).

    A batch of one sequence has lanes only if it is `ragged`, that is, may end early.
    """
    many = log_likelihood.ndim == 3 and (log_likelihood.shape[0] > 1 or ragged)
    if many:
        # The barrier makes XLA transpose once; else it would be fused into every reader.
        return lax.optimization_barrier(jnp.transpose(log_likelihood, (1, 2, 0))), True
    return log_likelihood.reshape(log_likelihood.shape[-2:]), False


def to_batch_major(values: Any, like: Any, many: bool, lane_axis: int) -> Any:
    """Values with the axis of lanes first, or without it if the likelihoods `like` are of one sequence."""
    if many:
        return jnp.moveaxis(values, lane_axis, 0)
    batch = like.codes.ndim == 2 if isinstance(like, CodedLikelihoods) else like.ndim == 3
    return values[None] if batch else values


def row(array: Any, t: Any) -> Any:
    """array[t] as a slice, which XLA's native loops can read; an index past the end gives the last row."""
    zero = jnp.zeros((), jnp.int32)
    return lax.dynamic_slice(array, (t, *(zero,) * (array.ndim - 1)), (1, *array.shape[1:]))[0]
