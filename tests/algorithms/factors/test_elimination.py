"""Variable elimination against the joint table."""

from __future__ import annotations

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energax.algorithms.factors.elimination import eliminate
from energax.errors import BadInput, Intractable


@settings(max_examples=15)
@given(brute.factor_graphs(), st.integers(0, 2**31))
def test_log_z_and_any_joint(model, seed):
    cards, scopes, tables, evidence = model
    rng = np.random.default_rng(seed)
    keep = tuple(rng.permutation(len(cards))[: rng.integers(0, 4)].tolist())
    joint = brute.log_joint(cards, scopes, tables, evidence)
    with jax.enable_x64(True):
        found = np.asarray(eliminate(cards, scopes, tables, evidence, keep))
    rest = tuple(v for v in range(len(cards)) if v not in keep)
    top = joint.max(axis=rest, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        summed = np.log(np.exp(joint - top).sum(rest, keepdims=True)) + top
    expected = np.transpose(summed.squeeze(rest), [sorted(keep).index(v) for v in keep])
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_rows_by_vmap():
    rng = np.random.default_rng(0)
    tables = (rng.normal(size=(2, 3)),)
    rows = (rng.normal(size=(4, 2)), rng.normal(size=(4, 3)))
    with jax.enable_x64(True):
        found = jax.vmap(lambda *e: eliminate((2, 3), ((0, 1),), tables, e))(*map(jnp.asarray, rows))
    expected = [
        brute.log_sum(brute.log_joint((2, 3), ((0, 1),), tables, (rows[0][i], rows[1][i]))) for i in range(4)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_too_large_tables_and_unknown_variables_raise():
    n = 40
    scopes = [(a, b) for a in range(n) for b in range(a)]
    with pytest.raises(Intractable, match="loopy"):
        eliminate((2,) * n, scopes, [np.zeros((2, 2))] * len(scopes))
    with pytest.raises(BadInput, match="keep"):
        eliminate((2, 2), ((0, 1),), [np.zeros((2, 2))], keep=(2,))
