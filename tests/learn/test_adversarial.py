"""Adversarial learning: separate gradients of energy and generator, and draws that resemble the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import fit
from energax.batch import Batch
from energax.energies import RBM, NeuralEnergy
from energax.errors import Unsuitable
from energax.learn import Adversarial, Descent
from energax.learn._adversarial import discrepancy
from energax.missing import Masked
from energax.nn import Generator

KEY = jax.random.key(9)


def players():
    return NeuralEnergy.random(2, key=0, width=8), Generator.random(3, 2, key=1, width=8)


def test_one_loss_two_players():
    """∂/∂energy is that of F(x) − F(draws) and the penalty; ∂/∂generator that of F(draws) and the MMD."""
    energy, generator = players()
    x = jax.random.normal(jax.random.key(2), (6, 2))
    batch, key = Batch({"x": x}, jnp.arange(6.0)), jax.random.key(3)
    keys = jax.random.split(jax.random.split(key)[0], 6)
    made = evaluate(lambda: jax.vmap(generator.draw)(keys))
    free = lambda e, rows: jax.vmap(lambda x: e(x=x))(rows)

    def total(both):
        e, g = both
        return sum(Adversarial(g, 2.0, 3.0)(e, batch, None, key)[0].values())

    def energy_alone(e):
        steep = lambda rows: (jax.vmap(lambda x: e.score("x", x=x))(rows) ** 2).sum(1)
        penalty = 0.75 * (batch.mean(steep(x)) + steep(made).mean())
        return batch.mean(free(e, x)) - free(e, made).mean() + penalty

    def generator_alone(g):
        made = jax.vmap(g.draw)(keys)
        return free(energy, made).mean() + 2.0 * discrepancy(made, x, batch.weight)

    gradient = lambda loss, at: evaluate(lambda: eqx.filter_grad(loss)(at))
    found_energy, found_generator = gradient(total, (energy, generator))
    for found, expected in (
        (found_energy, gradient(energy_alone, energy)),
        (found_generator, gradient(generator_alone, generator)),
    ):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            assert np.any(b)


def test_the_discrepancy_sees_a_shift_and_a_collapse():
    """Means over 200 pairs of samples: near 0 for equal distributions, above for different ones."""

    def mean(make, n=200):
        def one(key):
            a, b = jax.random.split(key)
            return discrepancy(
                make(jax.random.normal(a, (50, 2))), jax.random.normal(b, (50, 2)), jnp.ones(50)
            )

        values = np.asarray(evaluate(lambda: jax.vmap(one)(jax.random.split(jax.random.key(0), n))))
        return values.mean(), values.std() / np.sqrt(n)

    same, stderr = mean(lambda u: u)
    assert abs(same) < 4 * stderr + 1e-3
    assert mean(lambda u: u + 0.5)[0] > 20 * stderr
    assert mean(lambda u: 0 * u)[0] > 20 * stderr


def test_padding_counts_for_nothing():
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=(n, 2)), jnp.float32) for n in (5, 4))
    weight = jnp.array([1.0] * 4 + [0.0] * 4)
    padded = evaluate(lambda: discrepancy(a, jnp.concatenate([b, 100 + b]), weight))
    assert np.isclose(padded, evaluate(lambda: discrepancy(a, b, jnp.ones(4))), rtol=1e-5)


def test_the_generator_finds_the_data():
    """Two clusters: draws in both, with the mean and the spread of the data."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) * 0.3 + np.where(rng.random((400, 1)) < 0.5, -1.5, 1.5)
    x = x.astype(np.float32)
    objective = Adversarial(Generator.random(2, 2, key=1, width=32))
    energy = NeuralEnergy.random(2, key=0, width=32)
    done = fit(
        energy, {"x": x}, Descent(objective, optax.adam(3e-3, b1=0.5)), key=2, epochs=150, batch_size=100
    )
    draw = jax.vmap(done.partner.draw)
    made = np.asarray(evaluate(lambda: draw(jax.random.split(jax.random.key(5), 1000))))
    assert 0.25 < (made[:, 0] > 0).mean() < 0.75
    assert np.abs(made.mean(0) - x.mean(0)).max() < 0.3
    assert np.abs(made.std(0) / x.std(0) - 1).max() < 0.2
    energies = jax.vmap(lambda x: done.energy(x=x))
    score = lambda rows: float(evaluate(lambda: energies(jnp.asarray(rows)).mean()))
    assert score(x) < score(np.array([[0.0, 0.0], [1.5, -1.5], [-1.5, 1.5]], np.float32))


def test_refusals():
    energy, generator = players()
    x = np.zeros((3, 2))
    with pytest.raises(Unsuitable, match="ContrastiveDivergence"):
        Adversarial(generator).check(RBM.random(2, 2, key=0), {"x": x})
    with pytest.raises(Unsuitable, match="generator"):
        Adversarial(None).check(energy, {"x": x})
    with pytest.raises(Unsuitable, match="one output per feature"):
        Adversarial(Generator.random(2, 5, key=0)).check(energy, {"x": x})
    with pytest.raises(Unsuitable, match="missing"):
        Adversarial(generator).check(energy, {"x": Masked(x, x > 0)})


def test_the_discrepancy_by_hand():
    """Against the explicit differences of all pairs in float64, far from the origin and with weights."""
    rng = np.random.default_rng(0)
    a, b, w = 1e3 + rng.normal(size=(6, 3)), 1e3 + rng.normal(size=(7, 3)), rng.random(7)
    far = lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1)
    pairs = np.outer(w, w) * (1 - np.eye(7))
    scale = (pairs * far(b, b)).sum() / pairs.sum()
    kernel = lambda x, y: np.mean([np.exp(-far(x, y) / (2 * s * scale)) for s in (0.25, 1.0, 4.0)], axis=0)
    within_a = (kernel(a, a).sum() - 6) / 30
    expected = within_a + (pairs * kernel(b, b)).sum() / pairs.sum() - 2 * (kernel(a, b) @ w / w.sum()).mean()
    found = evaluate(lambda: discrepancy(*(jnp.asarray(v, jnp.float32) for v in (a, b, w))))
    assert float(found) == pytest.approx(expected, abs=1e-3)


def test_many_rows_are_compared_by_some():
    """The matrix of all pairs has at most 2048 rows, and no array holds the differences of all pairs."""
    big = 5000
    energy, generator = players()
    batch = Batch({"x": jax.random.normal(jax.random.key(0), (big, 2))}, jnp.ones(big))
    call = jax.make_jaxpr(
        lambda x: Adversarial(generator)(energy, Batch({"x": x}, batch.weight), None, KEY)[0]
    )
    sizes = [v.aval.size for eqn in call(batch.data["x"]).jaxpr.eqns for v in eqn.outvars]
    assert max(sizes) <= 2048**2
