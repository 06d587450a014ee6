"""Models trained by different objectives on handwritten digits, compared by test log-likelihood per row.

The thresholds are values that a good implementation reaches; the seeds are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import Batch, fit
from energax.energies import RBM, Decoder, Linear, NeuralEnergy
from energax.learn import (
    ELBO,
    ContrastiveDivergence,
    CrossEntropy,
    Denoising,
    Descent,
    Margin,
    NegativeLogLikelihood,
    ScoreMatching,
)
from energax.nn import Encoder

pytestmark = pytest.mark.slow


def annealed(step, epochs, weight_decay=0.0, n=1400, batch_size=100):
    """Adam with a cosine schedule from `step` to 0."""
    schedule = optax.cosine_decay_schedule(step, epochs * -(-n // batch_size))
    return optax.adamw(schedule, weight_decay=weight_decay)


def learned_rbm(binary_digits, objective, epochs, weight_decay):
    X, test = binary_digits
    rbm = RBM.random(64, 12, key=0)
    learner = Descent(objective, annealed(0.03, epochs, weight_decay))
    done = fit(rbm, {"x": X}, learner, key=1, epochs=epochs, batch_size=100, initialise=True)
    free = jax.vmap(lambda x: done.energy.free_energy(x=x))
    return -float(evaluate(lambda: free(test).mean() + done.energy.log_partition()))


@pytest.mark.parametrize(
    ("objective", "at_least"),
    [
        (NegativeLogLikelihood(), -18.9),
        (ContrastiveDivergence(1), -19.1),
        (ContrastiveDivergence(1, persistent=True), -19.5),
    ],
    ids=["exact", "cd-1", "pcd"],
)
def test_rbm(binary_digits, objective, at_least):
    """tests/test_examples.py has the same floors for a user's energy, and noise contrastive estimation."""
    assert learned_rbm(binary_digits, objective, 150, 0.02) >= at_least


@pytest.mark.parametrize(
    ("samples", "depth", "weight_decay", "at_least"),
    [(1, 1, 0.0, -18.1), (10, 2, 0.2, -17.2)],
    ids=["one", "ten"],
)
def test_vae(binary_digits, samples, depth, weight_decay, at_least):
    X, test = binary_digits
    shape = {"width": 128, "depth": depth}
    objective = ELBO(Encoder.random(64, 8, key=1, **shape), samples)
    learner = Descent(objective, annealed(3e-3, 200, weight_decay))
    done = fit(Decoder.random(64, 8, key=0, **shape), {"x": X}, learner, key=2, epochs=200, batch_size=100)

    def bound(x, key, n=500):
        q = done.partner(x=x)
        z = q.sample(key, (n,))
        log_w = -jax.vmap(lambda z: done.energy(x=x, z=z))(z) - q.log_prob(z)
        return jax.nn.logsumexp(log_w) - jnp.log(n)

    keys = jax.random.split(jax.random.key(3), len(test))
    assert jax.jit(jax.vmap(bound))(jnp.asarray(test), keys).mean() >= at_least


@pytest.mark.parametrize(
    ("objective", "at_least"),
    [(CrossEntropy(), 0.91), (Margin(l2=1e-3), 0.90)],
    ids=["cross-entropy", "margin"],
)
def test_linear_classifier(grey_digits, objective, at_least):
    X, y, test, labels = grey_digits
    learner = Descent(objective, annealed(0.03, 100))
    done = fit(Linear.random(64, 10, key=0), {"x": X, "y": y}, learner, key=1, epochs=100, batch_size=100)
    guess = np.asarray(evaluate(lambda: jax.vmap(done.energy.scores)(test))).argmax(1)
    assert (guess == labels).mean() >= at_least


