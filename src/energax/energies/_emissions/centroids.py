"""Centroids: the energy of k-means."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import check_arguments, one_of, read_array
from ..._util.arrays import take_rows
from ...algorithms.optimise.kmeans import assignment_sums, initial_centers, nearest_center, squared_distances
from ...energy import Energy, is_static_value
from ...errors import BadInput
from ...missing import is_masked, mask_other_labels, value_of
from ...spaces import Categorical, Real


class Centroids(Energy):
    """Squared distances from k centres: e(x, z) = ‖x − c_z‖², over the observed coordinates of x.

    Hard EM on it is k-means; `EM(temperature=T)` is soft k-means, with responsibilities
    ∝ exp(−‖x − c_z‖² / T).

    Args:
        centers: c, (k, d).
        start: the method of `initialise`: "k-means++" or "random_from_data" (random rows).
        active: whether each centre exists, (k,), the first ones; the others are padding. None: all exist.

    Lloyd (1982), Least squares quantization in PCM; Rose (1998), Deterministic annealing.

    >>> from energax import fit
    >>> from energax.learn import EM
    >>> X = jnp.array([[0.0], [1.0], [10.0], [11.0]])
    >>> k_means = EM(hard=True, criterion="parameters", tol=0.0)
    >>> fit(Centroids(X[:2]), {"x": X}, k_means, key=0).energy.centers.ravel().tolist()
    [0.5, 10.5]
    """

    centers: jax.Array
    start: str = eqx.field(static=True, default="k-means++")
    active: jax.Array | None = None

    marginalises = frozenset({"x"})

    def __init__(self, centers: Any, start: str = "k-means++", active: Any = None):
        centers = read_array("centers", centers)
        if centers.ndim != 2:
            raise BadInput("centers", f"shape {centers.shape}", "(k, d): one row per centre")
        check_arguments(locals(), start=one_of("k-means++", "random_from_data"))
        self.centers, self.start = centers, start
        self.active = None if active is None else read_array("active", active)

    @property
    def spaces(self):
        return {"x": Real(self.centers.shape[-1]), "z": Categorical(self.centers.shape[-2])}

    @property
    def n_components(self) -> int:
        return self.centers.shape[-2]

    def __call__(self, *, x, z):
        difference = value_of(x) - self.centers[z]
        return jnp.sum(jnp.where(x.observed, difference, 0) ** 2 if is_masked(x) else difference**2)

    def energies(self, *, x):
        """The squared distances of one example from all centres, (k,)."""
        return jax.vmap(lambda z: self(x=x, z=z))(jnp.arange(self.centers.shape[0]))

    def row_energies(self, *, x):
        """The squared distances of n rows from all centres, (n, k)."""
        return squared_distances(x, self.centers, self.centers.mean(0), self.active).T

    def nearest(self, *, x):
        """The index of the nearest centre of every row, (n,)."""
        return nearest_center(x, self.centers, self.centers.mean(0), self.active)

    # -- EM ------------------------------------------------------------------------------

    def log_posterior(self, data):
        scores = -self.row_energies(x=data["x"])
        return mask_other_labels(scores, data["z"]) if "z" in data else scores

    def statistics(self, data, posterior):
        """Σ r over the observed values of every coordinate and Σ r (x − c), (k, d) each."""
        x, middle = data["x"], self.centers.mean(0)
        value = value_of(x) - middle
        if is_masked(x):
            observed = x.observed.astype(value.dtype)
            count, total = posterior.T @ observed, posterior.T @ (value * observed)
        else:
            total = posterior.T @ value
            count = jnp.broadcast_to(posterior.sum(0)[:, None], total.shape)
        return {"count": count, "first": total - count * (self.centers - middle)}

    def expected_statistics(self, data, weight, temperature):
        """(statistics with each row assigned to its nearest centre, Σ −min e), for hard EM; else None."""
        if "z" in data or not is_static_value(0, temperature):  # a given label need not be the nearest centre
            return None
        count, first, loss = assignment_sums(self.centers, data, weight, self.active)
        # One count per column, as with missing values, so that both can continue each other's statistics.
        return {"count": jnp.broadcast_to(count, first.shape), "first": first}, -loss

    def maximise(self, statistics, trainable=None):
        count = statistics["count"]
        # A centre without rows is unchanged.
        return self._move(self.centers + statistics["first"] / jnp.where(count > 0, count, 1))

    def _move(self, centers):
        return Centroids(centers, self.start, self.active)

    def recenter(self, statistics, reference):
        shift = statistics["count"] * (reference.centers - self.centers)
        return {"count": statistics["count"], "first": statistics["first"] + shift}

    def initialise(self, key, data, weight):
        weight = weight.astype(self.centers.dtype)
        centers = initial_centers(self.start, key, data["x"], weight, self.centers.shape[0], self.active)
        return self._move(centers.astype(self.centers.dtype))

    def pad(self, n):
        """The same with n centres; the new ones do not exist."""
        index = np.arange(n)
        exists = index < self.centers.shape[0]
        return Centroids(take_rows(self.centers, np.where(exists, index, 0)), self.start, exists)

    def crop(self, n):
        """The first n centres: the inverse of `pad`."""
        return Centroids(take_rows(self.centers, np.arange(n)), self.start)

    def impute_given(self, data, posterior):
        """x with missing values replaced by the expected centre, (n, d)."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.centers) if is_masked(x) else x}


def hartigan_wong(
    x: np.ndarray, weight: np.ndarray, centers: np.ndarray, labels: np.ndarray, max_moves: int = 1000
) -> np.ndarray:
    """Centres after moving single rows between clusters, the best move first, while Σ‖x − c‖² falls.

    Moving a row changes both centres, which Lloyd's step ignores: after it has converged,
    w n_a/(n_a − w) ‖x − c_a‖² > w n_b/(n_b + w) ‖x − c_b‖² may still hold for some row.

    Hartigan and Wong (1979), Algorithm AS 136: a k-means clustering algorithm.
    """
    origin = x.mean(0)  # products of centred rows lose no digits far from the origin
    x, centers, labels, rows = x - origin, centers - origin, labels.copy(), np.arange(len(x))
    mass, squares = np.bincount(labels, weight, minlength=len(centers)), np.square(x).sum(1)
    distances, costs = np.empty((2, len(centers), len(x)), x.dtype)

    def update(clusters):
        """Set ‖x − c‖² and the cost of joining, of every row, for these clusters."""
        c, m = centers[clusters], mass[clusters, None]
        distances[clusters] = np.maximum(squares - 2 * c @ x.T + np.square(c).sum(1)[:, None], 0)
        costs[clusters] = weight * m / (m + weight + (weight == 0)) * distances[clusters]

    update(np.arange(len(centers)))
    tol = 1e-9 * float(weight @ distances[labels, rows]) / len(x)
    for _ in range(max_moves):
        others = mass[labels] - weight
        gain = weight * mass[labels] / np.where(others > 0, others, np.inf) * distances[labels, rows]
        own = costs[labels, rows]
        costs[labels, rows] = np.inf
        decrease = np.where(weight > 0, gain - costs.min(0), 0)
        i = int(decrease.argmax())
        a, b, w = labels[i], int(costs[:, i].argmin()), weight[i]
        costs[labels, rows] = own
        if decrease[i] <= tol:
            break
        centers[a] -= (x[i] - centers[a]) * (w / (mass[a] - w))
        centers[b] += (x[i] - centers[b]) * (w / (mass[b] + w))
        mass[a], mass[b], labels[i] = mass[a] - w, mass[b] + w, b
        update(np.array([a, b]))
    return centers + origin
