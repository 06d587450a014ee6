"""The engine that runs programs: NumPy, XLA, or NumPy first and XLA for longer work."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..errors import BadInput
from ._cost import TooLong

R = TypeVar("R")

ENGINES = ("auto", "numpy", "xla")


_engine: contextvars.ContextVar[str | None] = contextvars.ContextVar("engine", default=None)


def engine() -> str:
    """The engine of calls here: "auto", "numpy" or "xla"."""
    chosen = _engine.get()
    return chosen or _check(os.environ.get("ENERGAX_ENGINE", "auto").lower(), "ENERGAX_ENGINE")


def _check(name: str, argument: str) -> str:
    if name not in ENGINES:
        raise BadInput(argument, repr(name), f"one of {', '.join(ENGINES)}")
    return name


# -- all programs of a call on one engine ------------------------------------------------------------------

_attempt: contextvars.ContextVar[dict[Any, float] | None] = contextvars.ContextVar("attempt", default=None)


def attempt() -> dict[Any, float] | None:
    """The seconds that programs have used in an attempt to interpret all of them, or None."""
    return _attempt.get()


def run_on_one_engine(function: Callable[[], R]) -> R:
    """Return `function()` with all its programs interpreted; if that takes too long, with all compiled.

    NumPy and XLA round differently. If a fit changed from one to the other within its epochs, a second fit
    that is compiled from the start would end elsewhere. The function must have no side effects.
    """
    if engine() != "auto":
        return function()
    token = _attempt.set({})
    try:
        return function()
    except TooLong:
        pass
    finally:
        _attempt.reset(token)
    with use_engine("xla"):
        return function()


# -- tracing -----------------------------------------------------------------------------------------------

_interpreted: contextvars.ContextVar[bool] = contextvars.ContextVar("interpreted", default=False)


def interpreted() -> bool:
    """Return whether the code here is traced for NumPy, where few large operations are fastest.

    Algorithms with one form for XLA's CPU, such as a loop over columns, and one for libraries or accelerators
    choose the second.
    """
    return _interpreted.get()


@contextlib.contextmanager
def trace_for_numpy() -> Iterator[None]:
    """Make `interpreted()` true."""
    token = _interpreted.set(True)
    try:
        yield
    finally:
        _interpreted.reset(token)


@contextlib.contextmanager
def use_engine(name: str) -> Iterator[None]:
    """Run programs with this engine inside a `with` block.

    "auto" interprets a program with NumPy until that has taken about as long as compiling it would. "xla"
    always compiles: the same call then gives the same bits every time. "numpy" compiles only programs with
    operations that the interpreter does not have.

    >>> with use_engine("xla"):
    ...     engine()
    'xla'
    """
    token = _engine.set(_check(name, "engine"))
    try:
        yield
    finally:
        _engine.reset(token)