@pytest.mark.parametrize(
    "method", [ScoreMatching(), ScoreMatching(Denoising(0.1))], ids=["exact", "denoising"]
)
def test_a_ring_by_score_matching_then_langevin(method):
    """Rows have radius 2 ± 0.15, and so do the ends of Langevin chains of the fitted energy."""
    rng = np.random.default_rng(0)
    radius, angle = 2 + 0.15 * rng.normal(size=2000), rng.uniform(0, 2 * np.pi, 2000)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    learner = Descent(method, annealed(3e-3, 100, n=2000, batch_size=200))
    done = fit(
        NeuralEnergy.random(2, key=0, width=64, depth=2), {"x": X}, learner, key=1, epochs=100, batch_size=200
    )
    step = 2e-3

    def move(i, x):
        drift = jax.vmap(lambda x: done.energy.score("x", x=x))(x)
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(2), i), x.shape)
        return x + step * drift + np.sqrt(2 * step) * noise

    start = 1.5 * jax.random.normal(jax.random.key(3), (500, 2))
    ends = np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, 1500, move, x))(start))
    found = np.hypot(*ends.T)
    assert abs(np.median(found) - 2) < 0.1
    assert 0.1 < found.std() < 0.3
    assert np.abs(ends.mean(0)).max() < 0.4  # all round, not in one arc


def test_vade_clusters_digits():
    """The best of five starts by its own bound; k-means reaches 0.79 (best of five)."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.datasets import load_digits

    from energax.energies import Gaussian
    from energax.estimators import VaDE

    X, y = load_digits(return_X_y=True)
    likelihood = Gaussian(jax.numpy.array(0.3))
    model = VaDE(10, 10, likelihood=likelihood, n_init=5, max_iter=60, random_state=0).fit(X / 16)
    counts = np.zeros((10, 10))
    np.add.at(counts, (model.labels_, y), 1)
    accuracy = counts[linear_sum_assignment(-counts)].sum() / len(y)
    assert accuracy >= 0.80
    assert np.isclose(model.cluster_weights_.sum(), 1, atol=1e-4) and model.cluster_means_.shape == (10, 10)


def test_denoising_features_beat_raw_pixels(grey_digits):
    """A linear classifier on 200 labelled rows, chosen at random; the features are learned without labels."""
    from sklearn.linear_model import LogisticRegression

    from energax.estimators import DenoisingAutoencoder

    X, y = (np.concatenate([grey_digits[i], grey_digits[i + 2]]) for i in (0, 1))
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    features = DenoisingAutoencoder(256, max_iter=60, learning_rate=3e-3, random_state=0).fit(X[:1000])
    score = lambda F: LogisticRegression(max_iter=2000).fit(F[:200], y[:200]).score(F[1000:], y[1000:])
    raw = max(score(X), score((X - X[:1000].mean(0)) / (X[:1000].std(0) + 1e-3)))
    assert score(features.transform(X)) > raw + 0.005


def test_reinforce_and_gumbel_softmax_reach_the_same_bound(binary_digits):
    """Four categorical variables of four values; the bound is that of exact draws for both."""
    from energax.energies import UniformChoices
    from energax.learn import GumbelSoftmax, ScoreFunction
    from energax.nn import CategoricalEncoder

    X, _ = binary_digits
    batch = Batch({"x": jnp.asarray(X)}, jnp.ones(len(X)))
    found = {}
    for estimator in (ScoreFunction(), GumbelSoftmax(0.5)):
        encoder = CategoricalEncoder.random(64, 4, 4, key=1, width=64)
        start = Decoder.random(64, UniformChoices(4, 4), key=0, width=64)
        rate = optax.cosine_decay_schedule(5e-3, 400 * 14)
        learner = Descent(ELBO(encoder, 1, estimator), optax.adam(rate))
        done = fit(start, {"x": X}, learner, epochs=400, batch_size=100, key=2)
        exact = ELBO(done.partner, 1, ScoreFunction())
        loss = lambda key, e=exact, d=done: sum(e(d.energy, batch, None, key)[0].values())
        keys = jax.random.split(jax.random.key(9), 10)
        found[type(estimator).__name__] = -float(jax.jit(lambda k, f=loss: jax.lax.map(f, k))(keys).mean())
    assert abs(found["ScoreFunction"] - found["GumbelSoftmax"]) < 0.5, found
