"""Descent: the steps of its optimizer in ℝⁿ, and no second copy of unconstrained parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import BadInput, fit
from energax.batch import Batch
from energax.energies import GaussianRBM
from energax.learn import Descent, NegativeLogLikelihood
from energax.parameters import constrain, trainable_leaves, unconstrain

LEARNER = Descent(NegativeLogLikelihood(), optax.adam(0.05))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal([1.0, -1.0, 0.5], [0.5, 1.0, 2.0], (40, 3)).astype(np.float32)


def test_the_steps_are_those_of_the_optimizer_on_unconstrained_parameters(rows):
    """Against thirty explicit steps: σ is updated as log σ, all other parameters directly."""
    machine = GaussianRBM.random(3, 2, key=0, spread=0.3)
    done = fit(machine, {"x": rows}, LEARNER, key=0, epochs=30)

    def loss(free):
        energy = constrain(free)
        return jax.vmap(lambda x: energy.free_energy(x=x))(rows).mean() + energy.log_partition()

    @jax.jit
    def step(free, moments):
        value, slope = jax.value_and_grad(loss)(free)
        updates, moments = LEARNER.optimizer.update(slope, moments, free)
        return optax.apply_updates(free, updates), moments, value

    free = unconstrain(machine)
    moments, losses = LEARNER.optimizer.init(free), []
    for _ in range(30):
        free, moments, value = step(free, moments)
        losses.append(value)
    np.testing.assert_allclose(done.history["objective"], losses, rtol=2e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6), done.energy, constrain(free)
    )


@pytest.mark.parametrize(("freeze", "kept"), [(None, 1), ("weight", 1), ("scale", 0)])
def test_only_constrained_parameters_are_stored_in_the_state(rows, freeze, kept):
    machine = GaussianRBM.random(3, 2, key=0)
    moves = trainable_leaves(machine, freeze)
    batch = Batch({"x": jnp.asarray(rows)}, jnp.ones(len(rows)))
    state = evaluate(lambda: LEARNER.init(machine, batch, jax.random.key(0), moves))
    _, after, _ = evaluate(lambda: LEARNER.step(machine, state, batch, jax.random.key(1), moves))
    assert len(jax.tree.leaves(state.free)) == kept
    assert jax.tree.structure(after) == jax.tree.structure(state)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"clip": -1.0}, "clip: found -1.0"), ({"clip": 0}, "clip: found 0"), ({"tol": "x"}, "tol: found 'x'")],
)
def test_settings_that_make_no_sense(settings, said):
    with pytest.raises(BadInput, match=said):
        Descent(NegativeLogLikelihood(), **settings)
