"""Posteriors in unconstrained coordinates u, x = b(u), which `Laplace` and `VariationalGaussian` share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from ...energy import Energy, checked_energy
from ...samplers import Draws
from .._optimise.lbfgs import start_in
from .._posterior import Posterior, check_single_variable
from .._query import Query

#: Draws for the means of constrained variables, which are no function of the center.
_MEAN_DRAWS = 2000


def flatten_energy(
    energy: Energy, row: dict[str, Any], names: tuple[str, ...]
) -> tuple[Callable[[Any], Any], Callable[[Any], dict[str, Any]], Any]:
    """Return (E, complete, start) for one row: E(u) = e(b(u)) − log|∂b/∂u| of a flat vector u, (D,).

    `complete(u)` is the example with the variables `names` at u. `start` is the `starting_point` of the
    energy, if it has one, else 0.
    """
    spaces = energy.spaces
    if energy.knows("starting_point"):
        values = energy.starting_point()  # type: ignore[attr-defined]
        parts = tuple(spaces[n].bijection.inv(values[n]) for n in names)
    else:
        parts = tuple(start_in(spaces[n], None) for n in names)
    # A tuple keeps the order of the names; a dict would sort them.
    start, unravel = ravel_pytree(parts)

    def complete(u):
        return {**row, **{n: spaces[n].bijection(v) for n, v in zip(names, unravel(u), strict=True)}}

    def objective(u):
        value = checked_energy(energy, complete(u))
        for n, v in zip(names, unravel(u), strict=True):
            if not spaces[n].is_unconstrained:
                bijection = spaces[n].bijection
                value = value - bijection.log_abs_det_jacobian(v, bijection(v)).sum()
        return value

    return objective, complete, start


def unsupported_space(query: Query) -> str | None:
    """Return why the hidden variables of a query have no such coordinates, as a clause; None if they do."""
    if query.partially_observed:
        return f"does not integrate out missing coordinates of {list(query.partially_observed)}"
    discrete = [name for name, space in query.hidden.items() if not space.is_real]
    if discrete:
        return f"needs real hidden variables, but {discrete} are not"
    unsized = [name for name, space in query.hidden.items() if not space.shape and space.ndim]
    return f"needs the length of {unsized}. Set `length` of the energy" if unsized else None


def n_coordinates(query: Query) -> int:
    """Return D, the number of coordinates of all hidden variables."""
    return sum(max(1, space.size) for space in query.hidden.values())


class UnconstrainedPosterior(Posterior):
    """p(hidden | given) as a distribution of u in ℝᴰ.

    A subclass draws u and has a `_center`, (rows, D), the mean or the mode of u.
    """

    kind = "estimate"
    _caveat = "of a Gaussian approximation"

    @abstractmethod
    def _draw_u(self, n: int, key: Any) -> np.ndarray:
        """Return draws of u, (n, rows, D)."""

    @property
    @abstractmethod
    def _center(self) -> np.ndarray: ...

    def _values(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """Return the variables at flat unconstrained points (m, rows, D): (m, rows, *shape) by name."""
        values, start = {}, 0
        for name, space in self._query.hidden.items():
            shape = space.bijection.inverse_shape(space.shape)
            size = math.prod(shape)
            part = u[..., start : start + size].reshape(*u.shape[:-1], *shape)
            values[name] = part if space.is_unconstrained else np.asarray(space.bijection(part))
            start += size
        return values

    def _draw(self, n, key):
        values = self._values(self._draw_u(n, key))
        values = {k: (v if self._query.batched else v[:, 0])[None] for k, v in values.items()}
        return Draws(values, method=self.method, exact=True, caveat=self._caveat)

    def _compute_marginals(self):
        return {}

    def _compute_mean(self):
        center = self._compute_mode()
        if all(space.is_unconstrained for space in self._query.hidden.values()):
            return center
        draws = self._values(self._draw_u(_MEAN_DRAWS, jax.random.key(0)))
        free = {k for k, space in self._query.hidden.items() if space.is_unconstrained}
        return {k: center[k] if k in free else draws[k].mean(0) for k in center}

    def _compute_mode(self):
        return {k: v[0] for k, v in self._values(self._center[None]).items()}

    def _compute_joint(self, names):
        check_single_variable(names, "")

    def _log_evidence_by(self, method: Any) -> Any:
        """Return the `log_prob` of the given values by a method."""
        from .._functions import log_prob

        query = self._query
        given = {k: v for k, v in query.given.items() if k in query.energy.inputs}
        data = {k: v for k, v in query.given.items() if k not in given}
        estimate = log_prob(query.energy, data, method, given=given or None)
        return estimate if query.batched else estimate[0]


class GaussianPosterior(UnconstrainedPosterior):
    """p(hidden | given) as N(center, R Rᵀ) in unconstrained coordinates; R is `root`.

    root: (rows, D, D), or (rows, D) for independent coordinates.
    """

    def __init__(self, query: Query, center: np.ndarray, root: np.ndarray, key: Any = None):
        super().__init__(query, key)
        self._mean_u, self._root = center, root

    @property
    def _center(self):
        return self._mean_u

    @property
    def covariance(self) -> np.ndarray:
        """The covariance of u, all hidden variables flattened and stacked in order, (D, D)."""
        root = self._root
        if root.ndim == 2:
            return self._query.unbatch(np.eye(root.shape[1], dtype=root.dtype) * root[:, :, None] ** 2)
        return self._query.unbatch(root @ np.swapaxes(root, -1, -2))

    def _draw_u(self, n, key):
        center, root = self._mean_u, self._root
        noise = np.asarray(jax.random.normal(key, (n, *center.shape), center.dtype))
        return center + (root * noise if root.ndim == 2 else np.einsum("nij,mnj->mni", root, noise))
