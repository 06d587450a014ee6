"""k centres: the energy of k-means."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.optimise.kmeans import nearest_center, nearest_sums, squared_distances, start_centers
from ...energy import Energy, is_static_value
from ...errors import BadInput
from ...missing import is_masked, known, mask_other_labels
from ...spaces import Categorical, Real


class Centroids(Energy):
    """e(x, z) = ‖x − c_z‖², over the coordinates of x that are known.

    Hard EM on it is k-means; `EM(temperature=T)` is soft k-means, with responsibilities
    ∝ exp(−‖x − c_z‖² / T).

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

    marginalises = frozenset({"x"})

    def __init__(self, centers: Any, start: str = "k-means++"):
        centers = jnp.asarray(centers)
        if centers.ndim != 2:
            raise BadInput("centers", f"shape {centers.shape}", "(k, d): one row a centre")
        if start not in ("k-means++", "random_from_data"):
            raise BadInput("start", repr(start), "'k-means++' or 'random_from_data'")
        self.centers, self.start = centers, start

    @property
    def spaces(self):
        return {"x": Real(self.centers.shape[-1]), "z": Categorical(self.centers.shape[-2])}

    def __call__(self, *, x, z):
        difference = known(x) - self.centers[z]
        return jnp.sum(jnp.where(x.observed, difference, 0) ** 2 if is_masked(x) else difference**2)

    def energies(self, *, x):
        """The squared distances of one example from every centre, (k,)."""
        return jax.vmap(lambda z: self(x=x, z=z))(jnp.arange(self.centers.shape[0]))

    def row_energies(self, *, x):
        """The same for many rows, (n, k)."""
        return squared_distances(x, self.centers, self.centers.mean(0)).T

    def nearest(self, *, x):
        """The nearest centre of many rows, (n,)."""
        return nearest_center(x, self.centers, self.centers.mean(0))

    # -- EM ------------------------------------------------------------------------------

    def log_posterior(self, data):
        found = -self.row_energies(x=data["x"])
        return mask_other_labels(found, data["z"]) if "z" in data else found

    def statistics(self, data, posterior):
        """How much of every coordinate each centre saw, and Σ r (x − c)."""
        x, middle = data["x"], self.centers.mean(0)
        value = known(x) - middle
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            count, total = posterior.T @ seen, posterior.T @ (value * seen)
        else:
            total = posterior.T @ value
            count = jnp.broadcast_to(posterior.sum(0)[:, None], total.shape)
        return {"count": count, "first": total - count * (self.centers - middle)}

    def expected_statistics(self, data, weight, temperature):
        """`statistics` when each row belongs to its nearest centre, and the sum of −min e, in one go."""
        if "z" in data or not is_static_value(0, temperature):  # a known label is no nearest centre
            return None
        count, first, loss = nearest_sums(self.centers, data, weight)
        # One count a column, as rows with missing values have it: either may go on from the other.
        return {"count": jnp.broadcast_to(count, first.shape), "first": first}, -loss

    def maximise(self, statistics, trainable=None):
        count = statistics["count"]
        # A centre that nobody is nearest to stays where it is.
        return Centroids(self.centers + statistics["first"] / jnp.where(count > 0, count, 1), self.start)

    def recentred(self, statistics, reference):
        shift = statistics["count"] * (reference.centers - self.centers)
        return {"count": statistics["count"], "first": statistics["first"] + shift}

    def initialise(self, key, data, weight):
        weight = weight.astype(self.centers.dtype)
        centers = start_centers(self.start, key, data["x"], weight, self.centers.shape[0])
        return Centroids(centers.astype(self.centers.dtype), self.start)

    def impute(self, data, posterior):
        """Missing coordinates from the centres, (n, d)."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.centers) if is_masked(x) else x}


def single_moves(
    x: np.ndarray, weight: np.ndarray, centers: np.ndarray, labels: np.ndarray, most: int = 1000
):
    """Rows moved one at a time between clusters, the best first, while Σ‖x − c‖² falls. → centres.

    Moving a row drags both centres along, which Lloyd's step does not reckon with: where that
    stands still, w n_a/(n_a − w) ‖x − c_a‖² > w n_b/(n_b + w) ‖x − c_b‖² may still hold for some row.

    Hartigan and Wong (1979), Algorithm AS 136: a k-means clustering algorithm.
    """
    centers, labels, rows = centers.copy(), labels.copy(), np.arange(len(x))
    mass = np.bincount(labels, weight, minlength=len(centers))
    distances = np.stack([np.square(x - c).sum(1) for c in centers], axis=1)
    enough = 1e-9 * float(weight @ distances[rows, labels]) / len(x)
    for _ in range(most):
        left = mass[labels] - weight
        gain = weight * mass[labels] / np.where(left > 0, left, np.inf) * distances[rows, labels]
        cost = weight[:, None] * mass / (mass + weight[:, None] + (weight[:, None] == 0)) * distances
        cost[rows, labels] = np.inf
        towards = cost.argmin(1)
        profit = np.where(weight > 0, gain - cost[rows, towards], 0)
        i = int(profit.argmax())
        if profit[i] <= enough:
            break
        a, b, w = labels[i], towards[i], weight[i]
        centers[a] -= (x[i] - centers[a]) * (w / (mass[a] - w))
        centers[b] += (x[i] - centers[b]) * (w / (mass[b] + w))
        mass[a], mass[b], labels[i] = mass[a] - w, mass[b] + w, b
        for z in (a, b):
            distances[:, z] = np.square(x - centers[z]).sum(1)
    return centers
