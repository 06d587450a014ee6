"""EM of hidden chains whose emission has no M-step of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import Energy, fit, log_prob
from energax.energies import Gaussians, HiddenChain
from energax.errors import Unsuitable
from energax.learn import EM
from energax.spaces import Categorical, Real


class Normals(Energy):
    """One normal distribution of unit variance per state, without `statistics` and `maximise`."""

    means: jax.Array
    normalised = True

    @property
    def spaces(self):
        return {"x": Real(1), "z": Categorical(len(self.means))}

    def __call__(self, *, x, z):
        return 0.5 * jnp.sum((x - self.means[z]) ** 2) + 0.5 * jnp.log(2 * jnp.pi)


class Unnormalised(Normals):
    normalised = False


START = np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.4, 0.6]])


def sequences(n=4, steps=40):
    rng = np.random.default_rng(0)
    states = (rng.random((n, steps)) < 0.1).cumsum(1) % 2
    return (3.0 * states + rng.normal(size=(n, steps)))[..., None].astype(np.float32)


def chain(emission):
    return HiddenChain(*START, emission)


def test_a_chain_of_a_users_emission_reaches_the_maximum_of_closed_form_em():
    x = sequences()
    means = jnp.array([[-1.0], [2.0]])
    own = fit(chain(Normals(means)), {"x": x}, EM(tol=None), key=0, epochs=60)
    unit = jnp.ones((2, 1, 1))
    known = chain(Gaussians(means, covariance=unit))
    closed = fit(known, {"x": x}, EM(tol=None), key=0, epochs=60, freeze=["emission.covariance"])
    np.testing.assert_allclose(own.objective, closed.objective, rtol=2e-4)
    np.testing.assert_allclose(own.energy.emission.means, closed.energy.emission.means, atol=0.03)
    np.testing.assert_allclose(own.energy.transition, closed.energy.transition, atol=0.02)
    found = log_prob(own.energy, {"x": x}).value.mean()
    np.testing.assert_allclose(-found, own.objective, rtol=1e-3)


def test_weights_of_sequences_count_as_copies():
    x = sequences()
    fits = [
        fit(chain(Normals(jnp.array([[-1.0], [2.0]]))), {"x": data}, EM(tol=None), key=0, epochs=3, weights=w)
        for data, w in ((x, np.array([2.0, 1, 0, 1])), (x[[0, 0, 1, 3]], None))
    ]
    np.testing.assert_allclose(fits[0].energy.emission.means, fits[1].energy.emission.means, rtol=1e-3)
    np.testing.assert_allclose(fits[0].objective, fits[1].objective, rtol=1e-5)


def test_an_emission_that_is_not_normalised_is_refused():
    with pytest.raises(Unsuitable, match="log Z"):
        fit(chain(Unnormalised(jnp.array([[-1.0], [2.0]]))), {"x": sequences(2)}, EM(), key=0)
