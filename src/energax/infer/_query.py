"""`Query`: an energy and the given values of its variables, validated and laid out as rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._util.labelled import States
from ..energy import Energy, supports_call
from ..errors import BadInput, Unsuitable
from ..missing import is_masked, value_of
from ..parameters import cache_on, check_no_nan
from ..spaces import Space, as_columns

if TYPE_CHECKING:
    from ..samplers import Draws


class Query:
    """An energy and values of some of its variables; all other variables are hidden.

    Args:
        energy: the energy.
        given: values by name: one example each, or rows with one more leading axis. A single value
            serves all rows. NaN or `Masked` marks missing coordinates.
        argument: the name of `given` in error messages.

    Attributes:
        given: validated arrays by name, each with a leading axis of rows, `Masked` where some are missing.
        n: the number of rows, 1 for one example.
        batched: whether the caller gave rows, so that results have an axis of rows.
        spaces: the spaces of all variables, by name.
    """

    def __init__(self, energy: Energy, given: Mapping[str, Any] | None, argument: str = "given"):
        if not isinstance(energy, Energy):
            raise BadInput("energy", type(energy).__name__, "an Energy")
        # The check for NaN reads all of θ: uncached, a query of a network of 5 nodes takes 1.8 times as long.
        spaces = cache_on(energy, "spaces", _check_spaces)
        given = {} if given is None else as_columns(spaces, given, argument)
        if not isinstance(given, Mapping):
            raise BadInput(argument, type(given).__name__, "a dict from variable names to values")
        unknown = given.keys() - spaces.keys()
        if unknown:
            raise BadInput(argument, f"the names {sorted(unknown)}", f"some of {list(spaces)}")
        self.energy, self.spaces = energy, spaces
        checked = {name: spaces[name].check(given[name], name) for name in spaces if name in given}
        self.batched, self.n, self.given = _as_rows(spaces, checked, argument)

    @functools.cached_property
    def hidden(self) -> dict[str, Space]:
        """The variables without a given value."""
        return {k: v for k, v in self.spaces.items() if k not in self.given}

    @functools.cached_property
    def partially_observed(self) -> dict[str, Space]:
        """The given variables with missing coordinates."""
        return {k: self.spaces[k] for k, v in self.given.items() if is_masked(v)}

    @functools.cached_property
    def targets(self) -> dict[str, Space]:
        """The variables to find: hidden and partially observed ones."""
        given, partially_observed = self.given, self.partially_observed
        return {k: v for k, v in self.spaces.items() if k not in given or k in partially_observed}

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names of the given variables."""
        return frozenset(self.given)

    @property
    def width(self) -> int:
        """The number of coordinates of all variables together."""
        return sum(max(1, space.size) for space in self.spaces.values())

    @property
    def row(self) -> dict[str, Any]:
        """Shapes and dtypes of one row, for tracing."""
        dtype = jax.dtypes.canonicalize_dtype
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], dtype(a.dtype)), self.given)

    def supports(self, name: str, function: Callable[[dict[str, Any]], Any]) -> bool:
        """Return whether `function(row)` can be traced for a row of this query.

        The result is cached for the energy, the `name` of the function and the types of the row, since
        tracing takes long: without it `log_prob` of a mixture on 10 rows takes 5 times as long.
        """
        about = f"supports {name} of {self._row_types}"
        return cache_on(self.energy, about, lambda _: supports_call(function, self.row))

    @property
    def _row_types(self) -> str:
        shape = lambda a: f"{a.dtype}{a.shape}"
        return ", ".join(f"{k}: {'?' * is_masked(v)}{shape(value_of(v))}" for k, v in self.row.items())

    def check_targets(self, task: str) -> None:
        """Raise if there is nothing to find."""
        if not self.targets:
            expected = f"at least one hidden or missing value for {task}"
            raise BadInput("given", f"values of all of {list(self.spaces)}", expected)

    def check_inputs(self, task: str) -> None:
        """Raise unless all inputs of the energy are given completely: it has no distribution over them."""
        energy = self.energy
        lacking = sorted(energy.inputs - (self.names - self.partially_observed.keys()))
        if lacking:
            modelled = [n for n in self.spaces if n not in energy.inputs]
            raise Unsuitable(
                f"{task}: {type(energy).__name__} models {modelled} given {sorted(energy.inputs)} and "
                f"nothing else. Give values of {lacking}."
            )

    def name_states(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name; those of variables whose states have names as `States`."""
        return {k: States.of(v, getattr(self.spaces[k], "labels", None)) for k, v in values.items()}

    def name_draws(self, draws: Draws) -> Draws:
        """Return the draws with the names of states and the number of rows of this query."""
        draws.labels = {k: getattr(v, "labels", None) for k, v in self.targets.items()}
        draws.n_rows = self.n if self.batched else None
        return draws

    def unbatch(self, tree: Any) -> Any:
        """Return the arrays of a tree without their axis of rows, if one example was given."""
        return tree if self.batched else jax.tree.map(lambda a: a[0], tree)


def _check_spaces(energy: Energy) -> dict[str, Space]:
    check_no_nan(energy)
    return energy.spaces


def _as_rows(
    spaces: dict[str, Space], values: dict[str, Any], argument: str
) -> tuple[bool, int, dict[str, Any]]:
    """Return whether rows were given, how many, and the values with a leading axis of rows each."""
    counts = {}
    for name, value in values.items():
        shape = np.shape(value_of(value))
        extra = len(shape) - spaces[name].ndim
        if extra > 1:
            raise BadInput(name, f"shape {shape}", f"one value or rows of shape {spaces[name].shape}")
        counts[name] = shape[0] if extra else None
    sizes = {c for c in counts.values() if c is not None}
    if len(sizes) > 1:
        raise BadInput(argument, f"row counts {counts}", "the same number of rows in every variable")
    if 0 in sizes:
        raise BadInput(argument, "no rows", "at least one row")
    n = next(iter(sizes), 1)
    rows = {k: _repeat(v, n) if counts[k] is None else v for k, v in values.items()}
    return bool(sizes), n, rows


def _repeat(value: Any, n: int) -> Any:
    if is_masked(value):
        return jax.tree.map(lambda a: np.broadcast_to(a, (n, *np.shape(a))), value)
    return value[None] if n == 1 else np.broadcast_to(value, (n, *value.shape))
