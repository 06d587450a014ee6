"""Junction trees against the joint table, on random factor graphs with impossible entries."""

from __future__ import annotations

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import evaluate
from scipy.stats import chi2

from energax.algorithms.factors.tables import Tables
from energax.algorithms.junction.tree import JunctionTree
from energax.errors import BadInput, Intractable

SMALL = st.sampled_from([1, 6, 1024])  # the core alone, both parts, the fringe alone


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@settings(max_examples=20)
@given(brute.factor_graphs(), SMALL)
def test_all_marginals_are_those_of_the_whole_joint(model, small):
    cards, scopes, tables, evidence = model
    tree = JunctionTree.build(cards, scopes, small=small)
    joint = brute.log_joint(cards, scopes, tables, evidence)
    p, z = brute.probability(joint), brute.log_sum(joint)
    found = brute.calibrate(tree, tables, evidence)
    brute.assert_close(found.log_z, z)
    for v in range(len(cards)):
        brute.assert_close(found.variables[v], brute.marginal(p, [v]))
    for clique, table in zip(tree.cliques, found.cliques, strict=True):
        brute.assert_close(table, brute.marginal(p, clique))
    for scope, table in zip(scopes, found.factors, strict=True):
        brute.assert_close(table, brute.marginal(p, scope))
    log_z, variables = tree.marginals(tables, evidence)
    brute.assert_close(log_z, z)
    jax.tree.map(brute.assert_close, variables, found.variables)


@settings(max_examples=20)
@given(brute.factor_graphs(), SMALL)
def test_the_most_probable_explanation(model, small):
    cards, scopes, tables, evidence = model
    joint = brute.log_joint(cards, scopes, tables, evidence)
    states, value = JunctionTree.build(cards, scopes, small=small).maximise(tables, evidence)
    brute.assert_close(value, joint.max())
    brute.assert_close(joint[tuple(np.asarray(states))], joint.max())


@settings(max_examples=15)
@given(brute.factor_graphs(), SMALL, st.integers(0, 2**31))
def test_any_joint_in_a_clique_or_not(model, small, seed):
    cards, scopes, tables, evidence = model
    rng = np.random.default_rng(seed)
    targets = tuple(rng.permutation(len(cards))[: rng.integers(1, 4)].tolist())
    p = brute.probability(brute.log_joint(cards, scopes, tables, evidence))
    found = JunctionTree.build(cards, scopes, small=small).joint(targets, tables, evidence)
    brute.assert_close(np.exp(found), brute.marginal(p, targets))


@settings(max_examples=7)
@given(brute.factor_graphs(), SMALL, st.integers(0, 2**31))
def test_rows_of_evidence_equal_single_calls(model, small, seed):
    cards, scopes, tables, _ = model
    rng = np.random.default_rng(seed)
    rows = [brute.random_evidence(rng, cards) for _ in range(3)]
    tree = JunctionTree.build(cards, scopes, small=small)
    stacked = tuple(np.stack(vectors) for vectors in zip(*rows, strict=True))
    log_z, variables = jax.tree.map(np.asarray, tree.marginals(tables, stacked))
    full = brute.calibrate(tree, tables, stacked)
    states, values = map(np.asarray, evaluate(lambda: tree.maximise(tables, stacked)))
    mapped = evaluate(lambda: jax.vmap(lambda *e: tree.marginals(tables, e))(*stacked))
    jax.tree.map(brute.assert_close, mapped, (log_z, variables))
    for i, evidence in enumerate(rows):
        joint = brute.log_joint(cards, scopes, tables, evidence)
        p = brute.probability(joint)
        brute.assert_close(log_z[i], brute.log_sum(joint))
        brute.assert_close(values[i], joint.max())
        brute.assert_close(joint[tuple(np.asarray(states[i]))], joint.max())
        for v in range(len(cards)):
            brute.assert_close(variables[v][i], brute.marginal(p, [v]))
        for clique, table in zip(tree.cliques, full.cliques, strict=True):
            brute.assert_close(table[i], brute.marginal(p, clique))
        for scope, table in zip(scopes, full.factors, strict=True):
            brute.assert_close(table[i], brute.marginal(p, scope))


