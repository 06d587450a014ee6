"""A question to an energy, checked at the door: what is given, what is hidden, for how many rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..energy import Energy
from ..errors import BadInput, Unsuitable
from ..missing import Masked, is_masked, known
from ..parameters import cached_on, check_no_nan
from ..spaces import Space

_BUDGET = 2**22  # numbers that one compiled call may hold at a time, about 16 MB of float32
_MOST_ROWS = 2**12


class Query:
    """Rows of given values of an energy's variables; everything else is hidden.

    `given` holds arrays with one leading axis of rows, `Masked` where coordinates are missing.
    `many` says whether the asker gave rows or one example, and so what the answer looks like.
    """

    def __init__(self, energy: Energy, given: Mapping[str, Any] | None, argument: str = "given"):
        if not isinstance(energy, Energy):
            raise BadInput("energy", type(energy).__name__, "an Energy")
        spaces = cached_on(energy, "spaces", _checked_spaces)
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise BadInput(argument, type(given).__name__, "a dict from variable names to values")
        unknown = given.keys() - spaces.keys()
        if unknown:
            raise BadInput(argument, f"the names {sorted(unknown)}", f"some of {list(spaces)}")
        self.energy, self.spaces = energy, spaces
        checked = {name: spaces[name].check(given[name], name) for name in spaces if name in given}
        self.many, self.n, self.given = _as_rows(spaces, checked, argument)

    @functools.cached_property
    def hidden(self) -> dict[str, Space]:
        """The variables of which nothing is given."""
        return {k: v for k, v in self.spaces.items() if k not in self.given}

    @functools.cached_property
    def partially_observed(self) -> dict[str, Space]:
        """The variables some of whose coordinates are missing."""
        return {k: self.spaces[k] for k, v in self.given.items() if is_masked(v)}

    @functools.cached_property
    def targets(self) -> dict[str, Space]:
        """The variables that an answer speaks of: the hidden and the partly missing ones."""
        given, partially_observed = self.given, self.partially_observed
        return {k: v for k, v in self.spaces.items() if k not in given or k in partially_observed}

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.given)

    def row(self) -> dict[str, Any]:
        """The shapes of one row, to try knowledge out on without computing anything."""
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], jnp.asarray(a[:0]).dtype), self.given)

    def answer(self, tree: Any) -> Any:
        """One answer for one example, rows of answers for rows."""
        return tree if self.many else jax.tree.map(lambda a: a[0], tree)


def _checked_spaces(energy: Energy) -> dict[str, Space]:
    check_no_nan(energy)
    return energy.spaces


def _as_rows(spaces, checked, argument):
    counts = {}
    for name, value in checked.items():
        extra = np.ndim(known(value)) - spaces[name].ndim
        if extra > 1:
            shape = np.shape(known(value))
            raise BadInput(name, f"shape {shape}", f"one value or rows of shape {spaces[name].shape}")
        counts[name] = np.shape(known(value))[0] if extra else None
    sizes = {c for c in counts.values() if c is not None}
    if len(sizes) > 1:
        raise BadInput(argument, f"row counts {counts}", "the same number of rows in every variable")
    if 0 in sizes:
        raise BadInput(argument, "no rows", "at least one row")
    n = sizes.pop() if sizes else 1
    many = any(c is not None for c in counts.values())
    rows = {}
    for name, value in checked.items():
        rows[name] = _repeated(value, n) if counts[name] is None else value
    return many, n, rows


def _repeated(value, n):
    if is_masked(value):
        return jax.tree.map(lambda a: np.broadcast_to(a, (n, *np.shape(a))), value)
    return value[None] if n == 1 else np.broadcast_to(value, (n, *value.shape))


@eqx.filter_jit
def _mapped(function, rows, keys, *arguments):
    return jax.vmap(lambda row, key: function(row, key, *arguments))(rows, keys)


@eqx.filter_jit
def _called(function, rows, *arguments):
    return function(rows, *arguments)


def map_rows(
    function: Callable[..., Any],
    rows: dict[str, Any],
    n: int,
    *arguments: Any,
    key: Any = None,
    numbers_per_row: int = 1,
) -> Any:
    """`function(row, key, *arguments)` for every row, as NumPy, with bounded memory.

    Rows go through one compiled call a chunk. Chunks are padded to a power of two, so that
    another number of rows is seldom another compilation; `function` is a module's own, so
    that another call is none.
    """
    keys = jax.random.split(jax.random.key(0) if key is None else key, n)
    call = lambda chunk: _mapped(function, *chunk, *arguments)
    return _in_chunks(call, (rows, keys), n, numbers_per_row)


def map_batches(
    function: Callable[..., Any], rows: dict[str, Any], n: int, *arguments: Any, numbers_per_row: int = 1
) -> Any:
    """The same for a `function(rows, *arguments)` that is written for many rows at once."""
    return _in_chunks(lambda chunk: _called(function, chunk, *arguments), rows, n, numbers_per_row)


def _in_chunks(call: Callable[[Any], Any], tree: Any, n: int, numbers_per_row: int) -> Any:
    most = max(1, min(_MOST_ROWS, _BUDGET // max(1, numbers_per_row)))
    size = min(1 << (most.bit_length() - 1), 1 << max(0, n - 1).bit_length())
    out = []
    for start in range(0, n, size):
        stop = min(start + size, n)
        index = np.minimum(np.arange(start, start + size), n - 1)
        # An answer is read to its last digit: on accelerators products of matrices must not be rounded.
        with jax.default_matmul_precision("highest"):
            answer = call(jax.tree.map(lambda a: a[index], tree))  # noqa: B023
        out.append(jax.tree.map(lambda a: np.asarray(a[: stop - start]), answer))  # noqa: B023
    return jax.tree.map(lambda *parts: np.concatenate(parts), *out)


def merged(given: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A complete example: what is given, the missing coordinates and hidden variables from `values`."""
    filled = {k: given[k].fill(v) if isinstance(given.get(k), Masked) else v for k, v in values.items()}
    return {**given, **filled}


def check_inputs(task: str, query: Query) -> None:
    """Refuse a question in which an input is not known, or not whole: an energy says nothing of those."""
    energy = query.energy
    lacking = sorted(energy.inputs - (query.names - query.partially_observed.keys()))
    if lacking:
        raise Unsuitable(
            f"{task}: {type(energy).__name__} models {[n for n in energy.spaces if n not in energy.inputs]} "
            f"given {sorted(energy.inputs)} and nothing else. Give values of {lacking}."
        )
