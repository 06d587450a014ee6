"""Covariances of k Gaussians: full, tied, diagonal and spherical.

All take the k means they belong to, so that one covariance object serves mixtures, hidden Markov
models and classifiers. Sums are centred at the current means (`scatter`): the textbook form
E[xxᵀ] − μμᵀ loses all digits in single precision a few hundred standard deviations from the
origin; the centred one loses none, at the same cost.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray, take_rows
from ..._util.linalg import cholesky
from ..._util.xla import prevent_fusion
from ...algorithms.gaussian.missing import marginal_energies, masked_moments
from ...batch import update_counted
from ...spaces import Positive, PositiveDefinite, parameter
from .covariance_terms import (
    by_column,
    check_shape,
    half_log_two_pi,
    independent_energies,
    independent_moments,
    inverse_factor,
    regularise_matrix,
    regularise_variance,
    squared_distances,
)


class Covariance(eqx.Module):
    """The base class of the covariances Σ_z of k Gaussians.

    `floor` is added to every variance that `maximise` computes (scikit-learn's `reg_covar`). The covariance
    of a component without rows stays as it is.
    """

    @classmethod
    @abstractmethod
    def unit(cls, k: int, d: int, dtype: Any = None, floor: float = 1e-6) -> Covariance:
        """The covariance whose k matrices are the identity (d, d)."""

    @abstractmethod
    def check(self, k: int, d: int) -> None:
        """Raise `BadInput` unless the arrays have shapes for k means of d coordinates."""

    @abstractmethod
    def n_parameters(self, k: int, d: int) -> int:
        """The number of free parameters, for information criteria."""

    @abstractmethod
    def row_energies(self, x: Any, means: Any) -> Any:
        """−log N(xᵢ; μ_z, Σ_z) of rows x (n, d), (n, k)."""

    @abstractmethod
    def scatter(self, x: Any, means: Any, posterior: Any) -> Any:
        """Σᵢ r_iz (xᵢ − μ_z)(xᵢ − μ_z)ᵀ, or the part of it that this covariance uses; r is the posterior."""

    @abstractmethod
    def reduce(self, dense: Any) -> Any:
        """The part of k dense scatters (k, d, d) that this covariance uses."""

    @abstractmethod
    def recenter_scatter(self, scatter: Any, count: Any, first: Any, shift: Any) -> Any:
        """The scatter about the means μ − `shift` (k, d), from that about μ; `first` = Σ r (x − μ)."""

    @abstractmethod
    def maximise(self, scatter: Any, count: Any, scale: Any) -> Covariance:
        """The maximum-likelihood covariance, from a scatter about its own means.

        `scale` (k, d) is the size of the numbers whose rounding error the scatter has.
        """

    @abstractmethod
    def dense(self, k: int, d: int) -> Any:
        """The k matrices Σ_z, (k, d, d)."""

    def take(self, index: np.ndarray) -> Covariance:
        """The covariances with these numbers."""
        raise NotImplementedError(f"{type(self).__name__} cannot be padded")

    @abstractmethod
    def factor(self, z: Any, d: int) -> Any:
        """The lower Cholesky factor of Σ_z, (d, d)."""

    #: Whether coordinates are independent and each has its own variance, so that `maximise` may count the
    #: rows of every coordinate: missing ones are then left out, and EM need not find them.
    counts_columns: ClassVar[bool] = False

    # -- missing coordinates: the general case, with dense matrices ------------------------

    def masked_row_energies(self, x: Any, observed: Any, means: Any) -> Any:
        """−log of the marginal of the observed coordinates of each row, (n, k)."""
        return marginal_energies(x, observed, means, self.dense(*means.shape))

    def masked_moments(self, x: Any, observed: Any, means: Any, posterior: Any) -> tuple[Any, Any]:
        """Expected Σ r (x − μ) (k, d) and scatter, with the conditional moments of missing coordinates."""
        first, second = masked_moments(x, observed, means, self.dense(*means.shape), posterior)
        return first, self.reduce(second)


class Full(Covariance):
    """One covariance matrix per component.

    Args:
        matrix: Σ, (k, d, d), positive definite.
        floor: added to the variances that `maximise` returns.

    >>> Full(jnp.array([[[4.0]]])).row_energies(jnp.array([[2.0]]), jnp.zeros((1, 1)))  # ½ + log 2 + ½ log 2π
    Array([[2.1120858]], dtype=float32)
    """

    matrix: jax.Array = parameter(PositiveDefinite())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(asarray(np.tile(np.eye(d), (k, 1, 1)), dtype), floor)

    def check(self, k, d):
        check_shape("covariance.matrix", self.matrix.shape, (k, d, d))

    def n_parameters(self, k, d):
        return k * d * (d + 1) // 2

    def row_energies(self, x, means):
        inverse, log_det = inverse_factor(self.matrix)
        k, d = means.shape
        # One product for all components. The mean of the means is subtracted first, so that the
        # difference below loses no more digits than the data did by rounding.
        middle = means.mean(0)
        projected = inverse.reshape(k * d, d) @ (x - middle).T
        offset = jnp.einsum("kij,kj->ki", inverse, means - middle).reshape(k * d, 1)
        squared = jnp.square(projected - offset).reshape(k, d, -1).sum(1)
        return (0.5 * squared + (log_det + half_log_two_pi(d, x.dtype))[:, None]).T

    def scatter(self, x, means, posterior):
        # √r on both sides: one array of k × n × d numbers is created instead of two.
        centred = (x - means[:, None]) * jnp.sqrt(posterior).T[:, :, None]
        return jnp.einsum("kni,knj->kij", centred, centred)

    def reduce(self, dense):
        return dense

    def recenter_scatter(self, scatter, count, first, shift):
        cross = first[:, :, None] * shift[:, None, :]
        outer = count[:, None, None] * shift[:, :, None] * shift[:, None, :]
        return scatter + cross + jnp.swapaxes(cross, 1, 2) + outer

    def maximise(self, scatter, count, scale):
        regularise = lambda matrix: regularise_matrix(matrix, scale, self.floor)
        return Full(update_counted(scatter, count[:, None, None], self.matrix, regularise), self.floor)

    def dense(self, k, d):
        return self.matrix

    def take(self, index):
        return Full(take_rows(self.matrix, index), self.floor)

    def factor(self, z, d):
        # All k factors, not one for each of many rows that are drawn together.
        return cholesky(self.matrix)[z]


class Tied(Covariance):
    """One covariance matrix for all components.

    Args:
        matrix: Σ, (d, d), positive definite.
        floor: added to the variances that `maximise` returns.

    >>> Tied(jnp.array([[4.0]])).dense(2, 1).ravel()
    Array([4., 4.], dtype=float32)
    """

    matrix: jax.Array = parameter(PositiveDefinite())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(asarray(np.eye(d), dtype), floor)

    def check(self, k, d):
        check_shape("covariance.matrix", self.matrix.shape, (d, d))

    def n_parameters(self, k, d):
        return d * (d + 1) // 2

    def row_energies(self, x, means):
        inverse, log_det = inverse_factor(self.matrix)
        middle = means.mean(0)
        projected, offset = (x - middle) @ inverse.T, (means - middle) @ inverse.T  # (n, d), (k, d)
        # Columns last: XLA on a CPU (0.10.2) computes Σ_j (a_jn − b_kj)² wrongly if b is a product too.
        squared = jnp.square(projected[None] - offset[:, None]).sum(2)
        return (0.5 * squared + log_det + half_log_two_pi(x.shape[-1], x.dtype)).T

    def scatter(self, x, means, posterior):
        centred = x.T - means[:, :, None]
        return jnp.einsum("kin,kjn->ij", centred * posterior.T[:, None, :], centred)

    def reduce(self, dense):
        return dense.sum(0)

    def recenter_scatter(self, scatter, count, first, shift):
        cross = first.T @ shift
        return scatter + cross + cross.T + (count[:, None] * shift).T @ shift

    def maximise(self, scatter, count, scale):
        total = count.sum()
        scale = (count[:, None] * scale).sum(0) / total
        return Tied(regularise_matrix(scatter / total, scale, self.floor), self.floor)

    def dense(self, k, d):
        return jnp.broadcast_to(self.matrix, (k, d, d))

    def take(self, index):
        return self

    def factor(self, z, d):
        return cholesky(self.matrix)


class Diagonal(Covariance):
    """Diagonal covariance matrices: the coordinates are independent given the component.

    Args:
        variance: the diagonals, (k, d), positive.
        floor: added to the variances that `maximise` returns.

    >>> Diagonal(jnp.array([[1.0, 4.0]])).dense(1, 2)[0]
    Array([[1., 0.],
           [0., 4.]], dtype=float32)
    """

    variance: jax.Array = parameter(Positive())
    floor: float = eqx.field(static=True, default=1e-6)

    counts_columns = True

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(asarray(np.ones((k, d)), dtype), floor)

    def check(self, k, d):
        check_shape("covariance.variance", self.variance.shape, (k, d))

    def n_parameters(self, k, d):
        return k * d

    def row_energies(self, x, means):
        squared = prevent_fusion(lambda means, x, v: squared_distances(x, means, v), means, x, self.variance)
        constant = 0.5 * jnp.log(self.variance).sum(1) + half_log_two_pi(x.shape[-1], x.dtype)
        return (0.5 * squared + constant[:, None]).T

    def scatter(self, x, means, posterior):
        return (jnp.square(x.T - means[:, :, None]) * posterior.T[:, None, :]).sum(2)

    def reduce(self, dense):
        return jnp.diagonal(dense, axis1=1, axis2=2)

    def recenter_scatter(self, scatter, count, first, shift):
        return scatter + 2 * first * shift + by_column(count) * shift**2

    def maximise(self, scatter, count, scale):
        regularise = lambda variance: regularise_variance(variance, scale, self.floor)
        return Diagonal(update_counted(scatter, by_column(count), self.variance, regularise), self.floor)

    def dense(self, k, d):
        return self.variance[:, :, None] * jnp.eye(d, dtype=self.variance.dtype)

    def take(self, index):
        return Diagonal(take_rows(self.variance, index), self.floor)

    def factor(self, z, d):
        return jnp.diag(jnp.sqrt(self.variance[z]))

    def masked_row_energies(self, x, observed, means):
        return independent_energies(x, observed, means, self.variance)

    def masked_moments(self, x, observed, means, posterior):
        return independent_moments(x, observed, means, self.variance, posterior)


class Spherical(Covariance):
    """Covariance matrices σ²_z I: one variance per component.

    Args:
        variance: σ², (k,), positive.
        floor: added to the variances that `maximise` returns.

    >>> Spherical(jnp.array([4.0])).dense(1, 2)[0]
    Array([[4., 0.],
           [0., 4.]], dtype=float32)
    """

    variance: jax.Array = parameter(Positive())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(asarray(np.ones(k), dtype), floor)

    def check(self, k, d):
        check_shape("covariance.variance", self.variance.shape, (k,))

    def n_parameters(self, k, d):
        return k

    def row_energies(self, x, means):
        d = x.shape[-1]
        squared = squared_distances(x, means)
        constant = 0.5 * d * jnp.log(self.variance) + half_log_two_pi(d, x.dtype)
        return (0.5 * squared / self.variance[:, None] + constant[:, None]).T

    def scatter(self, x, means, posterior):
        return (squared_distances(x, means) * posterior.T).sum(1)

    def reduce(self, dense):
        return jnp.trace(dense, axis1=1, axis2=2)

    def recenter_scatter(self, scatter, count, first, shift):
        return scatter + 2 * (first * shift).sum(1) + count * (shift**2).sum(1)

    def maximise(self, scatter, count, scale):
        d, scale = scale.shape[1], scale.mean(1)
        regularise = lambda variance: regularise_variance(variance, scale, self.floor)
        return Spherical(update_counted(scatter / d, count, self.variance, regularise), self.floor)

    def dense(self, k, d):
        return self.variance[:, None, None] * jnp.eye(d, dtype=self.variance.dtype)

    def take(self, index):
        return Spherical(take_rows(self.variance, index), self.floor)

    def factor(self, z, d):
        return jnp.sqrt(self.variance[z]) * jnp.eye(d, dtype=self.variance.dtype)

    def masked_row_energies(self, x, observed, means):
        return independent_energies(x, observed, means, jnp.broadcast_to(self.variance[:, None], means.shape))

    def masked_moments(self, x, observed, means, posterior):
        spread = jnp.broadcast_to(self.variance[:, None], means.shape)
        first, second = independent_moments(x, observed, means, spread, posterior)
        return first, second.sum(1)
