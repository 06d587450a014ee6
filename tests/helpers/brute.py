"""Random factor graphs and the whole joint: what every inference on tables is compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st


@st.composite
def factor_graphs(draw, most_variables=7, most_states=4, zeros=True, connected=False):
    """(cards, scopes, log_tables, log_evidence): some entries impossible, some evidence hard, some soft."""
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


def log_joint(cards, scopes, tables, evidence=None):
    """The unnormalised log-probability of every configuration, an axis a variable."""
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
    """exp(joint) normalised; zeros where nothing is possible."""
    z = log_sum(joint)
    return np.exp(joint - z) if np.isfinite(z) else np.zeros_like(joint)


def marginal(p, variables):
    """The sum over all other axes, with the axes in the order asked."""
    rest = tuple(v for v in range(p.ndim) if v not in variables)
    kept = [v for v in range(p.ndim) if v in variables]
    return np.transpose(p.sum(rest), [kept.index(v) for v in variables])


def assert_close(a: Any, b: Any) -> None:
    """The same to ten digits."""
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)
