"""Functions that are equal if their code and captured values are equal.

`optax.adam(1e-3)` makes new closures at every call. JAX compares functions by identity, so a second fit with
an equal optimizer would compile again. Wrapped in `HashableFunction`, equal closures share compiled code.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

_INSTALLED = {"energax", *sys.stdlib_module_names}  # their globals hold caches, which change
_SMALL = 1024  # numbers in an array that is described by its bytes; larger ones by a digest


class Identity:
    """An object that can neither be hashed nor described, compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value  # the reference keeps its id from being reused

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


def describe(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """Return a hashable description of a value, equal for values that behave the same.

    Every value is described by a tuple whose first entry tells its kind, or by an `Identity`.
    """
    if id(value) in seen:  # a recursive function
        return ("again",)
    deeper = functools.partial(describe, seen=(*seen, id(value)))
    if isinstance(value, types.FunctionType):
        cells = tuple(_describe_cell(c, deeper) for c in value.__closure__ or ())
        defaults = tuple(map(deeper, value.__defaults__ or ()))
        keywords = tuple((k, deeper(v)) for k, v in (value.__kwdefaults__ or {}).items())
        return ("function", value.__code__, _describe_globals(value, deeper), cells, defaults, keywords)
    if isinstance(value, functools.partial):
        keywords = tuple((k, deeper(v)) for k, v in sorted(value.keywords.items()))
        return ("partial", deeper(value.func), tuple(map(deeper, value.args)), keywords)
    if isinstance(value, types.MethodType):
        return ("method", deeper(value.__func__), deeper(value.__self__))
    if isinstance(value, (tuple, list)):
        return (type(value), tuple(map(deeper, value)))
    if isinstance(value, dict):
        return (dict, tuple((deeper(k), deeper(v)) for k, v in value.items()))
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer):
        return _describe_array(value, deeper)
    try:
        hash(value)
    except TypeError:
        return Identity(value)
    return (type(value), value)


def _describe_array(value: Any, deeper: Any) -> Any:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return ("key", str(jax.random.key_impl(value)), deeper(jax.random.key_data(value)))
    array = np.asarray(value)
    if array.dtype.hasobject:
        return ("objects", array.shape, deeper(array.tolist()))
    content = array.tobytes() if array.size <= _SMALL else _digest(array)
    return ("array", array.shape, str(array.dtype), content)


def _digest(array: np.ndarray) -> str:
    """Return a digest of all numbers, without a copy of an array that lies in one piece."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


def _describe_globals(function: types.FunctionType, deeper: Any) -> Any:
    """Describe the values of the globals that a function reads; of an installed module only its name.

    In a notebook a function with the same code changes when a global that it reads is set again.
    """
    namespace = function.__globals__
    if is_installed(namespace.get("__name__"), namespace.get("__file__")):
        return namespace.get("__name__")
    names = _global_names(function.__code__)
    return tuple((name, deeper(namespace[name])) for name in names if name in namespace)


def is_installed(module: str | None, file: str | None) -> bool:
    """Return whether a module belongs to Python, to energax or to an installed package."""
    return "site-packages" in (file or "") or str(module).partition(".")[0] in _INSTALLED


def _global_names(code: types.CodeType) -> tuple[str, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for c in inner for n in _global_names(c))]))


def _describe_cell(cell: Any, deeper: Any) -> Any:
    try:
        return deeper(cell.cell_contents)
    except ValueError:  # an empty cell
        return None


class HashableFunction:
    """A function compared by its code and captured values."""

    __slots__ = ("description", "function")

    def __init__(self, function: Any):
        self.function = function
        self.description = describe(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __hash__(self) -> int:
        return hash(self.description)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableFunction) and self.description == other.description


def hash_functions(tree: Any) -> Any:
    """Return the tree with every function and partial among its leaves as a `HashableFunction`."""

    def wrap(leaf):
        is_function = isinstance(leaf, types.FunctionType | functools.partial)
        return HashableFunction(leaf) if is_function and not eqx.is_array(leaf) else leaf

    return jax.tree.map(wrap, tree)


def unwrap_functions(tree: Any) -> Any:
    """Return the tree with the original functions: the inverse of `hash_functions`."""
    return jax.tree.map(lambda leaf: leaf.function if isinstance(leaf, HashableFunction) else leaf, tree)
