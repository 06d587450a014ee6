"""Categorical emissions: symbols, independent given z."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import is_real, read_array
from ..._util.arrays import asarray, take_rows
from ..._util.xla import prevent_fusion
from ...errors import BadInput
from ...missing import is_masked, value_of
from ...spaces import Categorical, Simplex, fixed, is_concrete, parameter
from .base import Emission, normalise
from .starts import random_statistics


class Categoricals(Emission):
    """Categorical variables given z: e(x, z) = −Σ_c log p_c[z, x_c].

    x is one symbol of m, or several columns of symbols, and z one of k. The terms of missing symbols
    are left out.

    Args:
        probs: p, (k, m) for one symbol, or (columns, k, m).
        prior: pseudo-counts that `maximise` adds to every symbol, a number or an array like
            `probs`: 0 is maximum likelihood, α − 1 the mode under a Dirichlet(α) prior.

    >>> dice = Categoricals([[1 / 6] * 6, [0.1] * 5 + [0.5]])
    >>> jnp.exp(-dice.energies(x=5)).tolist()
    [0.16666..., 0.5]
    """

    probs: jax.Array = parameter(Simplex())
    prior: Any = fixed(default=0.0)

    def __init__(self, probs: Any, prior: Any = 0.0):
        probs = read_array("probs", probs)
        if probs.ndim not in (2, 3):
            raise BadInput("probs", f"shape {probs.shape}", "(k, symbols), or (columns, k, symbols)")
        if is_concrete(probs):
            Simplex(probs.shape[-1]).check(np.asarray(probs), "probs", missing=False)
        self.probs = probs
        self.prior = prior if is_real(prior) else read_array("prior", prior)

    @property
    def spaces(self):
        *columns, k, m = self.probs.shape
        return {"x": Categorical(m, *columns), "z": Categorical(k)}

    def row_energies(self, *, x):
        value = asarray(value_of(x)).astype(jnp.int32)
        table = -jnp.swapaxes(
            prevent_fusion(jnp.log, self.probs), -1, -2
        )  # otherwise computed at every look-up
        if self.probs.ndim == 2:
            energies = table[value]
            return jnp.where(x.observed[:, None], energies, 0) if is_masked(x) else energies
        energies = jax.vmap(lambda t, v: t[v], (0, 1), 1)(table, value)  # (n, columns, k)
        return (jnp.where(x.observed[..., None], energies, 0) if is_masked(x) else energies).sum(1)

    def encode_rows(self, *, x):
        if self.probs.ndim > 2:
            return None
        value, m = asarray(value_of(x)).astype(jnp.int32), self.probs.shape[-1]
        missing = jnp.zeros((1, len(self.probs)), self.probs.dtype)
        table = jnp.concatenate([-jnp.log(self.probs).T, missing])
        return table, jnp.where(x.observed, value, m) if is_masked(x) else value

    def emit(self, key, z):
        logits = jnp.log(self.probs[..., z, :])
        return jax.random.categorical(key, logits).astype(self.spaces["x"].jax_dtype)

    def state_distribution(self, z):
        from numpyro.distributions import Categorical as Choice

        distribution = Choice(probs=self.probs[..., z, :])
        return distribution if self.probs.ndim == 2 else distribution.to_event(1)

    # -- EM ------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """The weight of every symbol under each z, (k, m) or (columns, k, m)."""
        x, m = data["x"], self.probs.shape[-1]
        value = asarray(value_of(x)).astype(jnp.int32)
        observed = x.observed if is_masked(x) else None
        if self.probs.ndim == 2:
            return {"symbols": _count_symbols(value, observed, posterior, m)}
        axes = (1, None if observed is None else 1)
        count = jax.vmap(lambda v, o: _count_symbols(v, o, posterior, m), axes)
        return {"symbols": count(value, observed)}

    def maximise(self, statistics, trainable=None):
        return Categoricals(normalise(statistics["symbols"] + self.prior, self.probs), self.prior)

    def take(self, index):
        """The components with these numbers."""
        axis = self.probs.ndim - 2
        cut = lambda a: a if np.ndim(a) < self.probs.ndim else take_rows(a, (slice(None),) * axis + (index,))
        return Categoricals(cut(self.probs), cut(self.prior))

    def initialise(self, key, data, weight, active=None):
        """Probabilities from random responsibilities."""
        weight = weight.astype(self.probs.dtype)
        return self.maximise(random_statistics(self, key, {"x": data["x"]}, weight, active))

    def impute_given(self, data, posterior):
        """x with missing symbols replaced by the most probable one."""
        x = data["x"]
        if not is_masked(x):
            return {"x": x}
        expected = jnp.einsum("nk,...km->n...m", posterior, self.probs)
        return {"x": x.fill(jnp.argmax(expected, -1).astype(asarray(x.value).dtype))}


def _count_symbols(value: Any, observed: Any, posterior: Any, m: int) -> Any:
    """The sum over rows of the posterior, by symbol, (k, m)."""
    if observed is not None:
        posterior = jnp.where(observed[:, None], posterior, 0)
    return jnp.zeros((m, posterior.shape[1]), posterior.dtype).at[value].add(posterior).T
