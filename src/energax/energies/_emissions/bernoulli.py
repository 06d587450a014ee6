"""Bernoulli emissions: binary data, independent given z."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FINITE_NOT_NEGATIVE, check_arguments, read_array
from ..._util.arrays import take_rows
from ...algorithms.optimise.kmeans import initial_centers
from ...batch import safe_divide
from ...errors import BadInput
from ...missing import is_masked, value_of
from ...spaces import Binary, Categorical, Interval, parameter
from .base import Emission
from .starts import random_statistics


class Bernoullis(Emission):
    """Independent Bernoulli variables given z: e(x, z) = −Σ_j x_j log p_zj + (1 − x_j) log(1 − p_zj).

    x is binary, (d,), and z one of k. The terms of missing coordinates are left out.

    Args:
        probs: p, the probability of a one, (k, d).
        pseudocount: added to the counts of ones and of zeros in every coordinate of every
            component: 0 is maximum likelihood, 1 Laplace's rule.

    Juan and Vidal (2004), Bernoulli mixture models for binary images.

    >>> b = Bernoullis(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
    >>> b.energies(x=jnp.array([1.0, 1.0]))                  # 2 log 2, −log(3/16)
    Array([1.3862944, 1.6739764], dtype=float32)
    """

    probs: jax.Array = parameter(Interval(0, 1))
    pseudocount: float = eqx.field(static=True, default=0.0)

    def __init__(self, probs: Any, pseudocount: float = 0.0):
        probs = read_array("probs", probs)
        if probs.ndim != 2:
            raise BadInput("probs", f"shape {probs.shape}", "(k, d): one row per component")
        check_arguments(locals(), pseudocount=FINITE_NOT_NEGATIVE)
        self.probs, self.pseudocount = probs, float(pseudocount)

    @property
    def spaces(self):
        return {"x": Binary(self.probs.shape[-1]), "z": Categorical(self.probs.shape[-2])}

    def row_energies(self, *, x):
        """−log p(x | z) of n rows under every z, (n, k)."""
        # log 0 would turn into NaN in the products below: the logarithm of the smallest number replaces it.
        least = jnp.finfo(self.probs.dtype).tiny
        on = jnp.log(jnp.maximum(self.probs, least))
        off = jnp.maximum(jnp.log1p(-self.probs), jnp.log(least))
        value = value_of(x)
        if is_masked(x):
            observed = x.observed.astype(value.dtype)
            return -((value * observed) @ (on - off).T + observed @ off.T)
        return -(value @ (on - off).T + off.sum(1))

    def state_distribution(self, z):
        from numpyro.distributions import Bernoulli

        return Bernoulli(probs=self.probs[z]).to_event(1)

    def emit(self, key, z):
        uniform = jax.random.uniform(key, self.probs.shape[1:], self.probs.dtype)
        return (uniform < self.probs[z]).astype(self.probs.dtype)

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Per component and coordinate, the weight of observed values and of ones, (k, d) each."""
        x = data["x"]
        value = value_of(x)
        if is_masked(x):
            observed = x.observed.astype(value.dtype)
            return {"seen": posterior.T @ observed, "on": posterior.T @ (value * observed)}
        count = jnp.broadcast_to(posterior.sum(0)[:, None], self.probs.shape)
        return {"seen": count, "on": posterior.T @ value}

    def maximise(self, statistics, trainable=None):
        eps = jnp.finfo(self.probs.dtype).eps
        on, count = statistics["on"] + self.pseudocount, statistics["seen"] + 2 * self.pseudocount
        # Probabilities of 0 and 1 would make unseen values impossible.
        probs = jnp.clip(safe_divide(on, count, self.probs), eps, 1 - eps)
        return Bernoullis(probs, self.pseudocount)

    def take(self, index):
        """The components with these numbers."""
        return Bernoullis(take_rows(self.probs, index), self.pseudocount)

    def initialise(self, key, data, weight, active=None):
        """Probabilities from random responsibilities, moved a quarter of the way to k distant rows."""
        weight = weight.astype(self.probs.dtype)
        rows = {"x": data["x"]}
        overall = self.maximise(random_statistics(self, key, rows, weight, active)).probs
        centers = initial_centers("k-means++", key, data["x"], weight, self.probs.shape[0], active)
        return Bernoullis((0.25 * centers + 0.75 * overall).astype(self.probs.dtype), self.pseudocount)

    def impute_given(self, data, posterior):
        """x with missing values replaced by the probability of a one, (n, d)."""
        x = data["x"]
        return {"x": x.fill(posterior @ self.probs) if is_masked(x) else x}
