"""Classifiers: accuracy, agreement with scikit-learn, labels, partial_fit, saving and pickling."""

from __future__ import annotations

import pickle

import numpy as np
import optax
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import energax
from energax.errors import BadInput, ConvergenceWarning, Diverged, NotFitted
from energax.estimators import VAE, BernoulliRBM, EnergyModel, LinearClassifier, MLPClassifier
from energax.learn import CrossEntropy, Descent, Margin

IRIS, SPECIES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[SPECIES]


@pytest.mark.parametrize(
    ("settings", "least"),
    [({}, 0.91), ({"loss": "margin", "max_iter": 300, "tol": None}, 0.90)],
    ids=["cross-entropy", "margin"],
)
def test_digits(grey_digits, settings, least):
    X, y, X_test, y_test = grey_digits
    model = LinearClassifier(**settings).fit(X, y)
    assert model.score(X_test, y_test) >= least
    assert model.energy_.weight.dtype == np.float32


def test_cross_entropy_is_logistic_regression():
    """The objective is convex, so that another solver finds the same probabilities."""
    X = StandardScaler().fit_transform(IRIS)
    alpha = 0.01
    ours = LinearClassifier(alpha=alpha, tol=1e-12).fit(X, SPECIES)
    theirs = LogisticRegression(C=1 / (alpha * len(X)), tol=1e-10, max_iter=10_000).fit(X, SPECIES)
    assert ours.converged_
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 1e-4
    assert np.array_equal(ours.classes_, theirs.classes_) and np.array_equal(
        ours.predict(X), theirs.predict(X)
    )


def test_a_weight_is_a_number_of_repetitions():
    rng = np.random.default_rng(0)
    times = rng.integers(0, 3, len(IRIS))
    weighted = LinearClassifier(alpha=0.01, tol=1e-12).fit(IRIS, SPECIES, sample_weight=times)
    repeated = LinearClassifier(alpha=0.01, tol=1e-12).fit(
        np.repeat(IRIS, times, 0), np.repeat(SPECIES, times)
    )
    assert np.abs(weighted.predict_proba(IRIS) - repeated.predict_proba(IRIS)).max() < 1e-4


def test_decision_function_of_two_classes():
    two = SPECIES != "setosa"
    model = LinearClassifier().fit(IRIS[two], SPECIES[two])
    margin = model.decision_function(IRIS[two])
    assert margin.shape == (100,)
    assert np.array_equal(margin > 0, model.predict(IRIS[two]) == "virginica")
    assert np.allclose(model.predict_proba(IRIS[two])[:, 1], 1 / (1 + np.exp(-margin)))


def test_a_margin_loss_gives_no_probabilities():
    model = LinearClassifier("margin", max_iter=5, tol=None).fit(IRIS, SPECIES)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(IRIS)
    assert "cross-entropy" in str(caught.value.__cause__ or caught.value)


def test_any_learner_or_objective_can_be_given():
    model = LinearClassifier(learner=Descent(CrossEntropy(beta=2.0), optax.adam(0.1)), max_iter=200).fit(
        IRIS, SPECIES
    )
    assert model.score(IRIS, SPECIES) > 0.95
    assert (
        LinearClassifier(Margin(margin=2.0), max_iter=300, tol=None).fit(IRIS, SPECIES).score(IRIS, SPECIES)
        > 0.9
    )
    with pytest.raises(BadInput, match="learner"):
        LinearClassifier(learner=optax.adam(0.1)).fit(IRIS, SPECIES)


