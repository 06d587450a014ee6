"""Randomness is an explicit key: an int or a JAX key, the same one giving the same result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import BadInput


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
