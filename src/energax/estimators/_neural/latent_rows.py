"""Compiled functions of many rows for estimators with a decoder: codes, means, imputed values."""

from __future__ import annotations

from typing import Any

import jax

from ..._util.arrays import asarray
from ...energies import Decoder, Likelihood
from ...programs import jit

_DRAWS = 100  # of z, for the mean of a missing value


@jit
def encode_rows(encoder: Any, x: Any) -> Any:
    """The mean of q(z | x) of every row."""
    return jax.vmap(lambda row: encoder(x=row).mean)(jax.tree.map(asarray, x))


@jit
def decode_rows(energy: Decoder, z: Any) -> Any:
    """E[x | z] of every row."""
    return jax.vmap(lambda row: _mean(energy, row))(asarray(z))


@jit
def posterior_means(energy: Decoder, encoder: Any, x: Any, keys: Any) -> Any:
    """Return E[x | observed values] of every row, by importance sampling."""

    def row(row, key):
        q = encoder(x=row)
        z = q.sample(key, (_DRAWS,))
        weight = jax.nn.softmax(-jax.vmap(lambda z: energy(x=row, z=z))(z) - q.log_prob(z))
        return weight @ jax.vmap(lambda z: _mean(energy, z))(z)

    return jax.vmap(row)(jax.tree.map(asarray, x), keys)


def _mean(energy: Decoder, z: Any) -> Any:
    if isinstance(energy.likelihood, Likelihood):  # also where the distribution of NumPyro has no mean
        return energy.likelihood.mean(energy.network(energy.latent.embed(z)))
    return energy.conditional("x", z=z).mean
