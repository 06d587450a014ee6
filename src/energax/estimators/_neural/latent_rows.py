"""Compiled functions of many rows for estimators with a decoder: codes, means, imputed values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import number_of_rows
from ...energies import Decoder, Likelihood
from ...infer._map_rows import map_rows
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


def posterior_means(energy: Decoder, encoder: Any, rows: Any, key: Any, numbers_per_draw: int) -> np.ndarray:
    """Return E[x | observed values] of every row, by importance sampling, in chunks of rows."""
    n, numbers = number_of_rows(rows), _DRAWS * numbers_per_draw
    return map_rows(_posterior_mean, {"x": rows}, n, energy, encoder, key=key, numbers_per_row=numbers)


def _posterior_mean(row: dict[str, Any], key: Any, energy: Decoder, encoder: Any) -> Any:
    q = encoder(**row)
    z = q.sample(key, (_DRAWS,))
    weight = jax.nn.softmax(-jax.vmap(lambda z: energy(**row, z=z))(z) - q.log_prob(z))
    return weight @ jax.vmap(lambda z: _mean(energy, z))(z)


def _mean(energy: Decoder, z: Any) -> Any:
    if isinstance(energy.likelihood, Likelihood):  # also where the distribution of NumPyro has no mean
        return energy.likelihood.mean(energy.network(energy.latent.embed(z)))
    return energy.conditional("x", z=z).mean
