"""scikit-learn's own checks, on every estimator, with small settings."""

from __future__ import annotations

import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from energax.estimators import (
    SVC,
    SVR,
    VAE,
    ARDRegression,
    Autoencoder,
    BasisExpansion,
    BayesianRidge,
    BernoulliMixture,
    BernoulliRBM,
    BoltzmannMachine,
    ConditionalVAE,
    DeepBeliefNetwork,
    DeepBoltzmannMachine,
    DenoisingAutoencoder,
    EnergyModel,
    Flow,
    GaussianMixture,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    KernelRidge,
    KMeans,
    Lasso,
    LinearClassifier,
    LinearDiscriminantAnalysis,
    LinearRegression,
    LogisticRegression,
    MLPClassifier,
    MLPRegressor,
    NaiveBayes,
    PoissonRegressor,
    QuadraticDiscriminantAnalysis,
    Ridge,
    SparseAutoencoder,
    VaDE,
)

# Fits with few iterations are interpreted: nothing is compiled for the shapes of each check.
ESTIMATORS = [
    LinearClassifier(max_iter=50, tol=None),
    # gamma="scale" depends on the rows, not on their weights, as in scikit-learn.
    SVC(gamma=0.1, tol=1e-10),
    SVR(gamma=0.1, tol=1e-10),
    LogisticRegression(),
    MLPRegressor((8,), max_iter=60, tol=None, learning_rate_init=0.02, batch_size=None),
    MLPClassifier((8,), max_iter=60, tol=None, learning_rate_init=0.02, batch_size=None),
    BernoulliRBM(2, n_iter=3, binarize=0.5),
    BoltzmannMachine(n_iter=2, binarize=0.5),
    DeepBoltzmannMachine((2, 2), n_iter=1, n_iter_pretrain=1, n_importance=2, binarize=0.5),
    DeepBeliefNetwork((2, 2), n_iter=1, n_iter_pretrain=1, n_importance=2, binarize=0.5),
    VAE(2, (4,), max_iter=2, n_importance=8, likelihood="gaussian"),
    ConditionalVAE(1, (), max_iter=20, learning_rate=0.05, likelihood="gaussian", n_importance=20),
    VaDE(2, 2, (), learning_rate=0.05, pretrain_iter=20, max_iter=2, likelihood="gaussian", n_importance=8),
    Autoencoder(1, (4,), max_iter=2),
    DenoisingAutoencoder(4, max_iter=2),
    SparseAutoencoder(4, max_iter=2),
    EnergyModel((4,), max_iter=2, n_importance=256, n_noise=2),
    Flow(1, width=4, depth=1, max_iter=2),
    GaussianMixture(2),
    KMeans(3),
    GaussianProcessRegressor(alpha=1e-2),
    GaussianProcessClassifier(),
    GaussianProcessClassifier(multi_class="softmax"),
    KernelRidge(),
    BernoulliMixture(2, binarize=0.5),
    LinearRegression(),
    LinearRegression(noise="student-t", max_iter=50),
    Ridge(),
    Lasso(0.1),
    PoissonRegressor(max_iter=50),
    BayesianRidge(),
    ARDRegression(),
    BasisExpansion("gaussian", 4),
    BasisExpansion("spline", 4),
    NaiveBayes(),
    LinearDiscriminantAnalysis(),
    QuadraticDiscriminantAnalysis(reg_param=0.1),  # some checks have fewer rows than columns
]

_RANDOM = (
    "random numbers (batches, chains, noise) depend on the position of a row: "
    "a repeated row equals a row of weight 2 only in distribution"
)
_STARTS = "random starts depend on positions: with a repeated row the fit may end in another local optimum"
_NO_CLASSES = (
    "the check treats any estimator with predict_proba as a classifier, and reads the classifier tags"
)
_FLOAT32 = (
    "computes in float32, in which 60 steps of Adam do not agree to the 7 digits that the check requires"
)
_WEIGHTS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
EXPECTED = {
    "BernoulliRBM": dict.fromkeys(_WEIGHTS, _RANDOM),
    "DeepBoltzmannMachine": dict.fromkeys(_WEIGHTS, _RANDOM),
    "DeepBeliefNetwork": dict.fromkeys(_WEIGHTS, _RANDOM),
    "ConditionalVAE": dict.fromkeys(_WEIGHTS, _RANDOM),
    "VaDE": {
        **dict.fromkeys(_WEIGHTS, _RANDOM),
        "check_estimator_sparse_array": _NO_CLASSES,
        "check_estimator_sparse_matrix": _NO_CLASSES,
    },
    "DenoisingAutoencoder": dict.fromkeys(_WEIGHTS, _RANDOM),
    "Autoencoder": dict.fromkeys(_WEIGHTS, _FLOAT32),
    "SparseAutoencoder": dict.fromkeys(_WEIGHTS, _FLOAT32),
    "VAE": dict.fromkeys(_WEIGHTS, _RANDOM),
    "MLPRegressor": {
        **dict.fromkeys(_WEIGHTS, _FLOAT32),
        "check_regressor_multioutput": "answers in the dtype of its network, by default float32",
    },
    "MLPClassifier": dict.fromkeys(_WEIGHTS, _FLOAT32),
    "GaussianMixture": dict.fromkeys(_WEIGHTS, _STARTS),
    "KMeans": dict.fromkeys(_WEIGHTS, _STARTS),
    "BernoulliMixture": {
        **dict.fromkeys(_WEIGHTS, _STARTS),
        "check_estimator_sparse_array": _NO_CLASSES,
        "check_estimator_sparse_matrix": _NO_CLASSES,
    },
}


def expected_failures(estimator):
    return EXPECTED.get(type(estimator).__name__, {})


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def name_of(estimator):
    return type(estimator).__name__


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_names_of_columns(estimator):
    """A check that `parametrize_with_checks` leaves out: frames do not warn, and other names raise."""
    estimator_checks.check_dataframe_column_names_consistency(type(estimator).__name__, clone(estimator))


@pytest.mark.filterwarnings("ignore::energax.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")  # they mix frames and arrays
@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if hasattr(e, "transform")], ids=name_of)
def test_frames_of_transformers(estimator):
    """The checks of `set_output` and `get_feature_names_out` that `parametrize_with_checks` leaves out."""
    for check in (
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_set_output_transform_polars,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
        estimator_checks.check_get_feature_names_out_error,
    ):
        check(type(estimator).__name__, clone(estimator))
