"""Sequences on their way to the Kalman filter, and the questions they are asked, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..._util.linalg import gram
from ...algorithms.chains import kalman as kalman
from ...energies._sequence.linear_gaussian import LinearGaussianSSM
from ...errors import BadInput
from ...missing import Masked


class Bands(NamedTuple):
    """A forecast: what is expected, between which bounds, and with which covariance, a row a step."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    covariance: np.ndarray


def is_list(X: Any) -> bool:
    """Whether X is a list of tables, and not one table.

    >>> is_list([np.ones((3, 1)), np.ones((2, 1))]), is_list([[1.0], [2.0]])
    (True, False)
    """
    return isinstance(X, Sequence) and len(X) > 0 and all(getattr(s, "ndim", 0) == 2 for s in X)


def joined(X: Any, lengths: Any) -> tuple[Any, Any]:
    """A list of tables as one table and their lengths; one table as it is."""
    if not is_list(X):
        return X, lengths
    if lengths is not None:
        raise BadInput("lengths", "lengths beside a list of sequences", "one of the two")
    shapes = [np.shape(s) for s in X]
    if any(steps < 1 for steps, _ in shapes) or len({d for _, d in shapes}) > 1:
        raise BadInput("X", f"sequences of shapes {shapes[:5]}", "(steps >= 1, d) each, with one d")
    return np.concatenate([np.asarray(s) for s in X]), [steps for steps, _ in shapes]


def split(X: np.ndarray, lengths: Any) -> list[np.ndarray]:
    """One table as the sequences that are stacked in it."""
    if lengths is None:
        return [X]
    sizes = np.asarray(lengths)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != len(X):
        expected = f"whole numbers >= 1 that sum to {len(X)}, the rows of X"
        raise BadInput("lengths", f"{lengths!r:.60}", expected)
    return np.split(X, np.cumsum(sizes)[:-1])


def padded(sequences: list[np.ndarray], steps: int) -> Masked:
    """(n, steps, d); what is past an end is not observed."""
    table = np.full((len(sequences), steps, sequences[0].shape[1]), np.nan, sequences[0].dtype)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence)] = sequence
    return Masked.from_nan(table)


@eqx.filter_jit
def filtered(energy: LinearGaussianSSM, x: Masked, sizes: Any) -> Any:
    found = jax.vmap(lambda row: energy.filtered(x=row))(x)
    return found.mean, gram(found.factor)


@eqx.filter_jit
def smoothed(energy: LinearGaussianSSM, x: Masked, sizes: Any) -> Any:
    found = jax.vmap(lambda row: energy.smoothed(x=row))(x)
    return found.mean, found.covariance


@eqx.filter_jit
def completed(energy: LinearGaussianSSM, x: Masked, sizes: Any) -> Any:
    return jax.vmap(lambda row: energy.completed(x=row))(x)


@eqx.filter_jit
def log_likelihood(energy: LinearGaussianSSM, x: Masked, sizes: Any) -> Any:
    return -jax.vmap(lambda row: energy.free_energy(x=row))(x)


@eqx.filter_jit
def forecast(energy: LinearGaussianSSM, x: Masked, sizes: Any, steps: int) -> Any:
    found = jax.vmap(lambda row, n: energy.forecast(steps, x=row, after=n))(x, sizes)
    return found.mean, found.covariance


@eqx.filter_jit
def simulated(energy: LinearGaussianSSM, steps: int, key: Any) -> Any:
    return kalman.simulate(energy.system, steps, key)
