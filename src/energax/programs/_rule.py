"""The common part of all rules: their type, the error of a missing one, and questions about number types.

A rule takes the parameters of an equation, its output avals and its input avals, and returns a function of
arrays. All that depends on shapes is computed in the rule, because its function is called many times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

Rule = Callable[[dict[str, Any], Sequence[Any], Sequence[Any]], Callable[..., Any]]


class Unsupported(Exception):
    """A primitive has no rule, or none for these parameters: the program must be compiled."""


def plain(function: Callable[..., Any]) -> Rule:
    """A rule that ignores parameters and shapes."""
    return lambda parameters, outputs, inputs: function


def is_float(dtype: Any) -> bool:
    """Whether numbers are real and not integers. bfloat16 is, although NumPy's `kind` of it is not "f"."""
    return bool(jax.dtypes.issubdtype(dtype, np.floating))


def is_short(dtype: Any) -> bool:
    """Whether floating-point numbers have less than 32 bits. Rules compute with these in float32."""
    return is_float(dtype) and np.dtype(dtype).itemsize < 4


def widened(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    """The function, with short floating-point inputs converted to float32."""
    if not any(is_short(aval.dtype) for aval in inputs):
        return function

    def wide(*arrays):
        return function(*[a.astype(np.float32) if is_short(a.dtype) else a for a in arrays])

    return wide
