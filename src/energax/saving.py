"""`save` and `load`: energies, fits and estimators as data, never as code.

A file holds arrays (safetensors) and one JSON document that says how they are nested. Loading
builds only what this module can name: classes of energax, of `equinox.nn`, the states of
Optax, functions of `jax.nn`, and whatever the caller hands over in `classes=`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import os
import pickle
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import storage
from .errors import BadFile, BadInput
from .estimate import Estimate
from .spaces import Space

_KIND = "object"
#: Modules whose classes may be built, and of what sort those classes must be.
_PACKAGES = ("energax", "equinox.nn", "optax")
_names = str.split
_FUNCTIONS: dict[str, list[str] | None] = {
    "jax.nn": None,  # all of its public functions
    "jax.numpy": _names("abs arctan cos cosh exp expm1 log log1p sign sin sinh sqrt square tan tanh"),
    "equinox.nn._mlp": ["_identity"],  # what an MLP does after its last layer, unless told otherwise
    "jax.lax": _names("cos exp logistic neg rsqrt sin sqrt square tanh"),
}
_PLAIN = (bool, int, float, str, type(None))


def save(obj: Any, path: str | os.PathLike) -> None:
    """Write an energy, a fit, or an estimator to one file, whole or not at all.

    >>> import tempfile, energax
    >>> from energax.energies import RBM
    >>> path = tempfile.mkdtemp() + "/rbm.safetensors"
    >>> energax.save(RBM.random(3, 2, key=0), path)
    >>> energax.load(path).spaces
    {'x': Binary(3), 'z': Binary(2)}
    """
    writer = _Writer()
    document = {"kind": _KIND, "root": writer.encode(obj, type(obj).__name__)}
    storage.write(path, writer.arrays, document)


def load(path: str | os.PathLike, classes: Any = ()) -> Any:
    """What `save` wrote. A class (or function) of your own, or several, go in `classes=`."""
    classes = _handed_over(classes)
    arrays, document = storage.read(path)
    if document.get("kind") != _KIND:
        kind = document.get("kind")
        raise BadFile(
            f"{path}: holds a {kind}, not a saved object. A checkpoint is read by fit(checkpoint=)."
        )
    try:
        return _Reader(path, arrays, classes).decode(document["root"])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadFile(
            f"{path}: its parts do not fit together ({type(error).__name__}: {error}). "
            "Load it with the energax that wrote it, or save it again."
        ) from None


def _handed_over(classes: Any) -> tuple:
    """One class or function, or several, as a tuple: a mistake here is not the file's."""
    classes = tuple(classes) if isinstance(classes, (tuple, list, set, frozenset)) else (classes,)
    for c in classes:
        if not (hasattr(c, "__module__") and hasattr(c, "__qualname__")):
            found = " ".join(repr(c).split())[:60]
            raise BadInput("classes", found, "a class or function, or a tuple of them")
    return classes


# -- names ---------------------------------------------------------------------------------


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in packages)


def _buildable(cls: Any) -> bool:
    """Frozen modules, spaces, recipes, results: what holds data and nothing else."""
    if not isinstance(cls, type):
        return False
    if issubclass(cls, (eqx.Module, Space, Estimate)) or hasattr(cls, "__sklearn_tags__"):
        return True
    return dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def _find(name: str, classes: dict[str, Any]) -> Any:
    """The class or function of this name, if it is one that a file may name; else None."""
    if name in classes:
        return classes[name]
    module, _, qualname = name.partition(":")
    if module in _FUNCTIONS:
        names = _FUNCTIONS[module]
        public = qualname in names if names is not None else not qualname.startswith("_")
        found = getattr(importlib.import_module(module), qualname, None) if public else None
        if callable(found) and not isinstance(found, type):
            return found
    if not _within(module, _PACKAGES) or "." in qualname or "<" in qualname:
        return None
    try:
        found = getattr(importlib.import_module(module), qualname, None)
    except ImportError:
        return None
    if _buildable(found) and (module.startswith(("energax", "equinox")) or hasattr(found, "_fields")):
        return found
    # Functions that a module of layers keeps as a default, such as the identity of an MLP.
    if isinstance(found, types.FunctionType) and _within(
        module, ("energax.nn", "energax.energies", "equinox.nn")
    ):
        return found
    return None


@functools.cache
def _jax_functions() -> dict[int, str]:
    """The functions of JAX that a file may name, by identity (their own names are not where they live)."""
    out: dict[int, str] = {}
    for module, names in _FUNCTIONS.items():
        home = importlib.import_module(module)
        for name in names or [n for n in dir(home) if not n.startswith("_")]:
            function = getattr(home, name, None)
            if callable(function) and not isinstance(function, type):
                out.setdefault(id(function), f"{module}:{name}")
    return out


# -- writing -------------------------------------------------------------------------------


