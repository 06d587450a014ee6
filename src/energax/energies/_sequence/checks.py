"""Checks of the parameters that Markov chains and hidden Markov chains share."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...algorithms.chains import markov
from ...errors import BadInput, as_numbers
from ...spaces import is_concrete


def check_chain(initial: Any, transition: Any) -> int:
    """Return the number of states k; raise unless π, (k,), and the rows of A, (k, k), are probabilities."""
    k = len(markov.check_transition(transition))
    if np.shape(initial) != (k,):
        raise BadInput("initial", f"shape {np.shape(initial)}", f"({k},), from the transition")
    markov.check_probabilities(initial, "initial")
    return k


def check_prior(name: str, prior: Any, shape: tuple[int, ...], least: int) -> None:
    """Raise unless pseudo-counts are finite numbers >= `least`, one for all or an array of this shape."""
    if not is_concrete(prior):
        return
    value = np.asarray(as_numbers(name, prior, f"a number >= {least}, or an array of them"))
    fits = value.shape in ((), shape) and np.isrealobj(value) and bool(np.isfinite(value).all())
    if not fits or (value < least).any():
        raise BadInput(name, f"{prior!r:.40}", f"a number >= {least}, or an array of them of shape {shape}")


def as_real(values: Any) -> Any:
    """Values as a floating-point array."""
    values = asarray(values)
    return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(float)


def as_prior(value: Any) -> Any:
    """A Python number as it is, so that it takes no dtype of its own; anything else as an array."""
    return value if isinstance(value, int | float) else asarray(value)
