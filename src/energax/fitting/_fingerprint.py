"""`fingerprint`: a digest of whole values, which is the same in every process.

It tells whether a checkpoint belongs to a fit, so it covers all that a fit depends on: arrays of any size,
static fields, the code of functions, and what they captured.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
import types
from typing import Any

import numpy as np

from ._static_functions import Identity, describe, is_installed

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice)


def fingerprint(*parts: Any) -> str:
    """Return a digest of the parts: equal for the same fit, also in another process.

    >>> table, other = np.zeros(5000), np.zeros(5000)
    >>> other[4000] = 1.0
    >>> fingerprint(lambda step: table[step]) == fingerprint(lambda step: other[step])
    False
    """
    texts = _Texts()
    digest = hashlib.sha256()
    for part in parts:
        digest.update(texts.of(part).encode())
    return digest.hexdigest()


class _Texts:
    """Texts of values and of their descriptions, without addresses and in a fixed order."""

    def __init__(self) -> None:
        #: By id; the objects are kept, so that no id is used twice.
        self.objects: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any) -> str:
        return self._text(describe(value))

    def _text(self, description: Any) -> str:
        if isinstance(description, types.CodeType):
            code = f"{description.co_name},{description.co_code.hex()},{description.co_names}"
            return f"code({code},{self.of(description.co_consts)})"
        if isinstance(description, tuple) and description and description[0] is dict:  # equal in any order
            return f"dict({','.join(sorted(map(self._text, description[1])))})"
        if isinstance(description, tuple):
            return f"({','.join(map(self._text, description))})"
        if isinstance(description, set | frozenset):
            return f"set({','.join(sorted(map(self.of, description)))})"
        if isinstance(description, type | types.ModuleType):
            return _name(description)
        if type(description) in _PLAIN or isinstance(description, np.generic | np.dtype):
            return repr(description)
        return self._object(description.value if isinstance(description, Identity) else description)

    def _object(self, value: Any) -> str:
        """Return a digest of an object of any class, computed once; objects may contain each other."""
        if id(value) not in self.objects:
            self.objects[id(value)] = (value, "again")
            text = f"{_name(type(value))}:{self._state(value)}"
            self.objects[id(value)] = (value, hashlib.sha256(text.encode()).hexdigest())
        return self.objects[id(value)][1]

    def _state(self, value: Any) -> str:
        if isinstance(value, set | frozenset):
            return self._text(value)
        if callable(wrapped := getattr(value, "__wrapped__", None)):  # of `jax.jit` and other decorators
            return self.of(wrapped)
        if dataclasses.is_dataclass(value):
            return self.of({f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)})
        try:
            reduced = value.__reduce_ex__(4)  # what pickle would write
            if isinstance(reduced, str):
                return reduced
            # The third is the state; the others are iterators over the items of lists and dicts.
            rest = (part if i == 0 or part is None else list(part) for i, part in enumerate(reduced[2:5]))
            return self.of((_name(reduced[0]), reduced[1], *rest))
        except Exception:  # such as a lock or an open file, which has no state to describe
            return re.sub(r"0x[0-9a-f]+", "", repr(value))


def _name(thing: Any) -> str:
    """Return the name of a class, function or module, with its module if that is an installed one.

    The module of a user's class changes when a script is imported instead of run.
    """
    name = getattr(thing, "__qualname__", None) or thing.__name__
    module = getattr(thing, "__module__", None)
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return f"{module}.{name}" if is_installed(module, file) else name
