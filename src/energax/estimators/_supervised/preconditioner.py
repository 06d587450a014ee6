"""L-BFGS in units of its own: columns about their mean, and weights by the curvature that they meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...energies import Linear

_NUMBERS_AT_ONCE = 1 << 22  # in float64, whatever the table is in
_MOST_COLUMNS = 1024  # whose products with each other are looked at
_LEAST_CURVATURE = 1e-6  # of a direction, where that of every column is 1


class Preconditioned(eqx.Module):
    """An optimizer that moves V = W U of a linear energy where it is asked to move W.

    Steps, and what it remembers of them, are in V; objective, penalty and optimum are those of W.
    U is (d, d), or (d,) for a diagonal.
    """

    optimizer: optax.GradientTransformationExtraArgs
    units: jax.Array
    inverse: jax.Array

    def init(self, moving: Any) -> Any:
        return self.optimizer.init(_multiplied(moving, self.units))

    def update(self, _: Any, state: Any, moving: Any, *, value: Any, grad: Any, value_fn: Any) -> Any:
        back = lambda moving: _multiplied(moving, self.inverse)
        grad = _multiplied(grad, self.inverse.T)
        updates, state = self.optimizer.update(
            grad,
            state,
            _multiplied(moving, self.units),
            value=value,
            grad=grad,
            value_fn=lambda moving: value_fn(back(moving)),
        )
        return back(updates), state


def _multiplied(moving: tuple[Linear, Any], by: Any) -> tuple[Linear, Any]:
    """The energy with another W; what is trained beside it stays."""
    energy, partner = moving
    weight = energy.weight * by if by.ndim == 1 else energy.weight @ by
    return eqx.tree_at(lambda e: e.weight, energy, weight), partner


def conditioned(
    optimizer: Any, table: np.ndarray, weight: np.ndarray | None, ridge: float
) -> optax.GradientTransformationExtraArgs:
    """The optimizer, in units U with UUᵀ = E[xxᵀ] + ridge · I.

    That is, but for a factor, about the curvature that cross-entropy and its penalty have in every row
    of W, so that V meets the same in all directions: long columns, short ones, and those that go together.
    """
    curvature, dtype = _curvature(table, weight, ridge), table.dtype
    scale = np.sqrt(np.diag(curvature) if curvature.ndim == 2 else curvature)
    # Of a column that is all zeros, or nearly, the inverse would be no number.
    scale = np.where(scale > np.sqrt(np.finfo(dtype).tiny), scale, 1.0)
    units, inverse = scale, 1 / scale
    if curvature.ndim == 2:
        shape = curvature / scale / scale[:, None]
        np.fill_diagonal(shape, 1 + _LEAST_CURVATURE)
        root = np.linalg.cholesky(shape)
        units, inverse = scale[:, None] * root, np.linalg.inv(root) / scale
    moved = Preconditioned(optimizer, jnp.asarray(units.astype(dtype)), jnp.asarray(inverse.astype(dtype)))
    return optax.GradientTransformationExtraArgs(moved.init, moved.update)


def centred(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The mean of every column in float64, and the table about it in its own dtype.

    >>> centred(np.array([[1e9], [1e9 + 2]]), np.array([1.0, 3.0]))
    (array([1.e+09]), array([[-1.5],
           [ 0.5]]))
    """
    w = _shares(X, weight)
    mean = np.zeros(X.shape[1])
    for rows in _chunks(X):
        mean += w[rows] @ X[rows].astype(np.float64)
    table, spread = np.empty_like(X), np.zeros(X.shape[1])
    for rows in _chunks(X):
        table[rows] = X[rows] - mean
        spread = np.maximum(spread, np.abs(table[rows]).max(0))
    # What a constant column leaves is the rounding of its mean, which is no spread.
    table[:, spread <= 8 * np.finfo(X.dtype).eps * np.abs(mean)] = 0
    return mean, table


def _curvature(table: np.ndarray, weight: np.ndarray | None, ridge: float) -> np.ndarray:
    """E[xxᵀ] + ridge · I, (d, d); of very many columns its diagonal, (d,)."""
    w, d = _shares(table, weight), table.shape[1]
    all_pairs = d <= _MOST_COLUMNS
    total = np.zeros((d, d) if all_pairs else d)
    for rows in _chunks(table):
        x = table[rows] * np.sqrt(w[rows, None])
        total += x.T @ x if all_pairs else (x**2).sum(0)
    return total + (ridge * np.eye(d) if all_pairs else ridge)


def _shares(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    w = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
    return w / w.sum()


def _chunks(X: np.ndarray) -> Iterator[slice]:
    """Slices of rows, so that a table of float32 is never copied whole to float64."""
    size = max(1, _NUMBERS_AT_ONCE // X.shape[1])
    for start in range(0, len(X), size):
        yield slice(start, start + size)
