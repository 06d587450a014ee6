"""Functions of the variables: their values at draws, and an event that is a threshold of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util import sizes
from .._util.arrays import asarray
from ..errors import BadInput, as_numbers
from ._map_rows import map_rows

if TYPE_CHECKING:
    from ._query import Query


def _as_threshold(value: Any) -> jax.Array:
    return asarray(as_numbers("threshold", value, "a finite number"))


class Exceeds(eqx.Module):
    """The event f(variables) ≥ threshold, a function that is True or False.

    `expectation` of it is the probability of the event. `AdaptiveMixture` reads the function and the
    threshold, so that it can move to an event that it has not yet seen.

    Args:
        function: f, a function of variables by name that returns a number.
        threshold: a number.

    >>> bool(Exceeds(lambda x: x.sum(), 3.0)(x=jnp.array([1.0, 2.5])))
    True
    """

    function: Callable[..., Any]
    threshold: jax.Array = eqx.field(converter=_as_threshold)

    def __check_init__(self):
        if not callable(self.function):
            raise BadInput("function", repr(self.function), "a function of variables by name")
        if np.shape(self.threshold) or not np.isfinite(self.threshold):
            raise BadInput("threshold", repr(self.threshold), "a finite number")

    def __call__(self, **variables: Any) -> Any:
        return self.function(**variables) >= self.threshold


def argument_names(function: Any, spaces: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the variables that a function takes; all of them if it has ** arguments."""
    if isinstance(function, Exceeds):
        function = function.function
    if not callable(function):
        raise BadInput("function", type(function).__name__, "a function, such as lambda x: x.sum()")
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return tuple(spaces)
    names = tuple(p.name for p in parameters if p.default is p.empty)
    if not names or not set(names) <= set(spaces):
        raise BadInput("function", f"the arguments {list(names)}", f"names of variables, {list(spaces)}")
    return names


def values_at(query: Query, rows: dict[str, np.ndarray], function: Any) -> np.ndarray:
    """Return a function at draws: (rows, n, *shape of a value) for draws by name, (rows, n, …)."""
    names = argument_names(function, query.spaces)
    n = next(iter(rows.values())).shape[1]
    both = {"given": query.given, "draws": rows}
    return map_rows(_values, both, query.n, function, names, numbers_per_row=n * query.width)


def _values(row, key, function, names):
    def one(drawn):
        return call_by_name(function, names, {**row["given"], **drawn})

    return jax.lax.map(one, row["draws"], batch_size=sizes.DRAWS.value)


def call_by_name(function: Any, names: tuple[str, ...], example: dict[str, Any]) -> Any:
    """Return the function of these variables of an example, as an array."""
    return jnp.asarray(function(**{k: example[k] for k in names}))
