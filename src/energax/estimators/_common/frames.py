"""Results in the kind of table that was given: an array, a pandas frame or a polars frame."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def like_input(values: np.ndarray, X: Any) -> Any:
    """Return a table of the shape of X as a frame with the columns and the index of X, if X is a frame.

    >>> like_input(np.ones((1, 2)), [[0.0, 1.0]])
    array([[1., 1.]])
    """
    library = type(X).__module__.partition(".")[0]
    if np.shape(values) != getattr(X, "shape", None) or not hasattr(X, "columns"):
        return values
    if library == "pandas":
        return type(X)(values, index=X.index, columns=X.columns)
    return type(X)(values, schema=X.columns) if library == "polars" else values


def returns_frames(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method that returns a table of the shape of its first argument: a frame gives a frame."""

    @functools.wraps(method)
    def wrapped(self: Any, X: Any, *arguments: Any, **keywords: Any) -> Any:
        return like_input(method(self, X, *arguments, **keywords), X)

    return wrapped
