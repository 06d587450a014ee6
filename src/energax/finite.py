"""Enumeration of the joint values of finite variables, and sums over them in bounded memory."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ._util import sizes
from .errors import Intractable
from .spaces import Space

ENUMERATION_LIMIT = 2**20
_limit: contextvars.ContextVar[int] = contextvars.ContextVar("_limit", default=ENUMERATION_LIMIT)


@contextlib.contextmanager
def enumeration_limit(limit: int) -> Iterator[None]:
    """A context in which up to `limit` joint values are enumerated."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


class Assignments:
    """All joint values of named finite variables, numbered; the first variable varies slowest.

    >>> from energax.spaces import Binary, Categorical
    >>> pairs = Assignments({"a": Binary(), "b": Categorical(3)})
    >>> pairs.n, {k: int(v) for k, v in pairs.at(4).items()}
    (6, {'a': 1, 'b': 1})
    """

    def __init__(self, spaces: Mapping[str, Space]):
        self.spaces = dict(spaces)
        self.n = 1
        for space in self.spaces.values():
            self.n *= space.n_values or 0

    def at(self, index: Any) -> dict[str, Any]:
        """The joint value with this number."""
        out = {}
        for name, space in reversed(self.spaces.items()):
            out[name] = space.at(index % space.n_values)
            index = index // space.n_values
        return dict(reversed(out.items()))

    def check_size(self, task: str, remedy: str, limit: int | None = None) -> None:
        """Raise `Intractable`, with the size and a remedy, if there are more joint values than the limit."""
        limit = _limit.get() if limit is None else limit
        if not all(space.is_finite for space in self.spaces.values()):
            raise Intractable(task, describe_infinite_sum(self.spaces), "exact sums", remedy)
        if self.n > limit:
            size = f"{self.n:,}" if self.n < 10**15 else f"about 10^{len(str(self.n)) - 1}"
            raise Intractable(task, f"a sum over {size} joint values", f"{limit:,}", remedy)


def describe_infinite_sum(spaces: Mapping[str, Space]) -> str:
    """Say which integral or infinite sum is needed, for an error message."""
    infinite = {k: v for k, v in spaces.items() if not v.is_finite}
    real = any(v.is_real for v in infinite.values())
    over = ", ".join(f"{k!r} in {v!r}" for k, v in infinite.items())
    return f"{'an integral' if real else 'an infinite sum'} over {over}"


def table(function: Callable[[Any], Any], n: int) -> Any:
    """`function(index)` for every index below `n`, evaluated in chunks."""
    size = sizes.JOINT_VALUES.value
    if n <= size:
        return jax.vmap(function)(jnp.arange(n))
    n_chunks = -(-n // size)
    indices = jnp.minimum(jnp.arange(n_chunks * size), n - 1).reshape(n_chunks, size)
    out = jax.lax.map(jax.vmap(function), indices)
    return jax.tree.map(lambda a: a.reshape(n_chunks * size, *a.shape[2:])[:n], out)


def log_sum_exp(function: Callable[[Any], Any], n: int) -> Any:
    """log Σᵢ exp f(i) over `n` indices; memory for one chunk at a time, also in the gradient."""
    size = sizes.JOINT_VALUES.value
    if n <= size:
        return jax.nn.logsumexp(jax.vmap(function)(jnp.arange(n)))
    n_chunks = -(-n // size)

    @jax.checkpoint
    def chunk(start):
        indices = start + jnp.arange(size)
        terms = jax.vmap(function)(jnp.minimum(indices, n - 1))
        return jax.nn.logsumexp(jnp.where(indices < n, terms, -jnp.inf))

    return jax.nn.logsumexp(jax.lax.map(chunk, size * jnp.arange(n_chunks)))


def draw(key: Any, log_probs: Any, n: int) -> Any:
    """n independent indices (n,) with p(i) ∝ exp(log_probs[i]), in memory for the values plus the draws.

    `jax.random.categorical` draws one number per value and draw. Here running sums are inverted, in two
    levels of about √m for m values: one sum over a million values in single precision would resolve few of
    them.

    >>> draw(jax.random.key(0), jnp.log(jnp.array([0.0, 0.4, 0.0, 0.6])), 6)
    Array([3, 3, 1, 3, 3, 1], dtype=int32)
    """
    size = log_probs.shape[0]
    width = max(1, math.isqrt(size - 1) + 1)
    n_blocks = -(-size // width)
    weights = jnp.exp(log_probs - jnp.max(log_probs))
    blocks = jnp.pad(weights, (0, n_blocks * width - size)).reshape(n_blocks, width)
    within = _running_sum(blocks)
    across = _running_sum(within[None, :, -1])
    first, second = jax.random.uniform(key, (2, n), weights.dtype)
    block = _search(across, jnp.zeros(n, jnp.int32), first * across[0, -1])
    inner = _search(within, block, second * within[block, -1])
    return jnp.minimum(block * width + inner, size - 1)


def draw_one(key: Any, log_probs: Any) -> Any:
    """One index with p(i) ∝ exp(log_probs[i]), from one random number; for few values.

    >>> draw_one(jax.random.key(0), jnp.log(jnp.array([0.0, 0.4, 0.0, 0.6])))
    Array(3, dtype=int32)
    """
    sums = _running_sum(jnp.exp(log_probs - jnp.max(log_probs))[None])[0]
    uniform = jax.random.uniform(key, (), sums.dtype)
    # Below the total, also after rounding: the first sum above it is then one of a possible value.
    return jnp.sum(sums <= jnp.minimum(uniform * sums[-1], jnp.nextafter(sums[-1], 0)))


def _running_sum(rows: Any) -> Any:
    """Running sums of every row that never fall, and do not rise where a number is 0."""
    # A parallel sum rounds neighbours differently, and an impossible value could be drawn.
    return jax.lax.cummax(jnp.where(rows > 0, jnp.cumsum(rows, axis=1), 0), axis=1)


def _search(sums: Any, row: Any, target: Any) -> Any:
    """The first index of each `sums[row]` whose entry is above the target, by bisection."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        is_above = sums[row, middle] > target
        return jnp.where(is_above, low, middle + 1), jnp.where(is_above, middle, high)

    last = sums.shape[1] - 1
    bounds = jnp.zeros_like(row), jnp.full_like(row, last)
    return jax.lax.fori_loop(0, last.bit_length(), halve, bounds)[0]
