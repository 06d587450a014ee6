"""Exact maximum likelihood: the gradient is the enumerated negative phase minus the positive one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import Energy
from energax.batch import Batch
from energax.energies import RBM, Decoder, Gaussian, GaussianRBM, Linear, NeuralEnergy
from energax.errors import Unsuitable
from energax.learn import ELBO, EM, CrossEntropy, NegativeLogLikelihood, ScoreMatching
from energax.nn import Encoder
from energax.spaces import Binary, Real


def test_gradient_is_positive_minus_negative_phase():
    """−E_data[xzᵀ] + E_model[xzᵀ], and the same for the biases, to 1e-6 relative."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        rbm = RBM(*(jnp.asarray(rng.normal(size=s)) for s in ((6, 4), (6,), (4,))))
        X, w = (rng.random((20, 6)) < 0.5).astype(float), rng.random(20)
        batch = Batch({"x": jnp.asarray(X)}, jnp.asarray(w))
        loss = lambda e: sum(NegativeLogLikelihood()(e, batch, None, jax.random.key(0))[0].values())
        gradient = evaluate(lambda: eqx.filter_grad(loss)(rbm))

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
    expected = (4 * (1 / (1 + np.exp(-0.4)) - 0.75) + 2 * 0.4) / 4
    np.testing.assert_allclose(evaluate(lambda: slope(rbm.bias)), [expected], rtol=1e-5)


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


class Hidden(Energy):
    """Two real variables, one of them hidden; nothing is known in closed form."""

    @property
    def spaces(self):
        return {"x": Real(1), "z": Real(1)}

    def __call__(self, *, x, z):
        return jnp.sum((x - z**2) ** 2 + z**4)


@pytest.mark.parametrize(
    "objective",
    [NegativeLogLikelihood(), CrossEntropy(target="x"), ScoreMatching(), EM()],
    ids=lambda o: type(o).__name__,
)
def test_real_hidden_variables_are_sent_to_the_elbo(objective):
    """The suggested ELBO accepts the same energy and data."""
    coins = (
        Decoder(lambda z: z[:1], 2)
        if isinstance(objective, CrossEntropy)
        else Decoder(lambda z: z, 2, Gaussian(jnp.ones(2)))
    )
    x = {"x": np.zeros((3, *coins.spaces["x"].shape))}
    with pytest.raises(Unsuitable, match=r"'z' in Real\(2\).*Descent\(ELBO\(encoder\)\)"):
        objective.check(coins, x)
    ELBO(Encoder.random(coins.n_features, 2, key=0)).check(coins, x)


def test_without_log_z_either_it_says_what_to_give():
    x = {"x": np.zeros((3, 1))}
    with pytest.raises(Unsuitable, match=r"Give the energy `free_energy`.*or `log_partition`"):
        NegativeLogLikelihood().check(Hidden(), x)
    with pytest.raises(Unsuitable, match=r"Give the energy `log_partition`; or `free_energy`") as error:
        ELBO(Encoder.random(1, 1, key=0)).check(Hidden(), x)
    assert "ELBO" not in str(error.value).removeprefix("ELBO needs log Z")


def test_of_a_classifier_it_is_the_cross_entropy():
    energy = Linear.random(2, 3, key=0, scale=1.0)
    batch = Batch({"x": jnp.arange(8.0).reshape(4, 2), "y": jnp.array([0, 1, 2, 1])}, jnp.arange(1.0, 5.0))
    likelihood = evaluate(lambda: sum(NegativeLogLikelihood()(energy, batch, None, None)[0].values()))
    expected = evaluate(lambda: CrossEntropy()(energy, batch, None, None)[0]["loss"])
    np.testing.assert_allclose(likelihood, expected, rtol=1e-5)
