"""Exact maximum likelihood: its gradient is the positive minus the enumerated negative phase."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.batch import Batch
from energax.energies import RBM, GaussianRBM, Linear, NeuralEnergy
from energax.errors import Unsuitable
from energax.learn import CrossEntropy, NegativeLogLikelihood
from energax.spaces import Binary


def test_gradient_is_positive_minus_negative_phase():
    """−E_data[xzᵀ] + E_model[xzᵀ], and the same for the biases, to 1e-6 relative."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        rbm = RBM(*(jnp.asarray(rng.normal(size=s)) for s in ((6, 4), (6,), (4,))))
        X, w = (rng.random((20, 6)) < 0.5).astype(float), rng.random(20)
        batch = Batch({"x": jnp.asarray(X)}, jnp.asarray(w))
        loss = lambda e: sum(NegativeLogLikelihood()(e, batch, None, jax.random.key(0))[0].values())
        gradient = eqx.filter_grad(loss)(rbm)

        W, b, c = (np.asarray(a) for a in (rbm.weight, rbm.bias, rbm.hidden_bias))
        hidden = 1 / (1 + np.exp(-(X @ W + c)))
        share = w / w.sum()
        positive = (X * share[:, None]).T @ hidden, share @ X, share @ hidden
        x, z = np.asarray(Binary(6).values()), np.asarray(Binary(4).values())
        log_p = x @ W @ z.T + (x @ b)[:, None] + z @ c
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        negative = x.T @ p @ z, p.sum(1) @ x, p.sum(0) @ z
        for found, plus, minus in zip(
            (gradient.weight, gradient.bias, gradient.hidden_bias), positive, negative, strict=True
        ):
            np.testing.assert_allclose(found, minus - plus, rtol=1e-6, atol=1e-12)


def test_a_prior_makes_it_map():
    """With prior ½λ‖b‖² the best bias of independent coins solves n(σ(b) − mean) + λb = 0."""
    X = np.array([[1.0], [1.0], [1.0], [0.0]])
    rbm = RBM(jnp.zeros((1, 1)), jnp.array([0.4]), jnp.zeros(1))
    objective = NegativeLogLikelihood(prior=lambda e: e.bias @ e.bias, n_rows=4)
    batch = Batch({"x": jnp.asarray(X)}, jnp.ones(4))
    slope = jax.grad(
        lambda b: sum(objective(RBM(rbm.weight, b, rbm.hidden_bias), batch, None, None)[0].values())
    )
    expected = (4 * (jax.nn.sigmoid(0.4) - 0.75) + 2 * 0.4) / 4
    np.testing.assert_allclose(slope(rbm.bias), [expected], rtol=1e-5)


def test_it_refuses_what_has_no_log_partition():
    data = {"x": np.zeros((3, 2))}
    with pytest.raises(Unsuitable, match="ScoreMatching"):
        NegativeLogLikelihood().check(NeuralEnergy.random(2, key=0), data)
    with pytest.raises(Unsuitable, match="ContrastiveDivergence"):
        NegativeLogLikelihood().check(RBM.random(64, 40, key=0), data)
    with pytest.raises(Unsuitable, match="'x'"):
        NegativeLogLikelihood().check(Linear.random(2, 3, key=0), {"y": np.zeros(3, int)})
    with pytest.raises(Unsuitable, match="n_rows"):
        NegativeLogLikelihood(prior=lambda e: 0.0).check(RBM.random(2, 2, key=0), data)
    NegativeLogLikelihood().check(GaussianRBM.random(2, 3, key=0), data)


def test_of_a_classifier_it_is_the_cross_entropy():
    energy = Linear.random(2, 3, key=0, scale=1.0)
    batch = Batch({"x": jnp.arange(8.0).reshape(4, 2), "y": jnp.array([0, 1, 2, 1])}, jnp.arange(1.0, 5.0))
    likelihood = sum(NegativeLogLikelihood()(energy, batch, None, None)[0].values())
    np.testing.assert_allclose(likelihood, CrossEntropy()(energy, batch, None, None)[0]["loss"], rtol=1e-5)
