"""Functions that are equal if their code and captured values are equal.

`optax.adam(1e-3)` makes new closures at every call. JAX compares functions by identity, so a second fit with
an equal optimizer would compile again. Wrapped in `HashableFunction`, equal closures share compiled code.
"""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np


def _describe(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """Return a hashable description of a value, equal for values that behave the same."""
    if id(value) in seen:  # a recursive function
        return "again"
    deeper = functools.partial(_describe, seen=(*seen, id(value)))
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
        return ("dict", tuple((k, deeper(v)) for k, v in value.items()))
    if isinstance(value, np.ndarray | jax.Array) and np.size(value) <= 1024:
        array = np.asarray(value)
        return ("array", array.shape, str(array.dtype), array.tobytes())
    try:
        hash(value)
    except TypeError:
        return ("id", id(value))
    return (type(value), value)


def _describe_globals(function: types.FunctionType, deeper: Any) -> Any:
    """Describe the values of the globals that a function reads; of an installed package only its name.

    In a notebook a function with the same code changes when a global that it reads is set again.
    """
    namespace = function.__globals__
    if "site-packages" in (namespace.get("__file__") or ""):
        return namespace.get("__name__")
    names = _global_names(function.__code__)
    return tuple((name, deeper(namespace[name])) for name in names if name in namespace)


def _global_names(code: types.CodeType) -> tuple[str, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for c in inner for n in _global_names(c))]))


def _describe_cell(cell: Any, deeper: Any) -> Any:
    try:
        return deeper(cell.cell_contents)
    except ValueError:  # an empty cell
        return None


def stable_text(description: Any) -> str:
    """Return a description as text that is the same in another process: without addresses."""
    if isinstance(description, types.CodeType):
        consts = ",".join(stable_text(c) for c in description.co_consts)
        return f"code({description.co_name},{description.co_code.hex()},{description.co_names},{consts})"
    if isinstance(description, tuple):
        if description[:1] == ("id",):
            return "id"
        return "(" + ",".join(map(stable_text, description)) + ")"
    if isinstance(description, type | types.ModuleType):
        return description.__name__
    return re.sub(r"0x[0-9a-f]+", "", repr(description))


class HashableFunction:
    """A function compared by its code and captured values."""

    __slots__ = ("description", "function")

    def __init__(self, function: Any):
        self.function = function
        self.description = _describe(function)

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
