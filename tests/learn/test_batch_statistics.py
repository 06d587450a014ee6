"""One update with batch normalisation: statistics and gradients by NumPy and by hand."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from batch_normalised import BATCH, WEIGHT, N, X, Y, classifier, linear, moments, step
from quick import evaluate

from energax import Batch, fit, nn
from energax.batch_statistics import normalising_layers
from energax.energies import Decoder, Flow, Gaussian, NeuralEnergy, Scorer
from energax.learn import (
    ELBO,
    Adversarial,
    BatchStatistics,
    CrossEntropy,
    Descent,
    NegativeLogLikelihood,
    Objective,
)


def by_hand(parameters, x, y, weight):
    """The cross-entropy of `classifier` with the statistics of the batch, in plain JAX."""
    (g1, b1), (w1, c1), (g2, b2), (w2, c2) = parameters
    share = (weight / weight.sum())[:, None]

    def normalise(h, g, b):
        mean = (share * h).sum(0)
        return (h - mean) / jnp.sqrt((share * (h - mean) ** 2).sum(0) + 1e-5) * g + b

    h = normalise(x, g1, b1) @ w1.T + c1
    scores = jnp.tanh(normalise(h, g2, b2)) @ w2.T + c2
    losses = jax.nn.logsumexp(scores, 1) - scores[jnp.arange(len(y)), y]
    return (share[:, 0] * losses).sum()


def parameters_of(energy):
    layers = energy.network.layers
    norm = lambda n: (n.scale, n.bias)
    dense = lambda n: (n.weight, n.bias)
    return norm(layers[0]), dense(layers[1]), norm(layers[2]), dense(layers[4])


# -- one update -----------------------------------------------------------------------------------------


def test_loss_and_gradient_are_those_of_a_batch_normalised_network():
    energy = classifier()
    new, _, terms = step(energy, BatchStatistics(CrossEntropy()), optimizer=optax.sgd(1.0))
    given = (parameters_of(energy), *map(jnp.asarray, (X, Y, WEIGHT)))
    value, slope = evaluate(lambda: jax.value_and_grad(by_hand)(*given))
    np.testing.assert_allclose(terms["loss"], value, rtol=1e-5)
    found = jax.tree.map(lambda a, b: a - b, parameters_of(energy), parameters_of(new))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(slope), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    # Weights before a normalisation do not change its output along themselves, nor do biases at all.
    weight, moved = np.asarray(energy.network[1].weight), np.asarray(found[1][0])
    assert np.abs((weight * moved).sum(1)).max() < 1e-5 < np.abs(moved).max()
    assert np.abs(found[1][1]).max() < 1e-6


def test_statistics_are_those_of_numpy_over_the_rows_with_a_weight():
    energy = classifier()
    new = step(energy, BatchStatistics(CrossEntropy()))[0]
    first, second = new.network[0], new.network[2]
    mean, variance = moments(X)
    np.testing.assert_allclose(first.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(first.variance, variance, rtol=1e-4)
    normalised = (X - mean) / np.sqrt(variance + 1e-5)
    hidden = normalised @ np.asarray(energy.network[1].weight).T + np.asarray(energy.network[1].bias)
    mean, variance = moments(hidden)
    np.testing.assert_allclose(second.mean, mean, atol=1e-5)
    np.testing.assert_allclose(second.variance, variance, rtol=1e-4)


def test_images_are_normalised_over_rows_and_positions():
    images = np.random.default_rng(1).normal(3.0, 2.0, size=(N, 2, 4)).astype(np.float32)
    layers = [nn.Reshape((2, 4)), nn.BatchNorm(2), nn.Reshape((-1,)), linear(8, 2)]
    batch = Batch({"x": jnp.asarray(images.reshape(N, 8)), "y": jnp.asarray(Y)}, jnp.asarray(WEIGHT))
    energy = Scorer(eqx.nn.Sequential(layers), 8, 2)
    new = step(energy, BatchStatistics(CrossEntropy()), batch)[0].network[1]
    for found, expected in zip((new.mean, new.variance), moments(images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*eqx.nn.State")
def test_outputs_equal_those_of_equinox():
    """`equinox.nn.BatchNorm` with mode "ema" and its axis of rows; equal weights, since it takes none."""
    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "rows", mode="ema")
    expected, _ = jax.vmap(layer, in_axes=(0, None), out_axes=(0, None), axis_name="rows")(
        BATCH.data["x"], state
    )

    class Outputs(Objective):
        def __call__(self, energy, batch, carry, key):
            return jnp.sum(batch.map(lambda x, y: energy.scores(x)) * jnp.asarray(expected)), carry

    energy = Scorer(eqx.nn.Sequential([nn.BatchNorm(3), eqx.nn.Identity()]), 3, 3)
    objective = BatchStatistics(Outputs())
    equal = Batch(BATCH.data, jnp.ones(N))
    value = objective(energy, equal, objective.init(energy, equal, None), None)[0]
    np.testing.assert_allclose(value, (np.asarray(expected) ** 2).sum(), rtol=1e-5)


def test_a_batch_without_weight_and_an_unused_layer_leave_the_running_statistics():
    class Unused(eqx.Module):
        norm: nn.BatchNorm
        dense: eqx.nn.Linear

        def __call__(self, x, *, key=None):
            return self.dense(x)

    start = nn.calibrate(nn.BatchNorm(3), X)
    energy = Scorer(eqx.nn.Sequential([start, Unused(start, linear(3, 2))]), 3, 2)
    new = step(energy, BatchStatistics(CrossEntropy()), Batch(BATCH.data, jnp.zeros(N)))[0]
    assert np.array_equal(new.network[0].mean, start.mean)
    new = step(energy, BatchStatistics(CrossEntropy()))[0]
    assert not np.array_equal(new.network[0].mean, start.mean)
    assert np.array_equal(new.network[1].norm.variance, start.variance)


# -- nested maps, loops, partners --------------------------------------------------------------------------


def noise_encoder():
    return nn.Encoder(eqx.nn.Sequential([nn.BatchNorm(3), linear(3, 4)]))


def test_an_elbo_of_several_samples_has_the_mean_statistics_of_encoder_and_decoder():
    """The draws of sample s are one batch; the running statistics get the mean over the samples."""
    decoder = Decoder(eqx.nn.Sequential([nn.BatchNorm(2), linear(2, 3)]), 2, Gaussian())
    objective = ELBO(noise_encoder(), samples=5)
    batch = Batch({"x": BATCH.data["x"]}, BATCH.weight)
    new, state, terms = step(decoder, BatchStatistics(objective), batch, key=3)
    assert all(np.isfinite(v) for v in terms.values())
    mean, variance = moments(X)
    layer = state.partner.network[0]
    np.testing.assert_allclose(layer.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(layer.variance, variance, rtol=1e-4)

    # The draws of the same keys, from an encoder with these statistics.
    def draw(encoder):
        return batch.map_with_keys(
            lambda k, x: objective.estimator.sample(encoder(x=x), k, 5)[0], jax.random.key(3)
        )

    known = eqx.tree_at(
        lambda e: (e.network[0].mean, e.network[0].variance), noise_encoder(), (layer.mean, layer.variance)
    )
    z = np.asarray(evaluate(lambda: draw(known)))
    each = [moments(z[:, s]) for s in range(5)]
    np.testing.assert_allclose(new.network[0].mean, np.mean([m for m, _ in each], 0), atol=1e-4)
    np.testing.assert_allclose(new.network[0].variance, np.mean([v for _, v in each], 0), rtol=1e-4)


def test_layers_in_loops_and_in_several_calls_are_recorded_by_their_place():
    """A layer that is called twice gets the mean of both statistics; stacked layers in a scan their own."""

    class Twice(eqx.Module):
        norm: nn.BatchNorm
        dense: eqx.nn.Linear

        def __call__(self, x, *, key=None):
            return self.dense(self.norm(x) + self.norm(2 * x))

    new = step(Scorer(Twice(nn.BatchNorm(3), linear(3, 2)), 3, 2), BatchStatistics(CrossEntropy()))[0]
    mean, variance = moments(X)
    np.testing.assert_allclose(new.network.norm.mean, 1.5 * mean, rtol=1e-5)
    np.testing.assert_allclose(new.network.norm.variance, 2.5 * variance, rtol=1e-4)

    blocks = [nn.Composed([nn.InvertibleBatchNorm(3), nn.LULinear.random(3, key=i)]) for i in range(2)]
    looped, unrolled = (Flow(f, 3) for f in (nn.Repeated.stack(blocks), nn.Composed(blocks)))
    batch = Batch({"x": BATCH.data["x"]}, BATCH.weight)
    looped, unrolled = (
        step(flow, BatchStatistics(NegativeLogLikelihood()), batch)[0] for flow in (looped, unrolled)
    )
    stacked = normalising_layers(looped)[0]
    for i, layer in enumerate(normalising_layers(unrolled)):
        np.testing.assert_allclose(stacked.mean[i], layer.mean, atol=1e-5)
        np.testing.assert_allclose(stacked.variance[i], layer.variance, rtol=1e-4)
        np.testing.assert_allclose(stacked.log_scale[i], layer.log_scale, atol=1e-5)


def test_a_generator_has_the_statistics_of_its_draws():
    """Of 1000 draws u ~ N(0, I): 0.2 is over 4 standard errors of mean and variance."""
    generator = nn.Generator(eqx.nn.Sequential([nn.BatchNorm(2), linear(2, 3)]), 2)
    rows = {"x": np.ones((1000, 3), np.float32)}
    learner = Descent(BatchStatistics(Adversarial(generator, diversity=0.0)), optax.sgd(0.0))
    found = fit(NeuralEnergy(lambda x: x @ x, 3), rows, learner, key=0, epochs=1).partner.network[0]
    assert np.abs(found.mean).max() < 0.2 and 0 < np.abs(found.variance - 1).max() < 0.2
