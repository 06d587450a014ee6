"""Attacks, adversarial training and noise while learning: closed forms, bounds, expectations."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import energax
from energax import Batch, learn
from energax.energies import RBM, Linear, NeuralRegressor, Scorer
from energax.errors import BadInput, Unsuitable
from energax.nn import mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = RNG.integers(0, 3, 24).astype(np.int32)
NET = Scorer(mlp(3, 3, key=0, width=16), 3, 3)
LINEAR = Linear(jnp.asarray(RNG.normal(size=(3, 3)), jnp.float32), jnp.zeros(3))
ROWS = Batch({"x": jnp.asarray(X), "y": jnp.asarray(Y)}, jnp.ones(24))


def losses(energy, x):
    return -np.asarray(energax.log_prob(energy, {"x": np.asarray(x), "y": Y}).value)


def test_the_fast_gradient_sign_of_a_linear_model():
    """∂/∂x −log p(y | x) = Σ_k p_k w_k − w_y."""
    w = np.asarray(LINEAR.weight)
    scores = X @ w.T
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    expected = X + 0.3 * np.sign(p @ w - w[Y])
    found = learn.FastGradientSign(0.3)(LINEAR, X, Y)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    one = learn.FastGradientSign(0.3)(LINEAR, X[0], Y[0])
    np.testing.assert_allclose(one, expected[0], atol=1e-6)
    clipped = learn.FastGradientSign(0.3, low=-1.0, high=1.0)(LINEAR, X, Y)
    np.testing.assert_allclose(clipped, np.clip(expected, -1, 1), atol=1e-6)
    by_column = learn.FastGradientSign(jnp.array([0.3, 0.0, 1.0]))(LINEAR, X, Y)
    np.testing.assert_allclose(np.abs(by_column - X), np.tile([0.3, 0.0, 1.0], (24, 1)), atol=1e-6)


def test_two_classes_have_the_worst_case_of_the_ball():
    """−log p of two classes rises by exactly that of the margin m − ε‖w‖, in the dual norm."""
    two = Linear(jnp.array([[1.0, -2.0, 0.5], [0.0, 1.0, 0.0]]), jnp.zeros(2))
    y = Y % 2
    w = np.array([1.0, -3.0, 0.5])
    margin = (X @ w) * np.where(y == 0, 1, -1)
    for norm, dual in (("inf", np.abs(w).sum()), (2, np.sqrt((w**2).sum()))):
        x = learn.ProjectedGradient(0.4, norm=norm, steps=20)(two, X, y)
        found = -energax.log_prob(two, {"x": np.asarray(x), "y": y}).value
        np.testing.assert_allclose(found, np.logaddexp(0, -(margin - 0.4 * dual)), rtol=1e-4)


@pytest.mark.parametrize("norm", ["inf", 2])
@pytest.mark.parametrize("key", [None, 3])
def test_projected_gradients_stay_in_the_ball(norm, key):
    x = np.asarray(learn.ProjectedGradient(0.3, step=0.2, steps=7, norm=norm)(NET, X, Y, key=key))
    change = x - X
    size = np.abs(change).max(1) if norm == "inf" else np.sqrt((change**2).sum(1))
    assert (size <= 0.3 + 1e-6).all() and size.max() > 0.29
    boxed = learn.ProjectedGradient(0.3, steps=3, norm=norm, low=-0.5, high=0.5)(NET, X, Y, key=key)
    assert np.abs(np.asarray(boxed)).max() <= 0.5


def test_projected_gradients_are_at_least_as_harmful_as_one_step():
    """The first of 40 steps of length ε is that of the fast gradient sign, and the best step is returned."""
    fast = losses(NET, learn.FastGradientSign(0.5)(NET, X, Y))
    slow = losses(NET, learn.ProjectedGradient(0.5, step=0.5, steps=40)(NET, X, Y))
    assert (slow >= fast - 1e-5).all() and (fast > losses(NET, X)).mean() > 0.9


def test_an_attack_on_a_regressor_raises_its_error():
    net = NeuralRegressor.random(3, key=1, width=8)
    y = X[:, 0]
    x = learn.ProjectedGradient(0.3)(net, X, y)
    error = lambda x: (np.asarray(jax.vmap(lambda x: net.predict(x=x))(jnp.asarray(x))) - y) ** 2
    assert (error(x) >= error(X) - 1e-6).all()


def test_the_objective_is_that_of_attacked_rows():
    attack, plain = learn.FastGradientSign(0.2), learn.CrossEntropy(l2=0.1)
    key = jax.random.key(0)
    attacked = learn.AdversarialTraining(plain, attack)(NET, ROWS, None, key)[0]
    expected = losses(NET, attack(NET, X, Y)).mean()
    np.testing.assert_allclose(attacked["loss"], expected, rtol=1e-5)
    half = learn.AdversarialTraining(plain, attack, clean=0.25)(NET, ROWS, None, key)[0]
    np.testing.assert_allclose(half["loss"], 0.75 * expected + 0.25 * losses(NET, X).mean(), rtol=1e-5)
    np.testing.assert_allclose(half["penalty"], plain(NET, ROWS, None, key)[0]["penalty"], rtol=1e-6)
    # Validation rows are not attacked, and the gradient does not pass through the attack.
    validated = learn.AdversarialTraining(plain, attack).validate(NET, ROWS, None, key)["loss"]
    np.testing.assert_allclose(validated, losses(NET, X).mean(), rtol=1e-5)


def test_attacks_reject_bad_input():
    with pytest.raises(BadInput, match="x: found shape"):
        learn.FastGradientSign(0.1)(NET, X[:, :2], Y)
    with pytest.raises(BadInput, match="y: found shape"):
        learn.FastGradientSign(0.1)(NET, X, Y[:3])
    for build, name in (
        (lambda: learn.FastGradientSign(-1.0), "epsilon"),
        (lambda: learn.ProjectedGradient(0.1, steps=0), "steps"),
        (lambda: learn.ProjectedGradient(0.1, norm=3), "norm"),
        (lambda: learn.AdversarialTraining(learn.CrossEntropy(), 0.1), "attack"),
        (lambda: learn.AdversarialTraining(learn.CrossEntropy(), learn.FastGradientSign(0.1), 2.0), "clean"),
        (lambda: learn.InputNoise(learn.CrossEntropy(), -1.0), "scale"),
        (lambda: learn.CrossEntropy(label_smoothing=2.0), "label_smoothing"),
    ):
        with pytest.raises(BadInput, match=f"^{name}: "):
            build()
    rbm = RBM.random(3, 2, key=0)
    robust = learn.AdversarialTraining(learn.NegativeLogLikelihood(), learn.FastGradientSign(0.1))
    with pytest.raises(Unsuitable, match="needs complete rows of a real x and a target y"):
        robust.check(rbm, {"x": np.ones((3, 3))})
    with pytest.raises(Unsuitable, match=r"InputNoise needs rows of a real variable 'x'"):
        learn.InputNoise(learn.NegativeLogLikelihood(), 0.1).check(rbm, {"x": np.ones((3, 3))})
    with pytest.raises(Unsuitable, match=r"Dropout needs layers equinox.nn.Dropout"):
        learn.Dropout(learn.CrossEntropy()).check(NET, {"x": X, "y": Y})


# -- noise -----------------------------------------------------------------------------------------------


def test_label_smoothing_is_the_cross_entropy_with_a_soft_label():
    """Σ_k q_k (−log p_k) with q = (1 − ε) onehot + ε / 3, for every temperature."""
    scores = np.asarray(jax.vmap(NET.scores)(jnp.asarray(X)), np.float64)
    q = 0.8 * np.eye(3)[Y] + 0.2 / 3
    for beta in (1.0, 2.0):
        log_p = beta * scores - np.log(np.exp(beta * scores).sum(1, keepdims=True))
        found = learn.CrossEntropy(beta, label_smoothing=0.2)(NET, ROWS, None, None)[0]["loss"]
        np.testing.assert_allclose(found, -(q * log_p).sum(1).mean() / beta, rtol=1e-5)


def test_input_noise_is_normal():
    """The mean of e(x, y) = −(x₁ + x₂) over noisy copies of one row is normal with variance 2 σ²."""

    class Sum(learn.Objective):
        def __call__(self, energy, batch, carry, key):
            return batch.mean(batch.data["x"].sum(1)), carry

    batch = Batch({"x": jnp.zeros((20_000, 2)), "y": jnp.zeros(20_000, jnp.int32)}, jnp.ones(20_000))
    noisy = learn.InputNoise(Sum(), 0.5)
    drawn = [float(noisy(LINEAR, batch, None, jax.random.key(i))[0]) for i in range(4)]
    assert np.abs(drawn).max() < 4 * 0.5 * np.sqrt(2 / 20_000) and len(set(drawn)) == 4
    assert float(noisy.validate(LINEAR, batch, None, jax.random.key(0))) == 0


def test_dropout_keeps_the_mean_and_differs_between_rows():
    """Units are kept with probability 0.7 and divided by it: 0.01 is 4 standard errors of 96 000 units."""
    network = eqx.nn.Sequential([eqx.nn.Dropout(0.3, inference=True)])

    class Outputs(learn.Objective):
        def __call__(self, energy, batch, carry, key):
            return batch.map(lambda x, y: energy.scores(x)), carry

    x = jnp.asarray(1 + 0.01 * RNG.normal(size=(4000, 24)), jnp.float32)
    batch = Batch({"x": x, "y": jnp.zeros(4000, jnp.int32)}, jnp.ones(4000))
    energy = Scorer(network, 24, 24)
    found = np.asarray(learn.Dropout(Outputs())(energy, batch, None, jax.random.key(0))[0])
    assert abs((found == 0).mean() - 0.3) < 0.006 and abs(found.mean() - 1) < 0.01
    assert len(np.unique(found == 0, axis=0)) > 3900  # of 2²⁴ masks
    again = np.asarray(learn.Dropout(Outputs())(energy, batch, None, jax.random.key(1))[0])
    assert abs(np.mean((found == 0) & (again == 0)) - 0.09) < 0.006
    assert np.array_equal(learn.Dropout(Outputs()).validate(energy, batch, None, jax.random.key(0)), x)


def test_dropout_of_a_linear_regression_is_a_ridge_penalty():
    """E ½(y − wᵀ(m ∘ x)/(1 − p))² = ½(y − wᵀx)² + ½ p / (1 − p) Σ w² x². Srivastava et al. (2014), 9.1."""
    p, n = 0.25, 20_000
    layer = eqx.nn.Linear(3, "scalar", key=jax.random.key(0))
    net = NeuralRegressor(eqx.nn.Sequential([eqx.nn.Dropout(p, inference=True), layer]), 3)
    x = jnp.asarray(RNG.normal(size=(n, 3)), jnp.float32)
    batch = Batch({"x": x, "y": jnp.asarray(RNG.normal(size=n), jnp.float32)}, jnp.ones(n))
    plain = learn.NegativeLogLikelihood()
    loss = lambda objective: float(sum(objective(net, batch, None, jax.random.key(1))[0].values()))
    w = np.asarray(layer.weight)[0]
    penalty = 0.5 * p / (1 - p) * ((w * np.asarray(x)) ** 2).sum(1).mean()
    # The standard error of the mean over the rows is about 0.003.
    assert abs(loss(learn.Dropout(plain)) - loss(plain) - penalty) < 0.012 < penalty / 3


def test_wrappers_train_the_partner_of_the_objective():
    class Shifted(learn.Objective):
        def __call__(self, energy, batch, carry, key):
            return (self.partner - 3.0) ** 2 + batch.mean(batch.map(energy)) ** 2, carry

    objective = learn.InputNoise(Shifted(partner=jnp.array(0.0)), 0.01)
    import optax

    found = energax.fit(
        LINEAR, {"x": X, "y": Y}, learn.Descent(objective, optax.adam(0.1)), epochs=200, key=0
    )
    assert abs(float(found.partner) - 3) < 0.1


def test_wrappers_weight_the_rows_as_the_objective_does():
    """A row without a target counts neither in the loss nor in the mean of an epoch over its batches."""
    y = energax.Masked(jnp.array([0, 1]), jnp.array([True, False]))
    batch = Batch({"x": jnp.ones((2, 2)), "y": y}, jnp.ones(2))
    for objective in (learn.CrossEntropy(), learn.Dropout(learn.InputNoise(learn.CrossEntropy(), 0.1))):
        assert objective.row_weights(batch).tolist() == [1, 0]
