"""A failed fit changes nothing, and rows of weight 0 have no effect."""

from __future__ import annotations

import warnings

import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from energax import BadInput, Diverged
from energax.errors import ConvergenceWarning
from energax.estimators import (
    VAE,
    BernoulliMixture,
    BernoulliRBM,
    EnergyModel,
    GaussianMixture,
    KMeans,
    LinearClassifier,
    MLPClassifier,
)
from energax.learn import Descent, NegativeLogLikelihood

RNG = np.random.default_rng(0)
REAL = np.concatenate([RNG.normal(size=(40, 2)), RNG.normal(size=(40, 2)) + 5])
BITS = (RNG.random((80, 4)) < [0.2, 0.5, 0.7, 0.9]).astype(float)
LABELS = np.repeat([0, 1], 40)
MODELS = [
    (KMeans(2, random_state=0), REAL, "transform"),
    (GaussianMixture(2, random_state=0), REAL, "score_samples"),
    (BernoulliMixture(2, random_state=0), BITS, "score_samples"),
    (BernoulliRBM(2, n_iter=3, batch_size=20, random_state=0), BITS, "score_samples"),
    (VAE(1, (4,), max_iter=3, batch_size=20, n_importance=50, random_state=0), REAL, "score_samples"),
    (EnergyModel((4,), max_iter=3, batch_size=20, n_importance=256, random_state=0), REAL, "score_samples"),
    (LinearClassifier(random_state=0), REAL, "decision_function"),
    (MLPClassifier((4,), max_iter=3, tol=None, random_state=0), REAL, "decision_function"),
]
each = pytest.mark.parametrize(("model", "X", "read"), MODELS, ids=lambda v: type(v).__name__)


@each
@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
def test_a_rejected_fit_leaves_the_model_unchanged(model, X, read):
    """The weights are checked last, after columns and dtype have been set."""
    model = clone(model).fit(X, LABELS)
    before, names = getattr(model, read)(X), set(vars(model))
    other = np.concatenate([X, X], axis=1).astype(np.float32)
    for rows, weight in ((other, -np.ones(80)), (other[:, :1], np.zeros(80))):
        with pytest.raises(BadInput, match="sample_weight"):
            model.fit(rows, LABELS, sample_weight=weight)
    assert_array_equal(getattr(model, read)(X), before)
    assert set(vars(model)) == names


@pytest.mark.parametrize("model", [MODELS[4][0], MODELS[5][0]], ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
def test_a_fit_that_diverges_leaves_the_model_unchanged(model):
    model = clone(model).fit(REAL)
    before = model.score_samples(REAL)
    with pytest.raises(Diverged):
        model.set_params(learning_rate=1e30).fit(REAL * 1000 + 50)
    assert_array_equal(model.score_samples(REAL), before)


@each
@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
def test_rows_of_weight_zero_have_no_effect(model, X, read):
    """Even if they are many and far away."""
    outliers = np.full((500, X.shape[1]), 1.0 if X is BITS else 1e3)
    if read == "score_samples" and isinstance(model, VAE):
        outliers[:] = 7.0
    weight, labels = np.append(np.ones(80), np.zeros(500)), np.append(LABELS, np.zeros(500, int))
    without = getattr(clone(model).fit(X, LABELS, sample_weight=np.ones(80)), read)(X)
    within = clone(model).fit(np.concatenate([X, outliers]), labels, sample_weight=weight)
    assert_array_equal(getattr(within, read)(X), without)
    if isinstance(model, KMeans):
        assert len(within.labels_) == 580
        assert_array_equal(within.labels_, within.predict(np.concatenate([X, outliers])))


@pytest.mark.parametrize("model", [m for m, *_ in MODELS[:5]], ids=lambda m: type(m).__name__)
def test_a_column_without_observed_values_of_positive_weight_is_rejected(model):
    X = BITS.copy() if isinstance(model, BernoulliMixture | BernoulliRBM) else REAL.copy()
    X[:60, 1] = np.nan
    with pytest.raises(BadInput, match="only missing values in column 1"):
        clone(model).fit(X, sample_weight=np.append(np.ones(60), np.zeros(20)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-14, 1e12])
def test_the_scale_of_the_weights_does_not_matter(dtype, scale):
    X = REAL.astype(dtype)
    gaussians = GaussianMixture(2, means_init=[[0.0, 0.0], [5.0, 5.0]])
    for model, rows in ((gaussians, X), (BernoulliMixture(2, alpha=0, random_state=0), BITS)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            one = clone(model).fit(rows).score(rows)
            other = clone(model).fit(rows, sample_weight=np.full(80, scale)).score(rows)
        assert_allclose(other, one, rtol=1e-5 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
@pytest.mark.parametrize("scale", [1e-70, 1e-30, 1e30])
def test_mixtures_of_columns_of_any_scale(kind, scale):
    """The density of c x is that of x divided by c, even for tiny c."""
    model = GaussianMixture(2, covariance_type=kind, reg_covar=0, random_state=0)
    one, other = clone(model).fit(REAL).score(REAL), clone(model).fit(REAL * scale).score(REAL * scale)
    assert_allclose(other, one - 2 * np.log(scale), rtol=1e-6)


def test_values_whose_squares_underflow_are_rejected():
    tiny = (REAL * 1e-19).astype(np.float32)
    with pytest.raises(BadInput, match=r"no value larger than .*Scale the columns"):
        KMeans(2).fit(tiny)
    assert KMeans(2, random_state=0).fit(REAL * 1e-100).inertia_ > 0


def test_a_learner_cannot_continue_from_another_one():
    model = GaussianMixture(2, random_state=0).fit(REAL)
    descent = Descent(NegativeLogLikelihood(), optax.adam(1e-2))
    with pytest.raises(BadInput, match=r"learner: found Descent .*Call fit to start again"):
        model.set_params(learner=descent).partial_fit(REAL)
    model = GaussianMixture(2, random_state=0, learner=descent).fit(REAL)
    with pytest.raises(BadInput, match=r"learner: found EM .*Call fit to start again"):
        model.set_params(learner=None).partial_fit(REAL)
