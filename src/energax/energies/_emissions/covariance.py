"""What shape a Gaussian has: covariances as objects, each with its own fast exact forms.

All take the k means they belong to, so that one covariance object serves a mixture, a hidden
chain or a classifier. Sums are taken about the means at hand (`scatter`): the textbook form
E[xxᵀ] − μμᵀ loses every digit in single precision a few hundred standard deviations from the
origin, the centred one none, at the same cost.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.linalg import cholesky, solve_lower
from ..._util.xla import prevent_fusion
from ...algorithms.gaussian.missing import marginal_energies, masked_moments
from ...batch import safe_divide
from ...errors import BadInput
from ...spaces import Positive, PositiveDefinite, parameter


class Covariance(eqx.Module):
    """Σ_z of k Gaussians.

    `floor` is added to every variance that `maximise` makes (scikit-learn's `reg_covar`).
    """

    @classmethod
    @abstractmethod
    def unit(cls, k: int, d: int, dtype: Any = None, floor: float = 1e-6) -> Covariance:
        """k times the identity."""

    @abstractmethod
    def check(self, k: int, d: int) -> None:
        """Raise `BadInput` unless this fits k means of d coordinates."""

    @abstractmethod
    def n_free(self, k: int, d: int) -> int:
        """How many free numbers this shape has, for information criteria."""

    @abstractmethod
    def row_energies(self, x: Any, means: Any) -> Any:
        """−log N(xᵢ; μ_z, Σ_z), (n, k)."""

    @abstractmethod
    def scatter(self, x: Any, means: Any, posterior: Any) -> Any:
        """Σᵢ r_iz (xᵢ − μ_z)(xᵢ − μ_z)ᵀ, or the part of it that this shape keeps."""

    @abstractmethod
    def reduce(self, dense: Any) -> Any:
        """The part of k dense scatters (k, d, d) that this shape keeps."""

    @abstractmethod
    def shifted(self, scatter: Any, count: Any, first: Any, shift: Any) -> Any:
        """The same sum about means that lie at −`shift` from the old ones; `first` = Σ r (x − μ_old)."""

    @abstractmethod
    def maximise(self, scatter: Any, count: Any, scale: Any) -> Covariance:
        """The covariance of greatest likelihood, from a scatter about the very means it belongs to.

        `scale` (k, d) is the raw variance whose rounding the result carries.
        """

    @abstractmethod
    def dense(self, k: int, d: int) -> Any:
        """All k matrices, (k, d, d)."""

    @abstractmethod
    def factor(self, z: Any, d: int) -> Any:
        """The lower Cholesky factor of Σ_z."""

    # -- missing coordinates: the general way, through dense matrices ----------------------

    def masked_row_energies(self, x: Any, seen: Any, means: Any) -> Any:
        """−log of the marginal of the coordinates seen in each row, (n, k)."""
        return marginal_energies(x, seen, means, self.dense(*means.shape))

    def masked_moments(self, x: Any, seen: Any, means: Any, posterior: Any) -> tuple[Any, Any]:
        """Expected Σ r (x − μ) and scatter: missing parts at their conditional mean and covariance."""
        first, second = masked_moments(x, seen, means, self.dense(*means.shape), posterior)
        return first, self.reduce(second)


_WRITTEN_OUT = 32  # columns at most


def _tiny(dtype: Any) -> Any:
    """A variance that keeps its logarithm, its root and its inverse finite."""
    return jnp.finfo(dtype).tiny ** 0.5


def _floored(variance: Any, scale: Any, floor: float) -> Any:
    """A variance no smaller than the rounding of the sum it came from: duplicates, constant columns."""
    eps = jnp.finfo(variance.dtype).eps
    return jnp.maximum(variance, 0) + floor + eps * scale + _tiny(variance.dtype)


def _ridged(matrix: Any, scale: Any, floor: float) -> Any:
    """The same for a matrix: the diagonal raised by what rounding can take from an eigenvalue.

    Where nothing but rounding is left of a component, even that may not do: it loses its correlations.
    """
    d, eps = matrix.shape[-1], jnp.finfo(matrix.dtype).eps
    matrix = (matrix + jnp.swapaxes(matrix, -1, -2)) / 2
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    kept = jnp.maximum(diagonal, 0)
    raised = kept + floor + 4 * d * eps * (kept + scale) + _tiny(matrix.dtype)
    eye = jnp.eye(d, dtype=matrix.dtype)
    ridged = matrix + (raised - diagonal)[..., None] * eye
    definite = jnp.isfinite(cholesky(ridged)).all((-2, -1), keepdims=True)
    return jnp.where(definite, ridged, raised[..., None] * eye)


def _inverse_factor(matrix: Any) -> tuple[Any, Any]:
    """L⁻¹ and log |L| for Σ = LLᵀ: computed once for all rows, which then need products only."""
    factor = cholesky(matrix)
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    inverse = solve_lower(factor, eye)
    return inverse, jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def _half_log_two_pi(d: int, dtype: Any) -> Any:
    return 0.5 * d * jnp.log(jnp.asarray(2 * jnp.pi, dtype))


def _squared_distances(x: Any, means: Any, variance: Any = None) -> Any:
    """Σ_j (x_ij − μ_zj)², or each term divided by σ²_zj, (k, n).

    The sum over few columns is written out: left to XLA's reduction it took up to 14 times as long.
    """

    def term(j):
        squared = jnp.square(x[:, j] - means[:, j, None])
        return squared if variance is None else squared / variance[:, j, None]

    if not 0 < x.shape[1] <= _WRITTEN_OUT:
        squared = jnp.square(x.T - means[:, :, None])
        return (squared if variance is None else squared / variance[:, :, None]).sum(1)
    terms = [term(j) for j in range(x.shape[1])]
    return sum(terms[1:], terms[0])


def _check_shape(name: str, shape: tuple, expected: tuple) -> None:
    if tuple(shape[len(shape) - len(expected) :]) != expected:
        raise BadInput(name, f"shape {tuple(shape)}", f"{expected}, from the means")


class Full(Covariance):
    """A matrix of its own for every component: `matrix` (k, d, d).

    >>> Full(jnp.array([[[4.0]]])).row_energies(jnp.array([[2.0]]), jnp.zeros((1, 1)))  # ½ + log 2 + ½ log 2π
    Array([[2.1120858]], dtype=float32)
    """

    matrix: jax.Array = parameter(PositiveDefinite())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(jnp.broadcast_to(jnp.eye(d, dtype=dtype), (k, d, d)), floor)

    def check(self, k, d):
        _check_shape("covariance.matrix", self.matrix.shape, (k, d, d))

    def n_free(self, k, d):
        return k * d * (d + 1) // 2

    def row_energies(self, x, means):
        inverse, log_det = _inverse_factor(self.matrix)
        k, d = means.shape
        # One product for all components. Rows are taken from the middle of the means first, so
        # that what is lost in the subtraction is no more than the data lost by being rounded.
        middle = means.mean(0)
        projected = inverse.reshape(k * d, d) @ (x - middle).T
        offset = jnp.einsum("kij,kj->ki", inverse, means - middle).reshape(k * d, 1)
        squared = jnp.square(projected - offset).reshape(k, d, -1).sum(1)
        return (0.5 * squared + (log_det + _half_log_two_pi(d, x.dtype))[:, None]).T

    def scatter(self, x, means, posterior):
        # √r on both sides: one array of the size k × n × d is made, not two.
        centred = (x - means[:, None]) * jnp.sqrt(posterior).T[:, :, None]
        return jnp.einsum("kni,knj->kij", centred, centred)

    def reduce(self, dense):
        return dense

    def shifted(self, scatter, count, first, shift):
        cross = first[:, :, None] * shift[:, None, :]
        outer = count[:, None, None] * shift[:, :, None] * shift[:, None, :]
        return scatter + cross + jnp.swapaxes(cross, 1, 2) + outer

    def maximise(self, scatter, count, scale):
        share = safe_divide(scatter, count[:, None, None], self.matrix)
        return Full(_ridged(share, scale, self.floor), self.floor)

    def dense(self, k, d):
        return self.matrix

    def factor(self, z, d):
        return cholesky(self.matrix[z])


class Tied(Covariance):
    """One matrix for all components: `matrix` (d, d)."""

    matrix: jax.Array = parameter(PositiveDefinite())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(jnp.eye(d, dtype=dtype), floor)

    def check(self, k, d):
        _check_shape("covariance.matrix", self.matrix.shape, (d, d))

    def n_free(self, k, d):
        return d * (d + 1) // 2

    def row_energies(self, x, means):
        inverse, log_det = _inverse_factor(self.matrix)
        middle = means.mean(0)
        projected, offset = (x - middle) @ inverse.T, (means - middle) @ inverse.T  # (n, d), (k, d)
        # Columns last: XLA on a CPU (0.10.2) computes Σ_j (a_jn − b_kj)² wrongly if b is a product too.
        squared = jnp.square(projected[None] - offset[:, None]).sum(2)
        return (0.5 * squared + log_det + _half_log_two_pi(x.shape[-1], x.dtype)).T

    def scatter(self, x, means, posterior):
        centred = x.T - means[:, :, None]
        return jnp.einsum("kin,kjn->ij", centred * posterior.T[:, None, :], centred)

    def reduce(self, dense):
        return dense.sum(0)

    def shifted(self, scatter, count, first, shift):
        cross = first.T @ shift
        return scatter + cross + cross.T + (count[:, None] * shift).T @ shift

    def maximise(self, scatter, count, scale):
        total = count.sum()
        scale = (count[:, None] * scale).sum(0) / total
        return Tied(_ridged(scatter / total, scale, self.floor), self.floor)

    def dense(self, k, d):
        return jnp.broadcast_to(self.matrix, (k, d, d))

    def factor(self, z, d):
        return cholesky(self.matrix)


class Diagonal(Covariance):
    """Coordinates independent given the component: `variance` (k, d)."""

    variance: jax.Array = parameter(Positive())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(jnp.ones((k, d), dtype), floor)

    def check(self, k, d):
        _check_shape("covariance.variance", self.variance.shape, (k, d))

    def n_free(self, k, d):
        return k * d

    def row_energies(self, x, means):
        squared = prevent_fusion(lambda means, x, v: _squared_distances(x, means, v), means, x, self.variance)
        constant = 0.5 * jnp.log(self.variance).sum(1) + _half_log_two_pi(x.shape[-1], x.dtype)
        return (0.5 * squared + constant[:, None]).T

    def scatter(self, x, means, posterior):
        return (jnp.square(x.T - means[:, :, None]) * posterior.T[:, None, :]).sum(2)

    def reduce(self, dense):
        return jnp.diagonal(dense, axis1=1, axis2=2)

    def shifted(self, scatter, count, first, shift):
        return scatter + 2 * first * shift + count[:, None] * shift**2

    def maximise(self, scatter, count, scale):
        share = safe_divide(scatter, count[:, None], self.variance)
        return Diagonal(_floored(share, scale, self.floor), self.floor)

    def dense(self, k, d):
        return self.variance[:, :, None] * jnp.eye(d, dtype=self.variance.dtype)

    def factor(self, z, d):
        return jnp.diag(jnp.sqrt(self.variance[z]))

    def masked_row_energies(self, x, seen, means):
        return _separate_energies(x, seen, means, self.variance)

    def masked_moments(self, x, seen, means, posterior):
        return _separate_moments(x, seen, means, self.variance, posterior)


class Spherical(Covariance):
    """The same variance in every direction: `variance` (k,)."""

    variance: jax.Array = parameter(Positive())
    floor: float = eqx.field(static=True, default=1e-6)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(jnp.ones(k, dtype), floor)

    def check(self, k, d):
        _check_shape("covariance.variance", self.variance.shape, (k,))

    def n_free(self, k, d):
        return k

    def row_energies(self, x, means):
        d = x.shape[-1]
        squared = _squared_distances(x, means)
        constant = 0.5 * d * jnp.log(self.variance) + _half_log_two_pi(d, x.dtype)
        return (0.5 * squared / self.variance[:, None] + constant[:, None]).T

    def scatter(self, x, means, posterior):
        return (_squared_distances(x, means) * posterior.T).sum(1)

    def reduce(self, dense):
        return jnp.trace(dense, axis1=1, axis2=2)

    def shifted(self, scatter, count, first, shift):
        return scatter + 2 * (first * shift).sum(1) + count * (shift**2).sum(1)

    def maximise(self, scatter, count, scale):
        share = safe_divide(scatter / scale.shape[1], count, self.variance)
        return Spherical(_floored(share, scale.mean(1), self.floor), self.floor)

    def dense(self, k, d):
        return self.variance[:, None, None] * jnp.eye(d, dtype=self.variance.dtype)

    def factor(self, z, d):
        return jnp.sqrt(self.variance[z]) * jnp.eye(d, dtype=self.variance.dtype)

    def masked_row_energies(self, x, seen, means):
        return _separate_energies(x, seen, means, jnp.broadcast_to(self.variance[:, None], means.shape))

    def masked_moments(self, x, seen, means, posterior):
        spread = jnp.broadcast_to(self.variance[:, None], means.shape)
        first, second = _separate_moments(x, seen, means, spread, posterior)
        return first, second.sum(1)


def _separate_energies(x: Any, seen: Any, means: Any, variance: Any) -> Any:
    """With independent coordinates the marginal simply leaves the missing ones out."""
    squared = jnp.square(x.T - means[:, :, None]) / variance[:, :, None]
    constant = jnp.log(variance) + jnp.log(jnp.asarray(2 * jnp.pi, x.dtype))
    terms = jnp.where(seen.T, squared + constant[:, :, None], 0)
    return 0.5 * terms.sum(1).T


def _separate_moments(x: Any, seen: Any, means: Any, variance: Any, posterior: Any) -> tuple[Any, Any]:
    """A missing coordinate is expected at its mean, with its variance."""
    centred = jnp.where(seen.T, x.T - means[:, :, None], 0)
    weight = posterior.T[:, None, :]
    second = jnp.where(seen.T, centred**2, variance[:, :, None])
    return (centred * weight).sum(2), (second * weight).sum(2)
