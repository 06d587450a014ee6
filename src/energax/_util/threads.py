"""Threads for compiled calls that are independent of each other."""

from __future__ import annotations

import concurrent.futures
import contextvars
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def map_in_threads(function: Callable[[Any], Any], tree: Any, axis: int) -> Any:
    """Return `function` of equal parts of the arrays along an axis, one part a core, joined as NumPy arrays.

    XLA releases the interpreter's lock while it runs. Parts have equal sizes, so that they share a program,
    which one thread compiles while the others wait (`programs.jit`).

    >>> map_in_threads(lambda a: 2 * a, np.arange(6).reshape(1, 6), 1).tolist()
    [[0, 2, 4, 6, 8, 10]]
    """
    n = jax.tree.leaves(tree)[0].shape[axis]
    n_parts = max(k for k in range(1, min(n, os.cpu_count() or 1) + 1) if n % k == 0)
    before = (slice(None),) * axis
    size = n // n_parts
    part = lambda i: jax.tree.map(lambda a: a[(*before, slice(i, i + size))], tree)
    to_numpy = lambda part: jax.tree.map(np.asarray, function(part))
    if n_parts == 1:
        return to_numpy(tree)
    # Settings of JAX, such as 64 bits, are kept by thread.
    precision, bits = (getattr(jax.config, f"jax_{n}") for n in ("default_matmul_precision", "enable_x64"))

    def run(part):
        with jax.enable_x64(bits), jax.default_matmul_precision(precision):
            return to_numpy(part)

    with concurrent.futures.ThreadPoolExecutor(n_parts) as pool:
        futures = [pool.submit(contextvars.copy_context().run, run, part(i)) for i in range(0, n, size)]
        results = [future.result() for future in futures]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis), *results)
