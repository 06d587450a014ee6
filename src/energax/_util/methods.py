"""Methods of modules that are called often."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _PlainMethod:
    def __init__(self, function: Callable[..., Any]):
        self.function, self.__doc__ = function, function.__doc__

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.function if instance is None else functools.partial(self.function, instance)


def plain_method(function: F) -> F:
    """Decorate a method of an Equinox module so that it is bound as in any Python class.

    Equinox makes every bound method a module, which takes about 90 µs. Measured with `Energy.knows`: the
    posterior of a network of three variables takes 0.18 ms, and 0.25 ms (1.4 times as long) without this.
    """
    return cast(F, _PlainMethod(function))
