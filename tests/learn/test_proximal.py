"""The proximal learner: any objective with an L1 penalty, and its certificate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from energax import fit
from energax.energies import Linear, NeuralEnergy
from energax.errors import BadInput, Unsuitable
from energax.learn import ELBO, CrossEntropy, Proximal
from energax.nn import Encoder


def test_l1_logistic_regression_reaches_the_optimum_of_scikit_learn():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    l1 = 0.02
    with jax.enable_x64(True):
        start = Linear(jnp.zeros((3, 4)), jnp.zeros(3))
        learner = Proximal(CrossEntropy(), l1, tol=1e-8)
        found = fit(start, {"x": X, "y": y}, learner, epochs=3000, key=0)
    assert found.converged and float(found.state.violation) <= 1e-8
    peer = LogisticRegression(C=1 / (150 * l1), l1_ratio=1, solver="saga", tol=1e-10, max_iter=20_000).fit(
        X, y
    )
    W = np.asarray(found.energy.weight)
    np.testing.assert_allclose(W, peer.coef_, atol=1e-5)
    assert (W == 0).sum() >= 4
    assert found.history["objective"][-1] == pytest.approx(
        -np.log(peer.predict_proba(X)[np.arange(150), y]).mean() + l1 * np.abs(peer.coef_).sum(), abs=1e-9
    )


def test_frozen_parameters_and_weights_of_rows():
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [9.0, 9.0]], np.float32)
    y, weights = np.array([0, 1, 1, 0]), np.array([1.0, 1.0, 1.0, 0.0])
    start = Linear(jnp.zeros((2, 2)), jnp.array([0.5, 0.0]))
    learner = Proximal(CrossEntropy(l2=0.1), 0.01)
    found = fit(start, {"x": X, "y": y}, learner, weights=weights, freeze="bias", epochs=100, key=0)
    np.testing.assert_array_equal(found.energy.bias, [0.5, 0.0])
    without = fit(start, {"x": X[:3], "y": y[:3]}, learner, freeze="bias", epochs=100, key=0)
    np.testing.assert_allclose(found.energy.weight, without.energy.weight, atol=1e-5)


def test_unsuitable_objectives_and_settings():
    energy = Linear(jnp.zeros((2, 2)), jnp.zeros(2))
    data = {"x": np.zeros((3, 2), np.float32), "y": np.array([0, 1, 1])}
    with pytest.raises(Unsuitable, match="which Linear does not have"):
        fit(energy, data, Proximal(CrossEntropy(), 0.1, on="slope"), key=0)
    with pytest.raises(BadInput, match="l1"):
        Proximal(CrossEntropy(), -1.0)
    with pytest.raises(BadInput, match="objective"):
        Proximal("loss", 1.0)
    network = NeuralEnergy.random(2, key=0, width=3)
    with pytest.raises((Unsuitable, BadInput)):
        Proximal(ELBO(Encoder.random(2, 1, key=0, width=3)), 0.1).check(network, {"x": data["x"]})
