"""Naive mean field: the best product of independent distributions, by coordinate ascent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.keys import as_key
from ...errors import BadInput
from ...programs import jit
from .checks import check_model
from .groups import FactorGroups, broadcast_along

# nats; an impossible entry counts as this much below the smallest possible one during the search
_PENALTY = 30.0
_NEGLIGIBLE = 1e-7  # probabilities below may be set to 0 at the end


class MeanFieldSolution(eqx.Module):
    """q(x) = Π q_v(x_v), its lower bound on log Z, and whether the ascent converged."""

    elbo: Any
    variables: tuple[Any, ...]
    iterations: Any
    change: Any  # of the bound in the last sweep
    converged: Any


def mean_field(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    log_tables: Sequence[Any],
    log_evidence: Sequence[Any] | None = None,
    *,
    n_init: int = 8,
    max_iter: int = 500,
    tol: float | None = None,
    key: Any = 0,
) -> MeanFieldSolution:
    """Maximise E_q[Σ log f] + H(q) ≤ log Z over products of independent distributions.

    Each q_v in turn becomes ∝ exp E[Σ log f | x_v], which never lowers the bound; variables without a
    common factor are updated at once. The best of `n_init` starts, the first of them uniform, is returned.
    With impossible configurations the bound may be −inf: then no product that was found avoids them.

    >>> import jax.numpy as jnp
    >>> alone = jnp.log(jnp.array([1.0, 3.0]))
    >>> found = mean_field((2, 2), ((0,), (1,)), (alone, alone))
    >>> round(float(found.elbo), 4), round(float(found.variables[0][0]), 4)      # log 16, exact: no pair
    (2.7726, 0.25)

    References: Saul, Jaakkola and Jordan, J. Artif. Intell. Res. 4, 1996; Jordan and others, An
    introduction to variational methods for graphical models, Mach. Learn. 37, 1999.
    """
    if n_init < 1:
        raise BadInput("n_init", repr(n_init), "a whole number from 1 up")
    cards, scopes, tables, evidence = check_model(cards, scopes, log_tables, log_evidence)
    if tol is None:
        tol = 1e-6 if evidence[0].dtype.itemsize < 8 else 1e-12
    return _maximise_bound(cards, scopes, n_init, tables, evidence, max_iter, tol, as_key(key))


@jit
def _maximise_bound(
    cards: Any, scopes: Any, n_init: int, tables: Any, evidence: Any, max_iter: Any, tol: Any, key: Any
) -> MeanFieldSolution:
    graph = FactorGroups.build(cards, scopes)
    dtype = evidence[0].dtype
    stacked, own = graph.stack(tables), graph.pad(evidence)
    softened = tuple(map(soften, stacked))
    masks = asarray(graph.colours())[:, :, None]
    constant = graph.constant(tables, dtype)

    def sweep(carry):
        q, bound, _, n = carry
        update_colour = lambda q, mask: (
            jnp.where(mask, jax.nn.softmax(own + _expected_logits(graph, softened, q), axis=1), q),
            None,
        )
        q, _ = jax.lax.scan(update_colour, q, masks)
        new = _bound(graph, softened, own, q)
        return q, new, new - bound, n + 1

    has_converged = lambda bound, change: jnp.isfinite(bound) & (change <= tol * (1 + jnp.abs(bound)))

    def ascend(q):
        start = (q, asarray(-jnp.inf, dtype), asarray(jnp.inf, dtype), 0)
        is_running = lambda carry: ~has_converged(carry[1], carry[2]) & (carry[3] < max_iter)
        q, bound, change, n = jax.lax.while_loop(is_running, sweep, start)
        # Any probability of an impossible entry makes the bound −inf: drop negligible ones if that helps.
        sharp = jnp.where(q < _NEGLIGIBLE, 0, q)
        sharp = sharp / jnp.sum(sharp, axis=1, keepdims=True)
        soft_value, sharp_value = (_bound(graph, stacked, own, each) + constant for each in (q, sharp))
        q = jnp.where(sharp_value > soft_value, sharp, q)
        value = jnp.maximum(sharp_value, soft_value)
        return q, value, change, n, has_converged(bound, change)

    noise = jax.random.gumbel(key, (n_init, *own.shape), dtype).at[0].set(0)
    found = jax.vmap(ascend)(jax.nn.softmax(own + noise, axis=-1))
    at = jnp.argmax(found[1])
    q, bound, change, n, converged = jax.tree.map(lambda a: a[at], found)
    return MeanFieldSolution(bound, graph.split(q), n, change, converged)


def soften(table: Any) -> Any:
    """Replace −inf by a finite value far below all others, so that a search can leave such entries."""
    least = jnp.min(jnp.where(jnp.isfinite(table), table, jnp.inf), initial=jnp.inf)
    least = jnp.where(jnp.isfinite(least), least, 0) - _PENALTY
    return jnp.where(jnp.isneginf(table), least, table)


def _expected_logits(graph: FactorGroups, stacked: Any, q: Any) -> Any:
    """E[Σ log f | x_v] for every variable and state, with all others independent under q."""
    total = jnp.zeros_like(q)
    for group, table in zip(graph.groups, stacked, strict=True):
        n_axes = len(group.shape)
        for axis in range(n_axes):
            weighted = table
            for other in range(n_axes):
                if other != axis:
                    weighted = weighted * broadcast_along(
                        q[group.variables[:, other], : group.shape[other]], other, n_axes
                    )
            mean = jnp.sum(weighted, axis=tuple(a + 1 for a in range(n_axes) if a != axis))
            total = total.at[group.variables[:, axis], : group.shape[axis]].add(mean)
    return total


def _bound(graph: FactorGroups, stacked: Any, own: Any, q: Any) -> Any:
    """E_q[Σ log f + evidence] + H(q), with 0 · ∞ = 0."""
    safe = lambda p, value: jnp.where(p > 0, p * jnp.where(p > 0, value, 0), 0)
    total = jnp.sum(safe(q, own - jnp.log(q)))
    for group, table in zip(graph.groups, stacked, strict=True):
        weight = jnp.ones_like(table)
        for axis, card in enumerate(group.shape):
            weight = weight * broadcast_along(q[group.variables[:, axis], :card], axis, len(group.shape))
        total = total + jnp.sum(safe(weight, table))
    return total
