"""MLPRegressor: least squares, noise, units of X and y, warm starts; regularisers of networks."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score

import energax
from energax.errors import BadInput
from energax.estimators import MLPClassifier, MLPRegressor
from energax.learn import AdversarialTraining, CrossEntropy, Descent, FastGradientSign, NegativeLogLikelihood

X = np.linspace(-2, 2, 120)[:, None]
Y = np.sin(3 * X[:, 0])
SMALL = {"hidden_layer_sizes": (16,), "learning_rate_init": 0.02, "tol": None, "random_state": 0}


def test_several_targets_without_hidden_layers_are_ridge_regressions():
    X, y = load_diabetes(return_X_y=True)
    Y = np.stack([y, 100 * X[:, 0] + np.sin(y), 5 - y], axis=1)
    learner = Descent(NegativeLogLikelihood(l2=0.01), optax.lbfgs(), tol=1e-15)
    settings = {"dtype": "float64", "batch_size": None, "max_iter": 500, "learner": learner}
    model = MLPRegressor((), **settings).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    u, v = (X - X.mean(0)) / X.std(0), (Y - Y.mean(0)) / Y.std(0)
    predicted = Ridge(alpha=0.01 * len(X), tol=1e-12).fit(u, v).predict(u) * Y.std(0) + Y.mean(0)
    np.testing.assert_allclose(mean, predicted, rtol=1e-5)
    noise = np.sqrt(np.mean((Y - predicted) ** 2, axis=0))
    np.testing.assert_allclose(model.noise_, noise, rtol=1e-5)
    np.testing.assert_allclose(std, np.tile(noise, (len(X), 1)), rtol=1e-5)
    np.testing.assert_allclose(X @ model.coefs_[0] + model.intercepts_[0], predicted, rtol=1e-5)
    assert model.n_outputs_ == 3 and model.score(X, Y) == pytest.approx(r2_score(Y, predicted), rel=1e-5)
    with pytest.raises(BadInput, match="y: found targets: 1; expected as many as in the first fit, 3"):
        model.partial_fit(X, y)
    fixed = MLPRegressor((4,), noise=2.0, max_iter=1, tol=None, random_state=0).fit(X, Y)
    np.testing.assert_allclose(fixed.predict(X, return_std=True)[1], 2.0, rtol=1e-6)
    assert fixed.set_params(warm_start=True).fit(X, Y).predict(X[:2]).shape == (2, 3)


def test_without_hidden_layers_it_is_ridge_regression():
    """L-BFGS on the objective of a network without hidden layers: scikit-learn's ridge in the same units."""
    X, y = load_diabetes(return_X_y=True)
    learner = Descent(NegativeLogLikelihood(l2=0.01), optax.lbfgs(), tol=1e-14)
    model = MLPRegressor((), dtype="float64", batch_size=None, max_iter=500, learner=learner).fit(X, y)
    u, v = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    theirs = Ridge(alpha=0.01 * len(X), tol=1e-12).fit(u, v)
    predicted = theirs.predict(u) * y.std() + y.mean()
    np.testing.assert_allclose(model.predict(X), predicted, rtol=1e-6)
    np.testing.assert_allclose(model.noise_, np.sqrt(np.mean((y - predicted) ** 2)), rtol=1e-6)
    np.testing.assert_allclose(X @ model.coefs_[0][:, 0] + model.intercepts_[0], predicted, rtol=1e-6)


def test_a_curve_and_its_layers():
    model = MLPRegressor(activation="tanh", max_iter=400, **SMALL).fit(X, Y)
    assert model.score(X, Y) > 0.97
    hidden = np.tanh(X @ model.coefs_[0] + model.intercepts_[0])
    np.testing.assert_allclose(
        (hidden @ model.coefs_[1] + model.intercepts_[1])[:, 0], model.predict(X), atol=1e-5
    )
    assert model.n_layers_ == 3 and model.n_outputs_ == 1 and model.out_activation_ == "identity"
    mean, std = model.predict(X, return_std=True)
    assert np.array_equal(mean, model.predict(X)) and np.allclose(std, model.noise_)
    # The energy gives the same through the common functions.
    u = ((X - model.mean_) / model.scale_).astype(np.float32)
    found = energax.posterior(model.energy_, {"x": u}).mean["y"] * model.y_scale_ + model.y_mean_
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_units_of_y_do_not_matter():
    one, other = (MLPRegressor(max_iter=30, **SMALL).fit(X, y) for y in (Y, 1e9 + 2.0**20 * Y))
    np.testing.assert_allclose((other.predict(X) - 1e9) / 2.0**20, one.predict(X), atol=1e-3)
    np.testing.assert_allclose(other.noise_ / 2.0**20, one.noise_, rtol=1e-3)


def test_noise_is_given_or_learned():
    rng = np.random.default_rng(0)
    y = Y + 0.3 * rng.normal(size=len(Y))
    learned = MLPRegressor(activation="tanh", max_iter=300, **SMALL).fit(X, y)
    assert 0.2 < learned.noise_ < 0.4
    given = MLPRegressor(noise=2.5, max_iter=3, **SMALL).fit(X, y)
    assert given.noise_ == pytest.approx(2.5)
    # log p of the rows is that of the normal distribution.
    u = {
        "x": ((X - learned.mean_) / learned.scale_).astype("f4"),
        "y": ((y - learned.y_mean_) / learned.y_scale_).astype("f4"),
    }
    sigma = learned.noise_ / learned.y_scale_
    expected = -0.5 * ((y - learned.predict(X)) / learned.noise_) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(energax.log_prob(learned.energy_, u).value, expected, atol=1e-3)


