"""Gibbs sweeps on factor tables, one colour at a time, and annealed importance sampling by them.

References: Geman and Geman, IEEE PAMI 6, 1984; Gonzalez and others, Parallel Gibbs sampling,
AISTATS 2011 (colours).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ..._util.keys import as_key
from ...errors import BadInput
from ...estimate import Estimate
from ...programs import jit
from .checks import check_model
from .groups import FactorGroups
from .mean_field import soften


def anneal_tables(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    log_tables: Sequence[Any],
    log_evidence: Sequence[Any] | None = None,
    *,
    n_chains: int = 256,
    n_steps: int = 500,
    key: Any,
) -> Estimate:
    """log Z by annealed importance sampling: from the evidence alone to all factors, in `n_steps`.

    p_β ∝ evidence · Π f^β for β from 0 to 1, with one Gibbs sweep at each; the mean weight
    exp Σ (β_t − β_{t−1}) Σ log f(x_t) is unbiased for Z / Z₀, where Z₀ is the sum of the evidence alone.

    >>> import jax.numpy as jnp
    >>> pair = jnp.log(jnp.array([[4.0, 1.0], [1.0, 2.0]]))
    >>> anneal_tables((2, 2), ((0, 1),), (pair,), key=0)          # log 8 = 2.079
    2.0... ± 0.0... (estimate)

    Reference: Neal, Annealed importance sampling, Stat. Comput. 11, 2001.
    """
    if n_chains < 2 or n_steps < 1:
        raise BadInput("n_chains, n_steps", f"{n_chains}, {n_steps}", "at least 2 chains and 1 step")
    model = check_model(cards, scopes, log_tables, log_evidence)
    value, error = _anneal(*model, (n_chains, n_steps), as_key(key))
    return Estimate(np.asarray(value), np.asarray(error), "estimate", "AnnealedImportance")


@jit
def _anneal(cards: Any, scopes: Any, tables: Any, evidence: Any, sizes: Any, key: Any) -> tuple[Any, Any]:
    """log Z and the relative standard error of Z."""
    n_chains, n_steps = sizes
    graph = FactorGroups.build(cards, scopes)
    dtype = evidence[0].dtype
    hard, own = graph.stack(tables), graph.pad(evidence)
    stacked = tuple(map(soften, hard))
    masks = asarray(graph.colours())
    betas = jnp.linspace(0, 1, n_steps + 1, dtype=dtype)

    def log_weight(chain_key):
        x = jax.random.categorical(jax.random.fold_in(chain_key, n_steps), own).astype(jnp.int32)

        def step(t, carry):
            x, log_w = carry
            log_w = log_w + (betas[t + 1] - betas[t]) * _log_product(graph, stacked, x)
            return gibbs_sweep(
                graph, stacked, own, masks, x, jax.random.fold_in(chain_key, t), betas[t + 1]
            ), log_w

        x, log_w = jax.lax.fori_loop(0, n_steps - 1, step, (x, jnp.zeros((), dtype)))
        # The last step uses the true factors: a chain in an impossible configuration gets weight 0.
        last = _log_product(graph, hard, x) - betas[n_steps - 1] * _log_product(graph, stacked, x)
        return log_w + last

    log_w = jax.vmap(log_weight)(jax.random.split(key, n_chains))
    start = jnp.sum(jax.nn.logsumexp(own, axis=1)) + graph.constant(tables, dtype)
    log_mean = jax.nn.logsumexp(log_w) - jnp.log(asarray(n_chains, dtype))
    relative = jnp.exp(log_w - jnp.where(jnp.isfinite(log_mean), log_mean, 0))
    error = jnp.std(relative, ddof=1) / jnp.sqrt(asarray(n_chains, dtype))
    return start + log_mean, jnp.where(jnp.isfinite(log_mean), error, jnp.inf)


def gibbs_sweep(graph: FactorGroups, stacked: Any, own: Any, masks: Any, x: Any, key: Any, beta: Any) -> Any:
    """Draw the variables of each colour in turn, given all others, from Π f^β · evidence.

    Variables of one colour share no factor, so they are independent given the others. `stacked` are
    softened tables, from which chains can leave impossible configurations.
    """
    noise = jax.random.gumbel(key, (masks.shape[0], *own.shape), own.dtype)

    def draw_colour(x, inputs):
        mask, gumbel = inputs
        logits = own + beta * _conditionals(graph, stacked, x, own)
        return jnp.where(mask, jnp.argmax(logits + gumbel, axis=1).astype(x.dtype), x), None

    return jax.lax.scan(draw_colour, x, (masks, noise))[0]


def _conditionals(graph: FactorGroups, stacked: Any, x: Any, own: Any) -> Any:
    """Σ log f(x_v = k, rest) for every variable v and state k."""
    total = jnp.zeros_like(own)
    for group, table in zip(graph.groups, stacked, strict=True):
        flat, strides = table.ravel(), _strides(group.shape)
        first = np.arange(len(group.factors), dtype=np.int32) * int(np.prod(group.shape))
        parts = x[group.variables] * strides
        whole = jnp.sum(parts, axis=1) + first
        for axis, card in enumerate(group.shape):
            states = np.arange(card, dtype=np.int32) * strides[axis]
            values = flat[(whole - parts[:, axis])[:, None] + states]
            total = total.at[group.variables[:, axis], :card].add(values)
    return total


def _log_product(graph: FactorGroups, stacked: Any, x: Any) -> Any:
    """Σ log f(x)."""
    total = jnp.zeros((), x.dtype) if not stacked else jnp.zeros((), stacked[0].dtype)
    for group, table in zip(graph.groups, stacked, strict=True):
        first = np.arange(len(group.factors), dtype=np.int32) * int(np.prod(group.shape))
        total = total + jnp.sum(table.ravel()[x[group.variables] @ _strides(group.shape) + first])
    return total


def _strides(shape: tuple[int, ...]) -> np.ndarray:
    return np.cumprod([1, *shape[::-1]])[::-1][1:].astype(np.int32)
