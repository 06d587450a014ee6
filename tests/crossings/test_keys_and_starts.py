"""Keys crossed with blocks and rows, weights with starts and classes, patience with a constant loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro import distributions as nd

from energax import Binary, Energy, fit, log_prob
from energax._util.keys import as_key
from energax.energies import RBM, BayesianNetwork, Centroids
from energax.estimators import BernoulliMixture
from energax.estimators._common.class_weight import class_weights
from energax.fitting._batching import shuffle_batches
from energax.infer import LikelihoodWeighting
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.programs import jit
from energax.samplers import Gibbs

RNG = np.random.default_rng(7)
X = RNG.normal(size=(20, 2)).astype(np.float32)
WEIGHTS = (RNG.exponential(size=20) + 0.1).astype(np.float32)


class TwoCoins(Energy):
    """Two independent fair coins with closed conditionals."""

    bias: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(1), "y": Binary(1)}

    def __call__(self, *, x, y):
        return -(x + y) @ self.bias

    def conditional(self, name, **given):
        return nd.Bernoulli(logits=self.bias).to_event(1)


def test_the_blocks_of_a_sweep_have_their_own_keys():
    """Independent variables are equal in half of the draws, not in all."""
    coins, state = TwoCoins(jnp.zeros(1)), {"x": jnp.zeros(1), "y": jnp.zeros(1)}
    sweep = jit(lambda keys: jax.vmap(lambda key: Gibbs().step(coins, state, key))(keys))
    drawn = sweep(jax.random.split(jax.random.key(0), 1000))
    assert abs(np.mean(np.asarray(drawn["x"]) == np.asarray(drawn["y"])) - 0.5) < 4.5 * 0.5 / np.sqrt(1000)


def test_rows_of_likelihood_weighting_have_their_own_draws():
    """The same evidence in several rows gives independent estimates, whose mean has a smaller error."""
    net = BayesianNetwork({"x": [0.4, 0.6], "y": ("x", [[0.9, 0.1], [0.3, 0.7]])})
    found = log_prob(net, {"y": np.ones(8, int)}, LikelihoodWeighting(n_draws=200), key=0)
    assert len(np.unique(found.value)) > 1


def test_balanced_classes_have_the_same_total_weight():
    index, weight = np.array([0, 0, 1, 1, 1, 2]), np.array([1.0, 0.5, 4.0, 0.0, 1.0, 2.0])
    found = class_weights("balanced", np.arange(3), index, weight)
    totals = np.bincount(index, weight * found[index])
    np.testing.assert_allclose(totals, weight.sum() / 3)


def test_random_rows_as_centres_have_a_weight():
    start = Centroids(jnp.zeros((3, 2)), "random_from_data")
    weights = np.where(np.arange(20) % 4 == 0, WEIGHTS, 0)
    initialise = jit(lambda key: start.initialise(key, {"x": jnp.asarray(X)}, jnp.asarray(weights)))
    for key in jax.random.split(jax.random.key(0), 5):
        chosen = (np.asarray(initialise(key).centers)[:, None] == X).all(2)
        assert chosen.any(1).all() and (weights[chosen.argmax(1)] > 0).all()


def test_minibatches_of_centres_blend_about_moving_centres():
    """One centre, which is the blended mean; old sums are about the centre of the step before."""
    settings = {"key": 1, "epochs": 2, "batch_size": 5, "weights": WEIGHTS}
    done = fit(Centroids(np.full((1, 2), 9.0, np.float32)), {"x": X}, EM(decay=0.7, tol=-1.0), **settings)
    mean, seen, count = np.zeros(2), 0.0, 0
    for epoch in range(2):
        for batch in shuffle_batches(as_key(1), epoch, 20, 4, 5):
            total, fresh = WEIGHTS[batch].sum(), np.average(X[batch], axis=0, weights=WEIGHTS[batch])
            kept = (1 - (count + 2.0) ** -0.7) ** (total / (seen / count)) if count else 0.0
            mean, seen, count = kept * mean + (1 - kept) * fresh, seen + total, count + 1
    np.testing.assert_allclose(done.energy.centers[0], mean, rtol=1e-4, atol=1e-5)


def test_information_criteria_of_a_mixture():
    """−2 log L + parameters · log n, with one weight and two times four probabilities."""
    bits = (RNG.random((30, 4)) < 0.4).astype(float)
    model = BernoulliMixture(2, random_state=0).fit(bits)
    log_likelihood = model.score_samples(bits).sum()
    assert model.bic(bits) == pytest.approx(-2 * log_likelihood + 9 * np.log(30))
    assert model.aic(bits) == pytest.approx(-2 * log_likelihood + 18)


def test_a_constant_validation_loss_is_not_better():
    """With a step size of 0 the first epoch is the best, so that patience ends the fit."""
    bits = (RNG.random((12, 3)) < 0.5).astype(np.float32)
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.0))
    done = fit(
        RBM.random(3, 2, key=0), {"x": bits}, learner, key=0, epochs=10, validation={"x": bits}, patience=2
    )
    assert done.status == "stopped early" and done.n_epochs == 3


def test_every_epoch_has_its_own_order():
    """All rows once in every epoch, in other batches than in the epoch before."""
    first, second = (shuffle_batches(as_key(0), epoch, 20, 4, 5) for epoch in (0, 1))
    np.testing.assert_array_equal(np.sort(first.ravel()), np.sort(second.ravel()))
    assert {frozenset(batch) for batch in first.tolist()} != {frozenset(b) for b in second.tolist()}
