"""`Reader`: builds an object from a JSON document and arrays."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from .._util.files import shorten
from ..errors import BadFile
from ..estimate import Estimate
from ..spaces import Space
from ._limits import StringLimit
from ._names import find, public_name


class Reader:
    """The inverse of `Writer`."""

    def __init__(self, path: Any, arrays: dict[str, np.ndarray], classes: Any):
        self.path, self.arrays = shorten(path), arrays
        self.classes = {public_name(c): c for c in classes}
        self.strings = StringLimit()
        self.decoded: dict[tuple[str, str], Any] = {}

    def decode(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        kind = node["$"]
        if kind in ("tuple", "list", "set", "frozenset"):
            types = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
            return types[kind](self.decode(v) for v in node["items"])
        if kind == "dict":
            return {self.decode(k): self.decode(v) for k, v in node["items"]}
        if kind in ("jax", "numpy", "scalar"):
            return self._array(node, kind)
        if kind in ("strings", "objects"):
            return self._objects(node, kind)
        if kind == "complex":
            return complex(*node["parts"])
        if kind == "dtype":
            return np.dtype(node["name"]).type if node["type"] else np.dtype(node["name"])
        if kind == "RandomState":
            return self._random_state(self.decode(node["state"]))
        if kind == "space":
            cls = self._class(node["class"])
            if not (isinstance(cls, type) and issubclass(cls, Space)):
                raise BadFile(f"{self.path}: {node['class']} is not a space. Save it again from the source.")
            return cls(*self.decode(node["items"]))
        if kind == "name":
            return self._class(node["name"])
        if kind == "object":
            return self._object(self._class(node["class"]), node["fields"])
        raise BadFile(f"{self.path}: contains a part of unknown kind {str(kind)[:40]!r}. Update energax.")

    def _class(self, name: str) -> Any:
        found = find(name, self.classes)
        if found is None:
            name = name[:200]
            short = name.rpartition(":")[2]
            raise BadFile(
                f"{self.path}: needs {name}, which is not part of energax. "
                f"If you trust it, import it and call load(path, classes=({short},))."
            )
        return found

    def _object(self, cls: Any, fields: dict[str, Any]) -> Any:
        values = {name: self.decode(value) for name, value in fields.items()}
        if cls is Estimate:
            return Estimate(**values)
        if issubclass(cls, tuple):
            return cls(**values)
        if any(name.startswith("__") for name in values):
            raise BadFile(f"{self.path}: {cls.__name__} has a field with a name that Python reserves.")
        if not hasattr(cls, "__sklearn_tags__"):
            allowed = {f.name for f in dataclasses.fields(cls)}
            unknown = sorted(set(values) - allowed)
            if unknown:
                raise BadFile(f"{self.path}: {cls.__name__} has no field {unknown[0]!r} in this energax.")
        # The fields are set without __init__, which would compute them anew.
        made = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def _objects(self, node: dict[str, Any], kind: str) -> np.ndarray:
        """An array of strings or of Python objects."""
        items, dtype = node["items"], np.dtype("O")
        if kind == "strings":
            dtype = np.dtype(node["dtype"])
            if dtype.kind not in "US" or not all(isinstance(v, str) for v in items):
                raise BadFile(f"{self.path}: contains an array of strings that is not one.")
            if not self.strings.allows(dtype.itemsize, items):
                raise BadFile(
                    f"{self.path}: claims {dtype.itemsize * len(items)} bytes for an array of "
                    f"{len(items)} strings, far more than they need. The file may be forged."
                )
        out = np.empty(len(items), dtype)
        for i, value in enumerate(items):  # one by one: an item may be an array
            out[i] = self.decode(value)
        return out.reshape(node["shape"])

    def _random_state(self, state: Any) -> np.random.RandomState:
        name, key, position, has_gauss, gauss = state
        # NumPy does not check the position, and would read memory after the array.
        if name != "MT19937" or key.shape != (624,) or not 0 <= int(position) <= 624:
            raise BadFile(f"{self.path}: contains an invalid state of np.random.RandomState.")
        made = np.random.RandomState()
        made.set_state((name, key, int(position), int(bool(has_gauss)), float(gauss)))
        return made

    def _array(self, node: dict[str, Any], kind: str) -> Any:
        if (kind, node["array"]) in self.decoded:
            return self.decoded[kind, node["array"]]
        array: Any = self.arrays[node["array"]]
        if "dtype" in node:
            dtype = jnp.dtype(node["dtype"])
            if dtype.hasobject or dtype.kind in "US":  # bits that are no object and no text
                raise BadFile(f"{self.path}: contains an array of bits as {dtype}.")
            array = array.view(dtype) if array.ndim else array[None].view(dtype)[0]
            array = array.reshape(node.get("shape", array.shape))
        if kind == "scalar":
            return array[()]
        if kind == "jax":
            with jax.enable_x64(True):  # else 64-bit arrays would become 32-bit ones
                array = asarray(array)
                if "key" in node:
                    array = jax.random.wrap_key_data(array, impl=node["key"])
        else:
            array = np.array(array)
        self.decoded[kind, node["array"]] = array
        return array
