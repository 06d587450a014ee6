"""Positive numbers that parameters of models start from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..errors import BadInput, describe
from .arrays import asarray


def hyperparameter(value: Any, name: str) -> jax.Array:
    """Return a number or a vector of positive numbers as an array, in double precision unless it has less.

    A Python number stays exact in 64 bits whatever the setting of JAX is: a kernel is often made before the
    precision of the data is known, and `Kernel.astype` rounds it to that.
    """
    if isinstance(value, jax.Array):
        return value
    try:
        array = np.asarray(value)
        known = array.dtype.kind in "iuf" and array.ndim <= 1
    except (TypeError, ValueError):
        known = False
    if not known or not (np.isfinite(array).all() and (array > 0).all() and array.size):
        raise BadInput(name, describe(value), "a finite number > 0, or a vector of them")
    with jax.enable_x64(True):
        return asarray(array.astype(np.float64) if array.dtype != np.float32 else array)
