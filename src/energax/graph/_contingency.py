"""Validated columns of states, and counts of their combinations."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._util.frames import columns_of, is_frame, states_of
from ..errors import BadInput, describe

_SPARSE = 4  # possible combinations per row, above which only those that occur are numbered


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """Integer-coded data by columns: `codes[i]` holds the states of variable i, `weights` one number per row.

    `observed` is None if no entry is missing. A missing entry has the code cards[i].
    """

    names: tuple[Any, ...]
    cards: tuple[int, ...]
    codes: np.ndarray  # (d, n)
    weights: np.ndarray | None
    observed: np.ndarray | None = None
    states: tuple[tuple[str, ...] | None, ...] = ()  # the names of the states of every column, if it has any

    @classmethod
    def from_data(
        cls,
        data: Any,
        cards: Mapping[Any, int] | Sequence[int] | None = None,
        names: Sequence[Any] | None = None,
        weights: Any = None,
        observed: Any = None,
    ) -> Columns:
        """Validate an array (n, d), a mapping of columns by name, or a data frame.

        A column of text has its different values as states, in alphabetical order; a categorical column of a
        frame its categories. An entry is missing if it is NaN or None, masked in a masked array or a
        `Masked`, or False in `observed`. `names` default to the keys of the mapping, the columns of the frame
        or the keys of `cards`, and else to x0, x1, …; `cards` default to the number of named states, or to
        the largest code of each column plus one.
        """
        data, states = _encode_states(data)
        values, present, found = _values_and_names(data)
        if observed is not None:
            mask = np.asarray(observed)
            if mask.shape != values.shape or mask.dtype != bool:
                raise BadInput(
                    "observed", f"{mask.dtype} of shape {mask.shape}", f"bool of shape {values.shape}"
                )
            present = present & mask
        n, d = values.shape
        if n == 0 or d == 0:
            raise BadInput("data", f"shape {values.shape}", "at least one row and one column")
        if names is None:
            names = found if found is not None else list(cards) if isinstance(cards, Mapping) else None
        names = tuple(f"x{i}" for i in range(d)) if names is None else tuple(names)
        if len(names) != d or len(set(names)) != d:
            raise BadInput("names", f"{names}", f"{d} different names, one for each column")
        labels = tuple(states.get(name) for name in names)
        if cards is None and any(labels):
            counts = _as_cards(None, names, values, present)
            cards = [n if s is None else len(s) for n, s in zip(counts, labels, strict=True)]
        sizes = _as_cards(cards, names, values, present)
        codes = _as_codes(values, present, names, sizes)
        return cls(names, sizes, codes, _as_weights(weights, n), None if present.all() else present.T, labels)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.codes.shape[1]

    @functools.cached_property
    def total(self) -> float:
        """The sum of the weights; without weights, the number of rows."""
        return float(self.n if self.weights is None else self.weights.sum())

    def index(self, name: Any, argument: str) -> int:
        """The position of a name; raises if there is no such column."""
        try:
            return self.names.index(name)
        except ValueError:
            near = difflib.get_close_matches(str(name), [str(known) for known in self.names], n=3)
            remedy = f"Did you mean {' or '.join(near)}?" if near else ""
            some = ", ".join(map(str, self.names[:6])) + (", …" if len(self.names) > 6 else "")
            raise BadInput(argument, repr(name), f"a column of the data ({some})", remedy) from None

    def check_complete(self, task: str) -> None:
        """Raise if entries are missing."""
        if self.observed is None:
            return
        missing = int((~self.observed).sum())
        raise BadInput(
            "data",
            f"{missing:,} missing entries",
            f"no missing entries for {task} (families counted on fewer rows would score better)",
            "Leave out the incomplete rows, impute them from the posterior of a fitted network, "
            "or use chow_liu, which counts pairs where both are observed.",
        )

    def merge_rows(self) -> Columns:
        """The same counts from fewer rows: equal rows become one with their total weight, if that pays."""
        if math.prod(self.cards) >= 2**62 or self.observed is not None:
            return self
        key = np.ravel_multi_index(tuple(self.codes), self.cards)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        if 2 * len(first) > self.n:
            return self
        weights = np.bincount(inverse, self.weights, len(first)).astype(float)
        return dataclasses.replace(self, codes=np.ascontiguousarray(self.codes[:, first]), weights=weights)

    def combinations(self, group: Iterable[int]) -> tuple[np.ndarray, int]:
        """One number per row, equal for rows with equal states of a group, and an upper bound of them.

        >>> columns = Columns.from_data([[0, 1], [1, 1], [0, 0]])
        >>> columns.combinations([0, 1])[0].tolist()
        [1, 3, 0]
        """
        index, size = np.zeros(self.n, np.intp), 1
        for v in group:
            if not self.fits(size * self.cards[v]):
                unique, index = np.unique(index, return_inverse=True)
                size = len(unique)
            index, size = index * self.cards[v] + self.codes[v], size * self.cards[v]
        return index, size

    def fits(self, size: int) -> bool:
        """Whether a table over all possible combinations is at most a few times as large as the data."""
        return size <= _SPARSE * self.n + 1024

    def table(self, index: np.ndarray, size: int, v: int) -> np.ndarray:
        """Counts N[j, k] of the rows with combination j and state k of a variable, shape (size, card)."""
        card = self.cards[v]
        joint = np.bincount(index * card + self.codes[v], self.weights, size * card)
        return joint.reshape(size, card).astype(float, copy=False)

    def pair(self, u: int, v: int) -> np.ndarray:
        """Counts of the states of two variables in the rows where both are observed."""
        a, b = self.cards[u] + 1, self.cards[v] + 1  # one more state for missing entries
        joint = np.bincount(self.codes[u] * b + self.codes[v], self.weights, a * b)
        return joint.reshape(a, b)[:-1, :-1].astype(float, copy=False)


def _encode_states(data: Any) -> tuple[Any, dict[Any, tuple[str, ...]]]:
    """(the columns of a frame or mapping with states as numbers, the names of the states by column)."""
    if not (is_frame(data) or isinstance(data, Mapping)):
        return data, {}
    found = {name: states_of(data[name]) for name in (data.columns if is_frame(data) else data)}
    labels = {name: states for name, states in found.items() if states is not None}
    if not is_frame(data) and not labels:
        return data, {}
    names = list(data.columns) if is_frame(data) else list(data)
    columns = columns_of(data) if is_frame(data) else {str(k): v for k, v in data.items()}
    out = {}
    for name in names:
        column = columns[str(name)]
        if name in labels:
            number = {label: i for i, label in enumerate(labels[name])}
            column = np.array([number.get(str(v), np.nan) if v is not None else np.nan for v in column])
        out[name] = column
    return out, labels


def _values_and_names(data: Any) -> tuple[np.ndarray, np.ndarray, list[Any] | None]:
    """Values (n, d), a mask of those present, and the names of the columns if the container has any."""
    found: list[Any] | None = None
    if isinstance(data, Mapping):
        found = list(data)
        parts = [_values_and_mask(column) for column in data.values()]
        shapes = {value.shape for value, _ in parts}
        if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
            raise BadInput("data", f"columns of shapes {sorted(shapes)}", "columns (n,) of one length")
        return np.stack([v for v, _ in parts], 1), np.stack([mask for _, mask in parts], 1), found
    value, present = _values_and_mask(data)
    if value.ndim != 2:
        raise BadInput("data", f"shape {value.shape}", "rows and columns, shape (n, d)")
    return value, present, found


def _values_and_mask(data: Any) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(data, "value") and hasattr(data, "observed"):
        value, present = np.asarray(data.value), np.asarray(data.observed)
    elif isinstance(data, np.ma.MaskedArray):
        value, present = data.data, ~np.ma.getmaskarray(data)
    else:
        value = np.asarray(data)
        present = np.ones(value.shape, bool)
    if value.dtype.kind not in "iubf":
        raise BadInput(
            "data",
            f"{value.dtype} values",
            "whole numbers 0, 1, …: the states of each variable",
            "Number the states with pandas.factorize or numpy.unique(return_inverse=True).",
        )
    if value.dtype == bool:
        value = value.astype(np.int8)
    present = present & ~np.isnan(value)
    return np.where(present, value, 0), present


def _as_cards(cards: Any, names: tuple[Any, ...], values: np.ndarray, present: np.ndarray) -> tuple[int, ...]:
    if cards is None:
        top = np.where(present, values, 0).max(0)
        if not np.all(np.isfinite(top)):
            raise BadInput("data", "an infinite entry", "whole numbers 0, 1, …")
        return tuple(int(t) + 1 for t in np.maximum(top, 0))
    if isinstance(cards, Mapping):
        absent = [name for name in names if name not in cards]
        if absent:
            raise BadInput("cards", f"no entry for {absent[0]!r}", "the number of states of every column")
        cards = [cards[name] for name in names]
    sizes = tuple(int(c) for c in cards)
    if len(sizes) != len(names) or min(sizes) < 1:
        raise BadInput("cards", f"{sizes}", f"{len(names)} numbers of states, each at least 1")
    return sizes


def _as_codes(
    values: np.ndarray, present: np.ndarray, names: tuple[Any, ...], cards: tuple[int, ...]
) -> np.ndarray:
    filled = np.where(present, values, 0)
    invalid = (filled < 0) | (filled >= np.asarray(cards)) | (filled != np.floor(filled))
    if invalid.any():
        row, column = np.argwhere(invalid)[0]
        raise BadInput(
            "data",
            f"{values[row, column]} for {names[column]} in row {row}",
            f"a whole number from 0 to {cards[column] - 1}, one of its {cards[column]} states",
        )
    codes = np.where(present, filled.astype(np.intp), np.asarray(cards))
    return np.ascontiguousarray(codes.T)


def _as_weights(weights: Any, n: int) -> np.ndarray | None:
    if weights is None:
        return None
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError):
        raise BadInput("weights", describe(weights), f"{n} numbers, one per row") from None
    if values.shape != (n,):
        raise BadInput("weights", f"shape {values.shape}", f"shape ({n},), one weight per row")
    if not np.all(np.isfinite(values)) or values.min() < 0 or values.sum() <= 0:
        raise BadInput(
            "weights", "a negative or infinite weight, or only zeros", "weights >= 0, some above 0"
        )
    return values
