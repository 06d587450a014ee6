"""What scripts written for scikit-learn, hmmlearn, pandas and polars expect of our estimators."""

from __future__ import annotations

import warnings

import hmmlearn.hmm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.linear_model
import sklearn.mixture
import sklearn.neural_network

from energax import estimators
from energax.errors import BadInput, ConvergenceWarning
from energax.kernels import RBF

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) + 5 * (np.arange(60) < 30)[:, None]
Y = (np.arange(60) % 2).astype(int)
BITS = (X > 2).astype(float)


# -- scikit-learn ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loop_of_warm_starts_of_one_iteration_converges_as_in_scikit_learn():
    found = []
    for cls in (sklearn.mixture.GaussianMixture, estimators.GaussianMixture):
        start = {"means_init": [[0.0, 0.0], [1.0, 1.0]], "weights_init": [0.5, 0.5]}
        precisions = {"precisions_init": np.tile(np.eye(2), (2, 1, 1))}
        model = cls(2, warm_start=True, max_iter=1, **start, **precisions)
        fits = (model.fit(X).converged_ for _ in range(100))
        found.append(next(i for i, converged in enumerate(fits) if converged))
    assert 1 < found[0] == found[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warm_start_that_still_moves_has_not_converged():
    model = estimators.BernoulliMixture(2, warm_start=True, max_iter=1, tol=0.0, random_state=0)
    assert not any(model.fit(BITS).converged_ for _ in range(2))


@pytest.mark.parametrize("loss", ["cross-entropy", "perceptron", "margin"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_classes_have_one_row_of_coefficients(loss):
    y = (X[:, 0] > 2).astype(int)
    theirs = sklearn.linear_model.LogisticRegression().fit(X, y)
    ours = estimators.LinearClassifier(loss, max_iter=20, random_state=0).fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape == (1, 2)
    assert ours.intercept_.shape == theirs.intercept_.shape == (1,)
    scores = X @ ours.coef_.T + ours.intercept_
    np.testing.assert_allclose(scores[:, 0], ours.decision_function(X), atol=1e-9)
    three = estimators.LinearClassifier(loss, max_iter=20, random_state=0).fit(X, np.arange(60) % 3)
    assert three.coef_.shape == (3, 2) and three.intercept_.shape == (3,)


@pytest.mark.parametrize(
    "model",
    [
        estimators.SVC(max_iter=1),
        estimators.SVR(max_iter=1),
        estimators.MLPClassifier((2,), max_iter=1),
        estimators.MLPRegressor((2,), max_iter=1),
        estimators.LogisticRegression(max_iter=1),
        estimators.LinearClassifier(max_iter=1),
        estimators.PoissonRegressor(max_iter=1),
        estimators.BayesianRidge(max_iter=1),
        estimators.KernelRidge(alpha=0.0),
        estimators.GaussianProcessClassifier(1.0 * RBF(), max_iter=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_warning_names_the_line_of_the_user(model):
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(np.r_[X, X], np.r_[Y, 1 - Y])
    assert {warning.filename for warning in caught} == {__file__}


def test_grey_values_are_probabilities_of_visible_units():
    grey = RNG.uniform(size=(60, 3))
    ours = estimators.BernoulliRBM(2, n_iter=2, random_state=0).fit(grey).partial_fit(grey)
    theirs = sklearn.neural_network.BernoulliRBM(2)
    theirs.n_features_in_ = 3
    for name in ("components_", "intercept_hidden_", "intercept_visible_"):
        setattr(theirs, name, getattr(ours, name))
    np.testing.assert_allclose(ours.transform(grey), theirs.transform(grey), rtol=1e-9)
    assert set(np.unique(ours.gibbs(grey))) <= {0.0, 1.0}
    with pytest.raises(BadInput, match=r"in row 0, column 0; expected zeros and ones\. Set binarize="):
        ours.score_samples(grey)  # a probability is not a value with a probability of its own
    for outside in (-0.1, 1.1):
        with pytest.raises(BadInput, match="in row 0, column 0; expected zeros and ones, or probabilities"):
            estimators.BernoulliRBM(2).fit(np.full((4, 3), outside))


def test_maximum_likelihood_excludes_what_was_never_seen():
    rows = [[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    model = estimators.BernoulliMixture(1, alpha=0.0, random_state=0).fit(rows)
    unseen = [[0, 0, 0], [1, 0, 0], [np.nan, 1, 1]]
    expected = [-np.inf, np.log(1 / 4), np.log(1 / 4)]
    np.testing.assert_allclose(model.score_samples(unseen), expected)
    np.testing.assert_allclose(model.log_prob(unseen).value, expected)
    assert model.score(unseen) == -np.inf
    smoothed = estimators.BernoulliMixture(1, alpha=1.0, random_state=0).fit(rows)
    assert np.isfinite(smoothed.score_samples(unseen)).all()


# -- frames ------------------------------------------------------------------------------------------------

PANDAS = pd.DataFrame(X, columns=["a", "b"], index=pd.Index(np.arange(60) * 2, name="day"))
FRAMES = {"pandas": PANDAS, "polars": pl.DataFrame(X, schema=["a", "b"])}
IMPUTERS = [
    estimators.GaussianMixture(1),
    estimators.KMeans(2, random_state=0),
    estimators.VAE(1, (2,), max_iter=1, random_state=0),
    estimators.EnergyModel((2,), max_iter=1, n_importance=256, random_state=0),
    estimators.LinearGaussianChain(1, max_iter=1),
]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("model", IMPUTERS, ids=lambda model: type(model).__name__)
@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
def test_impute_returns_a_frame_like_the_one_given(model, kind):
    frame = FRAMES[kind]
    values = X.copy()
    values[3, 1] = np.nan
    if kind == "pandas":
        holes = pd.DataFrame(values, columns=frame.columns, index=frame.index)
    else:
        holes = pl.DataFrame(values, schema=frame.columns)
    model.fit(frame)
    filled = model.impute(holes)
    assert type(filled) is type(frame) and list(filled.columns) == ["a", "b"]
    assert np.isfinite(filled.to_numpy()).all()
    np.testing.assert_allclose(np.delete(filled.to_numpy(), 3, 0), np.delete(X, 3, 0), rtol=1e-5)
    if kind == "pandas":
        assert filled.index.equals(frame.index)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        assert type(model.impute(values)) is np.ndarray


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    "model",
    [estimators.GaussianMixture(1), estimators.GaussianHMM(1, n_iter=50)],
    ids=lambda model: type(model).__name__,
)
def test_information_criteria_of_a_frame_do_not_warn(model, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(FRAMES[kind])
        assert model.aic(FRAMES[kind]) < model.bic(FRAMES[kind])


# -- hmmlearn ----------------------------------------------------------------------------------------------


def set_chain(model, **parameters):
    model.startprob_, model.transmat_ = np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.4, 0.6]])
    for name, value in parameters.items():
        setattr(model, name, value)
    return model


@pytest.mark.parametrize("init_params", ["stmc", "", "st"])
def test_no_iterations_only_initialise(init_params):
    for cls in (hmmlearn.hmm.GaussianHMM, estimators.GaussianHMM):
        model = set_chain(
            cls(2, n_iter=0, init_params=init_params, random_state=0),
            means_=np.array([[0.0, 0.0], [9.0, 9.0]]),
            covars_=np.ones((2, 2)),
        )
        model.fit(X)
        assert np.isfinite(model.score(X)) and model.monitor_.iter == 0
        assert (model.means_ == [[0, 0], [9, 9]]).all() == ("m" not in init_params)
        assert (model.transmat_[0, 0] == 0.7) == ("t" not in init_params)
    assert not model.converged_ and not model.monitor_.converged


VARIANCES = np.array([1.5, 2.5])
DIAGONAL = np.array([[1.5, 0.5], [2.5, 3.0]])
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize(
    ("kind", "covars"),
    [
        ("spherical", VARIANCES),
        ("spherical", VARIANCES[:, None]),
        ("spherical", np.tile(VARIANCES[:, None], 2)),
        ("diag", DIAGONAL),
        ("tied", MATRIX),
        ("full", np.stack([MATRIX, np.eye(2)])),
    ],
)
def test_covariances_may_be_set_in_the_shapes_of_hmmlearn(kind, covars):
    theirs, ours = (
        set_chain(cls(2, covariance_type=kind, init_params=""), means_=np.array([[0.0, 0.0], [5.0, 5.0]]))
        for cls in (hmmlearn.hmm.GaussianHMM, estimators.GaussianHMM)
    )
    theirs.n_features = 2
    theirs.covars_ = ours.covars_ = covars
    np.testing.assert_allclose(ours.score(X), theirs.score(X))
    matrices = ours.covars_
    assert matrices.shape == (2, 2, 2)
    before = ours.score(X)
    ours.covars_ = matrices  # in the shape in which they are read
    assert ours.score(X) == before
    np.testing.assert_array_equal(ours.covars_, matrices)


def test_matrices_that_do_not_have_the_shape_of_the_type_are_refused():
    model = estimators.GaussianHMM(2, covariance_type="diag")
    with pytest.raises(BadInput, match="covars_: found correlated columns; expected diagonal matrices"):
        model.covars_ = np.stack([MATRIX, np.eye(2)])
    model = estimators.GaussianHMM(2, covariance_type="tied")
    with pytest.raises(BadInput, match="covars_: found matrices that differ; expected one matrix"):
        model.covars_ = np.stack([MATRIX, np.eye(2)])


def test_an_impossible_sequence_has_no_posterior():
    """As with networks: its log-likelihood is −inf, and questions about its states raise."""
    model = estimators.CategoricalHMM(2)
    model.startprob_, model.transmat_ = np.array([1.0, 0.0]), np.eye(2)
    model.emissionprob_ = np.eye(2)
    impossible, lengths = [[0], [0], [0], [1]], [2, 2]
    assert model.score(impossible, lengths) == -np.inf
    questions = [model.predict_proba, model.score_samples, model.predict, model.decode]
    questions += [lambda X, lengths: model.decode(X, lengths, "map"), lambda X, n: model.forecast(X, 2, n)]
    for ask in questions:
        with pytest.raises(BadInput, match=r"^X: found sequence 1, which has probability zero"):
            ask(impossible, lengths)
    assert np.isfinite(model.predict_proba(impossible[:2])).all()


# -- warnings ----------------------------------------------------------------------------------------------


def test_warnings_name_arguments_that_the_estimator_has():
    model = estimators.VAE(2, (2,), max_iter=1, n_importance=3, random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"effective draws.*Raise n_importance \(now 3\)") as caught:
        model.score_samples(X)
    assert not any("n_samples" in str(w.message) or "proposal=" in str(w.message) for w in caught)
