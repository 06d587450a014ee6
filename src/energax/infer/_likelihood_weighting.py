"""Ancestral sampling of a Bayesian network, weighed by the evidence it meets on the way."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BadInput
from ..estimate import Estimate
from ..keys import as_key
from ._factor_tables import as_evidence, as_tables


class Weighted(eqx.Module):
    """Draws of all variables and the logarithms of their weights; the mean weight is P(evidence)."""

    states: Any  # (n, variables)
    log_weights: Any  # (n,)
    cards: tuple[int, ...] = eqx.field(static=True)

    @property
    def log_evidence(self) -> Estimate:
        """log P(evidence), with a standard error by the delta method."""
        n = self.log_weights.shape[0]
        log_mean = jax.nn.logsumexp(self.log_weights) - jnp.log(float(n))
        if not jnp.isfinite(log_mean):
            return Estimate(np.asarray(log_mean), np.inf, "estimate", "LikelihoodWeighting")
        error = jnp.std(jnp.exp(self.log_weights - log_mean), ddof=1) / n**0.5
        return Estimate(np.asarray(log_mean), np.asarray(error), "estimate", "LikelihoodWeighting")

    @property
    def effective(self) -> Any:
        """(Σw)² / Σw²: so many equally weighted draws would tell as much."""
        return jnp.exp(2 * jax.nn.logsumexp(self.log_weights) - jax.nn.logsumexp(2 * self.log_weights))

    @property
    def marginals(self) -> tuple[Any, ...]:
        """The weighted frequency of every state of every variable."""
        weight = jax.nn.softmax(self.log_weights)
        return tuple(
            jnp.zeros(card, weight.dtype).at[self.states[:, v]].add(weight)
            for v, card in enumerate(self.cards)
        )


def likelihood_weighting(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    log_tables: Sequence[Any],
    log_evidence: Sequence[Any] | None = None,
    *,
    n: int,
    key: Any,
) -> Weighted:
    """Draw x_v from p(x_v | parents) · evidence(x_v), parents first, and weigh by what that sums to.

    Scope v must be (*parents of v, v) and its table log p(v | parents). Hard evidence then fixes its
    variable and weighs by its probability; uncertain evidence tilts the draw; with none at all this is
    ancestral sampling. All variables of one depth are drawn at once.

    >>> import jax.numpy as jnp
    >>> fire, alarm = jnp.log(jnp.array([0.9, 0.1])), jnp.log(jnp.array([[0.99, 0.01], [0.2, 0.8]]))
    >>> rung = (jnp.zeros(2), jnp.array([-jnp.inf, 0.0]))
    >>> drawn = likelihood_weighting((2, 2), ((0,), (0, 1)), (fire, alarm), rung, n=20_000, key=0)
    >>> round(float(drawn.marginals[0][1]), 1)                        # 0.08 / 0.089
    0.9

    References: Fung and Chang, UAI 1989; Shachter and Peot, UAI 1989.
    """
    scopes = tuple(tuple(int(v) for v in scope) for scope in scopes)
    if tuple(scope[-1] if scope else -1 for scope in scopes) != tuple(range(len(cards))):
        raise BadInput("scopes", "other last variables", "scope v = (*parents of v, v), one a variable")
    if n < 1:
        raise BadInput("n", repr(n), "a whole number from 1 up")
    tables = as_tables(cards, scopes, log_tables)
    evidence, rows = as_evidence(cards, log_evidence, tables)
    if rows:
        raise BadInput("log_evidence", "rows", "one log-vector a variable")
    states, log_w = _weighed(tuple(map(int, cards)), scopes, n, tables, evidence, as_key(key))
    return Weighted(states, log_w, tuple(map(int, cards)))


def _depths(scopes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Variables by the length of the longest way from a variable without parents."""
    depth: dict[int, int] = {}
    left = set(range(len(scopes)))
    while left:
        ready = [v for v in sorted(left) if all(p in depth for p in scopes[v][:-1])]
        if not ready:
            raise BadInput("scopes", "a directed cycle", "parents that come before their children")
        for v in ready:
            depth[v] = 1 + max((depth[p] for p in scopes[v][:-1]), default=-1)
        left -= set(ready)
    return [[v for v in sorted(depth) if depth[v] == d] for d in range(max(depth.values()) + 1)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _weighed(cards: Any, scopes: Any, n: int, tables: Any, evidence: Any, key: Any) -> tuple[Any, Any]:
    """The rows of all tables are one matrix, (rows, most states), padded with −inf."""
    most, n_variables = max(cards), len(cards)
    pad = lambda a, card: jnp.pad(a.reshape(-1, card), ((0, 0), (0, most - card)), constant_values=-jnp.inf)
    matrix = jnp.concatenate([pad(table, cards[v]) for v, table in enumerate(tables)])
    own = jnp.concatenate([pad(vector, cards[v]) for v, vector in enumerate(evidence)])
    first = np.cumsum([0, *(int(np.prod([cards[p] for p in scope[:-1]])) for scope in scopes)])[:-1]
    states = jnp.zeros((n, n_variables), jnp.int32)
    log_w = jnp.zeros(n, own.dtype)
    for d, group in enumerate(_depths(scopes)):
        width = max(len(scopes[v]) - 1 for v in group)
        parents, weight = np.zeros((2, len(group), width), np.int32)
        for k, v in enumerate(group):
            mine = scopes[v][:-1]
            parents[k, : len(mine)] = mine
            strides = np.cumprod([1, *(cards[p] for p in mine[::-1])])[::-1][1:]
            weight[k, : len(mine)] = strides
        rows = jnp.sum(states[:, parents] * weight, axis=2) + first[group].astype(np.int32)
        logits = matrix[rows] + own[np.array(group)]
        log_w = log_w + jnp.sum(jax.nn.logsumexp(logits, axis=2), axis=1)
        drawn = jax.random.categorical(jax.random.fold_in(key, d), logits).astype(jnp.int32)
        states = states.at[:, np.array(group)].set(drawn)
    return states, log_w
