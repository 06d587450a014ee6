"""k centres: the energy of k-means."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import Energy
from ..errors import BadInput
from ..missing import is_masked, known
from ..spaces import Categorical, Real
from ._starts import nearest_sums, relative_distances, smallest, squared_distances, start_centers


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
        return smallest(relative_distances(x, self.centers, self.centers.mean(0)))[1]

    # -- EM ------------------------------------------------------------------------------

    def log_posterior(self, data):
        return -self.row_energies(**data)

    def statistics(self, data, posterior):
        """How much of every coordinate each centre saw, and Σ r (x − c)."""
        x, middle = data["x"], self.centers.mean(0)
        value = known(x) - middle
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            count, total = posterior.T @ seen, posterior.T @ (value * seen)
        else:
            count, total = posterior.sum(0)[:, None], posterior.T @ value
        return {"count": count, "first": total - count * (self.centers - middle)}

    def hard_statistics(self, data, weight):
        """`statistics` when each row belongs to its nearest centre, and the sum of −min e, in one go."""
        count, first, loss = nearest_sums(self.centers, data, weight)
        return {"count": count, "first": first}, -loss

    def maximise(self, statistics):
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
