"""Neural energies: confinement, reinitialisation and spaces."""

import jax
import jax.numpy as jnp
import numpy as np

from energax.energies import NeuralEnergy
from energax.spaces import Binary, Real


def test_the_confinement_makes_it_normalisable():
    energy = NeuralEnergy(lambda x: -3.0 * x[0], 1, confinement=0.5)  # unbounded below without it
    grid = np.linspace(-60, 60, 200001)
    density = np.exp(-jax.vmap(lambda x: energy(x=x))(jnp.asarray(grid[:, None])))
    integral = np.log(np.trapezoid(density, grid))
    assert abs(integral - (0.5 * np.log(2 * np.pi / 0.5) + 9.0)) < 1e-4  # N(6, 2) times its constant


def test_score_is_minus_the_gradient():
    energy = NeuralEnergy.random(3, key=0, confinement=1.0)
    x = jnp.array([0.1, -2.0, 0.7])
    step = 1e-2 * np.eye(3, dtype=np.float32)
    numeric = [-(energy(x=x + s) - energy(x=x - s)) / 2e-2 for s in step]
    np.testing.assert_allclose(energy.score("x", x=x), numeric, atol=2e-3)


def test_a_learned_confinement_is_a_parameter_and_a_number_is_not():
    n = lambda energy: sum(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(energy))
    assert (
        n(NeuralEnergy.random(2, key=0, confinement=jnp.array(0.1))) == n(NeuralEnergy.random(2, key=0)) + 1
    )


def test_any_space_and_enumeration():
    energy = NeuralEnergy.random(Binary(3), key=1)
    assert energy.spaces == {"x": Binary(3)} and NeuralEnergy.random(2, key=0).spaces == {"x": Real(2)}
    values = Binary(3).values()
    by_hand = jax.nn.logsumexp(-jax.vmap(lambda x: energy(x=x))(values))
    np.testing.assert_allclose(energy.log_partition(), by_hand, rtol=1e-6)


def test_a_restart_changes_every_layer():
    energy = NeuralEnergy.random(2, key=0)
    other = energy.initialise(jax.random.key(1), {}, None)
    for a, b in zip(energy.network.layers, other.network.layers, strict=True):
        assert not np.allclose(a.weight, b.weight) and not np.allclose(a.bias, b.bias)
