"""Gaussians of which each row shows only some coordinates, every row its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.linalg import cholesky, solve_lower
from ...batch import Batch

_ROOM = 2**21  # numbers in the matrices of the rows held at one time


def _at_once(k: int, d: int) -> int:
    return max(1, _ROOM // (k * d * d))


def _factor(seen: Any, dense: Any) -> Any:
    """Cholesky factors (k, d, d) of Σ over the coordinates seen, and the identity elsewhere."""
    both = seen[:, None] & seen[None, :]
    return cholesky(jnp.where(both, dense, jnp.eye(dense.shape[-1], dtype=dense.dtype)))


def marginal_energies(x: Any, seen: Any, means: Any, dense: Any) -> Any:
    """−log N(x_seen; μ_seen, Σ_seen) of every row and component, (n, k)."""
    log_two_pi = jnp.log(jnp.asarray(2 * jnp.pi, x.dtype))

    def one(row):
        x, seen = row
        factor = _factor(seen, dense)
        centred = jnp.where(seen, x - means, 0)
        white = solve_lower(factor, centred[..., None])[..., 0]
        log_det = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(1)
        return 0.5 * (white**2).sum(1) + log_det + 0.5 * log_two_pi * seen.sum()

    return jax.lax.map(one, (x, seen), batch_size=min(len(x), _at_once(*means.shape)))


def _completed(x: Any, seen: Any, means: Any, dense: Any) -> tuple[Any, Any]:
    """E[x − μ | seen] (k, d) and Cov[x | seen] (k, d, d) of one row under every component."""
    factor = _factor(seen, dense)
    centred = jnp.where(seen, x - means, 0)
    onto_seen = jnp.where(seen[:, None], dense, 0)  # (k, seen, all)
    right = jnp.concatenate([onto_seen, centred[..., None]], axis=-1)
    white = solve_lower(factor, right)
    gain, residual = white[..., :-1], white[..., -1]
    expected = jnp.where(seen, centred, jnp.einsum("kij,ki->kj", gain, residual))
    left_over = dense - jnp.einsum("kij,kil->kjl", gain, gain)
    return expected, jnp.where(seen[:, None] | seen[None, :], 0, left_over)


def expected_rows(x: Any, seen: Any, means: Any, dense: Any, posterior: Any) -> Any:
    """E[x | what is seen of it], over the components by their posterior (n, k): (n, d)."""

    def one(row):
        x, seen, shares = row
        return shares @ (means + _completed(x, seen, means, dense)[0])

    return jax.lax.map(one, (x, seen, posterior), batch_size=min(len(x), _at_once(*means.shape)))


def masked_moments(x: Any, seen: Any, means: Any, dense: Any, posterior: Any) -> tuple[Any, Any]:
    """Σ r E[x − μ] (k, d) and Σ r E[(x − μ)(x − μ)ᵀ] (k, d, d), with the conditional covariances."""

    def some(rows, weight):
        expected, spread = jax.vmap(_completed, (0, 0, None, None))(rows["x"], rows["seen"], means, dense)
        share = rows["r"] * weight[:, None]
        second = jnp.einsum("nki,nkj->kij", expected * share[..., None], expected)
        return jnp.einsum("nk,nki->ki", share, expected), second + jnp.einsum("nk,nkij->kij", share, spread)

    rows = Batch({"x": x, "seen": seen, "r": posterior}, jnp.ones(len(x), x.dtype))
    return rows.sum_chunks(some, _at_once(*means.shape))