class _Writer:
    """Turns an object into JSON, with its arrays on the side; equal arrays are written once."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
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
                "class": _name(type(value)),
                "items": self.encode(value._arguments(), where),
            }
        if isinstance(value, Estimate):
            fields = {n: getattr(value, n) for n in Estimate.__slots__}
            return {"$": "object", "class": _name(type(value)), "fields": self._fields(fields, where)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {
                "$": "object",
                "class": _name(type(value)),
                "fields": self._fields(dict(zip(value._fields, value, strict=True)), where),
            }
        if isinstance(value, type) and _buildable(value):
            return {"$": "name", "name": _name(value)}
        if id(value) in _jax_functions():
            return {"$": "name", "name": _jax_functions()[id(value)]}
        if isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
            return self._function(value, where)
        if _buildable(type(value)):
            return {"$": "object", "class": _name(type(value)), "fields": self._fields(_state(value), where)}
        raise BadInput(
            where,
            f"{type(value).__name__}",
            "numbers, strings, arrays, containers, modules, spaces",
            _unsaved(where),
        )

    def _fields(self, fields: dict[str, Any], where: str) -> dict[str, Any]:
        return {name: self.encode(value, f"{where}.{name}") for name, value in fields.items()}

    def _function(self, value: Any, where: str) -> Any:
        plain = isinstance(value, types.FunctionType) and not value.__closure__
        if plain and "<" not in value.__qualname__:
            return {"$": "name", "name": _name(value)}
        raise BadInput(
            where,
            "a function made on the spot",
            "a function with a name at the top of a module",
            _unsaved(where),
        )

    def _array(self, value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "OUSM":
            return {
                "$": "strings" if value.dtype.kind in "US" else "objects",
                "dtype": value.dtype.str if value.dtype.kind in "US" else "O",
                "shape": list(value.shape),
                "items": [
                    self.encode(v if not isinstance(v, np.str_) else str(v), where)
                    for v in value.ravel().tolist()
                ],
            }
        sort = (
            "jax" if isinstance(value, jax.Array) else "scalar" if isinstance(value, np.generic) else "numpy"
        )
        out = {"$": sort}
        if sort == "jax" and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            out["key"] = str(jax.random.key_impl(value))
            value = jax.random.key_data(value)
        if sort == "scalar" and value.dtype.kind in "US":
            return str(value)
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.dtype.isbuiltin != 1:  # such as bfloat16
            out["dtype"] = array.dtype.name
            bits = f"u{array.dtype.itemsize}"
            array = array.view(bits) if array.ndim else array[None].view(bits)[0]
        _, name = self.seen.get(id(value), (None, ""))
        if not name:
            name = f"{len(self.arrays):05d} {where}"
            self.arrays[name] = array
            self.seen[id(value)] = (value, name)  # held, so that its identity is not used again
        return {**out, "array": name}


def _state(value: Any) -> dict[str, Any]:
    if hasattr(type(value), "__sklearn_tags__"):
        return dict(vars(value))
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}


def _unsaved(where: str) -> str:
    if ".learner" in where:
        return "A model predicts without its learner: estimator.set_params(learner=None).save(path)."
    return "Give that field a value that is data, or a function named in its module."


# -- reading -------------------------------------------------------------------------------


class _Reader:
    """The inverse of `_Writer`."""

    def __init__(self, path: Any, arrays: dict[str, np.ndarray], classes: Any):
        self.path, self.arrays = path, arrays
        self.classes = {_name(c): c for c in classes}
        self.made: dict[tuple[str, str], Any] = {}

    def decode(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        sort = node["$"]
        if sort in ("tuple", "list", "set", "frozenset"):
            kinds = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
            return kinds[sort](self.decode(v) for v in node["items"])
        if sort == "dict":
            return {self.decode(k): self.decode(v) for k, v in node["items"]}
        if sort in ("jax", "numpy", "scalar"):
            return self._array(node, sort)
        if sort in ("strings", "objects"):
            out = np.empty(len(node["items"]), dtype=node["dtype"])
            out[:] = [self.decode(v) for v in node["items"]]
            return out.reshape(node["shape"])
        if sort == "complex":
            return complex(*node["parts"])
        if sort == "dtype":
            return np.dtype(node["name"]).type if node["type"] else np.dtype(node["name"])
        if sort == "RandomState":
            state = np.random.RandomState()
            state.set_state(self.decode(node["state"]))
            return state
        if sort == "space":
            return self._class(node["class"])(*self.decode(node["items"]))
        if sort == "name":
            return self._class(node["name"])
        if sort == "object":
            return self._object(self._class(node["class"]), node["fields"])
        raise BadFile(f"{self.path}: holds a part of the unknown sort {sort!r}. Update energax.")

    def _class(self, name: str) -> Any:
        found = _find(name, self.classes)
        if found is None:
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
        if not hasattr(cls, "__sklearn_tags__"):
            allowed = {f.name for f in dataclasses.fields(cls)}
            unknown = sorted(set(values) - allowed)
            if unknown:
                raise BadFile(f"{self.path}: {cls.__name__} has no field {unknown[0]!r} in this energax.")
        # The fields are set as they were; no __init__ runs, which would compute them anew.
        made = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def _array(self, node: dict[str, Any], sort: str) -> Any:
        if (sort, node["array"]) in self.made:
            return self.made[sort, node["array"]]
        array: Any = self.arrays[node["array"]]
        if "dtype" in node:
            dtype = jnp.dtype(node["dtype"])
            array = array.view(dtype) if array.ndim else array[None].view(dtype)[0]
        if sort == "scalar":
            return array[()]
        if sort == "jax":
            with jax.enable_x64(True):  # else 64 bits would be cut to 32
                array = jnp.asarray(array)
                if "key" in node:
                    array = jax.random.wrap_key_data(array, impl=node["key"])
        else:
            array = np.array(array)
        self.made[sort, node["array"]] = array
        return array


# -- pickle, which users expect of estimators ------------------------------------------------


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
        name = _jax_functions().get(id(obj))
        return NotImplemented if name is None else (_named, (name,))


def _named(name: str) -> Any:
    return _find(name, {})


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
