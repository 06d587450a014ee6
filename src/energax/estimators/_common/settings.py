"""Settings of estimators: a table of valid values for every argument of a constructor, checked before `fit`.

An estimator declares `_settings`, a dict from the names of its arguments to a `Setting`. `fit` and
`partial_fit` check all of them before any work, so that the code behind them may rely on their kinds.
Conditions that depend on the data, such as shapes, are checked where the data are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ..._util.arguments import ANY_NUMBER as ANY_NUMBER
from ..._util.arguments import FINITE_NOT_NEGATIVE as FINITE_NOT_NEGATIVE
from ..._util.arguments import FRACTION as FRACTION
from ..._util.arguments import NONE as NONE
from ..._util.arguments import NOT_NEGATIVE as NOT_NEGATIVE
from ..._util.arguments import WHOLE as WHOLE
from ..._util.arguments import Setting as Setting
from ..._util.arguments import instance as instance
from ..._util.arguments import is_real as is_real
from ..._util.arguments import is_whole as is_whole
from ..._util.arguments import number as number
from ..._util.arguments import one_of as one_of
from ..._util.arguments import whole as whole
from ...fitting import Learner
from ...learn import Objective


def is_numeric(value: Any) -> bool:
    """Whether the value is a real number, or an array or nested list of real numbers."""
    if isinstance(value, bool | str | bytes | dict | set | frozenset) or callable(value):
        return False
    try:
        return np.asarray(value).dtype.kind in "iuf"
    except (TypeError, ValueError, OverflowError):  # ragged lists, sparse arrays
        return False


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


def _is_flag(value: Any) -> bool:
    return type(value) is bool or isinstance(value, np.bool_) or (is_whole(value) and value in (0, 1))


def _is_random_state(value: Any) -> bool:
    if is_whole(value):
        return 0 <= int(value) < 2**32
    return value is None or value is np.random or isinstance(value, np.random.RandomState)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str | np.dtype) and str(value) in ("float32", "float64")


LEARNING_RATE = dataclasses.replace(FINITE_NOT_NEGATIVE, remedy="Try 0.001.")
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
