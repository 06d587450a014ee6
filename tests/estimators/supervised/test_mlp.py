"""MLPClassifier: attributes of scikit-learn, warm starts, input validation."""

from __future__ import annotations

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier as Peer

import energax
from energax.errors import BadInput
from energax.estimators import EnergyModel, MLPClassifier
from energax.learn import CrossEntropy, Descent

IRIS, SPECIES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[SPECIES]
FAR = IRIS * [1.0, 1e3, 1e-3, 1.0] + [1e3, 0.0, 0.0, -50.0]
QUICK = MLPClassifier((5, 4), "tanh", max_iter=5, tol=None, random_state=0)
BY_HAND = {
    "identity": lambda v: v,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda v: np.maximum(v, 0),
}


@pytest.mark.parametrize("activation", BY_HAND)
def test_coefficients_apply_to_the_columns_as_given(activation):
    """A forward pass written by hand over the raw X."""
    model = clone(QUICK).set_params(activation=activation, dtype="float64").fit(FAR, SPECIES)
    units = FAR
    for i, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        units = units @ weight + bias
        units = BY_HAND[activation](units) if i < model.n_layers_ - 2 else units
    np.testing.assert_allclose(units, model.decision_function(FAR), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(softmax(units, 1), model.predict_proba(FAR), atol=1e-7)


def test_shapes_are_those_of_a_peer():
    ours, theirs = clone(QUICK).fit(IRIS, SPECIES), Peer((5, 4), max_iter=5)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        theirs.fit(IRIS, SPECIES.astype(str))
    for name in ("coefs_", "intercepts_"):
        assert [a.shape for a in getattr(ours, name)] == [a.shape for a in getattr(theirs, name)]
    for name in ("n_layers_", "n_outputs_", "out_activation_", "n_iter_", "t_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours.loss_curve_) == len(theirs.loss_curve_) and isinstance(ours.loss_curve_, list)


def test_two_classes_have_an_output_each():
    """scikit-learn has a single output, the difference of the two."""
    two = SPECIES != "setosa"
    model = clone(QUICK).fit(IRIS[two], SPECIES[two])
    assert model.n_outputs_ == 2 and model.out_activation_ == "softmax"
    margin = model.decision_function(IRIS[two])
    np.testing.assert_allclose(model.predict_proba(IRIS[two])[:, 1], expit(margin), rtol=1e-5)
    assert clone(model).set_params(loss="margin").fit(IRIS[two], SPECIES[two]).out_activation_ == "identity"


def test_losses_are_the_objective_of_every_epoch():
    model = clone(QUICK).set_params(max_iter=8).fit(IRIS, SPECIES)
    assert model.loss_curve_ == model.history_["objective"].tolist() and len(model.loss_curve_) == 8
    assert model.loss_ == model.loss_curve_[-1] and model.best_loss_ == min(model.loss_curve_)
    # With full batches, the next epoch reports the loss of the present network.
    weights = sum(float((w**2).sum()) for w in (b.weight for b in model.energy_.network.layers[::2]))
    right = np.searchsorted(model.classes_, SPECIES)
    now = -model.predict_log_proba(IRIS)[np.arange(150), right].mean() + model.alpha / 2 * weights
    assert np.isclose(model.partial_fit(IRIS, SPECIES).loss_, now, rtol=1e-5)


def test_validation_rows_have_a_loss_and_no_accuracy():
    model = clone(QUICK).set_params(early_stopping=True, max_iter=6).fit(IRIS, SPECIES)
    assert model.best_loss_ is None and not hasattr(model, "validation_scores_")
    assert len(model.history_["validation"]) == model.n_iter_ and model.t_ == model.n_iter_ * 135


def test_attributes_are_saved(tmp_path):
    model = clone(QUICK).fit(IRIS, SPECIES)
    model.save(tmp_path / "m")
    for back in (energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert (back.loss_curve_, back.t_, back.best_loss_) == (model.loss_curve_, model.t_, model.best_loss_)
        assert all(map(np.array_equal, back.coefs_, model.coefs_))


@pytest.mark.parametrize("n", [150, 450])
def test_auto_batches_have_200_rows_at_most(n):
    X, y = np.resize(IRIS, (n, 4)), np.resize(SPECIES, n)
    rows = min(200, n)
    ours = [clone(QUICK).set_params(batch_size=size).fit(X, y) for size in ("auto", rows)]
    assert ours[0].fit_.n_steps == 5 * -(-n // rows)
    assert np.array_equal(*(model.partial_fit(X, y).decision_function(X) for model in ours))


@pytest.mark.parametrize("size", ["all", 0, 2.5, True])
def test_bad_batch_sizes_are_rejected(size):
    with pytest.raises(BadInput, match=r"batch_size: found .* a whole number >= 1, 'auto', or None"):
        clone(QUICK).set_params(batch_size=size).fit(IRIS, SPECIES)


def test_a_warm_start_continues_from_the_previous_fit():
    """With SGD and full batches, twice five epochs equal ten."""
    model = MLPClassifier(
        (6,),
        batch_size=None,
        dtype="float64",
        random_state=0,
        learner=Descent(CrossEntropy(), optax.sgd(0.5)),
    )
    whole = clone(model).set_params(max_iter=10).fit(FAR, SPECIES)
    parts = clone(model).set_params(max_iter=5, warm_start=True).fit(FAR, SPECIES).fit(FAR, SPECIES)
    np.testing.assert_allclose(parts.decision_function(FAR), whole.decision_function(FAR), rtol=1e-10)
    np.testing.assert_allclose(parts.loss_curve_, whole.loss_curve_, rtol=1e-10)
    assert (parts.t_, parts.n_iter_) == (whole.t_, 5) == (1500, 5)
    # The scaling is that of the first fit.
    other = FAR + 7
    assert np.array_equal(parts.fit(other, SPECIES).mean_, whole.mean_)
    cold = parts.set_params(warm_start=False).fit(FAR, SPECIES)
    assert len(cold.loss_curve_) == 5 and cold.loss_curve_ == whole.loss_curve_[:5]


def test_a_warm_start_takes_another_activation_and_no_other_shape():
    model = clone(QUICK).set_params(warm_start=True).fit(IRIS, SPECIES)
    with pytest.raises(BadInput, match=r"hidden_layer_sizes: .*\(3,\) in a warm start from .*\(5, 4\)"):
        model.set_params(hidden_layer_sizes=(3,)).fit(IRIS, SPECIES)
    model.set_params(hidden_layer_sizes=(5, 4))
    with pytest.raises(BadInput, match="y: found the label 'rose'"):
        model.fit(IRIS, np.where(SPECIES == "setosa", "rose", SPECIES))
    with pytest.raises(BadInput, match=r"X: .*features"):
        model.fit(IRIS[:, :3], SPECIES)
    still = Descent(CrossEntropy(), optax.sgd(0.0))
    scores = model.set_params(learner=still, activation="identity").fit(IRIS, SPECIES).decision_function(IRIS)
    by_hand = IRIS
    for weight, bias in zip(model.coefs_, model.intercepts_, strict=True):
        by_hand = by_hand @ weight + bias
    np.testing.assert_allclose(scores, by_hand, atol=1e-4)


def test_epochs_of_partial_fit_are_added():
    model = clone(QUICK).fit(IRIS, SPECIES)
    model.partial_fit(IRIS[:50], SPECIES[:50])
    assert len(model.loss_curve_) == 6 and model.t_ == 800 and model.n_iter_ == 1


class _Halved:
    def __call__(self, x):
        return x[: x.shape[0] // 2]


@pytest.mark.parametrize(
    ("activation", "words"),
    [
        (np.tanh, r"tanh, which raises .*Use 'tanh' or jax\.numpy\.tanh"),
        (np.sinh, r"sinh, which raises .*Use jax\.numpy\.sinh"),
        (math.tanh, "a function of JAX arrays"),
        (lambda x: x / 0 if x > 0 else x, "a function of JAX arrays"),
        (jnp.sum, r"sum, which returns float32 of shape \(\) for 3 units"),
        (_Halved(), r"_Halved, which returns float32 of shape \(1,\)"),
        (lambda x: x > 0, "returns bool of shape"),
        (lambda x: None, "a real number for every unit"),
        ("tanhh", "a function, or one of identity"),
        (["tanh"], "a function, or one of identity"),
    ],
)
@pytest.mark.parametrize("model", [QUICK, EnergyModel((4,), max_iter=2)], ids=["mlp", "energy"])
def test_bad_activations_are_rejected(model, activation, words):
    with pytest.raises(BadInput, match=f"activation: found .*{words}"):
        clone(model).set_params(activation=activation).fit(IRIS, SPECIES)


@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.leaky_relu, lambda x: x**2, "gelu"])
def test_functions_of_jax_are_activations(activation):
    model = clone(QUICK).set_params(activation=activation).fit(IRIS, SPECIES)
    assert np.isfinite(model.decision_function(IRIS)).all()


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(
            ("validation_fraction", v, "strictly between 0 and 1")
            for v in ("x", None, 0, 1.0, -0.1, np.nan, True)
        ),
        *(("n_iter_no_change", v, "a whole number >= 1") for v in (0, -3, 1.5, "x", None, True)),
    ],
)
def test_errors_of_early_stopping_name_the_argument(name, value, expected, early_stopping):
    model = clone(QUICK).set_params(early_stopping=early_stopping, **{name: value})
    with pytest.raises(BadInput, match=f"^{name}: found .*{expected}"):
        model.fit(IRIS, SPECIES)


def test_at_least_one_row_is_left_for_training():
    model = clone(QUICK).set_params(early_stopping=True, validation_fraction=0.9)
    with pytest.raises(BadInput, match=r"^validation_fraction: .*holds out 4 of 4 rows of positive weight"):
        model.fit(IRIS[48:52], SPECIES[48:52])
