"""Kinds of arguments: valid values, in code and in words, to be checked before any work.

A part checks all its fields in one call, `check_arguments(self, k=WHOLE, scale=POSITIVE)`, and a function its
arguments by `check_arguments(locals(), …)`. Arrays may be traced, so their values are not checked.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, as_numbers, check_memory, describe

if TYPE_CHECKING:
    import jax

_LARGEST_INT = 2**31  # of JAX's default integers


@dataclasses.dataclass(frozen=True)
class Setting:
    """The valid values of an argument: a condition, the same in words, and advice.

    >>> size = WHOLE | one_of("auto")
    >>> size.is_valid(3), size.is_valid("auto"), size.is_valid(2.5)
    (True, True, False)
    >>> size.expected
    "a whole number >= 1, or 'auto'"
    """

    is_valid: Callable[[Any], bool]
    expected: str
    remedy: str = ""

    def __or__(self, other: Setting) -> Setting:
        return Setting(
            lambda value: self.is_valid(value) or other.is_valid(value),
            f"{self.expected}, or {other.expected}",
            self.remedy or other.remedy,
        )

    def check(self, name: str, value: Any) -> None:
        """Raise `BadInput` if the value of the argument `name` is not valid."""
        if not self.is_valid(value):
            raise BadInput(name, describe(value), self.expected, self.remedy)


def check_arguments(values: Any, /, **kinds: Setting) -> None:
    """Raise `BadInput` if one of these fields of a module, or entries of a dict, is not of its kind.

    >>> check_arguments({"k": 0}, k=WHOLE)
    Traceback (most recent call last):
    energax.errors.BadInput: k: found 0; expected a whole number >= 1.
    """
    for name, kind in kinds.items():
        kind.check(name, values[name] if isinstance(values, Mapping) else getattr(values, name))


def check_each(name: str, values: Any, kind: Setting, expected: str) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple; raise if it is not one, or if an entry is not of this kind.

    >>> check_each("sizes", [3, 0], WHOLE, "sizes of layers")
    Traceback (most recent call last):
    energax.errors.BadInput: sizes[1]: found 0; expected a whole number >= 1.
    """
    if not isinstance(values, list | tuple):
        raise BadInput(name, describe(values), f"a list: {expected}")
    for i, value in enumerate(values):
        kind.check(f"{name}[{i}]", value)
    return tuple(values)


def read_names(name: str, values: Any, expected: str = "a list of names") -> list[str]:
    """Return names, which may be numbers, as strings; raise if they are no list.

    >>> read_names("names", ["a", 1])
    ['a', '1']
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise BadInput(name, describe(values), expected)
    try:
        listed = list(values)
    except TypeError:  # an array without axes
        raise BadInput(name, describe(values), expected) from None
    if not all(isinstance(value, str | Real | np.generic) for value in listed):
        raise BadInput(name, describe(values), expected)
    return [str(value) for value in listed]


def read_array(name: str, value: Any, expected: str = "an array of numbers") -> jax.Array:
    """Return numbers, in any nested list or array, as an array of JAX; raise if they are none.

    >>> read_array("means", [[1, 2], [3]])
    Traceback (most recent call last):
    energax.errors.BadInput: means: found [[1, 2], [3]]; expected an array of numbers.
    """
    from .arrays import asarray

    found = as_numbers(name, value, expected)
    if isinstance(found, np.ndarray) and found.dtype.kind in "iu" and found.size:
        # Numbers beyond 32 bits would lose their upper ones.
        found = found if np.abs(found).max() < _LARGEST_INT else found.astype(np.float64)
    return asarray(found)


def check_layer_sizes(name: str, sizes: Iterable[int]) -> None:
    """Raise unless the weights of linear layers of these sizes, the inputs first, fit in memory."""
    sizes = [int(size) for size in sizes]
    n_weights = sum(a * b for a, b in itertools.pairwise(sizes))
    check_memory(name, max(sizes), n_weights, "the weights", 4)


# -- numbers -------------------------------------------------------------------------------------------------


def is_whole(value: Any) -> bool:
    """Whether the value is an integer, and no boolean."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_real(value: Any) -> bool:
    """Whether the value is a real number that a float can hold, and no boolean."""
    if type(value) is float:
        return True
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def whole(least: int) -> Setting:
    """An integer >= `least`. Booleans are rejected."""
    return Setting(
        lambda value: is_whole(value) and value >= least,
        f"a whole number >= {least}",
    )


