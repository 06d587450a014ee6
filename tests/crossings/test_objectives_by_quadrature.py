"""Stochastic objectives against the exact gradient of their mean, and bounds against closed forms.

Small twins of tests/statistical/test_gradients.py: one hidden bit or one number, so that a few thousand
draws are enough. Every statistical test has a false-alarm rate of 1e-4 and a fixed key.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Bernoulli
from quick import evaluate
from scipy import stats

from energax import Batch, estimators, fit
from energax.energies import RBM, Gaussian, LinearModel, MarkovField
from energax.energy import Energy
from energax.kernels import RBF, White
from energax.learn import (
    ELBO,
    Denoising,
    Descent,
    GumbelSoftmax,
    InputNoise,
    NegativeLogLikelihood,
    NoiseContrastive,
    PseudoLikelihood,
    ScoreFunction,
)
from energax.learn._variational import energies_of_draws
from energax.nn import BernoulliEncoder, CategoricalEncoder
from energax.spaces import Binary, Categorical

X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
WEIGHT = np.array([1.0, 2.0, 0.5])
N = 4000


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


class TwoCoins(Energy):
    """Two coins, both of one of three biases, which is hidden."""

    logits: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(2), "z": Categorical(3)}

    def __call__(self, *, x, z):
        logit = self.logits[z]
        return jnp.log(3.0) - jnp.sum(x * logit - jax.nn.softplus(logit))

    def log_partition(self):
        return jnp.zeros(())


def model(kind: str):
    if kind == "binary":
        machine = RBM(jnp.array([[0.9], [-0.7]]), jnp.array([0.2, -0.4]), jnp.array([0.3]))
        return machine, BernoulliEncoder.random(2, 1, key=2, depth=0)
    return TwoCoins(jnp.array([-1.0, 0.3, 0.9])), CategoricalEncoder.random(2, 3, key=2, depth=0)


def mean_gradient(objective, energy):
    """The mean and the standard error of N gradients in the parameters of energy and encoder."""
    arrays, static = eqx.partition((energy, objective.partner), eqx.is_inexact_array)
    batch = Batch({"x": jnp.asarray(X)}, jnp.asarray(WEIGHT))

    def loss(arrays, key):
        energy, encoder = eqx.combine(arrays, static)
        made = eqx.tree_at(lambda o: o.partner, objective, encoder)
        return sum(made(energy, batch, None, key)[0].values())

    keys = jax.random.split(jax.random.key(0), N)
    draws = jax.vmap(lambda key: ravel_pytree(jax.grad(loss)(arrays, key))[0])
    found = np.asarray(evaluate(lambda: draws(keys)))
    return found.mean(0), found.std(0, ddof=1) / np.sqrt(N)


@pytest.mark.parametrize(("kind", "samples"), [("binary", 2), ("categorical", 1)])
def test_the_score_function_has_the_gradient_of_the_bound(kind, samples):
    """The exact bound is a sum over all tuples of hidden values."""
    energy, encoder = model(kind)
    values = energy.spaces["z"].values()
    pairs = np.stack(np.meshgrid(*[np.arange(len(values))] * samples, indexing="ij"), -1).reshape(-1, samples)

    def bound(parts):
        energy, encoder = parts

        def row(x):
            q = encoder(x=x)
            log_q = jax.vmap(q.log_prob)(values)
            log_w = -jax.vmap(lambda z: energy(x=x, z=z))(values) - log_q
            each = jax.nn.logsumexp(log_w[pairs], axis=1) - jnp.log(samples)
            return jnp.exp(log_q[pairs].sum(1)) @ each

        rows = jax.vmap(row)(jnp.asarray(X))
        return energy.log_partition() - jnp.average(rows, weights=jnp.asarray(WEIGHT))

    truth = np.asarray(evaluate(lambda: ravel_pytree(eqx.filter_grad(bound)((energy, encoder)))[0]))
    found, error = mean_gradient(ELBO(encoder, samples, ScoreFunction()), energy)
    limit = stats.norm.isf(1e-4 / 2 / len(truth))
    assert (np.abs(found - truth) <= limit * error + 1e-9).all()
    assert np.linalg.norm(error) < 0.15 * np.linalg.norm(truth)


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_relaxed_values_have_the_relaxed_log_probability(kind):
    """log q of a relaxed value is Σ s log p, and near temperature 0 it is that of a value."""
    energy, encoder = model(kind)
    q, row = encoder(x=jnp.asarray(X[0])), {"x": jnp.asarray(X[0])}
    cold = GumbelSoftmax(1e-4)
    z, log_q = evaluate(lambda: cold.sample(q, jax.random.key(1), 60))
    energies = evaluate(lambda: energies_of_draws(cold, energy, "z", row, z))
    values = energy.spaces["z"].values()
    table = np.asarray(evaluate(lambda: jax.vmap(lambda z: energy(x=row["x"], z=z))(values)))
    log_p = np.asarray(evaluate(lambda: jax.vmap(q.log_prob)(values)))
    which = np.abs(np.asarray(log_q)[:, None] - log_p).argmin(1)
    np.testing.assert_allclose(log_q, log_p[which], atol=1e-6)
    np.testing.assert_allclose(energies, table[which], atol=1e-6)
    counts = np.bincount(which, minlength=len(values))
    assert stats.chisquare(counts, 60 * np.exp(log_p)).pvalue > 1e-4


def test_the_denoising_loss_of_a_normal_density():
    """s(x) = −a x: E ½ (σ s(x + σε) + ε)² = ½ (σ² a² x² + (1 − σ² a)²)."""
    a, sigma, x = 0.8, 0.5, 1.7
    keys = jax.random.split(jax.random.key(0), N)
    loss = lambda key: Denoising(sigma).loss(lambda x: -a * x, jnp.array([x]), key)
    found = np.asarray(evaluate(lambda: jax.vmap(loss)(keys)))
    truth = 0.5 * (sigma**2 * a**2 * x**2 + (1 - sigma**2 * a) ** 2)
    error = found.std(ddof=1) / np.sqrt(N)
    assert abs(found.mean() - truth) < stats.norm.isf(0.5e-4) * error < 0.1 * truth


def test_pseudo_likelihood_is_the_sum_over_variables_of_unequal_sizes():
    table = np.random.default_rng(0).normal(size=(2, 3))
    rows = {"a": np.array([0, 1, 1, 0]), "b": np.array([2, 0, 1, 1])}
    weight = np.array([1.0, 0.0, 2.0, 0.5])
    field = MarkovField({("a", "b"): jnp.exp(table)})
    batch = Batch({k: jnp.asarray(v) for k, v in rows.items()}, jnp.asarray(weight))
    found = evaluate(lambda: PseudoLikelihood()(field, batch, None, jax.random.key(0))[0])
    a_given_b = table - np.logaddexp.reduce(table, axis=0, keepdims=True)
    b_given_a = table - np.logaddexp.reduce(table, axis=1, keepdims=True)
    truth = -(a_given_b + b_given_a)[rows["a"], rows["b"]]
    assert float(found) == pytest.approx(np.average(truth, weights=weight), rel=1e-9)


def test_pseudo_likelihood_of_one_variable_is_the_sum_over_its_coordinates():
    """Σ_i log p(x_i | the other bits), each from the table of all free energies."""
    machine, _ = model("binary")
    batch = Batch({"x": jnp.asarray(X)}, jnp.asarray(WEIGHT))
    found = evaluate(lambda: PseudoLikelihood()(machine, batch, None, jax.random.key(0))[0])
    free = lambda x: np.asarray(
        evaluate(lambda: jax.vmap(lambda x: machine.free_energy(x=x))(jnp.asarray(x)))
    )
    flipped = [np.abs(X - np.eye(2)[i]) for i in range(2)]
    truth = sum(np.logaddexp(0, free(X) - free(other)) for other in flipped)
    assert float(found) == pytest.approx(np.average(truth, weights=WEIGHT), rel=1e-9)


def test_every_epoch_draws_its_own_noise():
    """With a step size of 0 the objective changes with the noise alone."""
    line = LinearModel(jnp.array([1.0, -2.0]), jnp.array(0.0), Gaussian(1.0))
    learner = Descent(InputNoise(NegativeLogLikelihood(), 0.5), optax.sgd(0.0))
    data = {"x": X, "y": np.array([1.0, -2.0, -1.0])}
    done = fit(line, data, learner, key=0, epochs=4)
    assert len(set(np.asarray(done.history["objective"]).tolist())) == 4


def test_the_first_log_partition_of_noise_contrastive_learning():
    """Free energies and noise are flat, so that every weight of importance sampling is Z = 8."""
    machine = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    noise = Bernoulli(probs=jnp.full(2, 0.5)).to_event(1)
    batch = Batch({"x": jnp.asarray(X)}, jnp.asarray(WEIGHT))
    objective = NoiseContrastive(noise, k=3)
    found = evaluate(lambda: objective.init_partner(machine, batch, jax.random.key(0)))
    assert float(found) == pytest.approx(np.log(8), rel=1e-6)


def test_inducing_points_have_the_bound_and_the_variance_of_titsias():
    """log N(y; 0, Q + noise) − ½ tr((K − Q) / noise), where Q is K through the inducing points."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(14, 1))
    y, alpha = np.sin(2 * x[:, 0]), rng.uniform(0.1, 0.4, 14)
    gp = estimators.GaussianProcessRegressor(
        1.4 * RBF(0.7) + White(0.2), alpha=alpha, n_inducing=4, optimizer=None, random_state=0
    ).fit(x, y)
    z = gp.inducing_points_
    k = lambda a, b: 1.4 * np.exp(-0.5 * ((a - b.T) / 0.7) ** 2)
    noise, inner = alpha + 0.2, k(z, z)
    q = k(x, z) @ np.linalg.solve(inner, k(z, x))
    evidence = stats.multivariate_normal(np.zeros(14), q + np.diag(noise)).logpdf(y)
    truth = evidence - 0.5 * ((1.4 - np.diag(q)) / noise).sum()
    assert gp.log_marginal_likelihood_value_ == pytest.approx(truth, rel=1e-5)
    new = np.array([[-0.3], [0.8]])
    inverse = np.linalg.inv(inner + k(z, x) / noise @ k(x, z))
    variance = (
        1.6
        - np.diag(k(new, z) @ np.linalg.solve(inner, k(z, new)))
        + np.diag(k(new, z) @ inverse @ k(z, new))
    )
    mean, spread = gp.predict(new, return_std=True)
    np.testing.assert_allclose(mean, k(new, z) @ inverse @ (k(z, x) / noise) @ y, rtol=1e-4)
    np.testing.assert_allclose(spread**2, variance, rtol=1e-4)
    covariance = gp.predict(new, return_cov=True)[1]
    shared = k(new, new) - k(new, z) @ np.linalg.solve(inner, k(z, new)) + k(new, z) @ inverse @ k(z, new)
    np.testing.assert_allclose(covariance, shared + 0.2 * np.eye(2), rtol=1e-4)
    slope = gp.log_marginal_likelihood(gp.kernel_.theta, eval_gradient=True)[1]
    for i, unit in enumerate(1e-4 * np.eye(3)):
        ends = [gp.log_marginal_likelihood(gp.kernel_.theta + sign * unit) for sign in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-6)
