"""Contrastive divergence: what is held, what is carried, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.batch import Batch
from energax.energies import RBM, GaussianRBM, NeuralEnergy
from energax.errors import Unsuitable
from energax.learn import ContrastiveDivergence
from energax.missing import Masked


def test_the_first_argument_is_k():
    assert ContrastiveDivergence(5).k == 5 and ContrastiveDivergence(5).partner is None


def test_persistent_chains_go_on():
    rbm = RBM.random(6, 3, key=0, scale=0.1)
    batch = Batch({"x": jnp.ones((4, 6))}, jnp.ones(4))
    objective = ContrastiveDivergence(1, persistent=True, n_chains=7)
    carry = objective.init(rbm, batch, jax.random.key(0))
    assert carry["x"].shape == (7, 6) and (carry["x"] == 1).all()
    _, after = objective(rbm, batch, carry, jax.random.key(1))
    assert after["x"].shape == (7, 6) and not (after["x"] == 1).all()


def test_chains_from_the_data_carry_their_weights():
    """A padded row is in neither phase: the loss does not depend on what it holds."""
    rbm, key = RBM.random(4, 3, key=0, scale=1.0), jax.random.key(1)
    weight = jnp.array([1.0, 1.0, 0.0])
    losses = []
    for filler in (0.0, 1.0):
        x = jnp.array([[1.0, 0, 1, 0], [0, 1, 1, 1], [filler] * 4])
        losses.append(ContrastiveDivergence(2)(rbm, Batch({"x": x}, weight), None, key)[0])
    assert losses[0] == losses[1]


def test_missing_values_are_drawn_with_the_known_held():
    """A strong pair: the hidden twin of a known one is drawn as one."""
    rbm = RBM(jnp.array([[40.0], [40.0]]), jnp.full(2, -20.0), jnp.array([-40.0]))  # both or none
    x = Masked(jnp.array([[1.0, 0.0]]), jnp.array([[True, False]]))
    objective = ContrastiveDivergence(1)
    completed = objective._completed(rbm, Batch({"x": x}, jnp.ones(1)), jax.random.key(0))
    assert completed["x"][0, 0] == 1
    twin = [
        float(objective._completed(rbm, Batch({"x": x}, jnp.ones(1)), jax.random.key(i))["x"][0, 1])
        for i in range(10)
    ]
    assert np.mean(twin) > 0.5


def test_refusals():
    with pytest.raises(Unsuitable, match="Langevin"):
        ContrastiveDivergence().check(NeuralEnergy.random(2, key=0), {"x": np.zeros((2, 2))})
    with pytest.raises(Unsuitable, match="observed"):
        ContrastiveDivergence().check(RBM.random(2, 2, key=0), {})
    ContrastiveDivergence().check(GaussianRBM.random(2, 2, key=0), {"x": np.zeros((2, 2))})
