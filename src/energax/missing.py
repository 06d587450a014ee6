"""A missing value is a hidden variable: it is marked once, at the door, and means that everywhere."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool


def _as_bools(observed: Any) -> Any:
    """Zeros and ones as truth values: ~1 is −2, and true."""
    if isinstance(observed, np.ndarray | list | tuple):
        return np.asarray(observed, bool)
    return observed.astype(bool) if isinstance(observed, jax.Array) and observed.dtype != bool else observed


class Masked(eqx.Module):
    """Values of one variable, some of which are not known.

    `value` holds an arbitrary legal filler where `observed` is False. An energy that can sum
    or integrate those coordinates out itself names the variable in `marginalises` and finds a
    `Masked` among its arguments; for every other energy the core enumerates them.

    >>> m = Masked.from_nan(np.array([1.0, np.nan]))
    >>> m.observed.tolist(), m.value.tolist()
    ([True, False], [1.0, 0.0])
    """

    value: Array | np.ndarray
    observed: Bool[Array, "..."] | np.ndarray = eqx.field(converter=_as_bools)

    def __check_init__(self):
        value, observed = np.shape(self.value), np.shape(self.observed)
        if value != observed:
            raise ValueError(f"Masked: value has shape {value} but observed has shape {observed}")

    @classmethod
    def from_nan(cls, array: Any, filler: float = 0.0) -> Masked:
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
        """The known values, and `other` where nothing is known."""
        return jnp.where(self.observed, self.value, other)

    def to_nan(self) -> np.ndarray:
        value = np.asarray(self.value)
        value = value if np.issubdtype(value.dtype, np.floating) else value.astype(np.float64)
        return np.where(np.asarray(self.observed), value, np.nan)


def any_nan(array: np.ndarray) -> bool:
    """Whether something is missing; a minimum says so and, unlike `isnan`, makes no second table.

    >>> any_nan(np.array([1.0, np.nan])), any_nan(np.array([], int))
    (True, False)
    """
    return bool(array.size and array.dtype.kind == "f" and np.isnan(np.min(array)))


def is_masked(value: Any) -> bool:
    return isinstance(value, Masked)


def known(value: Any) -> Any:
    """The array inside, with fillers where nothing is known."""
    return value.value if isinstance(value, Masked) else value


def mask_other_labels(scores: Any, label: Any) -> Any:
    """Scores of every row and class, (n, k), −∞ where the label of a row is known to be another.

    >>> mask_other_labels(jnp.zeros((2, 2)), Masked(np.array([1, 0]), np.array([True, False])))
    Array([[-inf,   0.],
           [  0.,   0.]], dtype=float32)
    """
    other = jnp.arange(scores.shape[1]) != jnp.asarray(known(label))[:, None]
    return jnp.where(other & mask_of(label)[:, None], -jnp.inf, scores)


def mask_of(value: Any) -> Array:
    """True where a coordinate is known."""
    if isinstance(value, Masked):
        return jnp.asarray(value.observed)
    return jnp.ones(jnp.shape(value), bool)


def number_of_rows(data: dict[str, Any]) -> int:
    return int(jax.tree.leaves(data)[0].shape[0])
