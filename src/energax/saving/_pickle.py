"""Pickle, which users expect of estimators."""

from __future__ import annotations

import io
import pickle
from typing import Any

import jax
import numpy as np

from ._names import find, jax_functions


class _Packed:
    """The pickled bytes of a value that plain pickle would refuse (a closure) or cut (64 bits to 32)."""

    def __init__(self, data: bytes):
        self.data = data


_SAFE = (bool, int, float, str, type(None), np.ndarray, np.generic)


def picklable(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an estimator, with everything but plain values and NumPy arrays packed."""
    return {k: v if isinstance(v, _SAFE) else _packed(v) for k, v in state.items()}


class _Pickler(pickle.Pickler):
    """Names JAX's functions by where they are found: by their own account they live elsewhere."""

    def reducer_override(self, obj):
        name = jax_functions().get(id(obj))
        return NotImplemented if name is None else (_named, (name,))


def _named(name: str) -> Any:
    return find(name, {})


def _packed(value: Any) -> _Packed:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
        return _Packed(buffer.getvalue())
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # comes with joblib; for closures, such as those of an Optax optimizer

        return _Packed(cloudpickle.dumps(value))


def unpickled(state: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `picklable`."""
    with jax.enable_x64(True):
        return {k: pickle.loads(v.data) if isinstance(v, _Packed) else v for k, v in state.items()}
