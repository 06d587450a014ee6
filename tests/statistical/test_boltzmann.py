"""Boltzmann machines on real data: a published score, with the bracket of log Z, and deep against shallow.

log p from the forward chains is an estimate from above in expectation, that from the reverse chains a bound
from below; both must reach the score, and agree.
"""

import jax
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import fit, log_prob
from energax.energies import RBM, DeepBoltzmannMachine
from energax.infer import AnnealedImportance, VariationalBound
from energax.learn import ContrastiveDivergence, Descent, check_phases

pytestmark = pytest.mark.slow


def learn(energy, x, k, step, epochs, weight_decay, initialise=True):
    schedule = optax.cosine_decay_schedule(step, epochs * -(-len(x) // 100))
    objective = ContrastiveDivergence(k, persistent=True, n_chains=200)
    learner = Descent(objective, optax.adamw(schedule, weight_decay=weight_decay))
    done = fit(energy, {"x": x}, learner, key=1, epochs=epochs, batch_size=100, initialise=initialise)
    return done, learner


def brackets(rbm, test, n_steps, data=None):
    """Mean log p of the test rows by the forward chains, and by the reverse chains.

    With data the chains start at the rates of these rows, else at those of a pilot run.
    """
    free = np.mean(evaluate(lambda: jax.vmap(lambda x: rbm.free_energy(x=x))(test)))
    method = AnnealedImportance(n_chains=200, n_steps=n_steps, data=data)
    return [-free - float(z.value) for z in method.bracket(rbm, key=0)]


def test_dna_reaches_the_published_rbm(shared_data):
    """Larochelle and Murray (2011): an RBM has a test log-likelihood of −96.74."""
    data = np.load(shared_data / "binary-uci" / "dna.npz")
    x, test = (data[f"{part}_data"].astype(np.float32) for part in ("train", "test"))
    done, learner = learn(RBM.random(180, 50, key=0), x, 5, 0.01, 60, 0.1)
    assert check_phases(done, {"x": x}, learner)["gap"] < 0.3
    above, below = brackets(done.energy, test, 1000)
    assert abs(above - below) < 0.2 and below > -96.74


def test_mushrooms_reach_the_published_rbm(shared_data):
    """Larochelle and Murray (2011): an RBM has a test log-likelihood of −15.15."""
    data = np.load(shared_data / "binary-uci" / "mushrooms.npz")
    x, test = (data[f"{part}_data"].astype(np.float32) for part in ("train", "test"))
    done, learner = learn(RBM.random(112, 200, key=0), x, 5, 0.003, 400, 0.002)
    assert check_phases(done, {"x": x}, learner)["gap"] < 0.3
    above, below = brackets(done.energy, test, 1000, {"x": x})
    assert abs(above - below) < 0.5 and below > -15.15


def test_many_hidden_units_are_the_best_model_of_digits(binary_digits):
    """The floor of the best model of the library, with both ends of the bracket above it."""
    x, test = binary_digits
    done, _ = learn(RBM.random(64, 200, key=0), x, 10, 0.02, 300, 0.04)
    above, below = brackets(done.energy, test, 2000, {"x": x})
    assert abs(above - below) < 0.1 and min(above, below) >= -16.8


def test_a_deep_machine_is_above_the_rbm_at_its_bottom(binary_digits):
    """The bound of the deep machine, with an exact log Z, against the exact score of the RBM."""
    x, test = binary_digits
    bottom = learn(RBM.random(64, 12, key=0), x, 3, 0.02, 60, 0.02)[0].energy
    top = 0.1 * jax.random.normal(jax.random.key(5), (12, 12))
    biases = (bottom.bias, bottom.hidden_bias, np.zeros(12, np.float32))
    start = DeepBoltzmannMachine((bottom.weight, top), biases)
    deep = learn(start, x, 3, 0.01, 60, 0.02, initialise=False)[0].energy
    exact = log_prob(bottom, {"x": test})
    bound = log_prob(deep, {"x": test}, VariationalBound(100), key=0)
    assert (exact.kind, bound.kind) == ("exact", "lower bound")
    assert bound.value.mean() > exact.value.mean()
