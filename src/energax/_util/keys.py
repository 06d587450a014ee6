"""Randomness is an explicit key: an int or a JAX key, the same one giving the same result."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BadInput


def as_key(key: Any) -> jax.Array:
    """A typed JAX key from an int, a typed key or an old-style uint32 pair."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not 0 <= int(key) < 2**32:
            raise BadInput("key", repr(key), "an int from 0 to 2³² − 1, or one JAX key")
        return jax.random.key(int(key))
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(key)
    raise BadInput("key", f"{type(key).__name__} {key!r:.40}", "an int or one JAX key", "Try key=0.")


def numpy_generator(key: jax.Array, *path: int) -> np.random.Generator:
    """A NumPy generator that depends on the key and a path of whole numbers alone.

    XLA sorts slowly on a CPU, so permutations of many rows are drawn by NumPy.
    """
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([*words, *path])))


# -- the same numbers, sooner ------------------------------------------------------------------------

_TURNS = (13, 15, 26, 6), (17, 29, 16, 24)


def unrolled_threefry_key(key: jax.Array) -> jax.Array:
    """A key that gives the very bits that this one gives, three times as quickly on a CPU.

    There JAX writes the twenty rounds of Threefry as a loop over whole arrays, which compiles sooner;
    written out they are one pass over them. It pays where numbers are drawn again and again.
    """
    if jax.default_backend() != "cpu" or str(jax.random.key_impl(key)) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_written_out())


@functools.cache
def _written_out() -> Any:
    from jax.extend import random

    standard = random.threefry_prng_impl

    def plain(shape):
        return jax.config.jax_threefry_partitionable and math.prod(shape) < 2**32

    def random_bits(key, bit_width, shape):
        if not plain(shape):
            return standard.random_bits(key, bit_width, shape)
        high, low = _threefry(key, *_counts(shape))
        if bit_width == 64:
            return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
        return (high ^ low).astype(f"uint{bit_width}")

    def split(key, shape):
        return jnp.stack(_threefry(key, *_counts(shape)), -1) if plain(shape) else standard.split(key, shape)

    def fold_in(key, data):
        return jnp.stack(_threefry(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)), -1)

    return random.define_prng_impl(
        key_shape=(2,),
        seed=standard.seed,
        split=split,
        random_bits=random_bits,
        fold_in=fold_in,
        name="threefry2x32 unrolled",
        tag="fry",
    )


def _counts(shape: tuple[int, ...]) -> tuple[Any, Any]:
    places = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(places), places


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 of twenty rounds.

    Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
    """
    words = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for turn in _TURNS[group % 2]:
            high = high + low
            low = high ^ ((low << turn) | (low >> (32 - turn)))
        high, low = high + words[(group + 1) % 3], low + words[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low
