"""Kernels of inner products: linear and polynomial."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import numpy as np

from .._util.hyperparameter import hyperparameter
from ..errors import check_number, check_whole_number
from ..spaces import Positive, parameter
from ._kernel import Kernel


class Linear(Kernel):
    """k(x, y) = Σ_i v_i x_i y_i, the kernel of f(x) = wᵀx with w_i of variance v_i.

    `Linear() + Constant(b)` has an intercept of variance b too.

    Args:
        variance: v, one number, or one per column.

    >>> import numpy as np
    >>> Linear([1.0, 2.0])(np.array([1.0, 1.0]), np.array([3.0, 4.0]))
    Array(11., dtype=float32)
    """

    variance: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="variance")
    )

    def _matrix(self, X, Y):
        return (X * self.variance.astype(X.dtype)) @ (X if Y is None else Y).T

    def _diagonal(self, X):
        return (X * X * self.variance.astype(X.dtype)).sum(1)


class Polynomial(Kernel):
    """k(x, y) = (γ xᵀy + c)^p, the inner product of all monomials of degree p (up to p if c > 0).

    Args:
        degree: p, a whole number >= 1.
        gamma: γ > 0, one number, or one per column.
        coef0: c >= 0; it is not learned.

    >>> import numpy as np
    >>> Polynomial(2, coef0=1.0)(np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    Array(25., dtype=float32)
    """

    degree: int = eqx.field(static=True, default=3)
    gamma: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="gamma")
    )
    coef0: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        check_whole_number("degree", self.degree)
        check_number("coef0", self.coef0, lambda c: 0 <= c < np.inf, "a finite number >= 0")

    def _matrix(self, X, Y):
        products = (X * self.gamma.astype(X.dtype)) @ (X if Y is None else Y).T
        return (products + self.coef0) ** self.degree

    def _diagonal(self, X):
        products = (X * X * self.gamma.astype(X.dtype)).sum(1)
        return (products + self.coef0) ** self.degree