@settings(max_examples=10)
@given(brute.factor_graphs(most_variables=5), SMALL)
def test_the_gradient_of_log_z_is_the_marginals(model, small):
    """Also with impossible entries, and with impossible evidence (then zero)."""
    cards, scopes, tables, evidence = model
    tree = JunctionTree.build(cards, scopes, small=small)
    p = brute.probability(brute.log_joint(cards, scopes, tables, evidence))
    arguments = tuple(map(jnp.asarray, tables)), tuple(map(jnp.asarray, evidence))
    by_table, by_evidence = evaluate(lambda: jax.grad(tree.log_partition, (0, 1))(*arguments))
    for scope, slope in zip(scopes, by_table, strict=True):
        brute.assert_close(slope, brute.marginal(p, scope))
    for v, slope in enumerate(by_evidence):
        brute.assert_close(slope, brute.marginal(p, [v]))


@pytest.mark.parametrize("small", [1, 8, 1024])
def test_draws_have_the_joint_distribution(small):
    """Three χ² tests at the level 10⁻⁴ each, with fixed keys."""
    rng = np.random.default_rng(3)
    cards, scopes = (2, 3, 2, 2), ((0, 1), (1, 2), (2, 3), (3, 0))
    tables = [brute.random_table(rng, [cards[v] for v in s], False) / 20 for s in scopes]
    tables[0][0, 1] = -np.inf
    evidence = (np.zeros(2), np.array([0.0, 0.5, -1.0]), np.zeros(2), np.zeros(2))
    p = brute.probability(brute.log_joint(cards, scopes, tables, evidence)).ravel()
    n = 20_000
    draws = np.asarray(JunctionTree.build(cards, scopes, small=small).draw(n, tables, evidence, key=small))
    counts = np.bincount(np.ravel_multi_index(draws.T, cards), minlength=p.size)
    assert not counts[p == 0].any()
    likely = p * n > 5
    expected = np.append(p[likely], p[~likely].sum()) * n
    seen = np.append(counts[likely], counts[~likely].sum())
    keep = expected > 0
    statistic = ((seen - expected)[keep] ** 2 / expected[keep]).sum()
    assert statistic < chi2.ppf(1 - 1e-4, keep.sum() - 1)


def test_a_long_row_is_drawn_from_in_two_steps():
    """A root of 2^13 states: the mean of each of 13 coins within 4.5 standard errors (rate 10⁻⁴)."""
    n_coins, n = 13, 4000
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (2,) * n_coins)
    tree = JunctionTree.build((2,) * n_coins, (tuple(range(n_coins)),))
    draws = np.asarray(tree.draw(n, [table], key=1))
    p = brute.probability(table)
    mean = np.array([brute.marginal(p, [v])[1] for v in range(n_coins)])
    assert np.all(np.abs(draws.mean(0) - mean) < 4.5 * np.sqrt(mean * (1 - mean) / n))


def test_impossible_evidence_is_minus_infinity_and_never_nan():
    cards, scopes = (2, 2), ((0, 1),)
    same = np.log(np.eye(2) + 1e-300)
    same[same < -600] = -np.inf
    evidence = brute.hard_evidence(cards, {0: 0, 1: 1})
    tree = JunctionTree.build(cards, scopes)
    found = brute.calibrate(tree, [same], evidence)
    assert float(found.log_z) == -np.inf
    assert not any(np.isnan(t).any() for t in (*found.variables, *found.cliques))
    assert float(tree.maximise([same], evidence)[1]) == -np.inf


def test_strong_evidence_that_disagrees_is_not_lost():
    """Each half alone excludes the other's state by e^−2000, so that scaling whole tables would underflow."""
    cards, scopes = (2, 2, 2), ((0, 1), (1, 2))
    tables = [np.array([[0.0, -2000.0], [-2000.0, 0.0]])] * 2
    evidence = (np.array([0.0, -3000.0]), np.zeros(2), np.array([-3000.5, 0.0]))
    for small in (1, 1024):
        found = brute.calibrate(JunctionTree.build(cards, scopes, small=small), tables, evidence)
        joint = brute.log_joint(cards, scopes, tables, evidence)
        brute.assert_close(found.log_z, brute.log_sum(joint))
        brute.assert_close(found.variables[1], brute.marginal(brute.probability(joint), [1]))


