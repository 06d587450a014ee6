"""`Space`, the base class: validation, the list of values, the bijection."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .._util import sizes
from .._util.arrays import asarray
from ..errors import BadInput, check_memory
from ..missing import Masked, any_nan


class Space:
    """The values of one variable; `shape` is the shape of one example.

    Spaces compare equal if their arguments are equal, so that they may be static parts of compiled code:

    >>> from energax import Binary, Categorical, Real
    >>> Real(3) == Real(3), Binary(784), Categorical(10).n_values
    (True, Binary(784), 10)
    """

    shape: tuple[int, ...]
    dtype: ClassVar[type] = float
    values_per_coordinate: Any = None  # an integer; None if the space is not finite
    event_ndim: ClassVar[int] = 0  # the number of trailing axes that are constrained together
    is_unconstrained: ClassVar[bool] = False  # whether the space is ℝ itself, and the bijection the identity

    def __init__(self, *shape: int):
        if any(not isinstance(s, (int, np.integer)) or isinstance(s, bool) or s < 0 for s in shape):
            raise BadInput(f"{type(self).__name__} shape", repr(shape), "sizes that are whole numbers >= 0")
        check_memory(f"{type(self).__name__} shape", shape, math.prod(map(int, shape)), "one value", 4)
        self.shape = tuple(int(s) for s in shape)

    def _arguments(self) -> tuple:
        return self.shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._arguments()))})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._arguments() == other._arguments()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._arguments()))

    def with_shape(self, *shape: int) -> Space:
        """This space for values of another shape: a stack of them, as a parameter may be.

        >>> from energax import Positive, Simplex
        >>> Positive().with_shape(2, 3), Simplex().with_shape(4, 3).bijection.inverse_shape((4, 3))
        (Positive(2, 3), (4, 2))
        """
        other = copy.copy(self)
        other.shape = tuple(int(s) for s in shape)
        return other

    @property
    def size(self) -> int:
        """The number of coordinates of one example."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def ndim(self) -> int:
        """The number of axes of one example."""
        return len(self.shape)

    @property
    def is_finite(self) -> bool:
        return self.values_per_coordinate is not None

    @property
    def is_real(self) -> bool:
        """Whether the energy has a gradient in the value."""
        return not self.is_finite and np.issubdtype(np.dtype(self.dtype), np.floating)

    @property
    def n_values(self) -> Any:
        """The number of values of one example, an exact integer; None if not finite."""
        return None if self.values_per_coordinate is None else self.values_per_coordinate**self.size

    def at(self, index: Any) -> Any:
        """The value with this number in the list of all values; coordinate 0 varies slowest."""
        if self.values_per_coordinate is None:
            raise BadInput("space", repr(self), "a finite space", "Only finite spaces list their values.")
        powers = [self.values_per_coordinate ** (self.size - 1 - i) for i in range(self.size)]
        if not self.size:
            return jnp.zeros((*jnp.shape(index), *self.shape), self.jax_dtype)
        digits = asarray(index)[..., None] // jnp.array(powers, asarray(index).dtype)
        digits = digits % self.values_per_coordinate
        return digits.astype(self.jax_dtype).reshape(*jnp.shape(index), *self.shape)

    def values(self) -> Any:
        """All values, one per row."""
        n = self.n_values
        return self.at(jnp.arange(n))

    @property
    def jax_dtype(self):
        """The dtype of values in JAX, by its precision settings."""
        return jnp.zeros((), self.dtype).dtype

    @property
    def constraint(self):
        """The constraint of NumPyro that describes the space."""
        raise BadInput("space", repr(self), "a real-valued space", "Only these have a bijection.")

    @property
    def bijection(self):
        """The transform from ℝⁿ to this space, as a NumPyro `Transform`."""
        from numpyro.distributions import biject_to

        return biject_to(self.constraint)

    @property
    def chain_bijection(self):
        """The transform from ℝⁿ by which Markov chains move; `bijection` unless another is better."""
        return self.bijection

    def _is_valid(self, array: np.ndarray) -> np.ndarray:
        """Whether the values are in the space, elementwise; for a simplex the same for all of a row."""
        return np.isfinite(array)

    @property
    def _filler(self) -> float:
        """A valid value, put where a value is missing."""
        return 0.0

    def description(self) -> str:
        """The values in words, for error messages."""
        return "finite real numbers"

    def check(self, value: Any, name: str = "value", *, missing: bool = True) -> Any:
        """Return `value` as a NumPy array, or `Masked`, of this space; raise `BadInput` if it is invalid.

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
        if observed is None and not any_nan(value) and self._all_valid(value):
            return self._cast(value)
        hidden = np.isnan(value) if value.dtype.kind == "f" else np.zeros(value.shape, bool)
        if observed is not None:
            hidden = hidden | ~observed
        any_hidden = bool(hidden.any())
        if any_hidden and not missing:
            raise BadInput(
                name,
                f"{int(hidden.sum())} missing values (NaN)",
                "complete rows",
                "Impute them first, or use a model that marginalises missing values.",
            )
        filled = np.where(hidden, np.asarray(self._filler, value.dtype), value) if any_hidden else value
        valid = self._is_valid(filled)
        if not valid.all():
            where = tuple(int(i) for i in np.argwhere(~valid)[0])
            found = repr(filled[where].tolist())
            raise BadInput(name, f"{found} at position {where}" if where else found, self.description())
        filled = self._cast(filled)
        return Masked(filled, ~hidden) if any_hidden else filled

    def _all_valid(self, array: np.ndarray) -> bool:
        """Whether all values are in the space; checked by chunks of rows, to save memory."""
        if array.ndim == len(self.shape):
            return bool(self._is_valid(array).all())
        size = max(1, sizes.HOST_NUMBERS // max(1, array[:1].size))
        return all(self._is_valid(array[i : i + size]).all() for i in range(0, len(array), size))

    def _cast(self, array: np.ndarray) -> np.ndarray:
        if self.dtype is int:
            return array.astype(np.int32)
        if array.dtype.kind != "f":
            return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        return array.astype(np.float32) if array.dtype.itemsize < 4 else array  # no half precision


def as_array(value: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """(the values, the mask of observed ones or None); NaN is not looked for."""
    if isinstance(value, Masked):
        # A mask of numbers, such as 0 and 1: negating integers would not negate the mask.
        return np.asarray(value.value), np.asarray(value.observed).astype(bool)
    if isinstance(value, np.ma.MaskedArray):
        return value.data, ~np.ma.getmaskarray(value)
    try:
        return np.asarray(value), None
    except (ValueError, TypeError) as error:
        raise BadInput(name, f"{type(value).__name__} ({error})", "an array of numbers") from None
