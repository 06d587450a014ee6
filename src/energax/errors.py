"""Errors. Every message says what was found, what was expected, and what to do."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

_UNKNOWN_MEMORY = 2**36  # bytes, where the operating system does not tell
_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 40, 60, 24


class EnergaxError(Exception):
    """The base class of every error that energax raises on purpose."""


class BadInput(EnergaxError, ValueError):
    """An argument has an invalid value."""

    def __init__(self, argument: str, found: str, expected: str, remedy: str = ""):
        self.argument, self.found, self.expected, self.remedy = argument, found, expected, remedy
        message = f"{argument}: found {found}; expected {expected}."
        super().__init__(f"{message} {remedy}".strip())

    def __reduce__(self):
        return (type(self), (self.argument, self.found, self.expected, self.remedy))


def describe(value: Any) -> str:
    """A value in a message, in few characters: an array by its shape, others by a shortened `repr`.

    >>> describe([1, 2.5]), describe(list(range(99))), describe("é" * 99)[:5]
    ('[1, 2.5]', '[0, 1, 2, 3, 4, 5, ...]', "'éééé")
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and shape and dtype is not None:
        return f"an array of {dtype} of shape {shape}"
    if type(value) is object:
        return "object()"  # without its address
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)}"
    return " ".join(_SHORT.repr(value).split())


def check_instance(name: str, value: Any, kind: type, expected: str, remedy: str = "") -> None:
    """Raise unless the value is an object of this class; of the class itself, say that it is one."""
    if isinstance(value, kind):
        return
    if isinstance(value, type):
        raise BadInput(name, describe(value), expected, f"Make an object of it: {value.__name__}(…).")
    raise BadInput(name, type(value).__name__, expected, remedy)


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Raise unless the value is an integer >= `least`. Booleans are rejected."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise BadInput(name, describe(value), f"a whole number >= {least}")


def check_number(
    name: str,
    value: Any,
    is_valid: Callable[[Any], bool] = lambda value: value >= 0,
    expected: str = "a number >= 0",
    remedy: str = "",
) -> None:
    """Raise unless the value is a real number for which `is_valid` holds. Booleans are rejected."""
    if not isinstance(value, Real) or isinstance(value, bool) or not is_valid(value):
        raise BadInput(name, describe(value), expected, remedy)


def _is_numeric_array(value: Any) -> bool:
    """Whether the value has a dtype that is not of objects, strings or dates."""
    if not hasattr(value, "shape") or hasattr(value, "toarray") or isinstance(value, np.ma.MaskedArray):
        return False  # lists, sparse and masked arrays
    dtype = getattr(value, "dtype", None)
    return getattr(dtype, "kind", "O") not in "OUSTMm" and not getattr(dtype, "names", None)


def check_numbers(
    name: str, value: Any, is_valid: Callable[[Any], bool] = lambda value: True, expected: str = "a number"
) -> None:
    """Raise unless the value is a number for which `is_valid` holds, or an array of numbers.

    The values of arrays are not checked: they may be traced.
    """
    if _is_numeric_array(value):
        return
    check_number(name, value, is_valid, expected)


def as_numbers(name: str, value: Any, expected: str) -> Any:
    """Return an array as it is, and anything else as a NumPy array of numbers; raise if it is not one."""
    if _is_numeric_array(value):
        return value
    try:
        array = np.ma.filled(value.astype(float), np.nan) if np.ma.isMA(value) else np.asarray(value)
        if array.dtype.kind in "OUSTMmV":
            array = array.astype(np.float64)
        return array
    except (TypeError, ValueError, OverflowError):
        raise BadInput(name, describe(value), expected) from None


def check_memory(name: str, value: Any, numbers: float, what: str, itemsize: int = 8) -> None:
    """Raise `BadInput` if `numbers` numbers would not fit in the memory of this machine.

    Without it the operating system would end the process, or XLA would fail in an allocation.

    Args:
        name: the argument that decides the size.
        value: its value.
        numbers: how many numbers the largest arrays have; it may be a very large int.
        what: the arrays, in words.
        itemsize: bytes per number.
    """
    needed, available = numbers * itemsize, _memory()
    if needed > available:
        raise BadInput(
            name,
            f"{describe(value)}, for which {what} would take {_gigabytes(needed)}",
            f"a value for which they fit in {_gigabytes(available)}, the memory of this machine",
        )


def _memory() -> int:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return _UNKNOWN_MEMORY


def _gigabytes(n_bytes: float) -> str:
    """A number of bytes in words.

    >>> _gigabytes(3 * 10**9), _gigabytes(8 * 10**36)
    ('3 GB', '8e+27 GB')
    """
    return f"{min(n_bytes, 10**300) / 1e9:.3g} GB"  # a larger int is no float


class Intractable(EnergaxError):
    """An exact computation would be too large; the message gives its size and the alternatives."""

    def __init__(self, task: str, size: str, limit: str, remedy: str):
        self.task, self.size, self.limit, self.remedy = task, size, limit, remedy
        super().__init__(f"{task} would need {size}, more than the limit of {limit}. {remedy}")

    def __reduce__(self):
        return (type(self), (self.task, self.size, self.limit, self.remedy))


class Unsuitable(EnergaxError, TypeError):
    """A learner, inference or sampler does not support this energy."""


class NotFitted(EnergaxError, ValueError, AttributeError):
    """A method that needs a fitted estimator was called before `fit`."""


class Diverged(EnergaxError, ArithmeticError):
    """A computation produced NaN or infinity; the message names the term and the step."""


class BadFile(EnergaxError, OSError):
    """A file is truncated, altered, of a newer version, or not written by energax."""


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged; the message says what to change."""
