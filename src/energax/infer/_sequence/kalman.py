"""Exact inference in linear-Gaussian state-space models, by the Kalman filter and smoother."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...energy import checked_energy
from ...errors import BadInput
from ...missing import value_of
from ...samplers import Draws
from .._map_rows import map_batches, map_rows
from .._method import Cost, Method, Minimum
from .._monte_carlo.ancestral import Ancestral
from .._posterior import Posterior
from . import kalman_queries as queries


class Kalman(Method):
    """Smoothed means and covariances of real hidden sequences, exact draws, and missing values of x.

    For energies that implement `protocols.LinearGaussianStates`, such as `LinearGaussianSSM`.

    >>> import jax.numpy as jnp
    >>> from energax.energies._sequence.linear_gaussian import LinearGaussianSSM
    >>> from energax.infer import posterior
    >>> walk = LinearGaussianSSM([[1.0]], [[1.0]], [[1.0]], [[1.0]], length=2)
    >>> found = posterior(walk, {"x": [[1.0], [2.0]]}, Kalman())
    >>> found.mean["z"].round(2).tolist(), found.covariance["z"].round(2).ravel().tolist()
    ([[0.800000...], [1.39999...]], [0.4000000..., 0.6000000...])
    """

    tasks = frozenset({"posterior", "argmin", "sample"})

    def unsupported_reason(self, task, query):
        energy = query.energy
        if not energy.knows("smooth"):
            return f"is for linear-Gaussian chains, which {type(energy).__name__} is not"
        x, z = energy.observed_name, energy.state_name
        if x not in query.given or z in query.given:
            return f"finds {z} given {x}, but given are {list(query.given)}"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} is a linear-Gaussian chain"

    def cost(self, task, query):
        return Cost(evaluations=2 * query.n)

    def posterior(self, query, key):
        return PathPosterior(query, key)

    def argmin(self, query, key):
        values = PathPosterior(query)._compute_mode()
        energy = map_rows(_energy, {"row": query.given, "values": values}, query.n, query.energy)
        return Minimum(query.unbatch(values), energy=query.unbatch(energy), method=self.label)

    def sample(self, query, n, key):
        return PathPosterior(query)._draw(n, key)


class PathPosterior(Posterior):
    """p(z, missing values | observed values): Gaussian, so its mean is its mode. `covariance` is per step."""

    method = "kalman"
    kind = "exact"

    @property
    def covariance(self) -> dict[str, np.ndarray]:
        """Cov[variable_t | given] by name, (steps, d, d), with a leading axis for rows."""
        compute = lambda: {name: covariance for name, (_, covariance) in self._moments().items()}
        return self._query.unbatch(self._cached("covariance", compute))

    @property
    def standard_deviation(self) -> dict[str, np.ndarray]:
        """The square roots of the diagonals of `covariance`, (steps, d)."""
        return {k: np.sqrt(np.diagonal(v, axis1=-2, axis2=-1)) for k, v in self.covariance.items()}

    def _moments(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(mean, covariance) of every target, by name."""
        return self._cached("moments", self._compute_moments)

    def _compute_moments(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        q = self._query
        model: Any = q.energy
        x, k = model.observed_name, model.transition.shape[0]
        partial = x in q.partially_observed
        function = queries.smooth_and_complete if partial else queries.smooth
        numbers = np.shape(value_of(q.given[x]))[1] * 16 * k * k
        found = map_batches(function, q.given, q.n, model, numbers_per_row=numbers)
        return {model.state_name: found[0], x: found[1]} if partial else {model.state_name: found}

    def _compute_marginals(self):
        return {}

    def _compute_mean(self):
        return {name: mean for name, (mean, _) in self._moments().items()}

    def _compute_mode(self):
        return self._compute_mean()

    def _compute_joint(self, names):
        raise BadInput("names", f"{names}", "finite variables", "Use .mean, .covariance or .sample.")

    def _draw(self, n, key) -> Draws:
        return Ancestral().sample(self._query, n, key)


def _energy(rows, key, energy):
    return checked_energy(energy, {**rows["row"], **rows["values"]})
