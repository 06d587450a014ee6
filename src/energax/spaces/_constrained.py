"""Spaces from the constraints of NumPyro."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput
from ._counted import Binary, Categorical, Count
from ._real import Interval, Ordered, Positive, PositiveDefinite, Real, Simplex
from ._space import Space


class Constrained(Space):
    """Real arrays that satisfy a constraint of NumPyro, with the bijection `biject_to(constraint)`.

    For spaces without a class of their own, such as `greater_than(2.0)`, `positive_ordered_vector`,
    `corr_matrix` and `lower_cholesky`; here Cholesky factors of correlation matrices.

    >>> from numpyro.distributions import constraints
    >>> Constrained(constraints.corr_cholesky, 3, 3).bijection.inverse_shape((3, 3))
    (3,)
    """

    def __init__(self, constraint: Any, *shape: int):
        super().__init__(*shape)
        self._constraint = constraint
        self.event_ndim = constraint.event_dim  # type: ignore[misc]

    def _arguments(self):
        return (self._constraint, *self.shape)

    def __hash__(self):
        # Constraints with bounds have no hash.
        return hash((type(self).__name__, type(self._constraint).__name__, self.shape))

    @property
    def constraint(self):
        return self._constraint

    def _is_valid(self, array):
        ok = np.asarray(self._constraint(array))
        return np.broadcast_to(ok.reshape(*ok.shape, *(1,) * (array.ndim - ok.ndim)), array.shape)

    @property
    def _filler(self):
        return np.asarray(self.bijection(np.zeros(self.bijection.inverse_shape(self.shape), np.float32)))

    def description(self):
        return f"values of NumPyro's constraint {type(self._constraint).__name__.strip('_')}"


def space_of(constraint: Any, shape: tuple[int, ...]) -> Space:
    """Return the space of arrays of this shape with this constraint of NumPyro.

    >>> from numpyro.distributions import constraints
    >>> space_of(constraints.positive, (2,)), space_of(constraints.integer_interval(0, 4), ())
    (Positive(2), Categorical(5))
    """
    from numpyro.distributions import constraints

    while isinstance(constraint, type(constraints.independent(constraints.real, 1))):
        constraint = constraint.base_constraint
    plain: list[tuple[Any, Space]] = [
        (constraints.real, Real()),
        (constraints.real_vector, Real()),
        (constraints.real_matrix, Real()),
        (constraints.softplus_positive, Positive()),
        (constraints.simplex, Simplex()),
        (constraints.ordered_vector, Ordered()),
        (constraints.positive_definite, PositiveDefinite()),
        (constraints.boolean, Binary()),
        (constraints.nonnegative_integer, Count()),
    ]
    for known, space in plain:
        if type(constraint) is type(known):
            return space.with_shape(*shape)
    low, high = (_number(getattr(constraint, name, None)) for name in ("lower_bound", "upper_bound"))
    if constraint.is_discrete:
        if low == 0 and high is not None:
            return Categorical(int(high) + 1, *shape)
        expected = "values from 0 to a fixed number, or counts"
        raise BadInput("support", repr(constraint), expected, "Sum the variable out, or shift its values.")
    if low == 0 and not hasattr(constraint, "upper_bound"):
        return Positive(*shape)
    if low is not None and high is not None and np.isfinite([low, high]).all():
        return Interval(low, high, *shape)
    return Constrained(constraint, *shape)


def _number(bound: Any) -> float | None:
    """A bound as a number, if it is one; None for an array of different bounds."""
    if bound is None:
        return None
    values = np.unique(np.asarray(bound))
    return float(values[0]) if values.size == 1 else None
