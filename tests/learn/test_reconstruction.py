"""Autoencoders: principal components, penalties by hand, noise that is removed; greedy pretraining."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import Batch, fit
from energax.energies import (
    RBM,
    Autoencoder,
    Bernoulli,
    Categorical,
    Gaussian,
    GaussianUnits,
    NeuralEnergy,
    RectifiedUnits,
    Scorer,
    SoftmaxUnits,
)
from energax.errors import BadInput, Unsuitable
from energax.learn import (
    ContrastiveDivergence,
    CrossEntropy,
    Descent,
    GaussianNoise,
    MaskingNoise,
    NegativeLogLikelihood,
    Reconstruction,
    Sparsity,
)
from energax.nn import Code, EncoderDecoder, HiddenMeans, TiedLayers, pretrain

RNG = np.random.default_rng(0)
#: Rows near a plane in ℝ⁴.
PLANE = (
    RNG.normal(size=(300, 2)) * [2.0, 1.0] @ RNG.normal(size=(2, 4)) + 0.1 * RNG.normal(size=(300, 4))
).astype(np.float32)


def _identity(x):
    return x


def batch_of(rows, weight=None):
    rows = jnp.asarray(rows, jnp.float32)
    return Batch({"x": rows}, jnp.ones(len(rows)) if weight is None else jnp.asarray(weight, jnp.float32))


def terms_of(objective, energy, batch, key=0):
    return evaluate(lambda: objective(energy, batch, None, jax.random.key(key))[0])


def test_a_linear_autoencoder_finds_the_principal_subspace():
    """The least squared error of rank 2 is the sum of the other eigenvalues (Eckart and Young)."""
    rows = PLANE - PLANE.mean(0)
    left_over = np.linalg.svd(rows, compute_uv=False)[2:] ** 2
    start = Autoencoder(TiedLayers.random([4, 2], key=0, activation=_identity), 4)
    learner = Descent(Reconstruction(), optax.adam(optax.cosine_decay_schedule(0.02, 1500)))
    found = fit(start, {"x": rows}, learner, epochs=1500, key=0)
    squared = 2 * (float(found.objective) - 2 * np.log(2 * np.pi))
    best = left_over.sum() / len(rows)
    assert best * 0.999 < squared < best * 1.02
    weight = np.asarray(found.energy.network.weights[0])
    principal = np.linalg.svd(rows, full_matrices=False)[2][:2]
    angle = np.linalg.svd(principal @ np.linalg.qr(weight.T)[0], compute_uv=False)
    assert angle.min() > 0.999


def test_tied_layers_are_transposed():
    tied = TiedLayers.random([4, 3, 2], key=0)
    V, W = (np.asarray(w, float) for w in tied.weights)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    x = np.array([1.0, -2.0, 0.5, 3.0])
    code = sigmoid(W @ sigmoid(V @ x))
    found = evaluate(lambda: (tied.encode(jnp.array(x)), tied.decode(tied.encode(jnp.array(x)))))
    np.testing.assert_allclose(found[0], code, rtol=1e-5)
    np.testing.assert_allclose(found[1], V.T @ sigmoid(W.T @ code), rtol=1e-5)


def test_tied_layers_start_anew_in_every_restart():
    start = Autoencoder(TiedLayers.random([4, 3, 2], key=0, activation=jnp.tanh), 4)
    found = fit(start, {"x": PLANE}, Descent(Reconstruction(), optax.sgd(0.0)), n_init=3, epochs=1, key=0)
    weights = np.stack([one.energy.network.weights[0] for one in found.restarts])
    assert weights.shape == (3, 3, 4) and np.unique(weights).size == weights.size
    assert np.abs(weights).max() <= (6 / 7) ** 0.5 and weights.std() > 0.4
    assert found.energy.network.activation is jnp.tanh


def test_the_penalties_by_hand():
    """One sigmoid layer: ∂h_j/∂x = h_j (1 − h_j) W_j (Rifai et al. 2011, equation 8)."""
    W, weight = np.array([[1.0, -2.0], [0.5, 0.3]]), np.array([1.0, 3.0, 0.0])
    network = TiedLayers((jnp.array(W),), (jnp.zeros(2),), (jnp.zeros(2),))
    rows = np.array([[0.3, 1.0], [-1.0, 0.2], [1e30, 1e30]])
    h = 1 / (1 + np.exp(-rows[:2] @ W.T))
    share = np.array([0.25, 0.75])
    slopes = (((h * (1 - h)) ** 2) * (W**2).sum(1)).sum(1)
    rho = 0.2
    mean = share @ h
    divergence = (rho * np.log(rho / mean) + (1 - rho) * np.log((1 - rho) / (1 - mean))).sum()
    energy = Autoencoder(network, 2)
    found = terms_of(
        Reconstruction(sparsity=Sparsity(0.5, rho), contraction=2.0), energy, batch_of(rows, weight)
    )
    np.testing.assert_allclose(found["contraction"], 2 * share @ slopes, rtol=1e-5)
    np.testing.assert_allclose(found["sparsity"], 0.5 * divergence, rtol=1e-5)
    squared = ((rows[:2] - h @ W) ** 2).sum(1)
    np.testing.assert_allclose(
        found["reconstruction"], share @ (0.5 * squared) + np.log(2 * np.pi), rtol=1e-5
    )
    l1 = terms_of(Reconstruction(sparsity=Sparsity(0.5)), energy, batch_of(rows, weight))
    np.testing.assert_allclose(l1["sparsity"], 0.5 * share @ h.sum(1), rtol=1e-5)


def test_a_corruption_changes_the_input_and_not_the_target():
    """With x hidden completely, the best code is a constant, and the loss is that of the means."""
    energy = Autoencoder(EncoderDecoder(_identity, _identity), 4)
    hidden = terms_of(Reconstruction(MaskingNoise(1.0)), energy, batch_of(PLANE))
    expected = 0.5 * (PLANE**2).sum(1).mean() + 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(hidden["reconstruction"], expected, rtol=1e-5)
    # x̃ − x = scale · noise: the expected loss is d scale² / 2 (4.5 standard errors).
    noisy = terms_of(Reconstruction(GaussianNoise(0.5)), energy, batch_of(PLANE))
    excess = float(noisy["reconstruction"]) - 2 * np.log(2 * np.pi)
    assert abs(excess - 0.5) < 4.5 * 0.125 * np.sqrt(8 / 300)
    objective = Reconstruction(MaskingNoise(1.0))
    clean = evaluate(lambda: objective.validate(energy, batch_of(PLANE), None, jax.random.key(0)))
    np.testing.assert_allclose(clean["reconstruction"], 2 * np.log(2 * np.pi), rtol=1e-5)


def test_bad_input():
    with pytest.raises(Unsuitable, match="Autoencoder"):
        Reconstruction().check(NeuralEnergy.random(2, key=0), {"x": np.zeros((2, 2))})
    with pytest.raises(BadInput, match="encode and decode"):
        Autoencoder(_identity, 2)
    with pytest.raises(BadInput, match="network"):
        Autoencoder(EncoderDecoder(_identity, _identity), 2, _TwoOutputs())
    for build in (
        lambda: MaskingNoise(1.5),
        lambda: GaussianNoise(-1.0),
        lambda: Sparsity(-0.1),
        lambda: Sparsity(0.1, target=1.0),
        lambda: Reconstruction(contraction=-1.0),
        lambda: Reconstruction(0.3),
    ):
        with pytest.raises(BadInput):
            build()


class _TwoOutputs(Gaussian):
    def n_outputs(self, n_features):
        return 2 * n_features


# -- pretraining -----------------------------------------------------------------------------------------


def test_features_are_the_conditional_means_of_each_layer():
    X = (RNG.random((40, 4)) < 0.5).astype(np.float32)
    layers = [
        (RBM.random(4, 3, key=0), Descent(ContrastiveDivergence())),
        (RBM.random(3, 2, key=1), Descent(ContrastiveDivergence())),
    ]
    found = pretrain(layers, X, key=0, epochs=2, batch_size=20)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    h = X
    for done in found.fits:
        h = sigmoid(h @ np.asarray(done.energy.weight) + np.asarray(done.energy.hidden_bias))
    np.testing.assert_allclose(jax.vmap(found.network)(X), h, rtol=1e-4)
    assert isinstance(found.network.layers[1], HiddenMeans)
    with pytest.raises(BadInput, match="x of layer 1"):
        pretrain([layers[0], layers[0]], X, key=0, epochs=1)
    with pytest.raises(BadInput, match="from 0 to 2"):
        pretrain(layers, 2 * X, key=0, epochs=1)
    with pytest.raises(Unsuitable, match="pretrain needs layers"):
        pretrain([(NeuralEnergy.random(4, key=0), layers[0][1])], X, key=0)
    with pytest.raises(BadInput, match=r"layers\[0\]"):
        pretrain([layers[0][0]], X, key=0)
    with pytest.raises(BadInput, match="layers"):
        pretrain(None, X, key=0)
    for weights in (np.ones(7), -np.ones(40), np.full(40, np.nan)):
        with pytest.raises(BadInput, match="weights"):
            pretrain(layers, X, key=0, weights=weights)


@pytest.mark.parametrize("units", [SoftmaxUnits(3), RectifiedUnits(4), GaussianUnits(0.5)], ids=repr)
def test_features_of_units_are_sums_over_their_values(units):
    """Categories have no mean, so that their features are probabilities; counts and real units have one."""
    rbm = RBM.random(3, 2, key=0, scale=1.0, hidden=units)
    rbm = rbm.with_biases(rbm.bias, jnp.linspace(-0.5, 1, len(rbm.hidden_bias)))
    x = jnp.array([1.0, 0.0, 1.0])
    if isinstance(units, GaussianUnits):
        expected = 0.5 * np.asarray(rbm.hidden_field(x))
    else:
        z = np.asarray(rbm.spaces["z"].values())
        p = np.asarray(jax.nn.softmax(-jax.vmap(lambda z: rbm(x=x, z=z))(jnp.asarray(z))))
        expected = p @ (np.eye(3)[z].reshape(len(z), -1) if isinstance(units, SoftmaxUnits) else z)
    np.testing.assert_allclose(HiddenMeans(rbm)(x), expected, rtol=1e-5)


def test_weights_of_rows_of_categories_count_rows_and_are_not_rounded():
    X, counts = RNG.integers(0, 3, (30, 2)), np.r_[np.full(10, 1), np.full(20, 2)]
    layer = (
        RBM.random(2, 2, key=0, visible=SoftmaxUnits(3)),
        Descent(NegativeLogLikelihood(), optax.adam(0.1)),
    )
    learned = lambda X, w: pretrain([layer], X, weights=w, key=0, epochs=5, batch_size=None).fits[0]
    repeated, weighted = learned(np.repeat(X, counts, 0), None), learned(X, counts / 4)
    np.testing.assert_allclose(weighted.history["objective"], repeated.history["objective"], rtol=1e-5)


def test_categories_have_slopes_and_noise_of_their_codes():
    model = Autoencoder.random(3, 2, Categorical(3), key=0)
    rows, objective = RNG.integers(0, 3, (6, 3)), Reconstruction(GaussianNoise(0.1), contraction=0.5)
    terms = terms_of(objective, model, Batch({"x": jnp.asarray(rows)}, jnp.ones(6)))
    jacobians = jax.vmap(jax.jacobian(model.network.encode))(jnp.asarray(rows, jnp.float32))
    np.testing.assert_allclose(terms["contraction"], 0.5 * (jacobians**2).sum((1, 2)).mean(), rtol=1e-5)
    assert np.isfinite(terms["reconstruction"])


@pytest.mark.slow
def test_greedy_pretraining_beats_random_starts_on_few_labels(grey_digits):
    """A deep sigmoid network, 200 labels chosen at random, the same number of supervised updates."""
    X, y = (np.concatenate([grey_digits[i], grey_digits[i + 2]]) for i in (0, 1))
    order = np.random.default_rng(0).permutation(len(X))
    X, y, X_test, y_test = X[order[:1000]], y[order[:1000]], X[order[1000:]], y[order[1000:]]
    sizes = [64, 100, 100, 100]
    accuracy = {}
    for seed in range(2):
        start = [
            Autoencoder(TiedLayers.random([a, b], key=10 * seed + i), a, Bernoulli())
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        ]
        output = eqx.nn.Linear(100, 10, key=jax.random.key(seed))
        learner = Descent(Reconstruction(MaskingNoise(0.25)), optax.adam(5e-3))
        greedy = pretrain([(e, learner) for e in start], X, key=seed, epochs=30, output=output)
        untrained = [Code(energy.network) for energy in start]
        networks = {"greedy": greedy.network, "random": eqx.nn.Sequential([*untrained, output])}
        for name, network in networks.items():
            tuned = fit(
                Scorer(network, 64, 10),
                {"x": X[:200], "y": y[:200].astype(np.int32)},
                Descent(CrossEntropy(), optax.adam(2e-3)),
                steps=300,
                batch_size=50,
                key=seed,
            )
            predicted = evaluate(lambda t=tuned: jax.vmap(t.energy.network)(X_test)).argmax(1)
            accuracy[name, seed] = (predicted == y_test).mean()
    assert min(accuracy["greedy", s] - accuracy["random", s] for s in range(2)) > 0.01, accuracy
    assert min(accuracy["greedy", s] for s in range(2)) > 0.85, accuracy
