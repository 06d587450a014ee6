"""Poisson emissions: counts, independent given z."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ..._util.arguments import is_real, read_array
from ..._util.arrays import asarray, take_rows
from ...algorithms.optimise.kmeans import initial_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, value_of
from ...spaces import Categorical, Count, Positive, fixed, is_concrete, parameter
from .base import Emission
from .starts import random_statistics


class Poissons(Emission):
    """Independent Poisson variables given z: e(x, z) = Σ_j λ_zj − x_j log λ_zj + log x_j!.

    x are counts, (d,), and z one of k. The terms of missing coordinates are left out.

    Args:
        rates: λ, (k, d), positive.
        prior_count, prior_weight: a Gamma prior as pseudo-data: a number of events in rows of this
            total weight. 0 is maximum likelihood.

    >>> calls = Poissons([[1.0], [4.0]])
    >>> jnp.exp(-calls.energies(x=jnp.array([0]))).tolist()               # e^−1, e^−4
    [0.36787..., 0.018315...]
    """

    rates: jax.Array = parameter(Positive())
    prior_count: Any = fixed(default=0.0)
    prior_weight: Any = fixed(default=0.0)

    def __init__(self, rates: Any, prior_count: Any = 0.0, prior_weight: Any = 0.0):
        rates = read_array("rates", rates)
        if rates.ndim != 2:
            raise BadInput("rates", f"shape {rates.shape}", "(k, d): one row per component")
        if is_concrete(rates) and not (np.isfinite(rates) & (np.asarray(rates) > 0)).all():
            raise BadInput("rates", f"{np.asarray(rates).ravel()[:3]}…", "finite numbers > 0")
        number = lambda name, value: value if is_real(value) else read_array(name, value)
        self.rates, self.prior_count = rates, number("prior_count", prior_count)
        self.prior_weight = number("prior_weight", prior_weight)

    @property
    def spaces(self):
        return {"x": Count(self.rates.shape[-1]), "z": Categorical(self.rates.shape[-2])}

    def row_energies(self, *, x):
        value = asarray(value_of(x)).astype(self.rates.dtype)
        log_rates = jnp.log(self.rates)
        if is_masked(x):
            observed = x.observed.astype(value.dtype)
            constant = (gammaln(value + 1) * observed).sum(1)
            return observed @ self.rates.T - (value * observed) @ log_rates.T + constant[:, None]
        return self.rates.sum(1) - value @ log_rates.T + gammaln(value + 1).sum(1)[:, None]

    def emit(self, key, z):
        return jax.random.poisson(key, self.rates[z]).astype(self.spaces["x"].jax_dtype)

    def state_distribution(self, z):
        from numpyro.distributions import Poisson

        return Poisson(self.rates[z]).to_event(1)

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Per z and coordinate, the weight of observed values and of events, (k, d) each."""
        x = data["x"]
        value = asarray(value_of(x)).astype(self.rates.dtype)
        if is_masked(x):
            observed = x.observed.astype(value.dtype)
            return {"seen": posterior.T @ observed, "events": posterior.T @ (value * observed)}
        count = jnp.broadcast_to(posterior.sum(0)[:, None], self.rates.shape)
        return {"seen": count, "events": posterior.T @ value}

    def maximise(self, statistics, trainable=None):
        tiny = jnp.finfo(self.rates.dtype).eps
        events, count = statistics["events"] + self.prior_count, statistics["seen"] + self.prior_weight
        rates = safe_divide(events, count, self.rates)
        # A rate of 0 would make unseen events impossible.
        return Poissons(jnp.maximum(rates, tiny), self.prior_count, self.prior_weight)

    def take(self, index):
        """The components with these numbers."""
        cut = lambda a: a if np.ndim(a) < 2 else take_rows(a, index)
        return Poissons(take_rows(self.rates, index), cut(self.prior_count), cut(self.prior_weight))

    def initialise(self, key, data, weight, active=None):
        """Rates from random responsibilities, moved halfway to k distant rows."""
        weight = weight.astype(self.rates.dtype)
        x = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(self.rates.dtype), data["x"])
        overall = self.maximise(random_statistics(self, key, {"x": x}, weight, active)).rates
        centers = initial_centers("k-means++", key, x, weight, self.rates.shape[0], active)
        rates = 0.5 * centers.astype(self.rates.dtype) + 0.5 * overall
        return Poissons(rates, self.prior_count, self.prior_weight)

    def impute_given(self, data, posterior):
        """x with missing values replaced by the expected count, (n, d)."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.rates) if is_masked(x) else x}
