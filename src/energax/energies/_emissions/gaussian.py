"""k Gaussians, stacked: the emission of mixtures, hidden chains and classifiers."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.gaussian.missing import expected_rows
from ...algorithms.optimise.kmeans import START_NAMES, column_moments, start_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, known, mask_of
from ...spaces import Categorical, Real, declared, is_concrete
from .base import Emission
from .covariance import Covariance, Full
from .normal_prior import NormalPrior
from .starts import hard_sums, random_sums


class Gaussians(Emission):
    """e(x, z) = −log N(x; μ_z, Σ_z), x real, z one of k.

    Coordinates missing from x are integrated out exactly, each row by its own pattern; EM then
    uses their conditional means and covariances. Wrap it in `Mixture` to give z probabilities.

    Args:
        means: (k, d).
        covariance: `Full`, `Diagonal`, `Spherical` or `Tied`; a bare (k, d, d) array is a `Full`.
        start: where `initialise` begins: "kmeans", "k-means++", "random" (responsibilities) or
            "random_from_data" (rows as means).
        prior: what is believed of means and covariances beforehand; None is maximum likelihood.

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
        means = jnp.asarray(means)
        if means.ndim != 2:
            raise BadInput("means", f"shape {means.shape}", "(k, d): one row a component")
        if not isinstance(covariance, Covariance):
            covariance = Full(jnp.asarray(covariance))
        covariance.check(*means.shape)
        for name, leaf in vars(covariance).items():
            space = declared(covariance, name).get("space")
            if space is not None and is_concrete(leaf) and not np.all(space._is_valid(np.asarray(leaf))):
                raise BadInput(f"covariance.{name}", "values that are not legal", space.description())
        if start not in START_NAMES:
            raise BadInput("start", repr(start), f"one of {', '.join(map(repr, START_NAMES))}")
        self.means, self.covariance, self.start, self.prior = means, covariance, start, prior

    @property
    def spaces(self):
        return {"x": Real(self.means.shape[-1]), "z": Categorical(self.means.shape[-2])}

    def row_energies(self, *, x):
        """The energies of many rows, (n, k)."""
        if is_masked(x):
            return self.covariance.masked_row_energies(x.value, x.observed, self.means)
        return self.covariance.row_energies(x, self.means)

    def given_state(self, z):
        from numpyro.distributions import MultivariateNormal

        return MultivariateNormal(self.means[z], scale_tril=self._factor(z))

    def emit(self, key, z):
        noise = jax.random.normal(key, self.means.shape[1:], self.means.dtype)
        return self.means[z] + self._factor(z) @ noise

    def _factor(self, z: Any) -> Any:
        return self.covariance.factor(z, self.means.shape[-1])

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Σ r, Σ r (x − μ) and the scatter about μ, all at the current means."""
        x = data["x"]
        if is_masked(x):
            first, scatter = self.covariance.masked_moments(x.value, x.observed, self.means, posterior)
            return {"count": posterior.sum(0), "first": first, "scatter": scatter}
        count = posterior.sum(0)
        middle = self.means.mean(0)
        first = posterior.T @ (x - middle) - count[:, None] * (self.means - middle)
        return {"count": count, "first": first, "scatter": self.covariance.scatter(x, self.means, posterior)}

    def maximise(self, statistics, trainable=None):
        if self.prior is not None:
            moves = trainable is None or bool(trainable.means)
            found = self.prior.maximum(self.means, self.covariance, statistics, moves)
            return Gaussians(*found, self.start, self.prior)
        count, first, scatter = statistics["count"], statistics["first"], statistics["scatter"]
        step = safe_divide(first, count[:, None], 0.0)
        if trainable is not None and not trainable.means:
            step = jnp.zeros_like(step)  # the scatter is then about the means that are held
        means = self.means + step
        # What the subtraction below can leave behind: a share of the squares it subtracts, and the
        # square of what one unit in the last place of the data is.
        scale = step**2 + jnp.finfo(count.dtype).eps * means**2
        about = self.covariance.shifted(scatter, count, first, -step)
        return Gaussians(means, self.covariance.maximise(about, count, scale), self.start)

    def recentred(self, statistics, reference):
        """Statistics that were centred at the means of `reference`, about these means instead."""
        shift = reference.means - self.means
        count, first = statistics["count"], statistics["first"]
        return {
            "count": count,
            "first": first + count[:, None] * shift,
            "scatter": self.covariance.shifted(statistics["scatter"], count, first, shift),
        }

    def initialise(self, key, data, weight):
        """Means and covariances of the rows that belong together by `start`."""
        x, weight, (k, d) = data["x"], weight.astype(self.means.dtype), self.means.shape
        centers = start_centers("mean" if self.start == "random" else self.start, key, x, weight, k)
        # What is missing is expected with the spread of its column.
        spread = column_moments(x, weight)[1] * jnp.eye(d, dtype=self.means.dtype)
        columns = self.covariance.reduce(jnp.broadcast_to(spread, (k, d, d)))
        wide = self.covariance.maximise(columns, jnp.ones(k, self.means.dtype), jnp.zeros_like(self.means))
        begin = Gaussians(centers.astype(self.means.dtype), wide, self.start, self.prior)
        if self.start == "random":
            return begin.maximise(random_sums(begin, key, {"x": x}, weight))
        return begin.of_nearest({"x": x}, weight)

    def of_nearest(self, data, weight):
        """The means and covariances of the rows that lie nearest to each mean."""
        return self.maximise(hard_sums(self, {"x": data["x"]}, weight.astype(self.means.dtype)))

    def impute(self, data, posterior):
        """E[x | what is seen of it], over the components, (n, d)."""
        x = data["x"]
        if not is_masked(x):
            return {"x": x}
        dense = self.covariance.dense(*self.means.shape)
        rows = expected_rows(known(x), mask_of(x), self.means, dense, posterior)
        return {"x": jnp.where(x.observed, x.value, rows)}
