"""Pickling of estimators."""

from __future__ import annotations

import io
import pickle
from typing import Any

import jax
import numpy as np

from ._names import find, jax_functions


class _Packed:
    """The pickled bytes of a value that plain pickle rejects (a closure) or truncates (64 bits to 32)."""

    def __init__(self, data: bytes):
        self.data = data


_SAFE = (bool, int, float, str, type(None), np.ndarray, np.generic)


def pack_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an estimator, with everything but plain values and NumPy arrays packed."""
    return {k: v if isinstance(v, _SAFE) else _pack(v) for k, v in state.items()}


class _Pickler(pickle.Pickler):
    """Stores functions of JAX by their public names: their `__module__` is private."""

    def reducer_override(self, obj):
        name = jax_functions().get(id(obj))
        return NotImplemented if name is None else (_find, (name,))


def _find(name: str) -> Any:
    return find(name, {})


def _pack(value: Any) -> _Packed:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
        return _Packed(buffer.getvalue())
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle  # installed with joblib; pickles closures, such as those of an Optax optimizer

        return _Packed(cloudpickle.dumps(value))


def unpack_state(state: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `pack_state`."""
    with jax.enable_x64(True):
        return {k: pickle.loads(v.data) if isinstance(v, _Packed) else v for k, v in state.items()}
