"""Spaces of real numbers, each with its bijection to ℝⁿ."""

from __future__ import annotations

import numpy as np

from ..errors import BadInput
from ._space import Space


class Real(Space):
    """ℝ, or arrays of reals: `Real()`, `Real(3)`, `Real(28, 28)`."""

    is_unconstrained = True

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.real


class Positive(Space):
    """(0, ∞), elementwise."""

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.softplus_positive

    @property
    def chain_bijection(self):
        """Near to `bijection` up to 4, and exponential above, so that heavy tails become light."""
        from ._positive_chain import SinhSoftplus

        return SinhSoftplus()

    def _is_valid(self, array):
        return np.isfinite(array) & (array > 0)

    @property
    def _filler(self):
        return 1.0

    def description(self):
        return "finite numbers > 0"


class Interval(Space):
    """(low, high), elementwise: `Interval(0, 1, 5)` is five numbers between 0 and 1."""

    def __init__(self, low: float, high: float, *shape: int):
        super().__init__(*shape)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise BadInput("Interval", f"({low}, {high})", "finite bounds with low < high")
        self.low, self.high = float(low), float(high)

    def _arguments(self):
        return (self.low, self.high, *self.shape)

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.interval(self.low, self.high)

    def _is_valid(self, array):
        return (array >= self.low) & (array <= self.high)

    @property
    def _filler(self):
        return (self.low + self.high) / 2

    def description(self):
        return f"numbers in [{self.low:g}, {self.high:g}]"


class Simplex(Space):
    """Vectors of k probabilities that sum to one. Without k, vectors of any size: `parameter(Simplex())`."""

    event_ndim = 1

    def __init__(self, k: int | None = None):
        super().__init__(*(() if k is None else (k,)))

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.simplex

    def _is_valid(self, array):
        with np.errstate(invalid="ignore"):
            ok = (array >= 0).all(-1) & (np.abs(array.sum(-1) - 1) < 1e-4)
        return np.broadcast_to(ok[..., None], array.shape)

    @property
    def _filler(self):
        return 1.0 / max(self.size, 1)

    def description(self):
        return "probabilities that are >= 0 and sum to 1"


class Ordered(Space):
    """Vectors of k increasing numbers, x₁ < … < x_k: for example means that would otherwise be exchangeable.

    x₁ = u₁ and x_i = x_{i−1} + exp(u_i). Without k, vectors of any size: `parameter(Ordered())`.
    """

    event_ndim = 1

    def __init__(self, k: int | None = None):
        super().__init__(*(() if k is None else (k,)))

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.ordered_vector

    def _is_valid(self, array):
        with np.errstate(invalid="ignore"):
            ok = np.isfinite(array).all(-1) & (np.diff(array, axis=-1) > 0).all(-1)
        return np.broadcast_to(ok[..., None], array.shape)

    @property
    def _filler(self):
        return np.arange(float(self.shape[-1])) if self.shape else 0.0

    def description(self):
        return "finite numbers in increasing order"


class PositiveDefinite(Space):
    """Symmetric d × d matrices with positive eigenvalues."""

    event_ndim = 2

    def __init__(self, d: int | None = None):
        super().__init__(*(() if d is None else (d, d)))

    def _arguments(self):
        return self.shape if self.ndim > 2 else self.shape[:1]

    @property
    def constraint(self):
        from numpyro.distributions import constraints

        return constraints.positive_definite

    def _is_valid(self, array):
        finite = np.isfinite(array).all()
        symmetric = finite and np.allclose(array, np.swapaxes(array, -1, -2), rtol=1e-4, atol=1e-6)
        positive = symmetric and (np.linalg.eigvalsh(array) > 0).all()
        return np.full(array.shape, positive)

    def description(self):
        return "symmetric matrices with positive eigenvalues"