def test_mlp_fits_a_nonlinear_boundary():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2)) * [1.0, 1e3]
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = MLPClassifier((32,), max_iter=150, tol=None, learning_rate_init=0.01, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95 > 0.75 > LinearClassifier().fit(X, y).score(X, y)
    assert model.energy_.network.layers[0].weight.dtype == np.float32


def test_early_stopping_keeps_the_best():
    model = MLPClassifier(
        (8,),
        max_iter=500,
        tol=None,
        early_stopping=True,
        n_iter_no_change=5,
        learning_rate_init=0.05,
        random_state=0,
    ).fit(IRIS, SPECIES)
    assert model.fit_.status == "stopped early" and model.n_iter_ < 500
    assert np.nanargmin(model.history_["validation"]) == model.n_iter_ - 6


def test_padding_is_never_held_out():
    """17 rows are padded to 32, and one is held out. A padded row would have a loss of 0, the minimum.

    If padding could be held out, it would be with probability 15/32; ten seeds miss that with 0.002.
    """
    X, y = IRIS[45:62], SPECIES[45:62]  # 5 of one species and 12 of another, far apart
    model = MLPClassifier((4,), alpha=0.0, early_stopping=True, validation_fraction=0.04, tol=None)
    for seed in range(10):
        model.set_params(random_state=seed, learning_rate_init=0.05, max_iter=25).fit(X, y)
        losses = model.history_["validation"]
        assert (losses > 0).all() and np.argmin(losses) > 0 and model.score(X, y) > 0.9


def test_every_call_of_partial_fit_has_its_own_order():
    """Two epochs of SGD from the same parameters differ only in the order of the rows."""
    sgd = lambda rate: Descent(CrossEntropy(), optax.sgd(rate))
    model = LinearClassifier(batch_size=10, learner=sgd(0.01), random_state=0)
    first = model.partial_fit(IRIS, SPECIES, classes=np.unique(SPECIES)).coef_
    model = clone(model).set_params(learner=sgd(0.0)).partial_fit(IRIS, SPECIES, classes=np.unique(SPECIES))
    assert not model.coef_.any()
    second = model.set_params(learner=sgd(0.01)).partial_fit(IRIS, SPECIES).coef_
    assert np.abs(second - first).max() > 1e-4
    # `fit` starts again: earlier calls of `partial_fit` have no effect.
    passed = model.fit(IRIS, SPECIES).partial_fit(IRIS, SPECIES).coef_
    assert np.array_equal(passed, clone(model).fit(IRIS, SPECIES).partial_fit(IRIS, SPECIES).coef_)


def test_many_calls_of_partial_fit_converge():
    model = LinearClassifier(learning_rate=0.05, random_state=0)
    for _ in range(60):
        model.partial_fit(IRIS, SPECIES, classes=np.unique(SPECIES))
    assert model.score(IRIS, SPECIES) > 0.9
    with pytest.raises(BadInput, match="first call"):
        model.partial_fit(IRIS, SPECIES, classes=["a", "b"])


def test_reaching_max_iter_is_a_warning():
    with pytest.warns(ConvergenceWarning, match="Raise max_iter .now 2."):
        model = LinearClassifier(max_iter=2).fit(IRIS, SPECIES)
    assert not model.converged_ and model.n_iter_ == 2


def test_divergence_is_an_error():
    with pytest.raises(Diverged, match="lower the learning rate"):
        MLPClassifier((4,), learning_rate_init=1e38, max_iter=20, random_state=0).fit(IRIS, SPECIES)


def test_in_a_pipeline_and_a_grid():
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), LinearClassifier()), {"linearclassifier__alpha": [1e-3, 1e-1]}, cv=3
    ).fit(IRIS, SPECIES)
    assert grid.best_score_ > 0.9
    assert (
        clone(grid.best_estimator_[-1]).get_params()["alpha"] == grid.best_params_["linearclassifier__alpha"]
    )


@pytest.mark.parametrize(
    "model",
    [
        LinearClassifier(),
        MLPClassifier((8, 4), "tanh", max_iter=5, tol=None, random_state=0),
        MLPClassifier((8,), max_iter=5, tol=None, dtype="float64", random_state=1),
    ],
    ids=["linear", "mlp", "mlp64"],
)
def test_saved_and_pickled_models_give_the_same_results(model, tmp_path):
    model = clone(model).fit(IRIS, SPECIES)
    model.save(tmp_path / "m")
    for back in (
        type(model).load(tmp_path / "m"),
        energax.load(tmp_path / "m"),
        pickle.loads(pickle.dumps(model)),
    ):
        assert repr(back) == repr(model) and repr(back.fit_) == repr(model.fit_)
        assert np.array_equal(back.predict(IRIS), model.predict(IRIS)) and back.classes_.dtype == object
        proba = back.predict_proba(IRIS)
        assert proba.dtype == model.predict_proba(IRIS).dtype == model.dtype_
        assert np.array_equal(proba, model.predict_proba(IRIS))
        back.partial_fit(IRIS, SPECIES)


