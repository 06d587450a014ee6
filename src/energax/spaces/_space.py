"""What a space is: a check at the door, a list of values, a bijection."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..errors import BadInput
from ..missing import Masked, any_nan

_PIECE = 2**20  # values whose legality is looked at together


class Space:
    """The values of one variable; `shape` is the shape of one example.

    Spaces are compared by what they say, so that they may be static parts of compiled code:

    >>> from energax import Binary, Categorical, Real
    >>> Real(3) == Real(3), Binary(784), Categorical(10).n_values
    (True, Binary(784), 10)
    """

    shape: tuple[int, ...]
    dtype: ClassVar[type] = float
    values_per_coordinate: Any = None  # a whole number, or None: not finite
    event_ndim: ClassVar[int] = 0  # trailing axes that are constrained together

    def __init__(self, *shape: int):
        if any(not isinstance(s, (int, np.integer)) or s < 0 for s in shape):
            raise BadInput(f"{type(self).__name__} shape", repr(shape), "sizes that are whole numbers >= 0")
        self.shape = tuple(int(s) for s in shape)

    def _arguments(self) -> tuple:
        return self.shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._arguments()))})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._arguments() == other._arguments()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._arguments()))

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def ndim(self) -> int:
        """How many axes one example has."""
        return len(self.shape)

    @property
    def is_finite(self) -> bool:
        return self.values_per_coordinate is not None

    @property
    def is_real(self) -> bool:
        """Whether a gradient in the value makes sense."""
        return not self.is_finite and np.issubdtype(np.dtype(self.dtype), np.floating)

    @property
    def n_values(self) -> Any:
        """How many values an example may take, as an exact integer; None if not finite."""
        return None if self.values_per_coordinate is None else self.values_per_coordinate**self.size

    def at(self, index: Any) -> Any:
        """The value with this number in the list of all values: coordinate 0 moves slowest."""
        if self.values_per_coordinate is None:
            raise BadInput("space", repr(self), "a finite space", "Only those list their values.")
        powers = [self.values_per_coordinate ** (self.size - 1 - i) for i in range(self.size)]
        if not self.size:
            return jnp.zeros((*jnp.shape(index), *self.shape), self.jax_dtype)
        digits = jnp.asarray(index)[..., None] // jnp.array(powers, jnp.asarray(index).dtype)
        digits = digits % self.values_per_coordinate
        return digits.astype(self.jax_dtype).reshape(*jnp.shape(index), *self.shape)

    def values(self) -> Any:
        """All values, one a row."""
        n = self.n_values
        return self.at(jnp.arange(n))

    @property
    def jax_dtype(self):
        return jnp.zeros((), self.dtype).dtype

    @property
    def constraint(self):
        raise BadInput("space", repr(self), "a real-valued space", "Only those have a bijection.")

    @property
    def bijection(self):
        """The transform from ℝⁿ to this space, as a NumPyro `Transform`."""
        from numpyro.distributions import biject_to

        return biject_to(self.constraint)

    def _is_valid(self, array: np.ndarray) -> np.ndarray:
        """Elementwise (or rowwise, for a simplex): is this a value of the space?"""
        return np.isfinite(array)

    @property
    def _filler(self) -> float:
        return 0.0

    def description(self) -> str:
        """The values in words, for error messages."""
        return "finite real numbers"

    def check(self, value: Any, name: str = "value", *, missing: bool = True) -> Any:
        """`value` as rows of this space (NumPy, or `Masked`), or a `BadInput` that says why not.

        One example, or any number of leading axes, is accepted.
        """
        value, observed = as_array(value, name)
        if value.dtype.kind not in "biuf":
            raise BadInput(name, f"dtype {value.dtype}", "numbers", "Encode the values first.")
        trailing = value.shape[value.ndim - len(self.shape) :] if self.shape else ()
        if value.ndim < len(self.shape) or trailing != self.shape:
            raise BadInput(
                name,
                f"shape {value.shape}",
                f"rows of shape {self.shape} (the space is {self!r})",
            )
        if observed is None and not any_nan(value) and self._all_legal(value):
            return self._cast(value)
        unknown = np.isnan(value) if value.dtype.kind == "f" else np.zeros(value.shape, bool)
        if observed is not None:
            unknown = unknown | ~observed
        any_unknown = bool(unknown.any())
        if any_unknown and not missing:
            raise BadInput(
                name,
                f"{int(unknown.sum())} missing values (NaN)",
                "complete rows",
                "Impute them first, or use a model that marginalises missing values.",
            )
        filled = np.where(unknown, np.asarray(self._filler, value.dtype), value) if any_unknown else value
        legal = self._is_valid(filled)
        if not legal.all():
            where = tuple(int(i) for i in np.argwhere(~legal)[0])
            found = repr(filled[where].tolist())
            raise BadInput(name, f"{found} at position {where}" if where else found, self.description())
        filled = self._cast(filled)
        return Masked(filled, ~unknown) if any_unknown else filled

    def _all_legal(self, array: np.ndarray) -> bool:
        """By pieces of rows, so that a large table is checked without another of its size."""
        if array.ndim == len(self.shape):
            return bool(self._is_valid(array).all())
        size = max(1, _PIECE // max(1, array[:1].size))
        return all(self._is_valid(array[i : i + size]).all() for i in range(0, len(array), size))

    def _cast(self, array: np.ndarray) -> np.ndarray:
        if self.dtype is int:
            return array.astype(np.int32)
        if array.dtype.kind != "f":
            return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        return array.astype(np.float32) if array.dtype.itemsize < 4 else array  # nothing is computed in half


def as_array(value: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    if isinstance(value, Masked):
        return np.asarray(value.value), np.asarray(value.observed)
    if isinstance(value, np.ma.MaskedArray):
        return value.data, ~np.ma.getmaskarray(value)
    try:
        return np.asarray(value), None
    except (ValueError, TypeError) as error:
        raise BadInput(name, f"{type(value).__name__} ({error})", "an array of numbers") from None
