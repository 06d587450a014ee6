"""Contrastive divergence: what is held, what is carried, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from energax import fit
from energax.batch import Batch
from energax.energies import RBM, GaussianRBM, NeuralEnergy
from energax.errors import BadInput, Unsuitable
from energax.learn import ContrastiveDivergence, Descent
from energax.missing import Masked
from energax.samplers import Langevin


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


def test_chains_that_nothing_would_use_are_refused():
    with pytest.raises(BadInput, match="persistent=True"):
        ContrastiveDivergence(n_chains=5)
    with pytest.raises(BadInput, match="k"):
        ContrastiveDivergence(0)


def test_persistent_chains_do_not_begin_at_padding():
    rbm = RBM.random(4, 2, key=0)
    batch = Batch({"x": jnp.concatenate([jnp.ones((1, 4)), jnp.zeros((9, 4))])}, jnp.zeros(10).at[0].set(1))
    carry = ContrastiveDivergence(1, persistent=True).init(rbm, batch, jax.random.key(0))
    assert (carry["x"] == 1).all()


@pytest.mark.parametrize("mean", [-1.0, 1.0])
def test_langevin_chains_teach_a_network(mean):
    """The lowest energy goes to the side of zero where the rows of a normal are."""
    x = (mean + 0.3 * np.random.default_rng(0).normal(size=(64, 1))).astype(np.float32)
    energy = NeuralEnergy.random(1, key=0, width=8, depth=1)
    objective = ContrastiveDivergence(5, sampler=Langevin(0.05))
    done = fit(energy, {"x": x}, Descent(objective, optax.adam(0.02)), epochs=30, key=1)
    low, high = (float(done.energy(x=jnp.array([side * mean]))) for side in (1.0, -1.0))
    assert low < high - 0.5