def test_a_weight_of_zero_is_no_row():
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    some = weight > 0
    a = MLPRegressor(max_iter=5, **SMALL).fit(X, Y, weight)
    b = MLPRegressor(max_iter=5, **SMALL).fit(X[some], Y[some])
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-6)


def test_warm_starts_and_partial_fit_continue():
    model = MLPRegressor(warm_start=True, max_iter=20, **SMALL).fit(X, Y)
    first = model.loss_
    assert model.fit(X, Y).loss_ < first and len(model.loss_curve_) == 40
    with pytest.raises(BadInput, match="hidden_layer_sizes"):
        model.set_params(hidden_layer_sizes=(3,)).fit(X, Y)
    part = MLPRegressor(**SMALL)
    for _ in range(100):
        part.partial_fit(X, Y)
    assert part.score(X, Y) > 0.5 and len(part.loss_curve_) == 100


def test_early_stopping_and_cross_validation():
    model = MLPRegressor(early_stopping=True, max_iter=500, **SMALL).fit(X, Y)
    assert model.n_iter_ <= 500 and "validation" in model.history_ and model.best_loss_ is None
    rows = np.random.default_rng(0).permutation(len(X))
    assert cross_val_score(MLPRegressor(max_iter=300, **SMALL), X[rows], Y[rows], cv=3).mean() > 0.8


def test_saved_and_loaded(tmp_path):
    model = MLPRegressor(max_iter=3, dropout=0.2, **SMALL).fit(X, Y)
    model.save(tmp_path / "m")
    assert np.array_equal(energax.load(tmp_path / "m").predict(X), model.predict(X))


# -- regularisers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy_digits(grey_digits):
    """Few digits, so that a network overfits."""
    X, y, X_test, y_test = grey_digits
    return X[:150], y[:150], X_test, y_test


@pytest.mark.parametrize("name", ["input_noise", "label_smoothing"])
def test_a_regulariser_helps_a_network_with_few_rows(noisy_digits, name):
    """The held-out −log p of 150 digits is lower with each of them."""
    X, y, X_test, y_test = noisy_digits

    def loss(**settings):
        model = MLPClassifier(
            (64,), alpha=0.0, max_iter=150, tol=None, random_state=0, learning_rate_init=5e-3
        )
        log_p = model.set_params(**settings).fit(X, y).predict_log_proba(X_test)
        return -log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean()

    value = {"input_noise": 0.5, "label_smoothing": 0.1}[name]
    assert loss(**{name: value}) < loss() - 0.01


def test_predictions_have_no_dropout():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    model = MLPClassifier((8,), dropout=0.5, max_iter=3, tol=None, random_state=0).fit(X, y)
    assert np.array_equal(model.predict_proba(X), model.predict_proba(X))
    layers = [layer for layer in model.energy_.network.layers if isinstance(layer, eqx.nn.Dropout)]
    assert [layer.p for layer in layers] == [0.5] and all(layer.inference for layer in layers)
    linear = MLPClassifier((), dropout=0.5, max_iter=3, tol=None, random_state=0).fit(X, y)
    assert linear.n_layers_ == 2  # there is nothing to drop


def test_label_smoothing_needs_cross_entropy():
    with pytest.raises(BadInput, match=r"label_smoothing: .*loss='margin'"):
        MLPClassifier((4,), loss="margin", label_smoothing=0.1).fit(X, Y > 0)


# -- adversarial training --------------------------------------------------------------------------------


def test_adversarial_training_raises_robust_accuracy(grey_digits):
    """Accuracy on digits that an attack has changed by 0.15 of the range of a pixel."""
    X, y, X_test, y_test = grey_digits
    settings = {"hidden_layer_sizes": (64,), "max_iter": 40, "tol": None, "random_state": 0}
    robust = {}
    for name in ("plain", "trained"):
        model = MLPClassifier(learning_rate_init=5e-3, **settings)
        if name == "trained":
            # One ε for every column: its range of pixels in standard deviations, as the network sees them.
            scale = np.maximum(MLPClassifier((2,), max_iter=1, tol=None).fit(X, y).scale_, 0.05)
            attack = FastGradientSign(jax.numpy.asarray(0.15 / scale, jax.numpy.float32))
            model.set_params(learner=AdversarialTraining(CrossEntropy(l2=1e-4), attack))
        model.fit(X, y)
        scale = np.maximum(model.scale_, 0.05)
        epsilon = jax.numpy.asarray(0.15 / scale, jax.numpy.float32)
        u = ((X_test - model.mean_) / model.scale_).astype(np.float32)
        index = np.searchsorted(model.classes_, y_test).astype(np.int32)
        moved = np.asarray(FastGradientSign(epsilon)(model.energy_, u, index))
        robust[name] = model.score(moved * model.scale_ + model.mean_, y_test)
        assert model.score(X_test, y_test) > 0.9
    assert robust["trained"] > robust["plain"] + 0.2
