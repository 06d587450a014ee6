"""Settings of estimators: a table of valid values for every argument of a constructor, checked before `fit`.

An estimator declares `_settings`, a dict from the names of its arguments to a `Setting`. `fit` and
`partial_fit` check all of them before any work, so that the code behind them may rely on their kinds.
Conditions that depend on the data, such as shapes, are checked where the data are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from ...errors import BadInput, describe
from ...fitting import Learner
from ...learn import Objective


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


# -- numbers ---------------------------------------------------------------------------------------------


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


def is_numeric(value: Any) -> bool:
    """Whether the value is a real number, or an array or nested list of real numbers."""
    if isinstance(value, bool | str | bytes | dict | set | frozenset) or callable(value):
        return False
    try:
        return np.asarray(value).dtype.kind in "iuf"
    except (TypeError, ValueError, OverflowError):  # ragged lists, sparse arrays
        return False


# -- kinds of values -------------------------------------------------------------------------------------


def one_of(*names: str) -> Setting:
    """One of these strings."""
    quoted = [repr(name) for name in names]
    text = " or ".join(quoted) if len(names) < 3 else f"one of {', '.join(quoted)}"
    return Setting(lambda value: isinstance(value, str) and value in names, text)


def letters(known: Iterable[str]) -> Setting:
    """A string of these letters; it may be empty."""
    known = "".join(known)
    return Setting(
        lambda value: isinstance(value, str) and set(value) <= set(known), f"a string of letters of {known!r}"
    )


def names(known: Collection[str], what: str) -> Setting:
    """One of these names, or a list or tuple of them."""

    def is_valid(value: Any) -> bool:
        several = (value,) if isinstance(value, str) else value
        is_list = isinstance(several, list | tuple | set | frozenset)
        return is_list and all(isinstance(name, str) and name in known for name in several)

    return Setting(is_valid, f"{what}: some of {', '.join(known)}")


def instance(kind: type | tuple[type, ...], expected: str, remedy: str = "") -> Setting:
    """An object of this class."""
    return Setting(lambda value: isinstance(value, kind), expected, remedy)


def _is_flag(value: Any) -> bool:
    return type(value) is bool or isinstance(value, np.bool_) or (is_whole(value) and value in (0, 1))


def _is_random_state(value: Any) -> bool:
    if is_whole(value):
        return 0 <= int(value) < 2**32
    return value is None or value is np.random or isinstance(value, np.random.RandomState)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str | np.dtype) and str(value) in ("float32", "float64")


WHOLE = whole(1)
NOT_NEGATIVE = number(lambda value: value >= 0, "a number >= 0")
FINITE_NOT_NEGATIVE = number(lambda value: 0 <= value < np.inf, "a number >= 0")
LEARNING_RATE = dataclasses.replace(FINITE_NOT_NEGATIVE, remedy="Try 0.001.")
FRACTION = number(lambda value: 0 < value < 1, "a number strictly between 0 and 1", "Try 0.1.")
ANY_NUMBER = number(lambda value: value == value, "a number")
NONE = Setting(lambda value: value is None, "None")
ARRAY = Setting(is_numeric, "an array of numbers")
NUMBERS = Setting(is_numeric, "a number or an array of numbers")
FLAG = Setting(_is_flag, "True or False")
VERBOSE = FLAG | whole(0)
RANDOM_STATE = Setting(_is_random_state, "None, an int >= 0 and below 2³², or a RandomState")
DTYPE = Setting(_is_dtype, "'float32' or 'float64'")
FUNCTION = Setting(callable, "a function")
LEARNER = Setting(
    lambda value: value is None or isinstance(value, Learner | Objective),
    "an energax learner or objective, or None",
    "Try energax.learn.Descent(objective, optimizer).",
)
CLASS_WEIGHT = Setting(
    lambda value: (
        value is None or isinstance(value, dict) or (isinstance(value, str) and value == "balanced")
    ),
    "None, 'balanced', or a dict from labels to numbers >= 0",
)

#: Settings that have the same name and meaning in many estimators.
COMMON = {"random_state": RANDOM_STATE, "verbose": VERBOSE, "learner": LEARNER}
#: The arguments of early stopping, as in scikit-learn.
EARLY_STOPPING = {"early_stopping": FLAG, "validation_fraction": FRACTION, "n_iter_no_change": WHOLE}


def check_settings(estimator: Any, *only: str) -> None:
    """Raise `BadInput` if a setting of the estimator is not valid, or one of those named by `only`."""
    table: dict[str, Setting] = estimator._settings
    for name in only or table:
        table[name].check(name, getattr(estimator, name))