def number(is_valid: Callable[[Any], bool], expected: str, remedy: str = "") -> Setting:
    """A real number for which `is_valid` holds. Booleans are rejected, and ints that are no floats."""
    return Setting(
        lambda value: is_real(value) and bool(is_valid(value)),
        expected,
        remedy,
    )


def is_array(value: Any) -> bool:
    """Whether the value is an array of numbers, of NumPy or JAX; it may be traced."""
    import jax  # here, since plots load without it

    arrays = np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct
    if not isinstance(value, arrays) or isinstance(value, np.ma.MaskedArray):
        return False
    return value.dtype == bool or bool(jax.dtypes.issubdtype(value.dtype, np.number))


def numbers(is_valid: Callable[[Any], Any], expected: str, *, scalar: bool = False) -> Setting:
    """A real number, or an array of numbers, for which `is_valid` holds; `scalar` allows no axes.

    Values of traced arrays are not known. Their axes may be those of several models side by side.
    """

    def is_valid_array(value: Any) -> bool:
        if not is_array(value) or value.dtype == bool:
            return False
        import jax

        if isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct):
            return True
        concrete = np.asarray(value)
        fits = concrete.ndim == 0 if scalar else concrete.size > 0
        return fits and bool(np.isrealobj(concrete) and is_valid(concrete).all())

    def is_valid_number(value: Any) -> bool:
        return (isinstance(value, float) or abs(value) < _LARGEST_INT) and bool(is_valid(value))

    return Setting(lambda v: is_valid_number(v) if is_real(v) else is_valid_array(v), expected)


def array(least_ndim: int, expected: str) -> Setting:
    """An array of numbers with at least so many axes; leading ones are those of several models."""
    return Setting(lambda value: is_array(value) and len(value.shape) >= least_ndim, expected)


# -- kinds of values -----------------------------------------------------------------------------------------


def one_of(*names: str) -> Setting:
    """One of these strings."""
    quoted = [repr(name) for name in names]
    text = " or ".join(quoted) if len(names) < 3 else f"one of {', '.join(quoted)}"
    return Setting(lambda value: isinstance(value, str) and value in names, text)


def instance(kind: type | tuple[type, ...], expected: str, remedy: str = "") -> Setting:
    """An object of this class."""
    return Setting(lambda value: isinstance(value, kind), expected, remedy)


def with_methods(*names: str, expected: str, remedy: str = "") -> Setting:
    """An object that has these methods."""
    return Setting(
        lambda value: (
            not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)
        ),
        expected,
        remedy,
    )


WHOLE = whole(1)
NOT_NEGATIVE = number(lambda value: value >= 0, "a number >= 0")
FINITE_NOT_NEGATIVE = number(lambda value: 0 <= value < np.inf, "a number >= 0")
FRACTION = number(lambda value: 0 < value < 1, "a number strictly between 0 and 1", "Try 0.1.")
ANY_NUMBER = number(lambda value: value == value, "a number")
NONE = Setting(lambda value: value is None, "None")
FLAG = Setting(lambda value: isinstance(value, bool | np.bool_), "True or False")
FUNCTION = Setting(lambda value: callable(value) and not isinstance(value, type), "a function")
NAME = Setting(lambda value: isinstance(value, str) and value != "", "a name")
WIDTH = WHOLE | one_of("scalar")
MATRIX = array(2, "an array of numbers, (n, m)")
VECTOR = array(1, "an array of numbers, (n,)")
ARRAYS = Setting(is_array, "an array of numbers")
POSITIVE = numbers(lambda v: (v > 0) & (v < np.inf), "a number > 0, or an array of them")
WEIGHT = numbers(lambda v: (v >= 0) & (v < np.inf), "a number >= 0, or an array of them")
NUMBER = numbers(lambda v: abs(v) < np.inf, "a number, or an array of them")
POSITIVE_SCALAR = numbers(lambda v: (v > 0) & (v < np.inf), "a number > 0", scalar=True)
WEIGHT_SCALAR = numbers(lambda v: (v >= 0) & (v < np.inf), "a number >= 0", scalar=True)
NUMBER_SCALAR = numbers(lambda v: abs(v) < np.inf, "a number", scalar=True)
SEED = Setting(lambda value: is_whole(value) and 0 <= value < 2**32, "a whole number from 0 to 2³² − 1")
POSITIVE_NUMBER = number(lambda value: 0 < value < np.inf, "a number > 0")
