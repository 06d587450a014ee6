"""Supervised losses: limits, gradients and incompatible energies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate
from sklearn.metrics import hinge_loss, log_loss

from energax import fit
from energax.batch import Batch
from energax.energies import RBM, Linear, NeuralEnergy, Scorer
from energax.errors import BadInput, Unsuitable
from energax.learn import CrossEntropy, Descent, Margin, Perceptron
from energax.missing import Masked

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 3, 30).astype(np.int32)
    return Linear.random(4, 3, key=1, scale=1.0), Batch(
        {"x": jnp.asarray(x), "y": jnp.asarray(y)}, jnp.ones(30)
    )


def value(objective, energy, batch):
    return float(evaluate(lambda: sum(objective(energy, batch, None, KEY)[0].values())))


def gradient(objective, energy, batch):
    loss = lambda e: objective(e, batch, None, KEY)[0]["loss"]
    return evaluate(lambda: eqx.filter_grad(loss)(energy))


def scores_of(energy, x):
    return np.asarray(evaluate(lambda: jax.vmap(energy.scores)(x)))


def test_cross_entropy_and_margin_are_those_of_scikit_learn(case):
    energy, batch = case
    scores = scores_of(energy, batch.data["x"]).astype(np.float64)
    probs = np.exp(scores - np.log(np.exp(scores).sum(1, keepdims=True)))
    assert np.isclose(value(CrossEntropy(), energy, batch), log_loss(batch.data["y"], probs), rtol=1e-5)
    expected = hinge_loss(batch.data["y"], scores, labels=[0, 1, 2])  # Crammer and Singer's form
    assert np.isclose(value(Margin(), energy, batch), expected, rtol=1e-5)


def test_the_limits(case):
    """β → ∞ is the perceptron, exceeded by at most log(k) / β; a margin of 0 is the perceptron too."""
    energy, batch = case
    limit = value(Perceptron(), energy, batch)
    for beta in (1.0, 10.0, 1000.0):
        gap = value(CrossEntropy(beta), energy, batch) - limit
        assert -1e-6 <= gap <= np.log(3) / beta + 1e-6
    assert np.isclose(value(Margin(0.0), energy, batch), limit)
    slope = lambda objective: gradient(objective, energy, batch).weight
    np.testing.assert_allclose(slope(CrossEntropy(1e4)), slope(Perceptron()), atol=1e-4)


def test_a_satisfied_perceptron_has_no_gradient():
    energy = Linear(10 * jnp.eye(2), jnp.zeros(2))
    batch = Batch({"x": jnp.eye(2), "y": jnp.arange(2)}, jnp.ones(2))
    for objective in (Perceptron(), Margin(1.0)):
        assert not np.any(gradient(objective, energy, batch).weight)


@pytest.mark.parametrize(
    "objective", [Perceptron(), Margin(), CrossEntropy(2.0)], ids=lambda o: type(o).__name__
)
def test_weights_repeat_rows_and_missing_answers_count_for_nothing(case, objective):
    energy, batch = case
    rows = np.repeat(np.arange(30), np.arange(30) % 3)
    take = lambda which: jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[which]), batch.data)
    repeated = Batch(take(rows), jnp.ones(rows.size))
    weighted = Batch(batch.data, jnp.asarray(np.arange(30, dtype=np.float32) % 3))
    assert np.isclose(value(objective, energy, weighted), value(objective, energy, repeated), rtol=1e-5)
    seen = np.arange(30) % 3 > 0
    masked = Batch({**batch.data, "y": Masked(batch.data["y"], jnp.asarray(seen))}, jnp.ones(30))
    kept = Batch(take(seen), jnp.ones(seen.sum()))
    assert np.isclose(value(objective, energy, masked), value(objective, energy, kept), rtol=1e-5)


def test_l2_counts_weights_and_not_biases(case):
    energy, batch = case
    moved = Linear(energy.weight, energy.bias + 3.0)
    for e in (energy, moved):
        penalty = evaluate(lambda e=e: CrossEntropy(l2=0.5)(e, batch, None, KEY)[0]["penalty"])
        assert np.isclose(penalty, 0.25 * np.sum(np.asarray(energy.weight) ** 2), rtol=1e-6)


def test_any_finite_target_of_any_energy():
    """−log p(z | x) of an RBM, whose targets are vectors of bits."""
    rbm = RBM.random(3, 2, key=0, scale=1.0)
    x, z = jnp.array([[1.0, 0.0, 1.0]]), jnp.array([[0.0, 1.0]])
    found = value(CrossEntropy(target="z"), rbm, Batch({"x": x, "z": z}, jnp.ones(1)))
    log_p = evaluate(lambda: rbm.conditional("z", x=x[0]).log_prob(z[0]))
    assert np.isclose(found, -log_p, rtol=1e-5)


def test_hidden_variables_are_summed_out():
    rbm = RBM.random(1, 2, key=0, scale=1.0)
    found = value(CrossEntropy(target="x"), rbm, Batch({"x": jnp.ones((1, 1))}, jnp.ones(1)))
    expected = evaluate(lambda: rbm.free_energy(x=jnp.ones(1)) + rbm.log_partition())
    assert np.isclose(found, expected, rtol=1e-5)


def test_refusals(case):
    energy, _ = case
    x, y = np.zeros((3, 4)), np.zeros(3, int)
    with pytest.raises(Unsuitable, match=r"finite target 'y'.*ScoreMatching"):
        CrossEntropy().check(NeuralEnergy.random(2, key=0), {"x": np.zeros((3, 2))})
    with pytest.raises(Unsuitable, match="'y'"):
        Margin().check(energy, {"x": x})
    with pytest.raises(Unsuitable, match="Impute"):
        Perceptron().check(energy, {"x": Masked(x, x == 0), "y": y} | {"x": Masked(x, x > 0)})
    with pytest.raises(Unsuitable, match="ContrastiveDivergence"):
        CrossEntropy(target="x").check(RBM.random(64, 2, key=0), {"x": np.zeros((3, 64))})
    with pytest.raises(BadInput, match="Perceptron"):
        CrossEntropy(0.0)


def test_a_network_learns_what_no_line_can():
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], np.float32)
    data = {"x": x, "y": np.array([0, 1, 1, 0])}
    import optax

    learner = Descent(CrossEntropy(), optax.adam(0.05))
    net = fit(Scorer.random(2, 2, key=0, width=16), data, learner, key=0, epochs=300).energy
    assert (scores_of(net, x).argmax(1) == data["y"]).all()
    line = fit(Linear.random(2, 2, key=0), data, learner, key=0, epochs=300).energy
    assert not (scores_of(line, x).argmax(1) == data["y"]).all()
