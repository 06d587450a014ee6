"""k products of coins, stacked: the emission of mixtures and hidden chains over binary data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...algorithms.optimise.kmeans import start_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, known
from ...spaces import Binary, Categorical, Interval, parameter
from .base import Emission
from .starts import random_sums


class Bernoullis(Emission):
    """e(x, z) = −Σ_j x_j log p_zj + (1 − x_j) log(1 − p_zj), x binary, z one of k.

    A missing coordinate is summed out by leaving its term away.

    Args:
        probs: (k, d), the probability of a one.
        pseudocount: ones and zeros each component is taken to have seen beforehand, in every
            coordinate: 0 is maximum likelihood, 1 Laplace's rule.

    Juan and Vidal (2004), Bernoulli mixture models for binary images.

    >>> b = Bernoullis(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
    >>> b.energies(x=jnp.array([1.0, 1.0]))                  # 2 log 2, −log(3/16)
    Array([1.3862944, 1.6739764], dtype=float32)
    """

    probs: jax.Array = parameter(Interval(0, 1))
    pseudocount: float = eqx.field(static=True, default=0.0)

    def __init__(self, probs: Any, pseudocount: float = 0.0):
        probs = jnp.asarray(probs)
        if probs.ndim != 2:
            raise BadInput("probs", f"shape {probs.shape}", "(k, d): one row a component")
        if pseudocount < 0:
            raise BadInput("pseudocount", repr(pseudocount), "a number >= 0")
        self.probs, self.pseudocount = probs, float(pseudocount)

    @property
    def spaces(self):
        return {"x": Binary(self.probs.shape[-1]), "z": Categorical(self.probs.shape[-2])}

    def row_energies(self, *, x):
        """The energies of many rows, (n, k)."""
        # The opposite of what is certain costs the logarithm of the smallest number: that of 0 makes NaN.
        least = jnp.finfo(self.probs.dtype).tiny
        on = jnp.log(jnp.maximum(self.probs, least))
        off = jnp.maximum(jnp.log1p(-self.probs), jnp.log(least))
        value = known(x)
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            return -((value * seen) @ (on - off).T + seen @ off.T)
        return -(value @ (on - off).T + off.sum(1))

    def given_state(self, z):
        from numpyro.distributions import Bernoulli

        return Bernoulli(probs=self.probs[z]).to_event(1)

    def emit(self, key, z):
        uniform = jax.random.uniform(key, self.probs.shape[1:], self.probs.dtype)
        return (uniform < self.probs[z]).astype(self.probs.dtype)

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """How much each component saw of every coordinate, and how much of that was a one."""
        x = data["x"]
        value = known(x)
        if is_masked(x):
            seen = x.observed.astype(value.dtype)
            return {"seen": posterior.T @ seen, "on": posterior.T @ (value * seen)}
        seen = jnp.broadcast_to(posterior.sum(0)[:, None], self.probs.shape)
        return {"seen": seen, "on": posterior.T @ value}

    def maximise(self, statistics, trainable=None):
        eps = jnp.finfo(self.probs.dtype).eps
        on, seen = statistics["on"] + self.pseudocount, statistics["seen"] + 2 * self.pseudocount
        # Certainty would make one unseen bit impossible, and log 0 of it.
        probs = jnp.clip(safe_divide(on, seen, self.probs), eps, 1 - eps)
        return Bernoullis(probs, self.pseudocount)

    def initialise(self, key, data, weight):
        """Every row shared out by chance, then pulled towards k rows that lie far apart."""
        weight = weight.astype(self.probs.dtype)
        rows = {"x": data["x"]}
        overall = self.maximise(random_sums(self, key, rows, weight)).probs
        prevent_fusion = start_centers("k-means++", key, data["x"], weight, self.probs.shape[0])
        return Bernoullis((0.25 * prevent_fusion + 0.75 * overall).astype(self.probs.dtype), self.pseudocount)

    def impute(self, data, posterior):
        """The probability of a one where nothing is known, (n, d)."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.probs) if is_masked(x) else x}