def test_too_large_trees_raise_before_anything_runs():
    n = 40
    scopes = [(a, b) for a in range(n) for b in range(a)]
    with pytest.raises(Intractable, match=r"width 39.*loopy belief propagation, mean field"):
        JunctionTree.build((2,) * n, scopes)
    tree = JunctionTree.build((2,) * 12, [tuple(range(12))])
    assert tree.width == 11 and tree.bytes >= 8 * 2**12 and tree.operations >= 2**12
    with pytest.raises(Intractable):
        JunctionTree.build((2,) * 12, [tuple(range(12))], max_bytes=1000)


def test_bad_input():
    tree = JunctionTree.build((2, 3), ((0, 1),))
    with pytest.raises(BadInput, match="log_tables"):
        tree.marginals([np.zeros((3, 2))])
    with pytest.raises(BadInput, match="log_evidence"):
        tree.marginals([np.zeros((2, 3))], [np.zeros(2), np.zeros(2)])
    with pytest.raises(BadInput, match="scopes"):
        JunctionTree.build((2, 3), ((0, 2),))
    assert hash(tree) == hash(JunctionTree.build((2, 3), ((0, 1),)))


def test_observing_takes_variables_out_of_the_graph():
    """A complete graph of 30 variables is wide, but not if all but six of them are observed."""
    rng = np.random.default_rng(0)
    n = 30
    names, scopes = tuple(f"x{v}" for v in range(n)), tuple((a, b) for a in range(n) for b in range(a))
    tables = Tables(names, (2,) * n, scopes, tuple(rng.normal(size=(2, 2)) for _ in scopes))
    observed = {f"x{v}": int(rng.integers(2)) for v in range(6, n)}
    rest, evidence = tables.given(observed)
    assert rest.names == names[:6] and rest.tree.width == 5
    log_z, variables = rest.tree.marginals(rest.logs, evidence)
    factors = list(zip(rest.scopes, rest.logs, strict=True))
    small = brute.log_joint((2,) * 6, *zip(*(pair for pair in factors if pair[0]), strict=True))
    constant = sum(float(table) for scope, table in factors if not scope)
    brute.assert_close(log_z, brute.log_sum(small) + constant)
    brute.assert_close(variables[0], brute.marginal(brute.probability(small), [0]))


def test_a_second_call_compiles_nothing(monkeypatch):
    tree = JunctionTree.build((2, 3, 2), ((0, 1), (1, 2)))
    tables = [np.zeros((2, 3)), np.zeros((3, 2))]
    tree.marginals(tables)
    same = JunctionTree.build((2, 3, 2), [(0, 1), (1, 2)])
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("energax.algorithms.junction.tree.upward", None)  # tracing again would fail
        _, variables = same.marginals(tables, brute.hard_evidence((2, 3, 2), {0: 1}))
    np.testing.assert_allclose(variables[0], [0, 1])


@pytest.mark.parametrize("task", ["maximise", "draw", "flat_marginals"])
def test_rows_of_evidence_are_one_program(task, monkeypatch):
    """Around a program, `vmap` would run every operation by itself."""
    from energax.programs import _jit

    rng = np.random.default_rng(0)
    tree = JunctionTree.build((2, 3, 2), ((0, 1), (1, 2)))
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3, 2))]
    evidence = tuple(rng.normal(size=(4, card)) for card in (2, 3, 2))
    ran = []
    call = _jit.Program.__call__
    monkeypatch.setattr(
        _jit.Program, "__call__", lambda self, *args: ran.append(self._flat.__name__) or call(self, *args)
    )
    arguments = {"maximise": {}, "draw": {"key": 0}, "flat_marginals": {}}[task]
    getattr(tree, task)(*([5] if task == "draw" else []), tables, evidence, **arguments)
    assert len([name for name in ran if name.startswith(("_maximise", "_draw", "_log_z"))]) == 1
