"""Loopy belief propagation: sum-product messages on a graph with cycles."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ...errors import BadInput
from ...programs import jit
from .checks import check_model
from .groups import FactorGroups, broadcast_along


class LoopySolution(eqx.Module):
    """Beliefs at the last iteration, the Bethe estimate of log Z, and whether the messages converged."""

    log_z: Any  # the Bethe approximation: exact on a tree, neither bound nor consistent elsewhere
    variables: tuple[Any, ...]
    factors: tuple[Any, ...]
    iterations: Any
    change: Any  # the largest change of a message (a probability) in the last iteration
    converged: Any


def loopy(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    log_tables: Sequence[Any],
    log_evidence: Sequence[Any] | None = None,
    *,
    damping: float = 0.5,
    max_iter: int = 1000,
    tol: float | None = None,
) -> LoopySolution:
    """Sum-product messages between factors and variables, all at once, until they change less than `tol`.

    message f→v(x_v) ∝ Σ f(x) Π_{u≠v} message u→f(x_u);   message v→f ∝ evidence · Π_{g≠f} message g→v.

    A message becomes (1 − damping) times its new value plus damping times its old one. On a tree the
    result is exact; on other graphs it is an approximation, and may not converge: see `converged`.
    Use `jax.vmap` for rows of evidence. `tol` is by default 1e-5 in single and 1e-10 in double precision.

    >>> import jax.numpy as jnp
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> evidence = (jnp.array([0.0, -jnp.inf]), jnp.zeros(2), jnp.zeros(2))
    >>> found = loopy((2, 2, 2), ((0, 1), (1, 2)), (agree, agree), evidence, damping=0.0)
    >>> bool(found.converged), round(float(found.variables[2][0]), 3)
    (True, 0.82)

    References: Pearl, Probabilistic Reasoning in Intelligent Systems, 1988; Murphy, Weiss and Jordan,
    UAI 1999; Yedidia, Freeman and Weiss, IEEE Trans. Inf. Theory 51, 2005 (the Bethe free energy).
    """
    if not 0 <= damping < 1:
        raise BadInput("damping", repr(damping), "a number from 0 up, below 1")
    cards, scopes, tables, evidence = check_model(cards, scopes, log_tables, log_evidence)
    if tol is None:
        tol = 1e-5 if evidence[0].dtype.itemsize < 8 else 1e-10
    return _propagate(cards, scopes, tables, evidence, damping, max_iter, tol)


@jit
def _propagate(
    cards: Any, scopes: Any, tables: Any, evidence: Any, damping: Any, max_iter: Any, tol: Any
) -> LoopySolution:
    graph = FactorGroups.build(cards, scopes)
    dtype = evidence[0].dtype
    stacked, own = graph.stack(tables), graph.pad(evidence)
    start = tuple(
        tuple(jnp.full((len(g.factors), card), -jnp.log(card), dtype) for card in g.shape)
        for g in graph.groups
    )

    def step(carry):
        messages, _, n = carry
        incoming = _messages_to_factors(graph, own, messages)
        new = tuple(
            tuple(_normalise(_message_to_variable(table, to_factor, axis)) for axis in range(len(to_factor)))
            for table, to_factor in zip(stacked, incoming, strict=True)
        )
        mix = lambda a, b: jnp.log((1 - damping) * jnp.exp(a) + damping * jnp.exp(b))
        mixed = jax.tree.map(mix, new, messages)
        gaps = [
            jnp.max(jnp.abs(jnp.exp(a) - jnp.exp(b)))
            for a, b in zip(*map(jax.tree.leaves, (new, messages)), strict=True)
        ]
        change = functools.reduce(jnp.maximum, gaps, jnp.zeros((), dtype))
        return mixed, change, n + 1

    is_running = lambda carry: (carry[1] > tol) & (carry[2] < max_iter)
    messages, change, n = jax.lax.while_loop(is_running, step, (start, asarray(jnp.inf, dtype), 0))
    finite, ruled_out = _incoming_totals(graph, own, messages)
    log_q = _normalise(jnp.where(ruled_out > 0, -jnp.inf, finite))
    log_b = _factor_beliefs(stacked, _messages_to_factors(graph, own, messages))
    log_z = _bethe(graph, stacked, own, log_q, log_b) + graph.constant(tables, dtype)
    factors = graph.unstack([jnp.exp(b) for b in log_b], jnp.ones((), dtype))
    return LoopySolution(log_z, graph.split(jnp.exp(log_q)), factors, n, change, change <= tol)


def _factor_beliefs(stacked: Any, incoming: list[list[Any]]) -> list[Any]:
    """log p(scope) of every factor: its table times the messages to it, normalised."""
    beliefs = []
    for table, messages in zip(stacked, incoming, strict=True):
        total = table
        for axis, message in enumerate(messages):
            total = total + broadcast_along(message, axis, len(messages))
        beliefs.append(_normalise(total.reshape(total.shape[0], -1)).reshape(total.shape))
    return beliefs


def _normalise(log_p: Any) -> Any:
    """Divide rows by their sums; rows without a possible state are not changed."""
    z = jax.nn.logsumexp(log_p, axis=1)
    return log_p - jnp.where(jnp.isfinite(z), z, 0)[:, None]


def _incoming_totals(graph: FactorGroups, own: Any, messages: Any) -> tuple[Any, Any]:
    """The sum of all messages to each variable: its finite part, and the number of −inf among them.

    Both parts allow one message to be subtracted again.
    """
    finite, ruled_out = _finite_and_ruled_out(own)
    for group, to_variables in zip(graph.groups, messages, strict=True):
        for axis, message in enumerate(to_variables):
            value, count = _finite_and_ruled_out(message)
            at = group.variables[:, axis]
            finite = finite.at[at, : message.shape[1]].add(value)
            ruled_out = ruled_out.at[at, : message.shape[1]].add(count)
    return finite, ruled_out


def _finite_and_ruled_out(log_p: Any) -> tuple[Any, Any]:
    ruled_out = jnp.isneginf(log_p)
    return jnp.where(ruled_out, 0, log_p), ruled_out.astype(jnp.int32)


def _messages_to_factors(graph: FactorGroups, own: Any, messages: Any) -> list[list[Any]]:
    """For every factor and axis the product of all messages to its variable but the factor's own."""
    finite, ruled_out = _incoming_totals(graph, own, messages)
    found = []
    for group, to_variables in zip(graph.groups, messages, strict=True):
        rows = []
        for axis, message in enumerate(to_variables):
            value, count = _finite_and_ruled_out(message)
            at, card = group.variables[:, axis], message.shape[1]
            others = ruled_out[at, :card] - count
            rows.append(_normalise(jnp.where(others > 0, -jnp.inf, finite[at, :card] - value)))
        found.append(rows)
    return found


