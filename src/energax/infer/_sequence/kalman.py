"""The posterior of a linear-Gaussian chain, by the Kalman filter and smoother."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...energy import checked_energy
from ...errors import BadInput
from ...missing import known
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._monte_carlo.ancestral import Ancestral
from .._posterior import Posterior
from .._query import map_rows


class Kalman(Method):
    """Smoothed means and covariances of real hidden sequences, exact paths, and what is missing of x.

    For energies with `smoothed(x=…)`, such as `LinearGaussianSSM`; for rows and for missing coordinates.

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
        name = type(query.energy).__name__
        if not hasattr(query.energy, "smoothed"):
            return f"is for linear-Gaussian chains, which {name} is not"
        if "x" not in query.given or "z" in query.given:
            return f"finds z given x, but given are {list(query.given)}"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} is a linear-Gaussian chain"

    def cost(self, task, query):
        return Cost(evaluations=2 * query.n)

    def posterior(self, query, key):
        return PathPosterior(query, key)

    def argmin(self, query, key):
        found = PathPosterior(query)
        values = found._mode()
        energy = map_rows(_energy, {"row": query.given, "values": values}, query.n, query.energy)
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def sample(self, query, n, key):
        return PathPosterior(query)._sample(n, key)


class PathPosterior(Posterior):
    """p(z | what is seen of x): normal, so its mean is its mode. `covariance` is of every step by itself."""

    method = "kalman"
    kind = "exact"

    @property
    def covariance(self) -> dict[str, np.ndarray]:
        """Cov[variable_t | given] by name, (steps, d, d), rows first."""
        return self._query.answer(self._once("covariance", lambda: self._found()[1]))

    @property
    def standard_deviation(self) -> dict[str, np.ndarray]:
        """Its root along the diagonal, (steps, d)."""
        return {k: np.sqrt(np.diagonal(v, axis1=-2, axis2=-1)) for k, v in self.covariance.items()}

    def _found(self) -> Any:
        q = self._query
        energy: Any = q.energy
        k = energy.transition.shape[0]
        width = np.shape(known(q.given["x"]))[1] * 16 * k * k
        find = lambda: map_rows(
            _found, q.given, q.n, q.energy, tuple(q.partially_observed), numbers_per_row=width
        )
        return self._once("found", find)

    def _marginals(self):
        return {}

    def _mean(self):
        return self._found()[0]

    def _mode(self):
        return self._found()[0]

    def _joint(self, names):
        raise BadInput("names", f"{names}", "finite variables", "Use .mean, .covariance or .sample.")

    def _sample(self, n, key) -> Draws:
        return Ancestral().sample(self._query, n, key)


def _found(row, key, energy, partially_observed):
    smoothed = energy.smoothed(x=row["x"])
    mean, covariance = {"z": smoothed.mean}, {"z": smoothed.covariance}
    if "x" in partially_observed:
        mean["x"], covariance["x"] = energy.completed(x=row["x"], smoothed=smoothed)
    return mean, covariance


def _energy(rows, key, energy):
    return checked_energy(energy, {**rows["row"], **rows["values"]})
