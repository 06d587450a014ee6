"""Means of weights with their errors, and the keys of the stages of sequential Monte Carlo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from quick import evaluate

from energax import log_partition, sample
from energax.energies import NeuralEnergy
from energax.infer import BridgeSampling, TemperedSMC
from energax.infer._monte_carlo import bridge
from energax.infer._monte_carlo.smc import _run_one
from energax.infer._monte_carlo.thermodynamic import _corrected_trapezoid
from energax.infer._monte_carlo.weights import log_mean_weight
from energax.samplers import Draws


def test_the_error_of_a_log_mean_is_the_relative_error_of_the_mean():
    """std(w) / (√n w̄), with n − 1 degrees of freedom."""
    w = np.array([1.0, 2.0, 1.5, 1.0])
    found = log_mean_weight(np.log(w) + 7)
    np.testing.assert_allclose(found.value, np.log(w.mean()) + 7)
    np.testing.assert_allclose(found.stderr, w.std(ddof=1) / 2 / w.mean())
    np.testing.assert_allclose(found.ess, w.sum() ** 2 / (w**2).sum())


class Recorder(eqx.Module):
    """A path of energies 0 to 20 whose moves change nothing and write down their keys."""

    def start(self, n, key):
        keys = jnp.zeros((n, 40, 2), jnp.uint32)
        return {"energy": jnp.linspace(0.0, 20.0, n), "keys": keys, "stages": jnp.zeros(n, jnp.int32)}

    def log_ratios(self, states, before, after):
        return (before - after) * states["energy"]

    def move(self, states, beta, key, n_moves):
        keys = states["keys"].at[:, states["stages"][0]].set(jax.random.key_data(key))
        return {**states, "keys": keys, "stages": states["stages"] + 1}


def test_every_stage_of_smc_has_keys_of_its_own():
    _, states, beta = evaluate(lambda: _run_one(Recorder(), 32, 1, 0.8, jax.random.key(0)))
    n = int(states["stages"][0])
    assert beta == 1 and n >= 3
    assert len(np.unique(np.asarray(states["keys"])[0, :n], axis=0)) == n


class Known(eqx.Module):
    """A path whose states are those of the variables."""

    def complete(self, states, beta, key):
        return states

    def constrain(self, states):
        return states


def test_draws_of_smc_are_from_runs_by_their_weights(monkeypatch):
    """The second of two runs has e⁻⁵⁰ of the weight of the first."""
    states = {"x": jnp.array([[[0.0, 0.0]] * 4, [[1.0, 1.0]] * 4])}
    monkeypatch.setattr(TemperedSMC, "_run", lambda *_: (Known(), np.array([0.0, -50.0]), states))
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0)
    drawn = sample(bowl, 40, method=TemperedSMC(n_particles=4, n_runs=2), key=0)["x"]
    assert (drawn == 0).all()


def test_the_corrected_trapezoid_is_exact_for_cubics():
    x = np.array([0.0, 0.5, 2.0])
    np.testing.assert_allclose(_corrected_trapezoid(x, x**3 - x**2, 3 * x**2 - 2 * x), 4 - 8 / 3)


def test_a_bridge_takes_its_ratios_at_draws_that_did_not_fit_the_proposal(monkeypatch):
    """The first half of every chain fits the proposal; at these draws the ratios would be too alike."""
    chains = np.random.default_rng(0).normal(size=(2, 200, 1)).astype(np.float32) * 0.7
    at, ratios = [], bridge._log_ratios
    monkeypatch.setattr(bridge, "run_chains", lambda *_, **__: Draws({"x": chains}, method="known"))
    monkeypatch.setattr(bridge, "_log_ratios", lambda target, flat: at.append(flat) or ratios(target, flat))
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=2.0)
    log_partition(bowl, BridgeSampling(n_draws=400, n_chains=2), key=0)
    np.testing.assert_allclose(at[0].reshape(2, 100, 1), chains[:, 100:], rtol=1e-6)