def _message_to_variable(table: Any, incoming: list[Any], axis: int) -> Any:
    """log Σ over all other axes of the factor times the messages along them."""
    total = table
    for other, message in enumerate(incoming):
        if other != axis:
            total = total + broadcast_along(message, other, len(incoming))
    return jax.nn.logsumexp(
        jnp.moveaxis(total, axis + 1, 1).reshape(table.shape[0], table.shape[axis + 1], -1), axis=2
    )


def _bethe(graph: FactorGroups, stacked: Any, own: Any, log_q: Any, log_b: Any) -> Any:
    """Σ_f E[log f] + H(b_f) + Σ_v E[evidence] + (1 − degree) H(b_v)."""

    def mean(log_p, value):  # E[value − log p] with 0 · ∞ = 0
        possible = ~jnp.isneginf(log_p)
        return jnp.sum(jnp.where(possible, jnp.exp(log_p) * jnp.where(possible, value, 0), 0))

    total = mean(log_q, own)
    entropy = -jnp.sum(
        jnp.where(jnp.isneginf(log_q), 0, jnp.exp(log_q) * jnp.where(jnp.isneginf(log_q), 0, log_q)), axis=1
    )
    total = total + jnp.sum((1 - graph.degree) * entropy)
    for table, b in zip(stacked, log_b, strict=True):
        total = total + mean(b, table) - mean(b, b)
    impossible = jnp.any(jnp.all(jnp.isneginf(log_q), axis=1))
    for b in log_b:
        impossible = impossible | jnp.any(jnp.all(jnp.isneginf(b.reshape(b.shape[0], -1)), axis=1))
    return jnp.where(impossible, -jnp.inf, total)
