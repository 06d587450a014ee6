"""Random keys: an int or a JAX key; the same key gives the same result."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from ..errors import BadInput
from ..programs import jit

#: `jax.random` without compiling a program for every number of keys.
split_key = jit(jax.random.split)
fold_in = jit(jax.random.fold_in)
_key_of_seed = jit(jax.random.key)


def as_key(key: Any) -> jax.Array:
    """A typed JAX key from an int, a typed key or an old-style uint32 pair."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not 0 <= int(key) < 2**32:
            raise BadInput("key", repr(key), "an int from 0 to 2³² − 1, or one JAX key")
        return _key_of_seed(np.uint32(key))
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(key)
    raise BadInput("key", f"{type(key).__name__} {key!r:.40}", "an int or one JAX key", "Try key=0.")


def fold_in_each(key: Any, n: int) -> Any:
    """Return the keys `fold_in(key, i)` for i = 0 … n − 1, (n,).

    >>> bool((fold_in_each(jax.random.key(0), 3)[2] == jax.random.fold_in(jax.random.key(0), 2)).all())
    True
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n, dtype=jnp.uint32))


def numpy_generator(key: jax.Array, *path: int) -> np.random.Generator:
    """A NumPy generator that is a function of the key and a path of integers.

    XLA sorts slowly on a CPU, so permutations of many rows are drawn by NumPy.
    """
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([*words, *path])))


# -- Threefry without a loop -------------------------------------------------------------------------

# Measured on two CPU cores, standard time / unrolled time: one Gibbs sweep of an RBM of 784 × 500 units with
# 100 chains 1.2 (4.0 / 3.3 ms), ten sweeps 1.3; 64 × 32 units, one sweep 1.3, ten 1.5; a step of persistent
# contrastive divergence 1.1 to 1.2.

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def unrolled_threefry_key(key: jax.Array) -> jax.Array:
    """A key that gives the same bits as this one, faster on a CPU; the key itself on other devices.

    On a CPU, JAX runs the twenty rounds of Threefry as a loop of passes over the array; unrolled, they are
    one pass. It takes longer to compile, so it is for numbers that are drawn repeatedly.
    """
    if jax.default_backend() != "cpu" or str(jax.random.key_impl(key)) != "threefry2x32":
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_unrolled_threefry())


@functools.cache
def _unrolled_threefry() -> Any:
    from jax.extend import random

    standard = random.threefry_prng_impl

    def is_supported(shape):
        return jax.config.jax_threefry_partitionable and math.prod(shape) < 2**32

    def random_bits(key, bit_width, shape):
        if not is_supported(shape):
            return standard.random_bits(key, bit_width, shape)
        high, low = _threefry(key, *_counts(shape))
        if bit_width == 64:
            return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
        return (high ^ low).astype(f"uint{bit_width}")

    def split(key, shape):
        if not is_supported(shape):
            return standard.split(key, shape)
        return jnp.stack(_threefry(key, *_counts(shape)), -1)

    def fold_in(key, data):
        return jnp.stack(_threefry(key, jnp.uint32(0), asarray(data).astype(jnp.uint32)), -1)

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
    """The counters of an array: (high words, low words)."""
    low = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(low), low


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with twenty rounds.

    Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
    """
    words = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << rotation) | (low >> (32 - rotation)))
        high, low = high + words[(group + 1) % 3], low + words[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low
