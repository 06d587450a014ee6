"""Loopy propagation: exact on trees, close on weak cycles, and reports when it does not converge."""

from __future__ import annotations

import brute
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energax.algorithms.factors.loopy import loopy
from energax.errors import BadInput


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@st.composite
def trees(draw):
    """Each variable shares a factor with one earlier variable: no cycles; some entries are impossible."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 6))
    cards = tuple(rng.integers(2, 4, n).tolist())
    pairs = [(int(rng.integers(v)), v) if rng.random() < 0.8 else (v,) for v in range(1, n)]
    scopes = (*pairs, ())
    tables = [brute.random_table(rng, [cards[v] for v in scope], True) for scope in scopes]
    return cards, scopes, tables, brute.random_evidence(rng, cards)


@settings(max_examples=8)
@given(trees(), st.sampled_from([0.0, 0.3]))
def test_exact_on_trees(model, damping):
    cards, scopes, tables, evidence = model
    joint = brute.log_joint(cards, scopes, tables, evidence)
    found = loopy(cards, scopes, tables, evidence, damping=damping, tol=1e-13)
    assert bool(found.converged)
    brute.assert_close(found.log_z, brute.log_sum(joint))
    if np.isfinite(joint.max()):
        p = brute.probability(joint)
        for v in range(len(cards)):
            brute.assert_close(found.variables[v], brute.marginal(p, [v]))
        for scope, table in zip(scopes, found.factors, strict=True):
            brute.assert_close(table, brute.marginal(p, scope))


def test_weak_cycles_are_nearly_exact_and_strong_ones_do_not_converge():
    """An Ising ring with couplings 0.1 is within 1e-3; frustrated ones of 4, undamped, never converge."""
    cards, scopes = (2,) * 5, tuple((i, (i + 1) % 5) for i in range(5))
    coupling = np.array([[1.0, -1.0], [-1.0, 1.0]])
    tilt = tuple(np.array([0.3 * v, 0.0]) for v in range(5))
    weak = [0.1 * coupling] * 5
    joint = brute.log_joint(cards, scopes, weak, tilt)
    found = loopy(cards, scopes, weak, tilt)
    assert bool(found.converged) and int(found.iterations) < 200
    assert abs(float(found.log_z) - brute.log_sum(joint)) < 1e-3
    full = tuple((a, b) for a in range(5) for b in range(a))
    strong = loopy(cards, full, [-4.0 * coupling] * len(full), tilt, damping=0.0, max_iter=50)
    assert int(strong.iterations) == 50 and not bool(strong.converged) and float(strong.change) > 1e-3
    assert np.isfinite(float(strong.log_z))


@settings(max_examples=6)
@given(brute.factor_graphs(most_variables=5))
def test_never_nan(model):
    cards, scopes, tables, evidence = model
    found = loopy(cards, scopes, tables, evidence, max_iter=30)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(found))


def test_bad_input():
    with pytest.raises(BadInput, match="damping"):
        loopy((2, 2), ((0, 1),), [np.zeros((2, 2))], damping=1.0)
