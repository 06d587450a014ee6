"""Missing values: marked once, by input validation, and treated as hidden variables everywhere."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ._util.arrays import asarray
from .errors import BadInput


def _as_bools(observed: Any) -> Any:
    """Zeros and ones as bools: ~ of the integer 1 is −2, which is true."""
    if isinstance(observed, np.ndarray | list | tuple):
        return np.asarray(observed, bool)
    return observed.astype(bool) if isinstance(observed, jax.Array) and observed.dtype != bool else observed


class Masked(eqx.Module):
    """Values of one variable, some of them missing.

    `value` holds an arbitrary valid filler where `observed` is False. An energy that sums or integrates
    these coordinates out itself names the variable in `marginalises`, and is then called with a `Masked`;
    for every other energy they are enumerated.

    >>> m = Masked.from_nan(np.array([1.0, np.nan]))
    >>> m.observed.tolist(), m.value.tolist()
    ([True, False], [1.0, 0.0])
    """

    value: Array | np.ndarray
    observed: Bool[Array, "..."] | np.ndarray = eqx.field(converter=_as_bools)

    def __check_init__(self):
        value, observed = np.shape(self.value), np.shape(self.observed)
        if value != observed:
            raise BadInput("observed", f"shape {observed}", f"{value}, the shape of the value")

    @classmethod
    def from_nan(cls, array: Any, filler: float = 0.0) -> Masked:
        """The array with NaN as missing."""
        array = np.asarray(array)
        hidden = np.isnan(array)
        return cls(np.where(hidden, np.asarray(filler, array.dtype), array), ~hidden)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.value))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def fill(self, other: Any) -> Array:
        """The observed values, and `other` where they are missing."""
        return jnp.where(self.observed, self.value, other)

    def to_nan(self) -> np.ndarray:
        """The values as floats, NaN where they are missing."""
        value = np.asarray(self.value)
        value = value if np.issubdtype(value.dtype, np.floating) else value.astype(np.float64)
        return np.where(np.asarray(self.observed), value, np.nan)


def any_nan(array: np.ndarray) -> bool:
    """Whether the array has a NaN. The minimum finds it without a second array, unlike `isnan`.

    >>> any_nan(np.array([1.0, np.nan])), any_nan(np.array([], int))
    (True, False)
    """
    return bool(array.size and array.dtype.kind == "f" and np.isnan(np.min(array)))


def is_masked(value: Any) -> bool:
    return isinstance(value, Masked)


def value_of(value: Any) -> Any:
    """The array of a `Masked`, with fillers where it is missing; any other value unchanged."""
    return value.value if isinstance(value, Masked) else value


def mask_other_labels(scores: Any, label: Any) -> Any:
    """Scores of every row and class, (n, k), with −∞ for all classes but the observed label of the row.

    >>> mask_other_labels(jnp.zeros((2, 2)), Masked(np.array([1, 0]), np.array([True, False])))
    Array([[-inf,   0.],
           [  0.,   0.]], dtype=float32)
    """
    other = jnp.arange(scores.shape[1]) != asarray(value_of(label))[:, None]
    return jnp.where(other & mask_of(label)[:, None], -jnp.inf, scores)


def mask_of(value: Any) -> Array:
    """True where a coordinate is observed."""
    if isinstance(value, Masked):
        return asarray(value.observed)
    return jnp.ones(jnp.shape(value), bool)
