"""Batch normalisation in `fit`: running statistics, validation, restarts, flows, and what is refused."""

from __future__ import annotations

import itertools

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
from energax.energies import Decoder, Flow, Linear, NeuralEnergy, NeuralRegressor, Scorer
from energax.errors import BadInput, Unsuitable
from energax.learn import (
    ELBO,
    AdversarialTraining,
    BatchStatistics,
    ContrastiveDivergence,
    CrossEntropy,
    Descent,
    FastGradientSign,
    InputNoise,
    NegativeLogLikelihood,
    Newton,
    Objective,
    Proximal,
    ScoreMatching,
)

# -- in `fit` -----------------------------------------------------------------------------------------------


def recursion(rows, momentum):
    """m ← m + a (m_t − m) with a = max(1 − momentum, 1 / t), from (0, 1)."""
    mean, variance = np.zeros(3), np.ones(3)
    for t, batch in enumerate(rows, start=1):
        rate = max(1 - momentum, 1 / t)
        m, v = moments(batch, np.ones(len(batch)))
        mean, variance = mean + rate * (m - mean), variance + rate * (v - variance)
    return mean, variance


def test_running_statistics_follow_their_recursion_in_fit_and_in_a_stream():
    """The first layer sees the rows themselves, whatever is learned."""
    learner = Descent(BatchStatistics(CrossEntropy(), momentum=0.6), optax.sgd(0.1))
    pieces = [slice(4 * i, 4 * i + 4) for i in range(3)]
    stream = lambda: ({"x": X[p], "y": Y[p]} for p in pieces)
    found = fit(classifier(), stream, learner, key=0, epochs=2).energy.network[0]
    mean, variance = recursion([X[p] for p in pieces] * 2, 0.6)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-4)

    class Rows(Objective):
        """The sum of the first layer's outputs, and the rows of the batch in the carry."""

        def init(self, energy, batch, key):
            return batch.data["x"]

        def __call__(self, energy, batch, carry, key):
            return batch.mean(batch.map(lambda x, y: energy.scores(x).sum())), batch.data["x"]

    learner = Descent(BatchStatistics(Rows(), momentum=0.6), optax.sgd(0.0))
    result = fit(classifier(), {"x": X, "y": Y}, learner, key=0, epochs=1, batch_size=6)
    last = np.asarray(result.state.carry.inner)
    first = np.array([row for row in X if row.tolist() not in last.tolist()])
    mean, variance = recursion([first, last], 0.6)
    np.testing.assert_allclose(result.energy.network[0].mean, mean, rtol=1e-5)
    np.testing.assert_allclose(result.energy.network[0].variance, variance, rtol=1e-4)


def test_validation_and_the_learned_energy_use_the_running_statistics():
    learner = Descent(BatchStatistics(InputNoise(CrossEntropy(), 1e-6)), optax.sgd(0.05))
    held = {"x": X[:5], "y": Y[:5]}
    rows = {"x": X[5:], "y": Y[5:]}
    result = fit(classifier(), rows, learner, key=0, epochs=3, validation=held)
    batch = Batch(jax.tree.map(jnp.asarray, held), jnp.ones(5))
    expected = CrossEntropy()(result.energy, batch, None, None)[0]["loss"]
    np.testing.assert_allclose(min(result.history["validation"]), expected, rtol=1e-5)
    # A row alone: the batch would have the variance 0.
    together = evaluate(lambda: jax.vmap(result.energy.scores)(jnp.asarray(X)))
    alone = evaluate(lambda: result.energy.scores(jnp.asarray(X[0])))
    np.testing.assert_allclose(alone, together[0], rtol=1e-5)


def test_frozen_layers_keep_their_statistics_and_use_them():
    start = eqx.tree_at(lambda e: e.network, classifier(), nn.calibrate(classifier().network, X[:6]))
    frozen = ["network.layers.0", "network.layers.1", "network.layers.2"]
    learner = Descent(BatchStatistics(CrossEntropy()), optax.sgd(0.1))
    rows = {"x": X, "y": Y}
    result = fit(start, rows, learner, key=0, epochs=1, freeze=frozen)
    same = jax.tree.map(np.array_equal, result.energy.network[:4], start.network[:4])
    assert all(jax.tree.leaves(eqx.filter(same, lambda leaf: isinstance(leaf, bool))))
    plain = fit(start, rows, Descent(CrossEntropy(), optax.sgd(0.1)), key=0, epochs=1, freeze=frozen)
    np.testing.assert_allclose(result.energy.network[4].weight, plain.energy.network[4].weight, rtol=1e-6)
    # Without the wrapper no statistics change, and with it all other fixed arrays stay.
    plain = fit(start, rows, Descent(CrossEntropy(), optax.sgd(0.1)), key=0, epochs=1)
    assert np.array_equal(plain.energy.network[0].mean, start.network[0].mean)


