"""The networks of variational autoencoders: fixed layers convert the units of columns."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...energies import Bernoulli, Columns, DiscretisedLogistic, Gamma, MixtureLikelihood, Poisson
from ...energies._latent.likelihoods import n_outputs_of
from .._common.layers import FixedAffine, StandardiseObserved, layer_sizes, make_network
from .._common.scaling import mean_and_scale


def make_vae_networks(
    U: np.ndarray,
    weight: Any,
    likelihood: Any,
    *,
    n_latent: int,
    hidden: Any,
    activation: Any,
    keys: Any,
    dtype: Any,
    n_given: int = 0,
    n_embedded: int | None = None,
) -> tuple[Any, Any]:
    """Return the networks of decoder and encoder for a table with missing values as NaN.

    n_given: the length of an input y, which both networks take after their other inputs. n_embedded: the
    length of what the decoder gets of z, if it is not that of z. hidden: the layer sizes of the decoder;
    those of the encoder are in reverse order.
    """
    d = U.shape[1]
    shift, scale = (asarray(m.astype(dtype)) for m in mean_and_scale(U, weight))
    is_binary = isinstance(likelihood, Bernoulli)
    if is_binary:  # a constant scale: rare ones would dominate
        scale = jnp.full_like(scale, 0.5)
    hidden = layer_sizes(hidden)
    has_missing = bool(np.isnan(U).any())
    after = output_layers(likelihood, shift, scale)
    # The encoder gets x, its mask and y; only x is standardised, and the mask kept if it says anything.
    before = (StandardiseObserved(shift, scale, has_missing, n_given),)
    n_out = n_outputs_of(likelihood, d)
    decoder = make_network(
        (n_embedded or n_latent) + n_given, hidden, n_out, activation, key=keys[0], after=after
    )
    n_in = d * (1 + has_missing) + n_given
    encoder = make_network(n_in, hidden[::-1], 2 * n_latent, activation, key=keys[1], before=before)
    return decoder, encoder


def output_layers(likelihood: Any, shift: Any, scale: Any) -> tuple[Any, ...]:
    """Return the fixed layers after the decoder, so that an output of 0 is the mean of its column."""
    if isinstance(likelihood, Bernoulli) or _has_categories(likelihood, len(shift)):
        return ()
    return (FixedAffine(*_outputs_at(likelihood, shift, scale)),)


def _has_categories(likelihood: Any, d: int) -> bool:
    """Whether d coordinates have other outputs than one of each, and than mixtures and columns of such."""
    return not isinstance(likelihood, Columns | MixtureLikelihood) and n_outputs_of(likelihood, d) != d


def _outputs_at(likelihood: Any, shift: Any, scale: Any) -> tuple[Any, Any]:
    """Return the outputs at which columns have these means, and their units, (n_outputs,) each."""
    if isinstance(likelihood, Columns):
        pairs = zip(likelihood.likelihoods, likelihood.columns, strict=True)
        parts = [_outputs_at(part, shift[np.array(c)], scale[np.array(c)]) for part, c in pairs]
        return jnp.concatenate([m for m, _ in parts]), jnp.concatenate([s for _, s in parts])
    if isinstance(likelihood, MixtureLikelihood):
        mean, unit = _outputs_at(likelihood.likelihood, shift, scale)
        both = lambda weights, of: jnp.stack([jnp.full_like(of, weights), of], 1).repeat(likelihood.k)
        return both(0, mean), both(1, unit)
    if isinstance(likelihood, Poisson | Gamma):  # the outputs are logarithms
        return jnp.log(jnp.maximum(shift, 1e-3)), jnp.ones_like(scale)
    if isinstance(likelihood, DiscretisedLogistic):
        step = jnp.asarray(1 / (likelihood.k - 1), shift.dtype)
        return shift * step, scale * step
    if isinstance(likelihood, Bernoulli) or _has_categories(likelihood, len(shift)):
        n = n_outputs_of(likelihood, len(shift))
        return jnp.zeros(n, shift.dtype), jnp.ones(n, shift.dtype)
    return shift, scale
