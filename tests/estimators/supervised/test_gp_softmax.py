"""Classification of several classes by one softmax of processes: gradient, weights, settings, real data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss

import energax
from energax import log_prob
from energax.energies import LogisticProcess, SoftmaxProcess
from energax.errors import BadInput
from energax.estimators import GaussianProcessClassifier
from energax.infer import Laplace
from energax.kernels import RBF, White

GENERATOR = np.random.default_rng(0)
X, NEW = GENERATOR.normal(size=(30, 2)), GENERATOR.normal(size=(9, 2))
CENTRE = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
INDEX = (X @ CENTRE.T + 0.7 * GENERATOR.normal(size=(30, 3))).argmax(1)
Y = np.array(["pear", "fig", "apple"])[INDEX]
KERNEL = 3.0 * RBF([1.2, 0.8]) + White(0.1)
close = np.testing.assert_allclose


def softmax_model(kernel=KERNEL, **settings):
    return GaussianProcessClassifier(kernel, multi_class="softmax", **settings)


FIXED = softmax_model(optimizer=None).fit(X, Y)
LEARNED = softmax_model(1.0 * RBF()).fit(X, Y)


def test_the_evidence_is_that_of_the_general_method_on_the_energy():
    assert isinstance(FIXED.energy_, SoftmaxProcess) and FIXED.energies_ == (FIXED.energy_,)
    assert FIXED.kernels_ == (FIXED.kernel_,) and FIXED.classes_.tolist() == ["apple", "fig", "pear"]
    y = np.searchsorted(FIXED.classes_, Y)
    found = log_prob(FIXED.energy_, {"y": y}, Laplace(tol=1e-6), given={"x": X})
    close(found.value, FIXED.log_marginal_likelihood_value_, rtol=1e-6)
    assert FIXED.log_marginal_likelihood(FIXED.kernel_.theta) == pytest.approx(float(found.value), rel=1e-6)


@pytest.mark.parametrize("weight", [None, GENERATOR.integers(0, 4, 30) * 0.7], ids=["rows", "weights"])
def test_the_gradient_is_that_of_differences(weight):
    model = softmax_model(optimizer=None).fit(X, Y, weight)
    theta = model.kernel_.theta + 0.1
    slope = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    for i, unit in enumerate(1e-4 * np.eye(4)):
        values = [model.log_marginal_likelihood(theta + sign * unit) for sign in (1, -1)]
        assert slope[i] == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-5, abs=1e-7)


def test_the_learned_hyperparameters_are_at_a_maximum():
    value, slope = LEARNED.log_marginal_likelihood(LEARNED.kernel_.theta, eval_gradient=True)
    assert LEARNED.converged_ and np.abs(slope).max() < 1e-3
    assert value == pytest.approx(LEARNED.log_marginal_likelihood_value_, rel=1e-9)
    assert value >= softmax_model(1.0 * RBF(), optimizer=None).fit(X, Y).log_marginal_likelihood_value_
    restarted = softmax_model(1.0 * RBF(), n_restarts_optimizer=2, random_state=0).fit(X, Y)
    assert restarted.log_marginal_likelihood_value_ >= value - 1e-6


def test_a_frozen_hyperparameter_is_not_learned():
    model = softmax_model(1.0 * RBF(1.3), freeze="kernels.1").fit(X, Y)
    assert model.kernel_.kernels[1].length_scale == pytest.approx(1.3, rel=1e-12)
    assert model.kernel_.kernels[0].constant_value != pytest.approx(1.0, rel=1e-3)


def test_two_classes_are_one_logistic_process():
    y = Y == "fig"
    ours, default = softmax_model(optimizer=None).fit(X, y), GaussianProcessClassifier(KERNEL, optimizer=None)
    assert isinstance(ours.energy_, LogisticProcess)
    close(ours.predict_proba(NEW), default.fit(X, y).predict_proba(NEW), rtol=1e-12)


def test_a_weight_is_a_number_of_repetitions():
    weight = np.arange(30) % 4
    weighted, repeated = (softmax_model(2.0 * RBF(), optimizer=None) for _ in range(2))
    weighted.fit(X, Y, weight)
    repeated.fit(X.repeat(weight, 0), Y.repeat(weight))
    close(weighted.predict_proba(NEW), repeated.predict_proba(NEW), rtol=1e-6)
    close(weighted.log_marginal_likelihood_value_, repeated.log_marginal_likelihood_value_, rtol=1e-8)


def test_other_names_of_the_classes_change_no_probability():
    """Within the error of the points of the mean over f, which are not symmetric."""
    renamed = np.array(["a", "b", "c"])[[{"pear": 0, "apple": 1, "fig": 2}[y] for y in Y]]
    other = softmax_model(optimizer=None).fit(X, renamed)
    close(other.predict_proba(NEW)[:, [1, 2, 0]], FIXED.predict_proba(NEW), atol=5e-4)
    assert other.log_marginal_likelihood_value_ == pytest.approx(FIXED.log_marginal_likelihood_value_)


def test_far_from_the_data_all_classes_are_equal_and_rows_do_not_depend_on_others():
    close(FIXED.predict_proba([[1e3, 1e3]]), 1 / 3, atol=3e-4)
    probabilities = FIXED.predict_proba(NEW)
    close(probabilities.sum(1), 1, rtol=1e-12)
    close(FIXED.predict_proba(NEW[3:4]), probabilities[3:4], rtol=1e-9)
    assert (FIXED.predict(NEW) == FIXED.classes_[probabilities.argmax(1)]).all()
    close(np.exp(FIXED.predict_log_proba(NEW)), probabilities)


def test_a_saved_model_predicts_the_same(tmp_path):
    FIXED.save(tmp_path / "model")
    loaded = energax.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(NEW), FIXED.predict_proba(NEW))
    assert loaded.get_params()["multi_class"] == "softmax" and loaded.energy_ == FIXED.energy_
    theta = FIXED.kernel_.theta
    assert loaded.log_marginal_likelihood(theta) == FIXED.log_marginal_likelihood(theta)


def test_float32_and_a_class_without_weight():
    found = softmax_model(optimizer=None).fit(X.astype(np.float32), Y).predict_proba(NEW.astype(np.float32))
    assert found.dtype == np.float32
    close(found, FIXED.predict_proba(NEW), atol=1e-3)
    model = softmax_model(optimizer=None).fit(X, Y, (Y != "fig").astype(float))
    assert model.predict_proba(NEW).shape == (9, 3) and "fig" not in model.predict(X[Y != "fig"])


def test_bad_input_is_answered_by_a_sentence(monkeypatch):
    with pytest.raises(BadInput, match="multi_class: found 'ovr'"):
        GaussianProcessClassifier(multi_class="ovr").fit(X, Y)
    monkeypatch.setattr("energax.errors._memory", lambda: 8 * 900 * 11)
    with pytest.raises(BadInput, match="multi_class: found 'softmax', for which the kernel matrix"):
        softmax_model().fit(X, Y)
    softmax_model(optimizer=None).fit(X, Y == "fig")


def test_held_out_iris_is_predicted_as_well_as_by_one_against_the_rest():
    """One third of the rows learns; the mean log-loss of both within 0.1 of each other."""
    table, labels = load_iris(return_X_y=True)
    learn = np.arange(150) % 3 == 0
    loss = {}
    for multi_class in ("one_vs_rest", "softmax"):
        model = GaussianProcessClassifier(1.0 * RBF(), multi_class=multi_class).fit(
            table[learn], labels[learn]
        )
        loss[multi_class] = log_loss(labels[~learn], model.predict_proba(table[~learn]))
        assert model.score(table[~learn], labels[~learn]) > 0.9
    assert loss["softmax"] < loss["one_vs_rest"] + 0.1
