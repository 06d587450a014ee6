"""Sequences of values of another space."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput
from ..missing import Masked
from ._real import PositiveDefinite
from ._space import Space, as_array


class Sequence(Space):
    """Sequences of values of one space, of different lengths, stored padded with a mask.

    With a `length`, one example has shape (length, *space.shape), and the sequence may be a
    variable of an energy; without, `check` takes any number of steps.

    >>> from energax import Real
    >>> padded = Sequence(Real(2)).pad([np.ones((3, 2)), np.ones((1, 2))])
    >>> padded.shape, padded.observed[..., 0].tolist()
    ((2, 3, 2), [[True, True, True], [True, False, False]])
    """

    def __init__(self, space: Space, length: int | None = None):
        super().__init__(*(() if length is None else (length, *space.shape)))
        self.space, self.length = space, length
        self.dtype = space.dtype  # type: ignore[misc]
        self.event_ndim = space.event_ndim  # type: ignore[misc]
        self.is_unconstrained = space.is_unconstrained  # type: ignore[misc]
        self.values_per_coordinate = space.values_per_coordinate if length is not None else None

    @property
    def ndim(self):
        return 1 + self.space.ndim

    def _arguments(self):
        return (self.space,) if self.length is None else (self.space, self.length)

    @property
    def constraint(self):
        return self.space.constraint

    def _is_valid(self, array):
        return self.space._is_valid(array)

    @property
    def _filler(self):
        # The padding past the end of a sequence must be valid too, so a matrix is filled as a whole.
        if isinstance(self.space, PositiveDefinite):
            return np.eye(*self.space.shape)
        return self.space._filler

    def _cast(self, array):
        return self.space._cast(array)

    def description(self):
        return f"sequences of {self.space.description()}"

    def check(self, value, name="value", *, missing=True):
        if self.length is not None:
            return super().check(value, name, missing=missing)
        shape, steps_first = as_array(value, name)[0].shape, 1 + len(self.space.shape)
        if len(shape) < steps_first:
            expected = f"{self._step_shape('steps')}, or rows of such sequences (the space is {self!r})"
            raise BadInput(name, f"shape {shape}", expected)
        return Sequence(self.space, shape[-steps_first]).check(value, name, missing=missing)

    def _step_shape(self, steps: str) -> str:
        """The shape of one sequence, for error messages: "(steps, 2)"."""
        return f"({steps}, {', '.join(map(str, self.space.shape))}".rstrip(" ") + ")"

    def pad(self, sequences: list[Any]) -> Masked:
        """Sequences of different lengths as one padded array; steps past the end are not observed."""
        rows = [np.asarray(s) for s in sequences]
        if not rows or any(r.shape[1:] != self.space.shape or not len(r) for r in rows):
            shapes = [r.shape for r in rows][:5]
            raise BadInput(
                "sequences",
                f"shapes {shapes}",
                f"at least one sequence, each of shape {self._step_shape('length >= 1')}",
            )
        length = self.length or max(len(r) for r in rows)
        if max(len(r) for r in rows) > length:
            raise BadInput("sequences", f"length {max(map(len, rows))}", f"at most {length}")
        value = np.full((len(rows), length, *self.space.shape), self._filler, rows[0].dtype)
        observed = np.zeros(value.shape, bool)
        for i, row in enumerate(rows):
            value[i, : len(row)] = row
            observed[i, : len(row)] = True
        return Masked(self.space._cast(value), observed)
