"""`Writer`: turns an object into a JSON document and arrays."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BadInput
from ..estimate import Estimate
from ..spaces import Space
from ._limits import StringLimit
from ._names import is_buildable, jax_functions, public_name

_PLAIN = (bool, int, float, str, type(None))


class Writer:
    """Turns an object into JSON, with its arrays separate; an array that occurs twice is written once."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self.strings = StringLimit()
        self.seen: dict[int, tuple[Any, str]] = {}

    def encode(self, value: Any, where: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, (np.ndarray, jax.Array, np.generic)):
            return self._array(value, where)
        if type(value) in (tuple, list, set, frozenset):
            return {
                "$": type(value).__name__,
                "items": [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)],
            }
        if type(value) is dict:
            pairs = [
                [self.encode(k, f"{where} key"), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()
            ]
            return {"$": "dict", "items": pairs}
        if isinstance(value, complex):
            return {"$": "complex", "parts": [value.real, value.imag]}
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return {"$": "dtype", "name": np.dtype(value).name, "type": isinstance(value, type)}
        if isinstance(value, np.random.RandomState):
            return {"$": "RandomState", "state": self.encode(value.get_state(), where)}
        if isinstance(value, Space):
            return {
                "$": "space",
                "class": public_name(type(value)),
                "items": self.encode(value._arguments(), where),
            }
        if isinstance(value, Estimate):
            fields = {n: getattr(value, n) for n in Estimate.__slots__}
            return {"$": "object", "class": public_name(type(value)), "fields": self._fields(fields, where)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {
                "$": "object",
                "class": public_name(type(value)),
                "fields": self._fields(dict(zip(value._fields, value, strict=True)), where),
            }
        if isinstance(value, type) and is_buildable(value):
            return {"$": "name", "name": public_name(value)}
        if id(value) in jax_functions():
            return {"$": "name", "name": jax_functions()[id(value)]}
        if isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
            return self._function(value, where)
        if is_buildable(type(value)):
            return {
                "$": "object",
                "class": public_name(type(value)),
                "fields": self._fields(_state(value), where),
            }
        raise BadInput(
            where,
            f"{type(value).__name__}",
            "numbers, strings, arrays, containers, modules, spaces",
            _remedy(where),
        )

    def _fields(self, fields: dict[str, Any], where: str) -> dict[str, Any]:
        return {name: self.encode(value, f"{where}.{name}") for name, value in fields.items()}

    def _function(self, value: Any, where: str) -> Any:
        plain = isinstance(value, types.FunctionType) and not value.__closure__
        if plain and "<" not in value.__qualname__:
            return {"$": "name", "name": public_name(value)}
        raise BadInput(
            where,
            "a lambda or a nested function",
            "a function defined at the top level of a module",
            _remedy(where),
        )

    def _array(self, value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "OUSM":
            return self._objects(value, where)
        if value.dtype.type is np.void or (isinstance(value, np.generic) and value.dtype.kind in "SM"):
            expected = "numbers or strings"
            raise BadInput(where, f"NumPy values of dtype {value.dtype}", expected, _remedy(where))
        kind = (
            "jax" if isinstance(value, jax.Array) else "scalar" if isinstance(value, np.generic) else "numpy"
        )
        out: dict[str, Any] = {"$": kind}
        if kind == "jax" and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            out["key"] = str(jax.random.key_impl(value))
            value = jax.random.key_data(value)
        if kind == "scalar" and value.dtype.kind == "U":
            return str(value)
        array = np.asarray(value)
        itemsize = array.dtype.itemsize
        if array.dtype.kind not in "biuf" or array.dtype.isbuiltin != 1 or itemsize > 8:  # such as bfloat16
            out["dtype"] = array.dtype.name
            bits = np.ascontiguousarray(array).view(f"u{min(itemsize, 8)}")
            if itemsize > 8:  # such as complex128: two numbers for each, so that the shape is another
                out["shape"] = list(array.shape)
            array = bits if itemsize > 8 else bits.reshape(array.shape)
        _, name = self.seen.get(id(value), (None, ""))
        if not name:
            name = f"{len(self.arrays):05d} {where}"
            self.arrays[name] = array
            self.seen[id(value)] = (value, name)  # the reference keeps its id from being reused
        return {**out, "array": name}

    def _objects(self, value: np.ndarray, where: str) -> Any:
        """An array of strings or of Python objects."""
        is_text = value.dtype.kind in "US"
        items = value.ravel().tolist()
        if is_text and not self.strings.allows(value.dtype.itemsize, items):
            found = f"strings in {value.nbytes} bytes, most of which are empty"
            raise BadInput(where, found, "a dtype as wide as the strings", "Use array.astype(object).")
        return {
            "$": "strings" if is_text else "objects",
            "dtype": value.dtype.str if is_text else "O",
            "shape": list(value.shape),
            "items": [self.encode(str(v) if isinstance(v, np.str_) else v, where) for v in items],
        }


def _state(value: Any) -> dict[str, Any]:
    if hasattr(type(value), "__sklearn_tags__"):
        return dict(vars(value))
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}


def _remedy(where: str) -> str:
    if ".learner" in where:
        return "Prediction does not need the learner: estimator.set_params(learner=None).save(path)."
    return "Give the field a value that is data, or a function defined at the top level of a module."
