"""Errors. Every message says what was found, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any


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


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Raise unless the value is an integer >= `least`. Booleans are rejected."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise BadInput(name, repr(value), f"a whole number >= {least}")


def check_number(
    name: str,
    value: Any,
    is_valid: Callable[[Any], bool] = lambda value: value >= 0,
    expected: str = "a number >= 0",
    remedy: str = "",
) -> None:
    """Raise unless the value is a real number for which `is_valid` holds. Booleans are rejected."""
    if not isinstance(value, Real) or isinstance(value, bool) or not is_valid(value):
        raise BadInput(name, repr(value), expected, remedy)


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