def test_a_resumed_fit_ends_bit_for_bit_where_an_uninterrupted_one_ends(tmp_path):
    path = tmp_path / "fit"
    learner = Descent(BatchStatistics(CrossEntropy()), optax.adam(0.01))
    rows = {"x": X, "y": Y}
    run = lambda epochs, **options: fit(
        classifier(), rows, learner, key=0, epochs=epochs, batch_size=5, **options
    )
    run(2, checkpoint=path)
    resumed, whole = run(4, checkpoint=path), run(4)
    for a, b in zip(jax.tree.leaves(resumed.energy), jax.tree.leaves(whole.energy), strict=True):
        assert np.array_equal(a, b)


def test_restarts_have_statistics_of_their_own():
    """The second layer of a flow sees what the first one, with random entries, makes of the rows."""
    blocks = [nn.Coupling.random(3, key=0, transform=nn.AffineTransform(), width=3, depth=1)]
    flow = Flow(nn.Composed([nn.InvertibleBatchNorm(3), *blocks, nn.InvertibleBatchNorm(3)]), 3)
    learner = Descent(BatchStatistics(NegativeLogLikelihood()), optax.sgd(0.01))
    several = fit(flow, {"x": X}, learner, key=0, epochs=1, n_init=2)
    (a, b), (c, d) = (normalising_layers(r.energy) for r in several.restarts)
    mean, variance = moments(X, np.ones(N))
    for layer in (a, c):
        np.testing.assert_allclose(layer.mean, mean, rtol=1e-5)
        np.testing.assert_allclose(layer.variance, variance, rtol=1e-4)
    assert not np.array_equal(b.variance, d.variance)


