"""The gap between log p(x) and the evidence lower bound of an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util import sizes
from ..._util.arguments import FUNCTION, check_arguments, whole
from ..._util.keys import as_key
from ...energy import Energy
from ...estimate import Estimate
from .._map_rows import map_rows
from .._monte_carlo.proposals import log_weight
from .._query import Query


def bound_gap(
    energy: Energy, data: Mapping[str, Any], encoder: Any, *, key: Any, n_samples: int = 1000
) -> Estimate:
    """Return log p(x) − ELBO of every row in nats: KL(q(z | x) ‖ p(z | x)) of the encoder.

    log p(x) is log (1/S) Σ_s w_s, with w = p(x, z) / q(z | x) and z ~ q, and the ELBO is (1/S) Σ_s log w_s of
    the same draws. So the result is never negative; the error of the ELBO dominates, and is the one given.

    Args:
        energy: an energy with one hidden variable.
        data: the rows by name.
        encoder: q(z | x), such as the `partner` of a fit with `ELBO`.
        key: an int or a JAX key.
        n_samples: S, draws per row.

    >>> from energax.energies import Decoder
    >>> from numpyro.distributions import Normal
    >>> coins = Decoder(lambda z: 0 * z, 2)                     # x and z are independent
    >>> prior = lambda x: Normal(jnp.zeros(2), 1.0).to_event(1)
    >>> bound_gap(coins, {"x": [[0, 1]]}, prior, key=0).value.round(5)
    array([0.], dtype=float32)
    """
    check_arguments(locals(), n_samples=whole(2), encoder=FUNCTION)
    query = Query(energy, data)
    query.check_inputs("bound_gap")
    width = min(n_samples, sizes.DRAWS.value) * 8 * query.width + n_samples
    gap, error = map_rows(
        _gap_of_row, query.given, query.n, energy, encoder, n_samples, key=as_key(key), numbers_per_row=width
    )
    return Estimate(np.asarray(gap), np.asarray(error), "estimate", "importance weights")


def _gap_of_row(row: Any, key: Any, energy: Energy, encoder: Any, n: int) -> tuple[Any, Any]:
    draw = lambda sub: log_weight(row, sub, energy, encoder)
    log_w = jax.lax.map(draw, jax.random.split(key, n), batch_size=min(n, sizes.DRAWS.value))
    log_p = jax.nn.logsumexp(log_w) - jnp.log(jnp.asarray(float(n), log_w.dtype))
    return log_p - log_w.mean(), log_w.std(ddof=1) / jnp.sqrt(jnp.asarray(float(n), log_w.dtype))
