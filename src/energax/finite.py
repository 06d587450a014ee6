"""Enumeration of the joint values of finite variables, and sums over them in bounded memory."""

from __future__ import annotations

import contextlib
import contextvars
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
