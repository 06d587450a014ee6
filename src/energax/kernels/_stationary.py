"""Kernels of the distance of two points: RBF, Matérn, rational quadratic, periodic.

Distances are computed by matrix products, ‖x − y‖² = ‖x‖² + ‖y‖² − 2xᵀy, after the points have been moved to
their mean, so that little is lost by cancellation.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import is_real
from .._util.hyperparameter import hyperparameter
from ..errors import BadInput, describe
from ..spaces import Positive, parameter
from ._kernel import Kernel, check_scalar


def squared_distances(X: Any, Y: Any = None) -> Any:
    """Return ‖x − y‖² of all pairs of rows, (n, m); a distance within its rounding error is 0.

    >>> squared_distances(jnp.array([[0.0], [3.0]]), jnp.array([[1.0]]))
    Array([[1.],
           [4.]], dtype=float32)
    """
    centre = jax.lax.stop_gradient(X.mean(0))
    X = X - centre
    Y = X if Y is None else Y - centre
    return _centred_distances(X, (X * X).sum(1), Y, (Y * Y).sum(1))


def _centred_distances(X: Any, x_squares: Any, Y: Any, y_squares: Any) -> Any:
    """‖x − y‖² from points about their mean and their squared norms."""
    norms = x_squares[:, None] + y_squares
    squares = norms - 2 * X @ Y.T
    # Equal points get distance 0 exactly: a Matérn kernel takes the root, which would enlarge the error.
    error = 4 * jnp.finfo(X.dtype).eps * jax.lax.stop_gradient(norms)
    return jnp.where(squares > error, squares, 0)


def _root(squares: Any) -> Any:
    """√squares with gradient 0 at 0, where the derivative is infinite."""
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)


def _length_scale() -> Any:
    return parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="length_scale")
    )


class Stationary(Kernel):
    """k(x, y) = g(‖(x − y) / ℓ‖²) with g(0) = 1, and one length scale ℓ or one per column."""

    length_scale: eqx.AbstractVar[jax.Array]

    @abstractmethod
    def _profile(self, squares: Any) -> Any:
        """g of squared distances."""

    def _features(self, X: Any) -> Any:
        """The points between which distances are taken."""
        return X / self.length_scale.astype(X.dtype)

    def _matrix(self, X, Y):
        Y = None if Y is None else self._features(Y)
        return self._profile(squared_distances(self._features(X), Y))

    def _diagonal(self, X):
        return jnp.ones(len(X), X.dtype)

    def by_index(self, X):
        points = self._features(X)
        points = points - points.mean(0)
        norms = (points * points).sum(1)

        def values(i, j=None):
            some = lambda index: (jnp.take(points, index, axis=0), jnp.take(norms, index))
            others = (points, norms) if j is None else some(j)
            return self._profile(_centred_distances(*some(i), *others))

        return values


class RBF(Stationary):
    """k(x, y) = exp(−½ ‖(x − y) / ℓ‖²), the kernel of smooth functions.

    Args:
        length_scale: ℓ > 0, one number, or one per column (automatic relevance determination).

    >>> import numpy as np
    >>> round(float(RBF()(np.zeros(2), np.ones(2))), 4)
    0.3679
    """

    length_scale: jax.Array = _length_scale()

    def _profile(self, squares):
        return jnp.exp(-0.5 * squares)


class Matern(Stationary):
    """The Matérn kernel with ν = ½, 3/2 or 5/2: functions with ν − ½ derivatives.

    With r = ‖(x − y) / ℓ‖, k is exp(−r), (1 + √3 r) exp(−√3 r) or (1 + √5 r + 5r²/3) exp(−√5 r).

    Args:
        length_scale: ℓ > 0, one number, or one per column.
        nu: ν, one of 0.5, 1.5, 2.5.

    Matérn (1960), Spatial variation.

    >>> import numpy as np
    >>> round(float(Matern(nu=0.5)(np.zeros(1), np.ones(1))), 4)
    0.3679
    """

    length_scale: jax.Array = _length_scale()
    nu: float = eqx.field(static=True, default=1.5)

    def __check_init__(self):
        if not is_real(self.nu) or self.nu not in (0.5, 1.5, 2.5):
            raise BadInput("nu", describe(self.nu), "0.5, 1.5 or 2.5", "For ν = ∞ use RBF.")

    def _profile(self, squares):
        s = math.sqrt(2 * self.nu) * _root(squares)
        polynomial = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[self.nu]
        return polynomial * jnp.exp(-s)


class RationalQuadratic(Stationary):
    """k(x, y) = (1 + ‖(x − y) / ℓ‖² / 2α)^−α, a mixture of RBF kernels of many length scales.

    Args:
        length_scale: ℓ > 0, one number, or one per column.
        alpha: α > 0, how alike the length scales are.

    >>> import numpy as np
    >>> RationalQuadratic()(np.zeros(2), np.ones(2))
    Array(0.5, dtype=float32)
    """

    length_scale: jax.Array = _length_scale()
    alpha: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="alpha")
    )

    def __check_init__(self):
        check_scalar("alpha", self.alpha)

    def _profile(self, squares):
        alpha = self.alpha.astype(squares.dtype)
        return jnp.exp(-alpha * jnp.log1p(squares / (2 * alpha)))


class Periodic(Stationary):
    """k(x, y) = exp(−2 Σ_i sin²(π (x_i − y_i) / p_i) / ℓ_i²), the kernel of periodic functions.

    This is the RBF kernel of the points (cos 2πx/p, sin 2πx/p) on circles, hence positive semi-definite for
    any number of columns. For one column it is scikit-learn's ExpSineSquared, which for more takes the sine
    of the distance and is then not positive semi-definite.

    Args:
        length_scale: ℓ > 0, one number, or one per column.
        periodicity: p > 0, one number, or one per column.

    MacKay (1998), Introduction to Gaussian processes.

    >>> import numpy as np
    >>> Periodic(periodicity=0.5)(np.zeros(1), np.ones(1))
    Array(1., dtype=float32)
    """

    length_scale: jax.Array = _length_scale()
    periodicity: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="periodicity")
    )

    def _features(self, X):
        angle = 2 * jnp.pi * X / self.periodicity.astype(X.dtype)
        scale = self.length_scale.astype(X.dtype)
        return jnp.concatenate([jnp.cos(angle) / scale, jnp.sin(angle) / scale], 1)

    def _profile(self, squares):
        return jnp.exp(-0.5 * squares)
