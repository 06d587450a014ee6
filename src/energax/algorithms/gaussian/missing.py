"""Gaussians whose rows have missing coordinates, a different set in every row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.linalg import cholesky, solve_lower
from ..._util.sizes import MISSING_NUMBERS
from ...batch import Batch


def _chunk_size(k: int, d: int) -> int:
    return MISSING_NUMBERS.rows(k * d * d)


def _factor(observed: Any, dense: Any) -> Any:
    """Cholesky factors (k, d, d) of Σ over the observed coordinates, and the identity elsewhere."""
    both = observed[:, None] & observed[None, :]
    return cholesky(jnp.where(both, dense, jnp.eye(dense.shape[-1], dtype=dense.dtype)))


def marginal_energies(x: Any, observed: Any, means: Any, dense: Any) -> Any:
    """−log N(x_observed; μ_observed, Σ_observed) of every row and component, (n, k)."""

    def one(row):
        return _marginal_energy(*row, means, dense)

    return jax.lax.map(one, (x, observed), batch_size=min(len(x), _chunk_size(*means.shape)))


def _marginal_energy(x: Any, observed: Any, means: Any, dense: Any) -> Any:
    """−log N(x_observed; μ_observed, Σ_observed) of one row under every component, (k,)."""
    factor = _factor(observed, dense)
    centered = jnp.where(observed, x - means, 0)
    white = solve_lower(factor, centered[..., None])[..., 0]
    log_det = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(1)
    log_two_pi = jnp.log(asarray(2 * jnp.pi, x.dtype))
    return 0.5 * (white**2).sum(1) + log_det + 0.5 * log_two_pi * observed.sum()


def labelled_energies(x: Any, observed: Any, means: Any, dense: Any, label: Any) -> Any:
    """The same under the component that is the label of the row, (n,)."""

    def one(row):
        x, observed, z = row
        return _marginal_energy(x, observed, means[z][None], dense[z][None])[0]

    return jax.lax.map(one, (x, observed, label), batch_size=min(len(x), _chunk_size(1, x.shape[1])))


def _conditional_moments(x: Any, observed: Any, means: Any, dense: Any) -> tuple[Any, Any]:
    """E[x − μ | observed] (k, d) and Cov[x | observed] (k, d, d) of one row under every component."""
    factor = _factor(observed, dense)
    centered = jnp.where(observed, x - means, 0)
    from_observed = jnp.where(observed[:, None], dense, 0)  # (k, observed, all)
    right = jnp.concatenate([from_observed, centered[..., None]], axis=-1)
    white = solve_lower(factor, right)
    gain, residual = white[..., :-1], white[..., -1]
    mean = jnp.where(observed, centered, jnp.einsum("kij,ki->kj", gain, residual))
    covariance = dense - jnp.einsum("kij,kil->kjl", gain, gain)
    return mean, jnp.where(observed[:, None] | observed[None, :], 0, covariance)


def expected_rows(x: Any, observed: Any, means: Any, dense: Any, responsibilities: Any) -> Any:
    """E[x | observed entries], averaged over the components by their responsibilities (n, k): (n, d)."""

    def one(row):
        x, observed, r = row
        return r @ (means + _conditional_moments(x, observed, means, dense)[0])

    chunk = min(len(x), _chunk_size(*means.shape))
    return jax.lax.map(one, (x, observed, responsibilities), batch_size=chunk)


def masked_moments(x: Any, observed: Any, means: Any, dense: Any, responsibilities: Any) -> tuple[Any, Any]:
    """Σ r E[x − μ] (k, d) and Σ r E[(x − μ)(x − μ)ᵀ] (k, d, d), with the conditional covariances."""

    def sums(rows, weight):
        moments = jax.vmap(_conditional_moments, (0, 0, None, None))
        mean, covariance = moments(rows["x"], rows["observed"], means, dense)
        r = rows["r"] * weight[:, None]
        second = jnp.einsum("nki,nkj->kij", mean * r[..., None], mean)
        return jnp.einsum("nk,nki->ki", r, mean), second + jnp.einsum("nk,nkij->kij", r, covariance)

    rows = Batch({"x": x, "observed": observed, "r": responsibilities}, jnp.ones(len(x), x.dtype))
    return rows.sum_chunks(sums, _chunk_size(*means.shape))


def labelled_moments(
    x: Any, observed: Any, means: Any, dense: Any, label: Any, weight: Any
) -> tuple[Any, Any]:
    """`masked_moments` of rows whose component is known, (n,): each is computed under its own one only."""

    def sums(rows, weight):
        def one(x, observed, z):
            mean, covariance = _conditional_moments(x, observed, means[z][None], dense[z][None])
            return mean[0], mean[0][:, None] * mean[0] + covariance[0]

        mean, second = jax.vmap(one)(rows["x"], rows["observed"], rows["label"])
        known = jax.nn.one_hot(rows["label"], len(means), dtype=weight.dtype) * weight[:, None]
        n, d = mean.shape
        return known.T @ mean, (known.T @ second.reshape(n, d * d)).reshape(-1, d, d)

    rows = Batch({"x": x, "observed": observed, "label": label}, weight)
    return rows.sum_chunks(sums, _chunk_size(1, x.shape[1]))
