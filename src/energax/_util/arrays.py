"""Conversion to JAX arrays without compiling, and meshes of devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def take_rows(array: Any, index: Any) -> jax.Array:
    """`array[index]`, of known values by NumPy, which compiles nothing.

    >>> take_rows(jnp.array([5.0, 6.0]), np.array([1, 1, 0]))
    Array([6., 6., 5.], dtype=float32)
    """
    return array[index] if isinstance(array, jax.core.Tracer) else asarray(np.asarray(array)[index])


def asarray(value: Any, dtype: Any = None) -> jax.Array:
    """`jnp.asarray`, without the program that it compiles for every new shape of a NumPy array (JAX 0.10.2).

    >>> asarray(np.array([1.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    known = isinstance(value, np.ndarray | np.generic)
    if known or (dtype is not None and isinstance(value, bool | int | float)):
        dtype = np.result_type(value) if dtype is None else dtype
        # A copy, since JAX would use the memory of some arrays, which may change later.
        return jax.device_put(np.array(value, jax.dtypes.canonicalize_dtype(dtype)))
    return jnp.asarray(value, dtype)


def automatic_mesh(mesh: Any) -> Any:
    """Return a mesh of the same devices whose axes are automatic; None as it is.

    The axes of `jax.make_mesh` are explicit: every gather and loop would have to name shardings.
    """
    return None if mesh is None else jax.sharding.Mesh(mesh.devices, mesh.axis_names)
