"""Approximate inference against exact inference: equal on trees, close on loops, bounds from below."""

from __future__ import annotations

import numpy as np
import pytest

from energax import log_partition, log_prob, posterior, sample
from energax.energies import BayesianNetwork, MarkovField
from energax.errors import BadInput, Unsuitable
from energax.infer import (
    AnnealedImportance,
    BeliefPropagation,
    LikelihoodWeighting,
    MeanField,
    VariableElimination,
)

NET = BayesianNetwork(
    {
        "a": [0.7, 0.3],
        "b": ("a", [[0.8, 0.2], [0.3, 0.7]]),
        "c": ("a", [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]),
        "d": (
            ("b", "c"),
            np.array([[[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]], [[0.6, 0.4], [0.3, 0.7], [0.1, 0.9]]]),
        ),
    },
    states={"a": ("no", "yes")},
)
GRID = MarkovField(
    {(f"{i}{j}", f"{k}{m}"): [[1.5, 1.0], [1.0, 1.3]]
     for i in range(3) for j in range(3) for k, m in ((i + 1, j), (i, j + 1)) if k < 3 and m < 3}
)  # fmt: skip


def test_elimination_equals_message_passing():
    rows = {"d": [1, 0, 1], "b": [0.0, np.nan, 1.0]}
    exact, found = posterior(NET, rows), posterior(NET, rows, VariableElimination())
    np.testing.assert_allclose(found.joint("a", "c"), exact.joint("a", "c"), atol=1e-12)
    np.testing.assert_allclose(found.marginals["a"]["yes"], exact.marginals["a"]["yes"], atol=1e-12)
    np.testing.assert_allclose(found.log_evidence.value, exact.log_evidence.value, atol=1e-12)
    assert log_partition(GRID, VariableElimination()).value == pytest.approx(
        float(log_partition(GRID).value), abs=1e-10
    )


def test_belief_propagation_is_exact_on_a_tree_and_close_on_loops():
    tree = MarkovField({("a", "b"): [[2.0, 1.0], [1.0, 3.0]], ("b", "c"): [[1.0, 4.0], [2.0, 1.0]]})
    exact, found = posterior(tree, {"a": 1}), posterior(tree, {"a": 1}, BeliefPropagation())
    np.testing.assert_allclose(found.marginals["c"], exact.marginals["c"], atol=1e-8)
    assert log_partition(tree, BeliefPropagation()).value == pytest.approx(
        float(log_partition(tree).value), abs=1e-8
    )
    found = posterior(GRID, method="beliefpropagation")
    assert found.converged and found.kind == "estimate" and found.iterations > 1
    np.testing.assert_allclose(found.marginals["11"], posterior(GRID).marginals["11"], atol=0.02)
    with pytest.raises(Unsuitable, match="single variables"):
        found.joint("00", "01")


def test_mean_field_bounds_log_z_from_below():
    bound = log_partition(GRID, MeanField(), key=0)
    assert bound.kind == "lower bound" and bound.value <= log_partition(GRID).value
    rows = posterior(GRID, {"00": [0, 1]}, MeanField(), key=0)
    assert rows.marginals["22"].shape == (2, 2) and rows.converged.shape == (2,)


def test_annealed_importance_within_its_error():
    """|z| < 4.5, seed fixed; and of two rows of evidence."""
    found = log_partition(GRID, AnnealedImportance(), key=0)
    assert 0 < found.stderr < 0.1 and abs(found.value - log_partition(GRID).value) < 4.5 * found.stderr
    rows = {"00": [0, 1], "22": [1, 1]}
    estimate, exact = log_prob(GRID, rows, AnnealedImportance(), key=1), log_prob(GRID, rows)
    assert (np.abs(estimate.value - exact.value) < 4.5 * estimate.stderr).all()
    # One log Z for both rows: averaging the rows does not reduce its error.
    assert 0 < estimate.shared < estimate.stderr.min() and estimate.mean().stderr > estimate.shared


def test_likelihood_weighting_within_its_error():
    """|z| < 4.5 for each number: an error rate below 1e-4, seed fixed."""
    seen = {"d": 1, "b": 0}
    exact, found = posterior(NET, seen), posterior(NET, seen, LikelihoodWeighting(40_000), key=1)
    assert 1000 < found.effective_draws < 40_000
    for name in ("a", "c"):
        error = np.sqrt(exact.marginals[name] * (1 - exact.marginals[name]) / found.effective_draws)
        assert (np.abs(found.marginals[name] - exact.marginals[name]) < 4.5 * error).all()
    assert found.marginals["a"]["yes"] == found.marginals["a"][1]
    estimate = log_prob(NET, seen, LikelihoodWeighting(40_000), key=2)
    assert abs(estimate.value - exact.log_evidence.value) < 4.5 * estimate.stderr
    np.testing.assert_allclose(found.joint("a", "c"), exact.joint("a", "c"), atol=0.02)
    drawn = found.sample(2000, key=3)
    assert abs(np.mean(drawn["a"] == 1) - exact.marginals["a"]["yes"]) < 0.06
    assert found.mode == dict(exact.mode)


def test_unsupported_queries_raise():
    with pytest.raises(Unsuitable, match="Bayesian network"):
        posterior(GRID, {"00": 1}, LikelihoodWeighting(), key=0)
    impossible = BayesianNetwork({"a": [1.0, 0.0], "b": ("a", np.eye(2))})
    with pytest.raises(BadInput, match="none of 10,000 draws"):
        posterior(impossible, {"b": 1}, LikelihoodWeighting(), key=0)


def test_gibbs_agrees_with_messages():
    """Means of 4000 draws of four chains, |error| < 0.05, seed fixed."""
    draws = sample(NET, 4000, {"d": 1}, method="gibbs", key=0)
    exact = posterior(NET, {"d": 1}).marginals["a"]["yes"]
    assert abs(np.mean(np.asarray(draws["a"]) == 1) - exact) < 0.05
