"""Preconditioning of L-BFGS for linear classifiers: centred columns, and units of equal curvature."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from ..._util.arrays import asarray
from ..._util.sizes import HOST_PRODUCT_NUMBERS, slices
from ...energies import Linear

_MOST_COLUMNS = 1024  # for which all products of columns are computed; else only squares
_LEAST_CURVATURE = 1e-6  # of a direction, relative to that of the columns


class Preconditioned(eqx.Module):
    """An optimizer of V = W U in place of the weights W of a linear classifier.

    Steps and curvature estimates are in V; objective, penalty and optimum are those of W. U is (d, d), or
    (d,) for a diagonal matrix.
    """

    optimizer: optax.GradientTransformationExtraArgs
    units: jax.Array
    inverse: jax.Array

    def init(self, parameters: Any) -> Any:
        return self.optimizer.init(_multiply_weight(parameters, self.units))

    def update(self, _: Any, state: Any, parameters: Any, *, value: Any, grad: Any, value_fn: Any) -> Any:
        back = lambda parameters: _multiply_weight(parameters, self.inverse)
        grad = _multiply_weight(grad, self.inverse.T)
        updates, state = self.optimizer.update(
            grad,
            state,
            _multiply_weight(parameters, self.units),
            value=value,
            grad=grad,
            value_fn=lambda parameters: value_fn(back(parameters)),
        )
        return back(updates), state


def _multiply_weight(parameters: tuple[Linear, Any], by: Any) -> tuple[Linear, Any]:
    """Return the classifier with weights W `by`; parameters of a partner are unchanged."""
    energy, partner = parameters
    weight = energy.weight * by if by.ndim == 1 else energy.weight @ by
    return eqx.tree_at(lambda e: e.weight, energy, weight), partner


def precondition(
    optimizer: Any, table: np.ndarray, weight: np.ndarray | None, ridge: float
) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer in units U with UUᵀ = E[xxᵀ] + ridge · I.

    Up to a factor, that is about the curvature of cross-entropy and its penalty in every row of W, so that V
    has the same curvature in all directions, also for columns of different scale or correlated ones.
    """
    curvature, dtype = _curvature(table, weight, ridge), table.dtype
    scale = np.sqrt(np.diag(curvature) if curvature.ndim == 2 else curvature)
    # The inverse of a column of zeros, or nearly so, would not be finite.
    scale = np.where(scale > np.sqrt(np.finfo(dtype).tiny), scale, 1.0)
    units, inverse = scale, 1 / scale
    if curvature.ndim == 2:
        shape = curvature / scale / scale[:, None]
        np.fill_diagonal(shape, 1 + _LEAST_CURVATURE)
        root = np.linalg.cholesky(shape)
        units, inverse = scale[:, None] * root, np.linalg.inv(root) / scale
    moved = Preconditioned(optimizer, asarray(units.astype(dtype)), asarray(inverse.astype(dtype)))
    return optax.GradientTransformationExtraArgs(moved.init, moved.update)


def center_columns(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of every column in float64, and the centred table in its own dtype.

    >>> center_columns(np.array([[1e9], [1e9 + 2]]), np.array([1.0, 3.0]))
    (array([1.e+09]), array([[-1.5],
           [ 0.5]]))
    """
    w = _normalise_weights(X, weight)
    mean = np.zeros(X.shape[1])
    for rows in _chunks(X):
        mean += w[rows] @ X[rows].astype(np.float64)
    table, spread = np.empty_like(X), np.zeros(X.shape[1])
    for rows in _chunks(X):
        table[rows] = X[rows] - mean
        spread = np.maximum(spread, np.abs(table[rows]).max(0))
    # A constant column leaves the rounding error of its mean, which is not a spread.
    table[:, spread <= 8 * np.finfo(X.dtype).eps * np.abs(mean)] = 0
    return mean, table


def _curvature(table: np.ndarray, weight: np.ndarray | None, ridge: float) -> np.ndarray:
    """Return E[xxᵀ] + ridge · I, (d, d); its diagonal, (d,), if there are many columns."""
    w, d = _normalise_weights(table, weight), table.shape[1]
    all_pairs = d <= _MOST_COLUMNS
    total = np.zeros((d, d) if all_pairs else d)
    for rows in _chunks(table):
        x = table[rows] * np.sqrt(w[rows, None])
        total += x.T @ x if all_pairs else (x**2).sum(0)
    return total + (ridge * np.eye(d) if all_pairs else ridge)


def _normalise_weights(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    w = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
    return w / w.sum()


def _chunks(X: np.ndarray) -> Any:
    """Slices of rows, so that a table of float32 is never copied to float64 as a whole."""
    return slices(len(X), max(1, HOST_PRODUCT_NUMBERS // X.shape[1]))
