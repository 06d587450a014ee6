"""The linear-Gaussian state-space model: densities, posterior and EM against the joint normal."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from state_space import STEPS, D, K, conditioned, joint, random_chain, sequences

import energax
from energax import Energy
from energax.energies._sequence.linear_gaussian import LinearGaussianSSM
from energax.errors import BadInput, Unsuitable
from energax.infer._sequence.kalman import Kalman
from energax.missing import Masked

# -- the energy ------------------------------------------------------------------------------------------


def test_energy_and_free_energies_are_those_of_the_joint_normal():
    x, seen = sequences()
    z = np.random.default_rng(9).normal(size=(STEPS, K))
    with jax.enable_x64(True):
        chain = random_chain()
        mean, cov = joint(chain, STEPS)
        at = np.concatenate([np.arange(STEPS * K), STEPS * K + np.flatnonzero(seen[0])])
        whole = np.concatenate([z.ravel(), x[0].ravel()])
        masked = Masked(np.where(seen[0], x[0], 7.0), seen[0])
        log_p = lambda at: multivariate_normal.logpdf(whole[at], mean[at], cov[np.ix_(at, at)])
        every = np.arange(len(whole))

        @eqx.filter_jit
        def energies(chain, x, masked, z):
            every = [
                chain(x=x, z=z),
                chain(x=masked, z=z),
                chain.free_energy(x=x),
                chain.free_energy(x=masked),
            ]
            by_scan = random_chain(parallel=True).free_energy(x=masked)
            return [*every, chain.free_energy(z=z), chain.log_partition(), by_scan]

        found = energies(chain, jnp.asarray(x[0]), jax.tree.map(jnp.asarray, masked), jnp.asarray(z))
    at_x, seen_x = every[STEPS * K :], at[STEPS * K :]
    want = [log_p(every), log_p(at), log_p(at_x), log_p(seen_x), log_p(every[: STEPS * K]), 0, log_p(seen_x)]
    np.testing.assert_allclose(found, -np.array(want), atol=1e-9)


def test_the_posterior_is_the_joint_normal_conditioned():
    x, seen = sequences()
    with jax.enable_x64(True):
        chain = random_chain()
        found = energax.posterior(chain, {"x": np.where(seen, x, np.nan)})
        assert found.method == "kalman" and found.kind == "exact"
        for i in range(len(x)):
            mean, cov, log_p = conditioned(chain, x[i], seen[i])
            blocks = [cov[t * K : (t + 1) * K, t * K : (t + 1) * K] for t in range(STEPS)]
            np.testing.assert_allclose(found.mean["z"][i].ravel(), mean[: STEPS * K], atol=1e-9)
            np.testing.assert_allclose(found.covariance["z"][i], blocks, atol=1e-9)
            np.testing.assert_allclose(found.mean["x"][i].ravel(), mean[STEPS * K :], atol=1e-9)
            variance = np.diag(cov)[STEPS * K :].reshape(STEPS, D)
            np.testing.assert_allclose(found.standard_deviation["x"][i] ** 2, variance, atol=1e-9)
            np.testing.assert_allclose(found.log_evidence.value[i], log_p, atol=1e-9)
        best = energax.argmin(chain, {"x": np.where(seen, x, np.nan)})
        np.testing.assert_allclose(best["z"], found.mean["z"], atol=1e-12)
        # No neighbour is better: the gradient there is zero.
        slope = jax.jit(jax.grad(lambda z, x: chain(x=x, z=z)))(best["z"][0], best["x"][0])
        assert np.abs(slope).max() < 1e-9


def test_draws_have_the_moments_of_the_posterior():
    """10 000 draws of z and the missing values of x: beyond 5 standard errors once in 10⁵ such tests."""
    x, seen = sequences()
    n = 10_000
    with jax.enable_x64(True):
        chain = random_chain()
        draws = energax.sample(chain, n, {"x": np.where(seen[0], x[0], np.nan)}, key=0)
        mean, cov, _ = conditioned(chain, x[0], seen[0])
        found = np.concatenate([np.reshape(draws["z"], (n, -1)), np.reshape(draws["x"], (n, -1))], axis=1)
    free = np.diag(cov) > 1e-9
    np.testing.assert_allclose(found[:, ~free] - mean[~free], 0, atol=1e-9)
    found, mean, cov = found[:, free], mean[free], cov[np.ix_(free, free)]
    assert np.abs((found.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert np.abs((np.cov(found.T) - cov) / error).max() < 5.5


def test_draws_of_everything_have_the_moments_of_the_model():
    n = 10_000
    chain = random_chain(1)
    draws = energax.sample(chain, n, key=3)
    mean, cov = joint(chain, STEPS)
    found = np.concatenate([np.reshape(draws["z"], (n, -1)), np.reshape(draws["x"], (n, -1))], axis=1)
    assert np.abs((found.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    given_z = energax.posterior(chain, {"z": draws["z"][0]})
    np.testing.assert_allclose(
        given_z.mean["x"], draws["z"][0] @ chain.emission.T + chain.emission_offset, rtol=1e-5
    )


# -- input validation --------------------------------------------------------------------------------------


def test_what_is_no_model_is_refused_with_a_sentence():
    eye = np.eye(2)
    good = {"transition": eye, "emission": eye, "transition_covariance": eye, "emission_covariance": eye}
    cases = [
        ({"emission_covariance": np.diag([1.0, 0.0])}, r"eigenvalue 0.*positive eigenvalues.*small variance"),
        ({"emission_covariance": np.zeros((2, 2))}, "small variance"),
        ({"transition_covariance": -eye}, r"eigenvalue -1.*without negative"),
        ({"transition_covariance": np.array([[1.0, 2.0], [0.0, 1.0]])}, "not symmetric"),
        ({"transition": np.eye(3)}, r"transition: found shape \(3, 3\); expected \(2, 2\)"),
        ({"emission": np.ones(2)}, r"emission: found shape \(2,\); expected \(d, k\)"),
        ({"transition": np.full((2, 2), np.nan)}, "NaN or infinity"),
        ({"transition": [["a"]]}, "array of numbers"),
        ({"initial_mean": np.zeros(3)}, "initial_mean"),
        ({"length": 0}, "number of steps >= 1"),
        ({"diagonal": ("emission",)}, "some of initial_covariance"),
        ({"diagonal": "transition_covariance", "transition_covariance": eye + 0.1}, "off the diagonal"),
    ]
    for change, sentence in cases:
        with pytest.raises(BadInput, match=sentence):
            LinearGaussianSSM(**{**good, **change})
    with pytest.raises(BadInput, match="number of steps to draw"):
        LinearGaussianSSM(**good).draw(jax.random.key(0))
    with pytest.raises(Unsuitable, match="temperature"):
        LinearGaussianSSM(**good).expectations({"x": jnp.zeros((1, 3, 2))}, 2.0)
    with pytest.raises(Unsuitable, match="Kalman is for linear-Gaussian chains"):
        energax.posterior(energax.energies.RBM.random(3, 2, key=0), {"x": [0, 1, 1]}, Kalman())


def test_saved_and_loaded(tmp_path):
    chain = random_chain(0, diagonal=())
    energax.save(chain, tmp_path / "chain")
    loaded = energax.load(tmp_path / "chain")
    assert loaded.spaces == chain.spaces
    x = np.ones((STEPS, D), np.float32)
    assert float(loaded.free_energy(x=x)) == float(chain.free_energy(x=x))


class Tracker(Energy):
    """A state-space model whose variables are called positions and track."""

    model: LinearGaussianSSM
    observed_name, state_name = "positions", "track"
    marginalises = frozenset({"positions"})

    transition = property(lambda self: self.model.transition)

    @property
    def spaces(self):
        return {"positions": self.model.spaces["x"], "track": self.model.spaces["z"]}

    def __call__(self, *, positions, track):
        return self.model(x=positions, z=track)

    def smooth(self, *, positions):
        return self.model.smooth(x=positions)

    def complete(self, *, positions, smoothed=None):
        return self.model.complete(x=positions, smoothed=smoothed)

    def draw(self, key, *, positions=None, track=None):
        names = {"x": "positions", "z": "track"}
        return {names[k]: v for k, v in self.model.draw(key, x=positions, z=track).items()}


def test_kalman_asks_the_energy_for_the_names_of_its_variables():
    x, seen = sequences()
    model = random_chain()
    given = np.where(seen, x, np.nan)
    theirs = energax.posterior(model, {"x": given})
    ours = energax.posterior(Tracker(model), {"positions": given}, Kalman())
    for name, other in {"positions": "x", "track": "z"}.items():
        np.testing.assert_array_equal(ours.mean[name], theirs.mean[other])
        np.testing.assert_array_equal(ours.covariance[name], theirs.covariance[other])
    best = energax.argmin(Tracker(model), {"positions": given}, Kalman())
    np.testing.assert_array_equal(best.energy, energax.argmin(model, {"x": given}).energy)
    with pytest.raises(Unsuitable, match="finds track given positions"):
        energax.posterior(Tracker(model), {"track": np.zeros((STEPS, K))}, Kalman())
