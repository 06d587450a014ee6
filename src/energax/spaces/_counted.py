"""Discrete spaces: binary, categorical and count values."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ..errors import BadInput
from ..missing import Masked
from ._space import Space, as_array


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or as_array(value, "value")[0].dtype.kind in "OUS"


class Binary(Space):
    """{0, 1}ⁿ, stored as floats: `Binary(784)`."""

    values_per_coordinate = 2

    def _is_valid(self, array):
        return (array == 0) | (array == 1)

    def description(self):
        return "zeros and ones"

    def _cast(self, array):
        return array if array.dtype.kind == "f" and array.dtype.itemsize >= 4 else array.astype(np.float32)


class Categorical(Space):
    """{0, …, k − 1}, stored as integers: `Categorical(10)`; with a shape, an array of such values.

    States may have labels, `Categorical(2, labels=("no", "yes"))`; `check` takes labels as values.
    """

    dtype = int

    def __init__(self, k: int, *shape: int, labels: tuple[str, ...] | None = None):
        super().__init__(*shape)
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise BadInput("Categorical", repr(k), "a number of values >= 1")
        self.k = int(k)
        self.labels = None if labels is None else tuple(map(str, labels))
        if self.labels is not None and len(set(self.labels)) != self.k:
            raise BadInput("labels", f"{self.labels}", f"{self.k} different names")
        self.values_per_coordinate = self.k

    def _arguments(self):
        return (self.k, *self.shape)

    def __repr__(self):
        if self.labels is None:
            return super().__repr__()
        return f"{super().__repr__()[:-1]}, labels={self.labels!r})"

    def __eq__(self, other):
        return super().__eq__(other) and self.labels == other.labels

    __hash__ = Space.__hash__

    def check(self, value, name="value", *, missing=True):
        return super().check(self._encode_labels(value, name), name, missing=missing)

    def _encode_labels(self, value: Any, name: str) -> Any:
        """Labels of states as their numbers; None is missing."""
        if isinstance(value, Masked) or not _is_text(value):
            return value
        number = {label: i for i, label in enumerate(self.labels or map(str, range(self.k)))}
        array = np.array(value, object)
        if isinstance(value, np.ma.MaskedArray):
            array[np.ma.getmaskarray(value)] = None
        flat = []
        for item in array.ravel():
            if item is None or item != item:
                flat.append(np.nan)
            elif isinstance(item, str):
                if item not in number:
                    raise BadInput(name, f"the state {item!r}", f"one of {', '.join(map(repr, number))}")
                flat.append(number[item])
            elif isinstance(item, bool | np.bool_ | Real):
                flat.append(float(item))
            else:
                expected = f"a number or one of {', '.join(map(repr, number))}"
                raise BadInput(name, f"a value of type {type(item).__name__}", expected)
        return np.asarray(flat, float).reshape(array.shape)

    def _is_valid(self, array):
        return (array >= 0) & (array < self.k) & (array == np.floor(array))

    def description(self):
        return f"whole numbers from 0 to {self.k - 1}"


class Count(Space):
    """{0, 1, 2, …}, elementwise; never enumerated."""

    dtype = int

    def _is_valid(self, array):
        # Stored as 32-bit integers: a larger number would wrap around.
        return (array >= 0) & (array <= np.iinfo(np.int32).max) & (array == np.floor(array))

    def description(self):
        return "whole numbers from 0 to 2^31 - 1"
