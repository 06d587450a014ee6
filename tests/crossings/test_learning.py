"""Crossings of weights with annealing, forgetting and Markov chains, and of masks with incomplete steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import Batch, Mixture, fit
from energax._util.keys import as_key
from energax.energies import RBM, Bernoullis, Centroids, Diagonal, Gaussians, HiddenChain
from energax.fitting._batching import shuffle_batches
from energax.learn import EM, ContrastiveDivergence
from energax.missing import Masked

RNG = np.random.default_rng(6)
BITS = (RNG.random((20, 3)) < 0.4).astype(float)
WEIGHTS = RNG.exponential(size=20) + 0.1


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_objective_of_annealing_is_the_free_energy_at_its_temperature(temperature):
    """−T log Σ_z p(x, z)^(1/T), the mean over rows with weights, and centres weighted by p^(1/T)."""
    p, w = np.array([[0.2, 0.7, 0.4], [0.9, 0.5, 0.1]]), np.array([0.3, 0.7])
    joint = np.log(w) + BITS @ np.log(p).T + (1 - BITS) @ np.log1p(-p).T
    powers = np.exp(joint / temperature)
    learner = EM(temperature=temperature, tol=-1.0)
    done = fit(Mixture(Bernoullis(p), w), {"x": BITS}, learner, key=0, epochs=1, weights=WEIGHTS)
    truth = -np.average(temperature * np.log(powers.sum(1)), weights=WEIGHTS)
    assert done.objective == pytest.approx(truth, rel=1e-9)
    r = powers / powers.sum(1, keepdims=True) * WEIGHTS[:, None]
    np.testing.assert_allclose(done.energy.components.probs, r.T @ BITS / r.sum(0)[:, None], rtol=1e-9)

    x, centers = RNG.normal(size=(20, 2)), np.array([[0.0, 1.0], [1.0, -1.0]])
    done = fit(Centroids(centers), {"x": x}, learner, key=0, epochs=1, weights=WEIGHTS)
    distances = ((x[:, None] - centers) ** 2).sum(2)
    truth = -np.average(temperature * np.log(np.exp(-distances / temperature).sum(1)), weights=WEIGHTS)
    assert done.objective == pytest.approx(truth, rel=1e-9)


def test_a_batch_with_less_weight_forgets_less():
    """One component, whose probabilities are the blended means: every batch counts by its weight."""
    decay, n, size = 0.7, 20, 5
    done = fit(
        Mixture(Bernoullis(np.full((1, 3), 0.5))),
        {"x": BITS},
        EM(decay=decay, tol=-1.0),
        key=1,
        epochs=2,
        batch_size=size,
        weights=WEIGHTS,
    )
    mean, seen, count = np.zeros(3), 0.0, 0
    for epoch in range(2):
        for batch in shuffle_batches(as_key(1), epoch, n, n // size, size):
            total, fresh = WEIGHTS[batch].sum(), np.average(BITS[batch], axis=0, weights=WEIGHTS[batch])
            kept = (1 - (count + 2.0) ** -decay) ** (total / (seen / count)) if count else 0.0
            mean, seen, count = kept * mean + (1 - kept) * fresh, seen + total, count + 1
    np.testing.assert_allclose(done.energy.components.probs[0], mean, rtol=1e-9)
    assert float(done.state.seen) == pytest.approx(2 * WEIGHTS.sum()) and int(done.state.count) == 8


@pytest.mark.parametrize("settings", [{}, {"hard": True}, {"temperature": 3.0}, {"decay": 0.7}])
def test_components_of_padding_have_weight_zero_for_ever(settings):
    """Not a small weight: such a component would grow if it described the rows better than the others."""
    start = Mixture(Bernoullis(np.array([[0.2, 0.7, 0.4], [0.9, 0.5, 0.1]])))
    options = {"key": 0, "epochs": 3, "batch_size": 8, "weights": WEIGHTS}
    padded = fit(start.pad(4), {"x": BITS}, EM(tol=-1.0, **settings), **options).energy
    plain = fit(start, {"x": BITS}, EM(tol=-1.0, **settings), **options).energy
    assert (np.asarray(padded.weights)[2:] == 0).all()
    np.testing.assert_allclose(padded.weights[:2], plain.weights, rtol=1e-9)
    np.testing.assert_allclose(padded.crop(2).components.probs, plain.components.probs, rtol=1e-9)


@pytest.mark.parametrize("weights", [np.ones(4), np.array([3.0, 0.0, 1.0, 0.5])])
def test_both_phases_of_contrastive_divergence_weigh_their_rows(weights):
    """Each hidden unit copies a visible one and back, so that the chains stay at the data."""
    machine = RBM(200.0 * jnp.eye(2), jnp.array([-100.0, -99.0]), jnp.full(2, -100.0))
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    batch = Batch({"x": jnp.asarray(x)}, jnp.asarray(weights))
    terms, _ = evaluate(lambda: ContrastiveDivergence(k=2)(machine, batch, None, jax.random.key(0)))
    energies = -(x @ np.asarray(machine.bias)) - np.logaddexp(0, 200 * x - 100).sum(1)
    truth = np.average(energies, weights=weights)
    assert float(terms["positive phase"]) == pytest.approx(truth)
    assert float(terms["negative phase"]) == pytest.approx(-truth)


# -- sequences whose steps are complete or missing ------------------------------------------------------

OBSERVED = np.ones((6, 5, 2), bool)
OBSERVED[0, 2, 1] = OBSERVED[3, 0, 0] = OBSERVED[4, 3, 1] = False  # incomplete steps, none at an end
OBSERVED[1, 3:] = OBSERVED[2, 1:] = False  # ragged ends
SIGNALS = RNG.normal(size=(6, 5, 2)) + RNG.integers(0, 2, (6, 5, 1)) * 3.0


def chain() -> HiddenChain:
    emission = Gaussians(np.array([[0.0, 0.5], [2.5, 3.0]]), Diagonal(jnp.ones((2, 2)), 0.1))
    return HiddenChain([0.5, 0.5], [[0.7, 0.3], [0.4, 0.6]], emission, prior=0.5, whole_steps=True)


def learned(data, **settings) -> list[np.ndarray]:
    done = fit(chain(), {"x": data}, EM(tol=-1.0, **settings), key=0, epochs=2, weights=WEIGHTS[:6])
    energy = done.energy
    leaves = energy.initial, energy.transition, energy.emission.means, energy.emission.covariance.variance
    return [*map(np.asarray, leaves), np.asarray(done.history["objective"])]


@pytest.mark.parametrize("hard", [False, True])
def test_an_incomplete_step_is_a_missing_step(hard):
    """With `whole_steps`, the observed half of a step does not count."""
    complete = np.broadcast_to(OBSERVED.all(-1, keepdims=True), OBSERVED.shape)
    found = learned(Masked(np.where(OBSERVED, SIGNALS, 77.0), OBSERVED), hard=hard)
    truth = learned(Masked(np.where(complete, SIGNALS, 0.0), complete), hard=hard)
    for a, b in zip(found, truth, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_start_of_a_chain_ignores_what_padding_holds():
    starts = []
    for filler in (0.0, 77.0):
        data = {"x": Masked(jnp.asarray(np.where(OBSERVED, SIGNALS, filler)), jnp.asarray(OBSERVED))}
        ragged = jax.tree.map(lambda a: a[:3][1:], data)  # the rows whose steps are complete or missing
        weights = jnp.asarray(WEIGHTS[:2])
        start = evaluate(lambda: chain().initialise(jax.random.key(2), ragged, weights))  # noqa: B023
        starts.append((np.asarray(start.emission.means), np.asarray(start.emission.covariance.variance)))
    np.testing.assert_allclose(starts[0], starts[1], rtol=1e-9)
