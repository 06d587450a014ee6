"""What values a variable, or a parameter, may take.

A space checks values at the door, lists them when it is finite, and carries the bijection
to ℝⁿ through which descent and samplers move (NumPyro's `biject_to`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .errors import BadInput
from .fields import declared as declared
from .fields import fixed as fixed
from .fields import is_concrete as is_concrete
from .fields import parameter as parameter
from .missing import Masked


class Space:
    """The values of one variable; `shape` is the shape of one example.

    Spaces are compared by what they say, so that they may be static parts of compiled code:

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

    def _legal(self, array: np.ndarray) -> np.ndarray:
        """Elementwise (or rowwise, for a simplex): is this a value of the space?"""
        return np.isfinite(array)

    @property
    def _filler(self) -> float:
        return 0.0

    def says(self) -> str:
        """The values in words, for error messages."""
        return "finite real numbers"

    def check(self, value: Any, name: str = "value", *, missing: bool = True) -> Any:
        """`value` as rows of this space (NumPy, or `Masked`), or a `BadInput` that says why not.

        One example, or any number of leading axes, is accepted.
        """
        value, observed = _as_array(value, name)
        if value.dtype.kind not in "biuf":
            raise BadInput(name, f"dtype {value.dtype}", "numbers", "Encode the values first.")
        trailing = value.shape[value.ndim - len(self.shape) :] if self.shape else ()
        if value.ndim < len(self.shape) or trailing != self.shape:
            raise BadInput(
                name,
                f"shape {value.shape}",
                f"rows of shape {self.shape} (the space is {self!r})",
            )
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
        legal = self._legal(filled)
        if not legal.all():
            where = np.argwhere(~legal)[0]
            raise BadInput(
                name,
                f"{filled[tuple(where)]!r} at position {tuple(int(i) for i in where)}",
                self.says(),
            )
        filled = self._cast(filled)
        return Masked(filled, ~unknown) if any_unknown else filled

    def _cast(self, array: np.ndarray) -> np.ndarray:
        if self.dtype is int:
            return array.astype(np.int32)
        if array.dtype.kind != "f":
            return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)
        return array


