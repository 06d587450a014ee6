"""k products of Poisson counts, stacked: the emission of hidden chains and mixtures over counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ...algorithms.optimise.kmeans import start_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, known
from ...spaces import Categorical, Count, Positive, fixed, is_concrete, parameter
from .base import Emission
from .starts import random_sums


class Poissons(Emission):
    """e(x, z) = Σ_j λ_zj − x_j log λ_zj + log x_j!, x counts, z one of k.

    A missing coordinate is summed out by leaving its term away.

    Args:
        rates: λ, (k, d), above 0.
        prior_count, prior_weight: a Gamma prior as data seen beforehand: so many events in so much
            weight of rows. 0 is maximum likelihood.

    >>> calls = Poissons([[1.0], [4.0]])
    >>> jnp.exp(-calls.energies(x=jnp.array([0]))).tolist()               # e^−1, e^−4
    [0.36787..., 0.018315...]
    """

    rates: jax.Array = parameter(Positive())
    prior_count: Any = fixed(default=0.0)
    prior_weight: Any = fixed(default=0.0)

    def __init__(self, rates: Any, prior_count: Any = 0.0, prior_weight: Any = 0.0):
        rates = jnp.asarray(rates)
        if rates.ndim != 2:
            raise BadInput("rates", f"shape {rates.shape}", "(k, d): one row a component")
        if is_concrete(rates) and not (np.isfinite(rates) & (np.asarray(rates) > 0)).all():
            raise BadInput("rates", f"{np.asarray(rates).ravel()[:3]}…", "finite numbers > 0")
        number = lambda a: a if isinstance(a, int | float) else jnp.asarray(a)
        self.rates, self.prior_count, self.prior_weight = rates, number(prior_count), number(prior_weight)

    @property
    def spaces(self):
        return {"x": Count(self.rates.shape[-1]), "z": Categorical(self.rates.shape[-2])}

    def row_energies(self, *, x):
        value = jnp.asarray(known(x)).astype(self.rates.dtype)
        log_rates = jnp.log(self.rates)
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            constant = (gammaln(value + 1) * seen).sum(1)
            return seen @ self.rates.T - (value * seen) @ log_rates.T + constant[:, None]
        return self.rates.sum(1) - value @ log_rates.T + gammaln(value + 1).sum(1)[:, None]

    def emit(self, key, z):
        return jax.random.poisson(key, self.rates[z]).astype(self.spaces["x"].jax_dtype)

    def given_state(self, z):
        from numpyro.distributions import Poisson

        return Poisson(self.rates[z]).to_event(1)

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """How much each z saw of every coordinate, and how many events there."""
        x = data["x"]
        value = jnp.asarray(known(x)).astype(self.rates.dtype)
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            return {"seen": posterior.T @ seen, "events": posterior.T @ (value * seen)}
        seen = jnp.broadcast_to(posterior.sum(0)[:, None], self.rates.shape)
        return {"seen": seen, "events": posterior.T @ value}

    def maximise(self, statistics, trainable=None):
        tiny = jnp.finfo(self.rates.dtype).eps
        events, seen = statistics["events"] + self.prior_count, statistics["seen"] + self.prior_weight
        rates = safe_divide(events, seen, self.rates)
        # None is zero: log 0 of one unseen event.
        return Poissons(jnp.maximum(rates, tiny), self.prior_count, self.prior_weight)

    def initialise(self, key, data, weight):
        """The mean of all rows, pulled towards k rows that lie far apart."""
        weight = weight.astype(self.rates.dtype)
        x = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(self.rates.dtype), data["x"])
        overall = self.maximise(random_sums(self, key, {"x": x}, weight)).rates
        prevent_fusion = start_centers("k-means++", key, x, weight, self.rates.shape[0])
        rates = 0.5 * prevent_fusion.astype(self.rates.dtype) + 0.5 * overall
        return Poissons(rates, self.prior_count, self.prior_weight)

    def impute(self, data, posterior):
        """The expected count where nothing is known."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.rates) if is_masked(x) else x}