def test_a_deep_sigmoid_network_learns_from_badly_scaled_inputs_only_with_batch_normalisation():
    """Four layers of twelve sigmoids; columns of scale 1e-2 to 1e2 around 50: which of two is larger."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(400, 3)).astype(np.float32)
    rows = {"x": z * np.float32([0.01, 1, 100]) + 50, "y": (z[:, 0] > z[:, 1]).astype(int)}

    def network(norm):
        sizes, layers = [3, 12, 12, 12, 12], []
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            layers += [*([nn.BatchNorm(a)] if norm else []), linear(a, b, i), eqx.nn.Lambda(jax.nn.sigmoid)]
        return Scorer(
            eqx.nn.Sequential([*layers, *([nn.BatchNorm(12)] if norm else []), linear(12, 2)]), 3, 2
        )

    found = {}
    for norm in (False, True):
        objective = BatchStatistics(CrossEntropy()) if norm else CrossEntropy()
        learner = Descent(objective, optax.sgd(0.2))
        result = fit(network(norm), rows, learner, key=0, epochs=20, batch_size=50)
        scores = evaluate(lambda: jax.vmap(result.energy.scores)(jnp.asarray(rows["x"])))  # noqa: B023
        found[norm] = float((np.asarray(scores).argmax(1) == rows["y"]).mean())
    assert found[False] < 0.6 and found[True] > 0.9, found


# -- flows ---------------------------------------------------------------------------------------------------


def test_the_determinant_of_a_flow_has_the_variance_of_the_batch():
    """−log p = −log N(u; 0, I) − Σ (s − ½ log(v_B + ε)), u = (x − m_B) exp(s) / √(v_B + ε) + b."""
    log_scale, bias = np.array([0.3, -0.2, 0.1]), np.array([1.0, 0.0, -1.0])
    layer = eqx.tree_at(
        lambda n: (n.log_scale, n.bias), nn.InvertibleBatchNorm(3), tuple(map(jnp.float32, (log_scale, bias)))
    )
    batch = Batch({"x": BATCH.data["x"]}, BATCH.weight)
    flow = Flow(nn.Composed([layer]), 3)
    new, _, terms = step(flow, BatchStatistics(NegativeLogLikelihood()), batch, optax.sgd(1.0))
    mean, variance = moments(X)
    u0 = (X - mean) / np.sqrt(variance + 1e-5)
    u = u0 * np.exp(log_scale) + bias
    losses = 0.5 * (u**2).sum(1) + 1.5 * np.log(2 * np.pi) - (log_scale - 0.5 * np.log(variance + 1e-5)).sum()
    np.testing.assert_allclose(sum(terms.values()), WEIGHT @ losses / WEIGHT.sum(), rtol=1e-5)
    # In s and b the loss is ½ E[u²] − s: its slopes are E[u (u − b)] − 1 and E[u] = b.
    share = WEIGHT[:, None] / WEIGHT.sum()
    found = new.bijection.layers[0]
    np.testing.assert_allclose(found.bias, bias - (share * u).sum(0), atol=1e-5)
    np.testing.assert_allclose(found.log_scale, log_scale - ((share * u * (u - bias)).sum(0) - 1), atol=1e-4)


def test_a_flow_with_batch_normalisation_learns_and_is_inverted_exactly():
    flow = Flow.random(
        2, key=0, n_layers=2, layer="autoregressive", transform="affine", batch_norm=True, width=8
    )
    rng = np.random.default_rng(0)
    a = rng.normal(size=600)
    x = np.stack([20 * a + 300, a**2 + 0.3 * rng.normal(size=600)], 1).astype(np.float32)
    learner = Descent(BatchStatistics(NegativeLogLikelihood()), optax.adam(0.02))
    result = fit(flow, {"x": x}, learner, key=0, epochs=30, batch_size=100, validation={"x": x[:300]})
    # The entropy is that of 20 a and of the noise. With `ActNorm`, from the rows, it was 5.4 after 40 epochs.
    entropy = np.log(20) + np.log(0.3) + 1 + np.log(2 * np.pi)
    assert entropy - 0.15 < min(result.history["validation"]) < entropy + 0.45
    bijection = result.energy.bijection

    def round_trip(x):
        u, log_det = bijection.forward(x)
        back, back_det = bijection.inverse(u)
        return (
            back,
            log_det + back_det,
            log_det - jnp.linalg.slogdet(jax.jacfwd(lambda x: bijection.forward(x)[0])(x))[1],
        )

    back, dets, difference = evaluate(lambda: jax.vmap(round_trip)(jnp.asarray(x[:50])))
    np.testing.assert_allclose(back, x[:50], atol=3e-3)
    np.testing.assert_allclose(dets, 0, atol=1e-4)
    np.testing.assert_allclose(difference, 0, atol=1e-4)


def test_an_encoder_that_draws_through_an_inverted_layer_has_the_statistics_of_its_noise():
    """The layer sees u ~ N(0, I) of 600 rows: 0.25 is over 4 standard errors of mean and variance."""
    bijection = nn.Composed([nn.LULinear.random(2), nn.Inverted(nn.InvertibleBatchNorm(2))])
    objective = BatchStatistics(ELBO(nn.FlowEncoder(linear(3, 1), bijection, 2)))
    rows = Batch({"x": jnp.ones((600, 3))}, jnp.ones(600))
    state = step(Decoder(linear(2, 3), 2), objective, rows)[1]
    (layer,) = normalising_layers(state.partner)
    assert 0 < np.abs(layer.mean).max() < 0.25 and 0 < np.abs(layer.variance - 1).max() < 0.25


# -- refusals ------------------------------------------------------------------------------------------------


def smooth():
    return NeuralEnergy(eqx.nn.Sequential([nn.BatchNorm(3), linear(3, "scalar")]), 3, confinement=1.0)


ROWS, PAIRS = {"x": X}, {"x": X, "y": Y}
REFUSED = {
    "needs layers": (Linear(jnp.zeros((2, 3)), jnp.zeros(2)), PAIRS, CrossEntropy()),
    "ScoreMatching differentiates": (smooth(), ROWS, ScoreMatching()),
    "AdversarialTraining differentiates": (
        classifier(),
        PAIRS,
        AdversarialTraining(CrossEntropy(), FastGradientSign(0.1)),
    ),
    "Markov chain": (smooth(), ROWS, ContrastiveDivergence(k=1)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_batch_statistics_is_refused_with_an_alternative(message):
    energy, rows, objective = REFUSED[message]
    with pytest.raises(Unsuitable, match=rf"BatchStatistics.*{message}.*(Use|use) "):
        fit(energy, rows, Descent(BatchStatistics(objective)), key=0, epochs=1)


def test_learners_without_the_hook_and_bad_settings_are_refused():
    rows = {"x": X, "y": X[:, 0]}
    regressor = NeuralRegressor(eqx.nn.Sequential([nn.BatchNorm(3), linear(3, "scalar")]), 3)
    objective = BatchStatistics(NegativeLogLikelihood())
    for learner in (Newton(objective), Proximal(InputNoise(objective), 0.1, on="network")):
        with pytest.raises(Unsuitable, match=r"does not call `after_update`.*Use Descent"):
            fit(regressor, rows, learner, key=0, epochs=1)
    for momentum in (1.5, -0.1, "a"):
        with pytest.raises(BadInput, match="momentum: "):
            BatchStatistics(CrossEntropy(), momentum)
    with pytest.raises(BadInput, match="objective: "):
        BatchStatistics("cross-entropy")
    encoder = nn.FlowEncoder.random(3, 2, key=0, n_layers=1, batch_norm=True)
    with pytest.raises(Unsuitable, match=r"nn\.Inverted"):
        fit(
            Decoder(linear(2, 3), 2),
            {"x": (X > 0) * 1.0},
            Descent(BatchStatistics(ELBO(encoder))),
            key=0,
            epochs=1,
        )


def test_an_attack_on_running_statistics_and_batch_statistics_within_it():
    objective = AdversarialTraining(BatchStatistics(CrossEntropy()), FastGradientSign(0.0))
    new, _, terms = step(classifier(), objective)
    expected, _, same = step(classifier(), BatchStatistics(CrossEntropy()))
    np.testing.assert_allclose(terms["loss"], same["loss"], rtol=1e-6)
    np.testing.assert_allclose(new.network[2].variance, expected.network[2].variance, rtol=1e-6)
