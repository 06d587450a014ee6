"""Mean field: the lower bound of its own marginals, exact where variables are independent."""

from __future__ import annotations

import brute
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from energax.algorithms.factors.mean_field import mean_field
from energax.errors import BadInput


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@settings(max_examples=6)
@given(brute.factor_graphs(most_variables=5))
def test_mean_field_is_below_log_z(model):
    cards, scopes, tables, evidence = model
    joint = brute.log_joint(cards, scopes, tables, evidence)
    found = mean_field(cards, scopes, tables, evidence, n_init=4, max_iter=100)
    assert float(found.elbo) <= brute.log_sum(joint) + 1e-9
    # It equals the bound computed from its marginals.
    q = [np.asarray(each) for each in found.variables]
    outer = np.ones(())
    for each in q:
        outer = np.multiply.outer(outer, each)
    with np.errstate(invalid="ignore", divide="ignore"):
        terms = np.where(outer > 0, outer * (joint - np.log(outer)), 0.0)
    np.testing.assert_allclose(float(found.elbo), terms.sum(), rtol=1e-8, atol=1e-8)


def test_mean_field_is_exact_for_independent_variables_and_finds_one_of_two_modes():
    rng = np.random.default_rng(0)
    alone = [rng.normal(size=3) for _ in range(4)]
    found = mean_field((3,) * 4, tuple((v,) for v in range(4)), alone)
    assert bool(found.converged)
    brute.assert_close(found.elbo, sum(brute.log_sum(t) for t in alone))
    xor = np.where(np.eye(2) > 0, 0.0, -np.inf)  # both equal: a product can sit on one mode only
    found = mean_field((2, 2), ((0, 1),), [xor], n_init=8)
    brute.assert_close(found.elbo, 0.0)


def test_bad_input():
    with pytest.raises(BadInput, match="n_init"):
        mean_field((2, 2), ((0, 1),), [np.zeros((2, 2))], n_init=0)
