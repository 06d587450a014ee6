"""Gibbs sweeps and annealed importance sampling on tables have the right expectations."""

from __future__ import annotations

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.algorithms.factors.checks import check_model
from energax.algorithms.factors.gibbs import anneal_tables, gibbs_sweep
from energax.algorithms.factors.groups import FactorGroups
from energax.algorithms.factors.mean_field import soften
from energax.errors import BadInput


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_annealed_importance_within_four_errors():
    """Two models, one with impossible entries: 4 standard errors are exceeded by chance once in 16 000."""
    rng = np.random.default_rng(1)
    cards, scopes = (2, 3, 2, 2, 3), ((0, 1), (1, 2, 3), (3, 4), (4, 0), ())
    tables = [rng.normal(size=[cards[v] for v in s]) for s in scopes]
    for zeros in (False, True):
        if zeros:
            tables[1][0, 1, :] = -np.inf
        evidence = (np.array([0.0, 1.0]), np.zeros(3), np.zeros(2), np.array([-np.inf, 0.0]), np.zeros(3))
        found = anneal_tables(cards, scopes, tables, evidence, n_chains=500, n_steps=60, key=2)
        expected = brute.log_sum(brute.log_joint(cards, scopes, tables, evidence))
        assert 0 < float(found.stderr) < 0.1
        assert abs(float(found.value) - expected) < 4 * float(found.stderr)


def gibbs_draws(cards, scopes, log_tables, log_evidence, *, n, n_chains, warmup, key):
    """Draws (n_chains, n, variables) of Gibbs chains that start from the evidence alone."""
    cards, scopes, tables, evidence = check_model(cards, scopes, log_tables, log_evidence)
    graph = FactorGroups.build(cards, scopes)
    stacked, own = tuple(map(soften, graph.stack(tables))), graph.pad(evidence)
    masks = jnp.asarray(graph.colours())

    def chain(chain_key):
        start_key, *keys = jax.random.split(chain_key, 1 + warmup + n)
        step = lambda x, k: (gibbs_sweep(graph, stacked, own, masks, x, k, 1.0),) * 2
        x = jax.random.categorical(start_key, own).astype(jnp.int32)
        return jax.lax.scan(step, x, jnp.stack(keys))[1][warmup:]

    return jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(key), n_chains))


def test_coloured_gibbs_has_the_marginals_of_the_joint():
    """Every marginal within 4.5 standard errors, these from the spread of 64 independent chains."""
    rng = np.random.default_rng(4)
    cards, scopes = (2, 3, 2, 2), ((0, 1), (1, 2), (2, 3), (3, 0), (0, 1, 2))
    tables = [0.7 * rng.normal(size=[cards[v] for v in s]) for s in scopes]
    evidence = (np.zeros(2), np.array([0.0, 0.5, -1.0]), np.zeros(2), np.zeros(2))
    draws = np.asarray(gibbs_draws(cards, scopes, tables, evidence, n=150, n_chains=64, warmup=50, key=0))
    p = brute.probability(brute.log_joint(cards, scopes, tables, evidence))
    for v, card in enumerate(cards):
        seen = (draws[:, :, v, None] == np.arange(card)).mean(1)
        error = seen.std(0, ddof=1) / 8
        assert np.all(np.abs(seen.mean(0) - brute.marginal(p, [v])) < 4.5 * error)


def test_bad_input():
    tables = [np.zeros((2, 2))]
    with pytest.raises(BadInput, match="n_chains"):
        anneal_tables((2, 2), ((0, 1),), tables, n_chains=1, key=0)
