"""Functions compared by what they are made of.

Optax builds an optimizer from closures, so that `optax.adam(1e-3)` twice is two different
functions, and code compiled for the first would be compiled again for the second. Two
closures with the same code and equal captured values do the same thing; a function wrapped
in `HashableFunction` is hashed and compared so.
"""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np


def _parts(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """A hashable description of a value, equal for values that behave the same."""
    if id(value) in seen:  # a function that calls itself
        return "again"
    deeper = functools.partial(_parts, seen=(*seen, id(value)))
    if isinstance(value, types.FunctionType):
        cells = tuple(_cell(c, deeper) for c in value.__closure__ or ())
        defaults = tuple(map(deeper, value.__defaults__ or ()))
        keywords = tuple((k, deeper(v)) for k, v in (value.__kwdefaults__ or {}).items())
        return ("function", value.__code__, _globals(value, deeper), cells, defaults, keywords)
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


def _globals(function: types.FunctionType, deeper: Any) -> Any:
    """The values of the globals that a function names, where they may change: not in installed packages.

    In a notebook the same code means another function once a variable it reads was set anew.
    """
    home = function.__globals__
    if "site-packages" in (home.get("__file__") or ""):
        return home.get("__name__")
    return tuple((name, deeper(home[name])) for name in _names(function.__code__) if name in home)


def _names(code: types.CodeType) -> tuple[str, ...]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for c in inner for n in _names(c))]))


def _cell(cell: Any, deeper: Any) -> Any:
    try:
        return deeper(cell.cell_contents)
    except ValueError:  # an empty cell
        return None


def stable_text(parts: Any) -> str:
    """A description that is the same in another process: no addresses, code by its instructions."""
    if isinstance(parts, types.CodeType):
        consts = ",".join(stable_text(c) for c in parts.co_consts)
        return f"code({parts.co_name},{parts.co_code.hex()},{parts.co_names},{consts})"
    if isinstance(parts, tuple):
        if parts[:1] == ("id",):
            return "id"
        return "(" + ",".join(map(stable_text, parts)) + ")"
    if isinstance(parts, type | types.ModuleType):
        return parts.__name__
    return re.sub(r"0x[0-9a-f]+", "", repr(parts))


class HashableFunction:
    """A function with the equality of its parts."""

    __slots__ = ("function", "parts")

    def __init__(self, function: Any):
        self.function = function
        self.parts = _parts(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __hash__(self) -> int:
        return hash(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableFunction) and self.parts == other.parts


def hash_functions(tree: Any) -> Any:
    """The tree with every plain function or partial among its leaves made comparable."""

    def wrap(leaf):
        plain = isinstance(leaf, types.FunctionType | functools.partial)
        return HashableFunction(leaf) if plain and not eqx.is_array(leaf) else leaf

    return jax.tree.map(wrap, tree)


def plain(tree: Any) -> Any:
    """The inverse of `hash_functions`."""
    return jax.tree.map(lambda leaf: leaf.function if isinstance(leaf, HashableFunction) else leaf, tree)
