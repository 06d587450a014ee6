"""Gaussian emissions: real vectors, normal given z."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import check_arguments, one_of, read_array
from ..._util.arrays import take_rows
from ...algorithms.gaussian.missing import expected_rows, labelled_energies, labelled_moments
from ...algorithms.optimise.kmeans import START_NAMES, column_moments, initial_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, mask_of, value_of
from ...spaces import Categorical, Real, field_metadata, is_concrete
from .base import Emission, one_hot
from .covariance import Covariance, Full
from .covariance_terms import by_column
from .normal_prior import NormalPrior
from .starts import nearest_statistics, random_statistics


class Gaussians(Emission):
    """Gaussian variables given z: e(x, z) = −log N(x; μ_z, Σ_z).

    x is a real vector, (d,), and z one of k. Missing coordinates of x are integrated out exactly, and
    EM uses their conditional means and covariances. `Mixture` adds probabilities of z.

    Args:
        means: μ, (k, d).
        covariance: `Full`, `Diagonal`, `Spherical` or `Tied`; an array (k, d, d) becomes a `Full`.
        start: the method of `initialise`: "kmeans", "k-means++", "random" (random responsibilities)
            or "random_from_data" (random rows as means).
        prior: a `NormalPrior` over means and covariances; None is maximum likelihood.

    Ghahramani and Jordan (1994), Supervised learning from incomplete data via an EM approach.

    >>> g = Gaussians(jnp.array([[0.0], [3.0]]), jnp.ones((2, 1, 1)))
    >>> g.energies(x=jnp.array([0.0]))                       # ½ log 2π, and 4½ more
    Array([0.9189385, 5.4189386], dtype=float32)
    """

    means: jax.Array
    covariance: Covariance
    start: str = eqx.field(static=True, default="kmeans")
    prior: NormalPrior | None = None

    def __init__(self, means: Any, covariance: Any, start: str = "kmeans", prior: NormalPrior | None = None):
        means = read_array("means", means)
        if means.ndim != 2:
            raise BadInput("means", f"shape {means.shape}", "(k, d): one row per component")
        if not isinstance(covariance, Covariance):
            covariance = Full(read_array("covariance", covariance))
        covariance.check(*means.shape)
        for name, leaf in vars(covariance).items():
            space = field_metadata(covariance, name).get("space")
            if space is not None and is_concrete(leaf) and not np.all(space._is_valid(np.asarray(leaf))):
                raise BadInput(f"covariance.{name}", "values outside their space", space.description())
        check_arguments(locals(), start=one_of(*START_NAMES))
        self.means, self.covariance, self.start, self.prior = means, covariance, start, prior

    @property
    def spaces(self):
        return {"x": Real(self.means.shape[-1]), "z": Categorical(self.means.shape[-2])}

    def row_energies(self, *, x):
        """−log p(x | z) of n rows under every z, (n, k)."""
        if is_masked(x):
            return self.covariance.masked_row_energies(x.value, x.observed, self.means)
        return self.covariance.row_energies(x, self.means)

    def state_distribution(self, z):
        from numpyro.distributions import MultivariateNormal

        return MultivariateNormal(self.means[z], scale_tril=self._factor(z))

    def emit(self, key, z):
        noise = jax.random.normal(key, self.means.shape[1:], self.means.dtype)
        return self.means[z] + self._factor(z) @ noise

    def _factor(self, z: Any) -> Any:
        return self.covariance.factor(z, self.means.shape[-1])

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Σ r (k,), Σ r (x − μ) (k, d) and the scatter about μ, with the current means μ."""
        x = data["x"]
        if self.prior is None and self.covariance.counts_columns:
            return self._column_statistics(x, posterior)
        if is_masked(x):
            first, scatter = self.covariance.masked_moments(x.value, x.observed, self.means, posterior)
            return {"count": posterior.sum(0), "first": first, "scatter": scatter}
        count = posterior.sum(0)
        scatter = self.covariance.scatter(x, self.means, posterior)
        return {"count": count, "first": self._first(x, posterior, count), "scatter": scatter}

    def _first(self, x, posterior, count):
        """Σ r (x − μ), (k, d)."""
        middle = self.means.mean(0)
        return posterior.T @ (x - middle) - count[:, None] * (self.means - middle)

    def _column_statistics(self, x, posterior):
        """The same with a count of every column, (k, d): missing values of independent ones add nothing."""
        if is_masked(x):
            centred = jnp.where(x.observed.T, x.value.T - self.means[:, :, None], 0)
            weighted = centred * posterior.T[:, None, :]
            count = posterior.T @ x.observed.astype(posterior.dtype)
            return {"count": count, "first": weighted.sum(2), "scatter": (weighted * centred).sum(2)}
        count = posterior.sum(0)
        scatter = self.covariance.scatter(x, self.means, posterior)
        first = self._first(x, posterior, count)
        return {"count": jnp.broadcast_to(count[:, None], first.shape), "first": first, "scatter": scatter}

    def labelled_energies(self, label, *, x):
        if not is_masked(x) or self.covariance.counts_columns:
            return super().labelled_energies(label, x=x)
        dense = self.covariance.dense(*self.means.shape)
        return labelled_energies(x.value, x.observed, self.means, dense, label)

    def labelled_statistics(self, data, label, weight):
        # A row has one mean only: work does not grow with the number of components, but in products.
        x, known = data["x"], one_hot(label, weight, self.n_states)
        if self.prior is not None or not self.covariance.counts_columns:
            if not is_masked(x):
                return self.statistics(data, known)
            dense = self.covariance.dense(*self.means.shape)
            first, second = labelled_moments(x.value, x.observed, self.means, dense, label, weight)
            return {"count": known.sum(0), "first": first, "scatter": self.covariance.reduce(second)}
        centred = value_of(x) - self.means[label]
        if is_masked(x):
            centred = jnp.where(x.observed, centred, 0)
        return {
            "count": known.T @ mask_of(x).astype(known.dtype),
            "first": known.T @ centred,
            "scatter": known.T @ centred**2,
        }

    def maximise(self, statistics, trainable=None):
        if self.prior is not None:
            means_trainable = trainable is None or bool(trainable.means)
            mode = self.prior.maximum(self.means, self.covariance, statistics, means_trainable)
            return Gaussians(*mode, self.start, self.prior)
        count, first, scatter = statistics["count"], statistics["first"], statistics["scatter"]
        step = safe_divide(first, by_column(count), 0.0)
        if trainable is not None and not trainable.means:
            step = jnp.zeros_like(step)  # the scatter is then about the frozen means
        means = self.means + step
        # The rounding error of the subtraction below: proportional to the squares that it subtracts,
        # and to the squared rounding error of the data.
        scale = step**2 + jnp.finfo(count.dtype).eps * means**2
        scatter = self.covariance.recenter_scatter(scatter, count, first, -step)
        return Gaussians(means, self.covariance.maximise(scatter, count, scale), self.start)

    def recenter(self, statistics, reference):
        """Statistics about these means, from those about the means of `reference`."""
        shift = reference.means - self.means
        count, first = statistics["count"], statistics["first"]
        return {
            "count": count,
            "first": first + by_column(count) * shift,
            "scatter": self.covariance.recenter_scatter(statistics["scatter"], count, first, shift),
        }

    def take(self, index):
        """The components with these numbers."""
        covariance = self.covariance.take(index)
        return Gaussians(take_rows(self.means, index), covariance, self.start, self.prior)

    def initialise(self, key, data, weight, active=None):
        """Means and covariances of the rows by the method `start`."""
        x, weight, (k, d) = data["x"], weight.astype(self.means.dtype), self.means.shape
        method = "mean" if self.start == "random" else self.start
        moments = column_moments(x, weight)
        centers = initial_centers(method, key, x, weight, k, active, moments)
        # Missing values have the variance of their column.
        spread = moments[1] * jnp.eye(d, dtype=self.means.dtype)
        columns = self.covariance.reduce(jnp.broadcast_to(spread, (k, d, d)))
        wide = self.covariance.maximise(columns, jnp.ones(k, self.means.dtype), jnp.zeros_like(self.means))
        begin = Gaussians(centers.astype(self.means.dtype), wide, self.start, self.prior)
        if self.start == "random":
            return begin.maximise(random_statistics(begin, key, {"x": x}, weight, active))
        return begin.fit_nearest({"x": x}, weight, active)

    def fit_nearest(self, data, weight, active=None):
        """Gaussians with the means and covariances of the rows nearest to each mean."""
        weight = weight.astype(self.means.dtype)
        return self.maximise(nearest_statistics(self, {"x": data["x"]}, weight, active))

    def impute_given(self, data, posterior):
        """x with missing values replaced by their expectation given the observed ones, (n, d)."""
        x = data["x"]
        if not is_masked(x):
            return {"x": x}
        dense = self.covariance.dense(*self.means.shape)
        rows = expected_rows(value_of(x), mask_of(x), self.means, dense, posterior)
        return {"x": jnp.where(x.observed, x.value, rows)}