def _as_array(value: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    if isinstance(value, Masked):
        return np.asarray(value.value), np.asarray(value.observed)
    if isinstance(value, np.ma.MaskedArray):
        return value.data, ~np.ma.getmaskarray(value)
    try:
        return np.asarray(value), None
    except (ValueError, TypeError) as error:
        raise BadInput(name, f"{type(value).__name__} ({error})", "an array of numbers") from None


class Real(Space):
    """ℝ, or arrays of reals: `Real()`, `Real(3)`, `Real(28, 28)`."""

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.real


class Positive(Space):
    """(0, ∞), elementwise."""

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.softplus_positive

    def _legal(self, array):
        return np.isfinite(array) & (array > 0)

    @property
    def _filler(self):
        return 1.0

    def says(self):
        return "finite numbers > 0"


class Interval(Space):
    """(low, high), elementwise: `Interval(0, 1, 5)` is five numbers between 0 and 1."""

    def __init__(self, low: float, high: float, *shape: int):
        super().__init__(*shape)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise BadInput("Interval", f"({low}, {high})", "finite bounds with low < high")
        self.low, self.high = float(low), float(high)

    def _arguments(self):
        return (self.low, self.high, *self.shape)

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.interval(self.low, self.high)

    def _legal(self, array):
        return (array >= self.low) & (array <= self.high)

    @property
    def _filler(self):
        return (self.low + self.high) / 2

    def says(self):
        return f"numbers in [{self.low:g}, {self.high:g}]"


class Simplex(Space):
    """Vectors of k probabilities that sum to one. `Simplex()` takes its size from the parameter."""

    event_ndim = 1

    def __init__(self, k: int | None = None):
        super().__init__(*(() if k is None else (k,)))

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.simplex

    def _legal(self, array):
        with np.errstate(invalid="ignore"):
            ok = (array >= 0).all(-1) & (np.abs(array.sum(-1) - 1) < 1e-4)
        return np.broadcast_to(ok[..., None], array.shape)

    @property
    def _filler(self):
        return 1.0 / max(self.size, 1)

    def says(self):
        return "probabilities that are >= 0 and sum to 1"


class PositiveDefinite(Space):
    """Symmetric d × d matrices with positive eigenvalues."""

    event_ndim = 2

    def __init__(self, d: int | None = None):
        super().__init__(*(() if d is None else (d, d)))

    def _arguments(self):
        return self.shape[:1]

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.positive_definite

    def _legal(self, array):
        finite = np.isfinite(array).all()
        symmetric = finite and np.allclose(array, np.swapaxes(array, -1, -2), rtol=1e-4, atol=1e-6)
        positive = symmetric and (np.linalg.eigvalsh(array) > 0).all()
        return np.full(array.shape, positive)

    def says(self):
        return "symmetric matrices with positive eigenvalues"


class Binary(Space):
    """{0, 1}ⁿ, held as floats: `Binary(784)`."""

    values_per_coordinate = 2

    def _legal(self, array):
        return (array == 0) | (array == 1)

    def says(self):
        return "zeros and ones"

    def _cast(self, array):
        return array if array.dtype.kind == "f" else array.astype(np.float32)


class Categorical(Space):
    """{0, …, k − 1}, held as integers: `Categorical(10)`; with a shape, several such values."""

    dtype = int

    def __init__(self, k: int, *shape: int):
        super().__init__(*shape)
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise BadInput("Categorical", repr(k), "a number of values >= 1")
        self.k = int(k)
        self.values_per_coordinate = self.k

    def _arguments(self):
        return (self.k, *self.shape)

    def _legal(self, array):
        return (array >= 0) & (array < self.k) & (array == np.floor(array))

    def says(self):
        return f"whole numbers from 0 to {self.k - 1}"


class Count(Space):
    """{0, 1, 2, …}, elementwise: finite in no use, so never enumerated."""

    dtype = int

    def _legal(self, array):
        # Held as 32-bit integers, and what does not fit must not wrap around.
        return (array >= 0) & (array <= np.iinfo(np.int32).max) & (array == np.floor(array))

    def says(self):
        return "whole numbers from 0 to 2^31 - 1"


class Sequence(Space):
    """Sequences of values of one space, of differing lengths, held padded with a mask.

    With a `length` one example has shape (length, *space.shape), and the sequence may be a
    variable of an energy; without, `check` takes any number of steps.

    >>> padded = Sequence(Real(2)).pad([np.ones((3, 2)), np.ones((1, 2))])
    >>> padded.shape, padded.observed[..., 0].tolist()
    ((2, 3, 2), [[True, True, True], [True, False, False]])
    """

    def __init__(self, space: Space, length: int | None = None):
        super().__init__(*(() if length is None else (length, *space.shape)))
        self.space, self.length = space, length
        self.dtype = space.dtype  # type: ignore[misc]
        self.event_ndim = space.event_ndim  # type: ignore[misc]
        self.values_per_coordinate = space.values_per_coordinate if length is not None else None

    @property
    def ndim(self):
        return 1 + self.space.ndim

    def _arguments(self):
        return (self.space,) if self.length is None else (self.space, self.length)

    @property
    def constraint(self):
        return self.space.constraint

    def _legal(self, array):
        return self.space._legal(array)

    @property
    def _filler(self):
        # What is past the end of a sequence must be legal too, whole matrices among it.
        if isinstance(self.space, PositiveDefinite):
            return np.eye(*self.space.shape)
        return self.space._filler

    def _cast(self, array):
        return self.space._cast(array)

    def says(self):
        return f"sequences of {self.space.says()}"

    def check(self, value, name="value", *, missing=True):
        if self.length is not None:
            return super().check(value, name, missing=missing)
        shape, steps_first = _as_array(value, name)[0].shape, 1 + len(self.space.shape)
        if len(shape) < steps_first:
            expected = f"(steps, *{self.space.shape}), or rows of such sequences (the space is {self!r})"
            raise BadInput(name, f"shape {shape}", expected)
        return Sequence(self.space, shape[-steps_first]).check(value, name, missing=missing)

    def pad(self, sequences: list[Any]) -> Masked:
        """Ragged sequences as one padded array; what is past an end is not observed."""
        rows = [np.asarray(s) for s in sequences]
        if not rows or any(r.shape[1:] != self.space.shape or not len(r) for r in rows):
            shapes = [r.shape for r in rows][:5]
            raise BadInput(
                "sequences",
                f"shapes {shapes}",
                f"at least one sequence, each of shape (length >= 1, *{self.space.shape})",
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
