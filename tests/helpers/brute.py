"""Random factor graphs and their joint tables, with which every inference on tables is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from hypothesis import strategies as st
from quick import evaluate

from energax.algorithms.factors.checks import as_evidence, as_tables, split_by_variable
from energax.algorithms.junction.beliefs import clique_marginal, factor_marginals
from energax.algorithms.junction.passes import downward, sum_product, upward
from energax.algorithms.junction.ragged import ragged_sum


@st.composite
def factor_graphs(draw, most_variables=7, most_states=4, zeros=True, connected=False):
    """(cards, scopes, log_tables, log_evidence) with impossible entries, hard and soft evidence."""
    seed = draw(st.integers(0, 2**32 - 1))
    n = draw(st.integers(1, most_variables))
    rng = np.random.default_rng(seed)
    cards = tuple(int(c) for c in rng.integers(1 if n > 2 else 2, most_states + 1, n))
    n_factors = int(rng.integers(0 if not connected else n, 2 * n + 2))
    scopes = [tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist()) for _ in range(n_factors)]
    if connected:
        scopes += [(v - 1, v) for v in range(1, n)]
    tables = [random_table(rng, [cards[v] for v in scope], zeros) for scope in scopes]
    return cards, tuple(scopes), tuple(tables), random_evidence(rng, cards)


def random_table(rng, shape, zeros):
    table = rng.normal(0, rng.choice([0.5, 3.0, 40.0]), shape)
    return np.where(rng.random(shape) < 0.15, -np.inf, table) if zeros and len(shape) else np.asarray(table)


def random_evidence(rng, cards):
    evidence = []
    for card in cards:
        kind = rng.integers(0, 4)
        vector = np.zeros(card)
        if kind == 0:
            vector = np.full(card, -np.inf)
            vector[rng.integers(card)] = 0
        elif kind == 1:
            vector = rng.normal(0, 5, card)
        evidence.append(vector)
    return tuple(evidence)


def hard_evidence(cards: Sequence[int], observed: Mapping[int, int]) -> tuple[np.ndarray, ...]:
    """Log-vectors of observations {variable: state}: 0 at the state, −inf elsewhere, or all zeros."""
    evidence = [np.zeros(card) for card in cards]
    for v, state in observed.items():
        evidence[v] = np.where(np.arange(cards[v]) == state, 0.0, -np.inf)
    return tuple(evidence)


class Calibration(NamedTuple):
    """log Z, and the marginals of all variables, cliques and factors."""

    log_z: Any
    variables: tuple[Any, ...]
    cliques: tuple[Any, ...]
    factors: tuple[Any, ...]


def calibrate(tree, log_tables, log_evidence=None) -> Calibration:
    """Both passes over a junction tree; with rows of evidence, every result has a leading axis of rows."""
    tables = as_tables(tree.cards, tree.scopes, log_tables)
    evidence, rows = as_evidence(tree.cards, log_evidence, tables)
    rows_first = lambda a: np.moveaxis(a, -1, 0) if rows else a

    def both_passes():
        up = upward(tree.layout, tables, [e.T for e in evidence] if rows else evidence, sum_product)
        beliefs = downward(tree.layout, up)
        marginals = ragged_sum(beliefs.fringe, tree.layout.marginals)
        cliques = [clique_marginal(tree.layout, beliefs, i) for i in range(tree.layout.n_maximal)]
        return up.log_z, marginals, cliques, factor_marginals(tree, beliefs)

    log_z, marginals, cliques, factors = jax.tree.map(np.asarray, evaluate(both_passes))
    shapes = [(*np.shape(log_z), *(tree.cards[v] for v in clique)) for clique in tree.cliques]
    return Calibration(
        log_z,
        split_by_variable(rows_first(marginals), tree.cards),
        tuple(rows_first(p).reshape(shape) for p, shape in zip(cliques, shapes, strict=True)),
        tuple(rows_first(p) for p in factors),
    )


def log_joint(cards, scopes, tables, evidence=None):
    """The unnormalised log-probability of every configuration, one axis per variable."""
    total = np.zeros(cards)
    n = len(cards)
    for scope, table in [
        *zip(scopes, tables, strict=True),
        *(((v,), e) for v, e in enumerate(evidence or ())),
    ]:
        order = np.argsort(scope)
        shape = [cards[v] if v in scope else 1 for v in range(n)]
        total = total + np.transpose(np.asarray(table), order).reshape(shape)
    return total


def log_sum(values):
    top = values.max()
    return top + math.log(np.exp(values - top).sum()) if np.isfinite(top) else -math.inf


def probability(joint):
    """exp(joint) normalised; all zeros if no configuration is possible."""
    z = log_sum(joint)
    return np.exp(joint - z) if np.isfinite(z) else np.zeros_like(joint)


def marginal(p, variables):
    """The sum over all other axes, with the axes in the order of `variables`."""
    rest = tuple(v for v in range(p.ndim) if v not in variables)
    kept = [v for v in range(p.ndim) if v in variables]
    return np.transpose(p.sum(rest), [kept.index(v) for v in variables])


def assert_close(a: Any, b: Any) -> None:
    """The same to ten digits."""
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)
