"""Powers, probabilities, marginals and modes of distributions, by family."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as d
from quick import evaluate

from energax.distributions import (
    FiniteDistribution,
    is_discrete,
    logits,
    marginals,
    mode,
    power,
    probabilities,
)
from energax.spaces import Binary, Categorical, Real


@pytest.mark.parametrize("exponent", [0.3, 1.7])
@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        (d.Bernoulli(logits=jnp.array([0.5, -2.0])), [[0, 1], [1, 0]]),
        (d.Bernoulli(probs=jnp.array([0.2, 0.9])).to_event(1), [[0, 1], [1, 0]]),
        (d.Categorical(probs=jnp.array([0.2, 0.5, 0.3])), [0, 1, 2]),
        (d.Categorical(logits=jnp.array([[0.2, 0.5, 0.3], [1.0, -1.0, 0.0]])).to_event(1), [[0, 2], [1, 1]]),
        (d.Normal(jnp.array([1.0, 2.0]), jnp.array([0.5, 3.0])).to_event(1), [[0.0, 1.0], [2.0, -1.0]]),
        (
            d.MultivariateNormal(jnp.array([1.0, 2.0]), jnp.array([[2.0, 0.5], [0.5, 1.0]])),
            [[0.0, 1.0], [2.0, -1.0]],
        ),
        (
            d.MatrixNormal(jnp.ones((2, 1)), jnp.array([[2.0, 0.0], [0.5, 1.0]]), jnp.eye(1)),
            [[[0.0], [1.0]], [[2.0], [-1.0]]],
        ),
        (FiniteDistribution(jnp.log(jnp.array([0.2, 0.5, 0.3])), Categorical(3)), [0, 1, 2]),
    ],
    ids=lambda a: type(a).__name__,
)
def test_powers_of_distributions(distribution, values, exponent):
    """Ratios of p^exponent at two values are powers of ratios of p; the family is the same."""
    log_p = lambda p: jnp.stack([jnp.asarray(p.log_prob(jnp.asarray(v))) for v in values])
    raised = np.asarray(evaluate(lambda: log_p(power(distribution, exponent))))
    plain = np.asarray(evaluate(lambda: log_p(distribution)))
    gain, expected = np.diff(raised, axis=0), exponent * np.diff(plain, axis=0)
    np.testing.assert_allclose(gain, expected, rtol=1e-4, atol=1e-5)


def test_no_power_of_a_poisson_is_a_poisson():
    assert power(d.Poisson(2.0), 0.5) is None and power(d.Poisson(jnp.ones(2)).to_event(1), 0.5) is None


P = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
TABLE = np.random.default_rng(0).dirichlet(np.ones(9)).reshape(3, 3)
FINITE = {
    "independent": (d.Categorical(probs=jnp.asarray(P)).to_event(1), Categorical(3, 2), np.outer(*P)),
    "batched": (d.Categorical(probs=jnp.asarray(P)), Categorical(3, 2), np.outer(*P)),
    "listed": (FiniteDistribution(jnp.log(TABLE.ravel()), Categorical(3, 2)), Categorical(3, 2), TABLE),
    "one": (d.Categorical(logits=jnp.log(P[0])), Categorical(3), P[0]),
    "bits": (d.Bernoulli(jnp.array([0.2, 0.9])).to_event(1), Binary(2), np.outer([0.8, 0.2], [0.1, 0.9])),
}


@pytest.mark.parametrize("name", FINITE)
def test_probabilities_marginals_and_mode_of_a_finite_distribution(name):
    distribution, space, table = FINITE[name]
    found = evaluate(lambda: probabilities(distribution, space))
    np.testing.assert_allclose(found, table.ravel(), rtol=1e-5)
    axes = range(table.ndim)
    expected = [table.sum(tuple(a for a in axes if a != i)) for i in axes]
    found = np.asarray(evaluate(lambda: marginals(distribution, space))).reshape(table.ndim, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    best = max(itertools.product(*map(range, table.shape)), key=lambda i: table[i])
    assert np.asarray(evaluate(lambda: mode(distribution, space))).ravel().tolist() == list(best)


def test_the_mode_of_a_normal_is_its_mean_and_of_others_unknown():
    normal = d.Normal(jnp.array([1.0, 2.0]), 1.0).to_event(1)
    assert mode(normal, Real(2)).tolist() == [1, 2]
    matrix = d.MatrixNormal(jnp.array([[1.0], [2.0]]), jnp.eye(2), jnp.eye(1))
    assert mode(matrix, Real(2, 1)).tolist() == [[1], [2]]
    with pytest.raises(NotImplementedError, match="the mode of Gamma"):
        mode(d.Gamma(2.0, 1.0), Real())


def test_logits_and_discreteness():
    assert logits(d.Bernoulli(logits=jnp.array([0.5, -2.0])).to_event(1)).tolist() == [0.5, -2]
    assert is_discrete(d.Poisson(2.0)) and not is_discrete(d.Normal(0.0, 1.0))
    assert is_discrete(FiniteDistribution(jnp.zeros(2), Binary())) is None