def test_a_learner_with_closures_can_be_pickled_but_not_saved(tmp_path):
    model = LinearClassifier(learner=Descent(CrossEntropy(), optax.adam(0.1)), max_iter=5).fit(IRIS, SPECIES)
    back = pickle.loads(pickle.dumps(model))
    assert np.array_equal(back.predict_proba(IRIS), model.predict_proba(IRIS))
    assert clone(back).fit(IRIS, SPECIES).n_iter_ == 5
    with pytest.raises(BadInput, match=r"set_params\(learner=None\)"):
        model.save(tmp_path / "m")
    model.set_params(learner=None).save(tmp_path / "m")
    assert np.array_equal(energax.load(tmp_path / "m").predict_proba(IRIS), model.predict_proba(IRIS))
    with pytest.raises(energax.BadFile, match="not MLPClassifier"):
        MLPClassifier.load(tmp_path / "m")


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
@pytest.mark.parametrize("model", [LinearClassifier(), MLPClassifier()], ids=lambda m: type(m).__name__)
def test_score_validates_its_input(model):
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.repeat(["a", "b"], 15)
    with pytest.raises(NotFitted):
        clone(model).score(X, y)
    fitted = clone(model).set_params(max_iter=2).fit(X, y)
    with pytest.raises(BadInput, match="labels of another type"):
        fitted.score(X, np.repeat([0, 1], 15))
    for weight in (np.full(30, np.nan), np.ones(29), np.zeros(30)):
        with pytest.raises(BadInput, match="sample_weight"):
            fitted.score(X, y, weight)


@pytest.mark.parametrize("rate", [-0.1, None, "a", np.nan, np.inf])
@pytest.mark.parametrize(
    "model",
    [LinearClassifier(batch_size=10), MLPClassifier(), VAE(), EnergyModel(), BernoulliRBM()],
    ids=lambda m: type(m).__name__,
)
def test_a_step_size_is_a_positive_number(model, rate):
    name = "learning_rate_init" if isinstance(model, MLPClassifier) else "learning_rate"
    X, y = np.tile([[0.0, 1], [1, 0]], (15, 1)), np.tile([0, 1], 15)
    with pytest.raises(BadInput, match=f"{name}: .*a number >= 0"):
        clone(model).set_params(**{name: rate}).fit(X, y)


def test_columns_of_any_scale_are_standardised():
    """The scale of the columns does not affect predictions."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.repeat([0, 1], 30)
    X[:, 0] += 3 * y
    results = [
        MLPClassifier((8,), max_iter=50, tol=None, random_state=0).fit(X * scale, y).predict_proba(X * scale)
        for scale in (1.0, 2.0**-30, 2.0**30)
    ]
    np.testing.assert_allclose(results[1], results[0], atol=1e-5)
    np.testing.assert_allclose(results[2], results[0], atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [LinearClassifier(learning_rate=0.1), MLPClassifier((4,), max_iter=5, tol=None, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_class_weights_are_weights_of_rows(model):
    by_class, by_row = clone(model).set_params(class_weight={"setosa": 3.0}), clone(model)
    weight = np.where(SPECIES == "setosa", 3.0, 1.0)
    for learn in ("fit", "partial_fit"):
        options = {"classes": np.unique(SPECIES)} if learn == "partial_fit" else {}
        results = [
            getattr(by_class, learn)(IRIS, SPECIES, **options).decision_function(IRIS),
            getattr(by_row, learn)(IRIS, SPECIES, sample_weight=weight, **options).decision_function(IRIS),
        ]
        assert np.array_equal(*results)


@pytest.mark.parametrize("model", [LinearClassifier(), MLPClassifier()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize(
    ("class_weight", "words"),
    [
        ({"setossa": 2.0}, "the label 'setossa'; expected labels of y, .*'setosa'"),
        ({"setosa": -1}, "-1 for the label 'setosa'; expected a finite number >= 0"),
        ({"setosa": "much"}, "'much' for the label 'setosa'"),
        (dict.fromkeys(np.unique(SPECIES), 0), "0 for every row"),
        ("even", "'even'; expected None, 'balanced', or a dict"),
        ([1, 2, 3], "expected None, 'balanced', or a dict"),
    ],
)
def test_bad_class_weights_are_rejected(model, class_weight, words):
    with pytest.raises(BadInput, match=f"class_weight: found .*{words}"):
        clone(model).set_params(class_weight=class_weight).fit(IRIS, SPECIES)


@pytest.mark.parametrize("model", [LinearClassifier(), MLPClassifier()], ids=lambda m: type(m).__name__)
def test_partial_fit_rejects_balanced_class_weights(model):
    with pytest.raises(BadInput, match=r"class_weight: .*only some of the rows.*compute_class_weight"):
        clone(model).set_params(class_weight="balanced").partial_fit(IRIS, SPECIES, np.unique(SPECIES))


@pytest.mark.parametrize("model", [LinearClassifier(), MLPClassifier()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("setting", [{"tol": "x"}, {"tol": -1}, {"tol": np.nan}, {"alpha": None}])
def test_tolerance_and_penalty_are_numbers(model, setting):
    X, y = np.tile([[0.0, 1], [1, 0]], (15, 1)), np.tile([0, 1], 15)
    with pytest.raises(BadInput, match=f"{next(iter(setting))}: .*a number >= 0"):
        clone(model).set_params(**setting).fit(X, y)
