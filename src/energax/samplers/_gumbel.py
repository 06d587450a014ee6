"""The Gumbel trick: draws from unnormalised log-weights as largest entries after adding noise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key
from ..errors import BadInput, as_numbers, check_memory, check_whole_number


def gumbel_max(log_weights: Any, key: Any, n: int = 1) -> Any:
    """Return n independent indices (n,) with p(i) ∝ exp(log_weights[i]), without the normalising sum.

    argmax_i (log w_i + g_i) for independent standard Gumbel numbers g_i. Gumbel (1954), Statistical theory
    of extreme values and some practical applications.

    >>> gumbel_max([-jnp.inf, 3.0, -jnp.inf], 0, 4)
    Array([1, 1, 1, 1], dtype=int32)
    """
    log_weights = _check_log_weights(log_weights)
    check_whole_number("n", n)
    check_memory("n", n, n * log_weights.size, "the noise", 4)
    noise = jax.random.gumbel(as_key(key), (n, log_weights.size), log_weights.dtype)
    return jnp.argmax(log_weights + noise, axis=1)


def gumbel_top_k(log_weights: Any, k: int, key: Any) -> Any:
    """Return k different indices (k,), drawn one after another without replacement, by weights w_i.

    The k largest of log w_i + g_i, largest first, for independent standard Gumbel numbers g_i. Their order
    has the probability Π_j w_{i_j} / (Σ w − w_{i_1} − … − w_{i_{j−1}}). Indices of weight 0 are never drawn:
    if fewer than k have a positive weight, −1 fills the rest.

    Kool, van Hoof and Welling (2019), Stochastic beams and where to find them.

    >>> gumbel_top_k([0.0, -jnp.inf, 50.0], 3, 0)
    Array([ 2,  0, -1], dtype=int32)
    """
    log_weights = _check_log_weights(log_weights)
    check_whole_number("k", k)
    if k > log_weights.size:
        raise BadInput("k", repr(k), f"at most {log_weights.size}, the number of weights")
    noise = jax.random.gumbel(as_key(key), log_weights.shape, log_weights.dtype)
    largest, indices = jax.lax.top_k(log_weights + noise, k)
    return jnp.where(jnp.isneginf(largest), -1, indices)


def _check_log_weights(log_weights: Any) -> Any:
    array = jnp.asarray(as_numbers("log_weights", log_weights, "a vector of numbers"))
    if array.ndim != 1 or array.size == 0:
        raise BadInput("log_weights", f"shape {array.shape}", "a vector of at least one number")
    if isinstance(array, jax.core.Tracer):
        return array.astype(jnp.result_type(array, jnp.float32))
    if np.isnan(np.asarray(array)).any() or not np.isrealobj(array) or (np.asarray(array) == np.inf).any():
        raise BadInput("log_weights", "NaN, infinity or complex numbers", "logarithms of weights")
    if (np.asarray(array) == -np.inf).all():
        raise BadInput("log_weights", "−infinity only", "at least one weight > 0")
    return array.astype(jnp.result_type(array, jnp.float32))
