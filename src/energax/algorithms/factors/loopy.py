"""Loopy belief propagation: the messages of a tree, passed around on a graph that is none."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...errors import BadInput
from .checks import checked
from .groups import FactorGroups, along


class Loopy(eqx.Module):
    """What the messages say when they stop: beliefs, the Bethe estimate of log Z, and how they stopped."""

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
) -> Loopy:
    """Sum-product messages between factors and variables, all at once, until they change less than `tol`.

    message f→v(x_v) ∝ Σ f(x) Π_{u≠v} message u→f(x_u);   message v→f ∝ evidence · Π_{g≠f} message g→v.

    A new message is (1 − damping) of what it should be and damping of what it was. On a tree the answer
    is exact; on other graphs it is the usual approximation, and may not converge: look at `converged`.
    Rows of evidence go by `jax.vmap`. `tol` is 1e-5 in single and 1e-10 in double precision unless said.

    >>> import jax.numpy as jnp
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> seen = (jnp.array([0.0, -jnp.inf]), jnp.zeros(2), jnp.zeros(2))
    >>> found = loopy((2, 2, 2), ((0, 1), (1, 2)), (agree, agree), seen, damping=0.0)
    >>> bool(found.converged), round(float(found.variables[2][0]), 3)
    (True, 0.82)

    References: Pearl, Probabilistic Reasoning in Intelligent Systems, 1988; Murphy, Weiss and Jordan,
    UAI 1999; Yedidia, Freeman and Weiss, IEEE Trans. Inf. Theory 51, 2005 (the Bethe free energy).
    """
    if not 0 <= damping < 1:
        raise BadInput("damping", repr(damping), "a number from 0 up, below 1")
    cards, scopes, tables, evidence = checked(cards, scopes, log_tables, log_evidence)
    if tol is None:
        tol = 1e-5 if evidence[0].dtype.itemsize < 8 else 1e-10
    return _propagated(cards, scopes, tables, evidence, damping, max_iter, tol)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _propagated(
    cards: Any, scopes: Any, tables: Any, evidence: Any, damping: Any, max_iter: Any, tol: Any
) -> Loopy:
    graph = FactorGroups.build(cards, scopes)
    dtype = evidence[0].dtype
    stacked, own = graph.stack(tables), graph.padded(evidence)
    start = tuple(
        tuple(jnp.full((len(g.factors), card), -jnp.log(card), dtype) for card in g.shape)
        for g in graph.groups
    )

    def step(carry):
        messages, _, n = carry
        entering = _entering(graph, own, messages)
        new = tuple(
            tuple(_normalised(_to_variable(table, inward, axis)) for axis in range(len(inward)))
            for table, inward in zip(stacked, entering, strict=True)
        )
        mix = lambda a, b: jnp.log((1 - damping) * jnp.exp(a) + damping * jnp.exp(b))
        mixed = jax.tree.map(mix, new, messages)
        gaps = [
            jnp.max(jnp.abs(jnp.exp(a) - jnp.exp(b)))
            for a, b in zip(*map(jax.tree.leaves, (new, messages)), strict=True)
        ]
        change = functools.reduce(jnp.maximum, gaps, jnp.zeros((), dtype))
        return mixed, change, n + 1

    going = lambda carry: (carry[1] > tol) & (carry[2] < max_iter)
    messages, change, n = jax.lax.while_loop(going, step, (start, jnp.asarray(jnp.inf, dtype), 0))
    finite, ruled_out = _totals(graph, own, messages)
    log_q = _normalised(jnp.where(ruled_out > 0, -jnp.inf, finite))
    entering = _entering(graph, own, messages)
    log_b = []
    for table, inward in zip(stacked, entering, strict=True):
        total = table
        for axis, message in enumerate(inward):
            total = total + along(message, axis, len(inward))
        log_b.append(_normalised(total.reshape(total.shape[0], -1)).reshape(total.shape))
    log_z = _bethe(graph, stacked, own, log_q, log_b) + graph.constant(tables, dtype)
    factors = graph.unstacked([jnp.exp(b) for b in log_b], jnp.ones((), dtype))
    return Loopy(log_z, graph.split(jnp.exp(log_q)), factors, n, change, change <= tol)


def _normalised(log_p: Any) -> Any:
    """Rows that sum to one; rows without a possible state stay as they are."""
    z = jax.nn.logsumexp(log_p, axis=1)
    return log_p - jnp.where(jnp.isfinite(z), z, 0)[:, None]


def _totals(graph: FactorGroups, own: Any, messages: Any) -> tuple[Any, Any]:
    """Σ of all that enters a variable, as a finite part and the number of −inf in it, which subtract."""
    finite, ruled_out = _parts(own)
    for group, outward in zip(graph.groups, messages, strict=True):
        for axis, message in enumerate(outward):
            value, count = _parts(message)
            at = group.variables[:, axis]
            finite = finite.at[at, : message.shape[1]].add(value)
            ruled_out = ruled_out.at[at, : message.shape[1]].add(count)
    return finite, ruled_out


def _parts(log_p: Any) -> tuple[Any, Any]:
    gone = jnp.isneginf(log_p)
    return jnp.where(gone, 0, log_p), gone.astype(jnp.int32)


def _entering(graph: FactorGroups, own: Any, messages: Any) -> list[list[Any]]:
    """For every factor and axis the product of all messages to its variable but the factor's own."""
    finite, ruled_out = _totals(graph, own, messages)
    found = []
    for group, outward in zip(graph.groups, messages, strict=True):
        rows = []
        for axis, message in enumerate(outward):
            value, count = _parts(message)
            at, card = group.variables[:, axis], message.shape[1]
            others = ruled_out[at, :card] - count
            rows.append(_normalised(jnp.where(others > 0, -jnp.inf, finite[at, :card] - value)))
        found.append(rows)
    return found


def _to_variable(table: Any, entering: list[Any], axis: int) -> Any:
    total = table
    for other, message in enumerate(entering):
        if other != axis:
            total = total + along(message, other, len(entering))
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
