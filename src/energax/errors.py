"""Every error says what was found, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any


class EnergaxError(Exception):
    """The root of every error that energax raises on purpose."""


class BadInput(EnergaxError, ValueError):
    """A value at a public door is not what the door takes."""

    def __init__(self, argument: str, found: str, expected: str, remedy: str = ""):
        self.argument, self.found, self.expected, self.remedy = argument, found, expected, remedy
        sentence = f"{argument}: found {found}; expected {expected}."
        super().__init__(f"{sentence} {remedy}".strip())

    def __reduce__(self):
        return (type(self), (self.argument, self.found, self.expected, self.remedy))


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is not a whole number from `least` on; True is none."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise BadInput(name, repr(value), f"a whole number >= {least}")


def check_number(
    name: str,
    value: Any,
    fits: Callable[[Any], bool] = lambda value: value >= 0,
    expected: str = "a number >= 0",
    remedy: str = "",
) -> None:
    """Refuse what is no real number, or not one that fits; True is none."""
    if not isinstance(value, Real) or isinstance(value, bool) or not fits(value):
        raise BadInput(name, repr(value), expected, remedy)


class Intractable(EnergaxError):
    """An exact computation would be too large; the message names its size and what else there is."""

    def __init__(self, task: str, size: str, limit: str, remedy: str):
        self.task, self.size, self.limit, self.remedy = task, size, limit, remedy
        super().__init__(f"{task} would need {size}, more than the limit of {limit}. {remedy}")

    def __reduce__(self):
        return (type(self), (self.task, self.size, self.limit, self.remedy))


class Unsuitable(EnergaxError, TypeError):
    """A learner, inference or sampler was combined with an energy it makes no sense for."""


class NotFitted(EnergaxError, ValueError, AttributeError):
    """A fitted quantity was asked of an estimator that has not been fitted."""


class Diverged(EnergaxError, ArithmeticError):
    """A computation left the finite numbers; the message names the term and the step."""


class BadFile(EnergaxError, OSError):
    """A file is truncated, tampered with, of a newer version, or not ours."""


class ConvergenceWarning(UserWarning):
    """A fit ended before it converged; the message says what to change."""
