"""Estimates of time: one equation interpreted with NumPy, and a program compiled by XLA.

The estimates depend on shapes alone, so the same call always has the same one. Measured on two CPU cores.
"""

from __future__ import annotations

import math
from typing import Any

from jax.extend import core

#: Seconds per equation, besides those per number.
_CALL = 4e-6
#: Seconds per number of the result.
_NUMBER = 2e-9
#: Seconds per number of the result, for functions that are slower than arithmetic.
_NUMBERS = {
    "random_bits": 8e-8,
    "random_split": 1e-7,
    "threefry2x32": 8e-8,
    "exp": 5e-9,
    "log": 5e-9,
    "logistic": 1e-8,
    "tanh": 1e-8,
    "lgamma": 3e-8,
    "digamma": 3e-8,
    "erf_inv": 2e-8,
    "sort": 5e-8,
    "scatter-add": 3e-8,
    "gather": 5e-9,
}
#: Operations whose time depends on the numbers of the argument.
_REDUCTIONS = ("reduce_", "argmax", "argmin")
#: Seconds per equation, for those that are many calls of NumPy.
_CALLS = {"gather": 4e-5, "scatter-add": 6e-5, "scatter": 6e-5, "random_bits": 1e-4}
#: Seconds per product of two numbers.
_PRODUCT = 1e-10
#: Seconds of a product that OpenBLAS gives to several threads.
LARGE_PRODUCT = 2e-5
#: Seconds per matrix that is solved by a call of its own.
_MATRIX = 1e-5
#: The largest array of an interpreted program; compiled ones need not hold all their intermediate arrays.
MOST_NUMBERS = 2**21
#: Seconds to compile any program, and for each of its equations.
_COMPILE_ANY = 0.03
_COMPILE = 3e-3


class TooLong(Exception):
    """The interpreter has used the time of its meter."""


class Meter:
    """The estimated seconds that an interpreter has used, and the most it may use."""

    def __init__(self) -> None:
        self.used = 0.0
        self.limit = math.inf
        self.has_large_product = False
        self.prepared: dict[
            Any, Any
        ] = {}  # of the loops in a run: the fixed arguments and what depends on them

    def add(self, seconds: float) -> None:
        self.used += seconds
        if self.used > self.limit or seconds == math.inf:
            raise TooLong


def interpretation(equation: Any) -> float:
    """Estimated seconds of one equation, without those of the jaxprs it calls."""
    name = equation.primitive.name
    numbers = sum(math.prod(v.aval.shape) for v in equation.outvars)
    if numbers > MOST_NUMBERS:
        return math.inf
    if name.startswith(_REDUCTIONS):
        numbers = math.prod(equation.invars[0].aval.shape)
    seconds = _CALLS.get(name, _CALL) + _NUMBERS.get(name, _NUMBER) * numbers
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        seconds += _PRODUCT * numbers * math.prod(shape[i] for i in contracted)
    elif name == "triangular_solve":
        seconds += _MATRIX * math.prod(equation.invars[0].aval.shape[:-2])
    return seconds


def compilation(jaxpr: Any) -> float:
    """Estimated seconds to compile a program."""
    return _COMPILE_ANY + _COMPILE * n_equations(jaxpr)


def n_equations(jaxpr: Any) -> int:
    """The number of equations of a jaxpr, with those of the jaxprs that it calls.

    >>> import jax
    >>> n_equations(jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: x * i, x))(1.0))
    4
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(1 + sum(map(n_equations, _jaxprs(equation))) for equation in inner.eqns)


def _jaxprs(equation: Any) -> list[Any]:
    values = [v for p in equation.params.values() for v in (p if isinstance(p, tuple | list) else (p,))]
    return [v for v in values if isinstance(v, core.ClosedJaxpr | core.Jaxpr)]
