"""Likelihoods with several outputs per column: sums, draws and missing terms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax.energies import (
    Bernoulli,
    Categorical,
    Columns,
    Decoder,
    DiscretisedLogistic,
    Gaussian,
    MixtureLikelihood,
    Poisson,
)
from energax.errors import BadInput
from energax.missing import Masked
from energax.spaces import Categorical as CategoricalSpace

K = 5
FINITE = {
    "categorical": Categorical(K),
    "logistic": DiscretisedLogistic(K, 0.07),
    "mixture": MixtureLikelihood(DiscretisedLogistic(K, 0.2), 2),
}


def outputs(likelihood, d=2, scale=1.0):
    return scale * jax.random.normal(jax.random.key(1), (likelihood.n_outputs(d),))


@pytest.mark.parametrize("name", FINITE)
def test_probabilities_of_all_values_sum_to_one(name):
    likelihood = FINITE[name]
    output = outputs(likelihood, scale=0.5)
    values = jnp.stack([jnp.full(2, v) for v in range(K)])
    log_p = evaluate(lambda: jax.vmap(lambda x: likelihood.log_prob(output, x))(values))
    np.testing.assert_allclose(np.exp(log_p).sum(0), 1, atol=2e-6)
    mean = evaluate(lambda: likelihood.mean(output))
    np.testing.assert_allclose(mean, np.arange(K) @ np.exp(log_p), rtol=1e-5)


@pytest.mark.parametrize("name", FINITE)
def test_draws_have_these_probabilities(name):
    """Every frequency within 4.5 standard errors (20 frequencies: a false alarm in 1 of 7000 seeds)."""
    likelihood, n = FINITE[name], 4000
    output = outputs(likelihood, scale=0.5)
    q = likelihood.distribution(output)
    drawn = np.asarray(evaluate(lambda: q.sample(jax.random.key(0), (n,))))
    values = jnp.stack([jnp.full(2, v) for v in range(K)])
    p = np.exp(evaluate(lambda: jax.vmap(lambda x: likelihood.log_prob(output, x))(values)))
    found = np.stack([(drawn == v).mean(0) for v in range(K)])
    assert (np.abs(found - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-3).all()
    x = jnp.array([1, 3])
    of_both = evaluate(lambda: q.log_prob(x) - likelihood.log_prob(output, x).sum())
    assert abs(float(of_both)) < 1e-5


def test_the_discretised_logistic_is_a_difference_of_distribution_functions():
    from scipy.stats import logistic

    output, scale, k = 0.3, 0.05, 256
    likelihood = DiscretisedLogistic(k, scale)
    x = np.arange(k)
    edges = np.concatenate([[-np.inf], np.arange(k - 1) + 0.5, [np.inf]])
    cdf = logistic.cdf(edges, output * (k - 1), scale * (k - 1))
    log_p = evaluate(lambda: jax.vmap(lambda v: likelihood.log_prob(jnp.array([output]), v[None]))(x))[:, 0]
    np.testing.assert_allclose(np.exp(log_p), np.diff(cdf), rtol=2e-3, atol=1e-7)
    assert np.isfinite(np.asarray(log_p)).all()


def test_a_mixture_of_gaussians_integrates_to_one():
    likelihood = MixtureLikelihood(Gaussian(0.4), 3)
    output = outputs(likelihood, 1)
    grid = jnp.linspace(-8, 8, 2001)[:, None]
    log_p = evaluate(lambda: jax.vmap(lambda x: likelihood.log_prob(output, x))(grid))
    assert abs(np.exp(log_p).sum() * 0.008 - 1) < 1e-4


def test_outputs_of_a_mixture_are_the_logits_and_then_the_means_of_a_coordinate():
    likelihood = MixtureLikelihood(Gaussian(0.4), 2)
    output = jnp.array([0.0, np.log(3.0), -1.0, 2.0, np.log(4.0), 0.0, 5.0, 7.0])  # two coordinates
    x = np.array([-0.8, 6.9])
    normal = lambda x, m: np.exp(-0.5 * ((x - m) / 0.4) ** 2) / (0.4 * np.sqrt(2 * np.pi))
    p = [0.25 * normal(x[0], -1) + 0.75 * normal(x[0], 2), 0.8 * normal(x[1], 5) + 0.2 * normal(x[1], 7)]
    found, mean, drawn = evaluate(
        lambda: (
            likelihood.log_prob(output, jnp.asarray(x)),
            likelihood.mean(output),
            likelihood.distribution(output).sample(jax.random.key(0), (2000,)),
        )
    )
    np.testing.assert_allclose(found, np.log(p), rtol=1e-5)
    np.testing.assert_allclose(mean, [0.25 * -1 + 0.75 * 2, 0.8 * 5 + 0.2 * 7], rtol=1e-5)
    deviation = np.sqrt(0.16 + np.array([0.25 * 0.75 * 9, 0.8 * 0.2 * 4]))
    assert (np.abs(drawn.mean(0) - mean) < 4.5 * deviation / np.sqrt(2000)).all()  # 1 in 70 000


def test_columns_of_different_kinds_are_a_sum_of_their_terms():
    parts = [(Gaussian(0.5), [3, 0]), (Categorical(3), [1]), (Poisson(), [4]), (Bernoulli(), [2])]
    mixed = Columns(parts)
    output = outputs(mixed, 5)
    assert output.shape == (2 + 3 + 1 + 1,)
    x = jnp.array([0.2, 2.0, 1.0, -0.3, 4.0])
    by_hand = {
        0: Gaussian(0.5).log_prob(output[1:2], x[:1]),
        1: Categorical(3).log_prob(output[2:5], jnp.array([2])),
        2: Bernoulli().log_prob(output[6:], x[2:3]),
        3: Gaussian(0.5).log_prob(output[:1], x[3:4]),
        4: Poisson().log_prob(output[5:6], jnp.array([4])),
    }
    found = evaluate(lambda: mixed.log_prob(output, x))
    np.testing.assert_allclose(found, [float(by_hand[i][0]) for i in range(5)], rtol=1e-5)
    assert np.isclose(evaluate(lambda: mixed.distribution(output).log_prob(x)), found.sum(), rtol=1e-5)
    means = evaluate(lambda: mixed.mean(output))
    np.testing.assert_allclose(means[3], output[0], rtol=1e-6)
    drawn = evaluate(lambda: mixed.distribution(output).sample(jax.random.key(0), (50,)))
    mixed.space(5).check(np.asarray(drawn))  # every draw is a possible value


def test_values_outside_their_columns_are_rejected():
    space = Columns([(Categorical(3), [1]), (Gaussian(), [0])]).space(2)
    assert not space.is_real and space.check([[0.5, 2.0]]).tolist() == [[0.5, 2.0]]
    partly = space.check([[np.nan, 1.0], [0.0, np.nan]])
    assert partly.observed.tolist() == [[False, True], [True, False]]
    for bad in (3.0, -1.0, 0.5):
        with pytest.raises(BadInput, match="whole numbers from 0 to 2 in columns"):
            space.check([[0.0, bad]])


def test_missing_columns_drop_their_terms():
    decoder = Decoder.random(3, 2, Columns([(Gaussian(), [0, 1]), (Categorical(4), [2])]), key=0, width=5)
    z = jnp.array([0.5, -1.0])
    partly = Masked(jnp.array([0.3, 1.0, 0.0]), jnp.array([True, True, False]))
    of_category = lambda v: decoder(x=jnp.array([0.3, 1.0, v]), z=z)
    each = evaluate(lambda: jax.vmap(of_category)(jnp.arange(4.0)))
    found = evaluate(lambda: decoder(x=partly, z=z))
    np.testing.assert_allclose(found, -np.logaddexp.reduce(-np.asarray(each)), rtol=1e-5)


def test_a_decoder_has_as_many_outputs_as_its_likelihood_takes():
    decoder = Decoder.random(3, 2, Categorical(4), key=0, width=5)
    assert decoder.spaces["x"] == CategoricalSpace(4, 3)
    with pytest.raises(BadInput, match="a multiple of 4"):
        Decoder(lambda z: jnp.zeros(10), 2, Categorical(4))
    with pytest.raises(BadInput, match="found 3 outputs"):
        Decoder(lambda z: jnp.zeros(3), 2, Columns([(Gaussian(), [0]), (Categorical(3), [1])]))
    with pytest.raises(BadInput, match="each of 0 to"):
        Columns([(Gaussian(), [0, 2])])
    with pytest.raises(BadInput, match="one output per coordinate"):
        MixtureLikelihood(Categorical(3), 2)
    with pytest.raises(BadInput, match="k: found 1"):
        Categorical(1)
