"""Every argument of every constructor has a row in a table of valid values, which `fit` checks first."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import energax
from energax import estimators, learn
from energax.catalog import of_kind
from energax.energies import RBM
from energax.errors import BadInput, describe

ESTIMATORS = [row.load() for row in of_kind("estimator")]
X = np.random.default_rng(0).normal(size=(12, 2))
SYMBOLS = (X[:, :1] > 0).astype(int)
Y = np.arange(12) % 2
each = pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)


class Unread:
    """A table that must not be read: settings are checked before it."""

    def __array__(self, *arguments, **keywords):
        raise AssertionError("X was read before the settings were checked")


# -- the tables ------------------------------------------------------------------------------------------


@each
def test_every_argument_has_a_row_and_its_default_is_valid(cls):
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert set(cls._settings) == set(defaults)
    for name, value in defaults.items():
        cls._settings[name].check(name, value)


@each
def test_every_argument_is_checked_before_the_data(cls):
    y = {"y": Y} if "y" in inspect.signature(cls.fit).parameters else {}
    for method in {"fit", "partial_fit"} & set(dir(cls)):
        for name in inspect.signature(cls).parameters:
            model = cls(**{name: object()})  # constructors only store
            with pytest.raises(BadInput, match=rf"^{name}: found object\(\); expected "):
                getattr(model, method)(Unread(), **y)
            assert set(vars(model)) == set(inspect.signature(cls).parameters)


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        (estimators.GaussianHMM(2, params=False), "params", "a string of letters of 'stmc'"),
        (estimators.GaussianHMM(2, init_params=2.5), "init_params", "a string of letters of 'stmc'"),
        (estimators.GaussianHMM(2, startprob_prior="x"), "startprob_prior", "a number or an array"),
        (estimators.GaussianHMM(2, transmat_prior={}), "transmat_prior", "a number or an array"),
        (estimators.GaussianHMM(2, means_prior=[]), "means_prior", r"broadcasts to shape \(2, 2\)"),
        (estimators.GaussianHMM(2, startprob_prior=[1, 1, 1]), "startprob_prior", r"shape \(2,\)"),
        (estimators.GaussianHMM(2, covars_prior=np.nan), "covars_prior", "finite numbers"),
        (estimators.GaussianHMM(2, transmat_prior=-1), "transmat_prior", "numbers >= 0"),
        (estimators.GMMHMM(2, weights_prior=np.ones(3)), "weights_prior", r"shape \(2, 1\)"),
        (estimators.PoissonHMM(2, lambdas_prior=np.ones(5)), "lambdas_prior", r"shape \(2, 2\)"),
        (estimators.GaussianHMM(2, covariance_type=[]), "covariance_type", "one of 'full', 'tied'"),
        (estimators.GaussianHMM(2, algorithm=np.ones(2)), "algorithm", "'viterbi' or 'map'"),
        (estimators.GaussianMixture(2, means_init=object()), "means_init", "an array of numbers, or None"),
        (estimators.GaussianMixture(2, weights_init=[[1], [1, 2]]), "weights_init", "an array of numbers"),
        (estimators.GaussianMixture(2, covariance_type=np.ones(3)), "covariance_type", "one of 'full'"),
        (estimators.LinearGaussianChain(emission=False), "emission", "an array of numbers, or None"),
        (estimators.LinearGaussianChain(emission_offset=np.ones(3)), "emission_offset", r"\(2,\), for 1 st"),
        (estimators.LinearGaussianChain(diagonal=["A"]), "diagonal", "some of transition_covariance"),
        (estimators.KMeans(2, n_init=np.ones(2)), "n_init", "a whole number >= 1, or 'auto'"),
        (estimators.VAE(2, likelihood=np.ones(2)), "likelihood", "one of 'auto'"),
        (estimators.VAE(2, random_state=-1), "random_state", "an int >= 0"),
        (estimators.EnergyModel(dtype=np.ones(2)), "dtype", "'float32' or 'float64'"),
        (estimators.EnergyModel(learning_rate=10**400), "learning_rate", "a number >= 0"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_errors_name_the_setting_and_what_is_expected(model, name, expected):
    rows = np.abs(X).round() if isinstance(model, estimators.PoissonHMM) else X
    with pytest.raises(BadInput, match=rf"^{name}: found .*; expected .*{expected}"):
        model.fit(rows)


def test_settings_are_checked_where_they_are_read_after_fit():
    model = estimators.BernoulliMixture(2, random_state=0).fit(X > 0)
    with pytest.raises(BadInput, match=r"^binarize: found an array of float64 of shape"):
        model.set_params(binarize=np.ones(5)).score_samples((X > 0).astype(float))
    chain = estimators.GaussianHMM(2, n_iter=1, random_state=0).fit(X)
    with pytest.raises(BadInput, match=r"^covariance_type: found \[\]"):
        chain.set_params(covariance_type=[]).score(X)
    by_hand = estimators.CategoricalHMM(2, startprob_prior="x")
    by_hand.startprob_, by_hand.transmat_ = [0.5, 0.5], np.full((2, 2), 0.5)
    by_hand.emissionprob_ = np.full((2, 2), 0.5)
    with pytest.raises(BadInput, match=r"^startprob_prior: found 'x'"):
        by_hand.score(SYMBOLS)
    by_hand.set_params(startprob_prior=1.0).transmat_ = [[1.0], [0.5, 0.5]]
    with pytest.raises(BadInput, match=r"^transmat_: found "):
        by_hand.score(SYMBOLS)


@pytest.mark.parametrize(
    "bad", ["x", [], np.ones(2), object()], ids=lambda value: re.sub(r" at 0x\w+", "", repr(value))
)
def test_well_known_models_name_their_arguments(bad):
    cls = estimators.LinearGaussianChain
    for name, call in {
        "level": lambda: cls.local_level(bad),
        "error": lambda: cls.local_level(1.0, bad),
        "diffuse": lambda: cls.local_level(1.0, 1.0, diffuse=bad),
        "slope": lambda: cls.local_trend(1.0, bad),
        "n_dims": lambda: cls.constant_velocity(bad),
        "dt": lambda: cls.constant_velocity(2, dt=bad),
        "acceleration": lambda: cls.constant_velocity(2, acceleration=bad),
    }.items():
        with pytest.raises(BadInput, match=rf"^{name}: found "):
            call()


# -- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("n_components", lambda: estimators.GaussianHMM(10**18).fit(X)),
        ("n_mix", lambda: estimators.GMMHMM(2, n_mix=10**18).fit(X)),
        ("n_init", lambda: estimators.GaussianMixture(2, n_init=10**18).fit(X)),
        ("n_init", lambda: estimators.KMeans(2, n_init=10**18).fit(X)),
        ("hidden_layer_sizes", lambda: estimators.MLPClassifier((10**12,)).fit(X, Y)),
        ("n_components", lambda: estimators.BernoulliRBM(10**400).fit(X > 0)),
        ("n_states", lambda: estimators.LinearGaussianChain(10**15).fit(X)),
        ("order", lambda: estimators.NGramModel(10**18).fit(["a b"])),
    ],
)
def test_a_setting_that_needs_too_much_memory_is_refused(name, call):
    with pytest.raises(
        BadInput, match=rf"^{name}: found \(?1.*would take .* GB; .*the memory of this machine"
    ):
        call()


@pytest.mark.parametrize("name", ["LogisticRegression", "NaiveBayes", "SVC", "Ridge"])
def test_a_sparse_table_that_is_too_large_as_a_dense_one_is_refused(name):
    n = 10**7
    table = scipy.sparse.csr_array(([1.0, 2.0], ([0, n - 1], [0, 10**7 - 1])), shape=(n, 10**7))
    with pytest.raises(BadInput, match=r"^X: found .*a dense table, .*would take .* GB"):
        getattr(estimators, name)().fit(table, np.arange(n) % 2)


def test_draws_that_need_too_much_memory_are_refused():
    vae = estimators.VAE(1, (2,), max_iter=1, random_state=0).fit(X)
    mixture = estimators.GaussianMixture(1, random_state=0).fit(X)
    chain = estimators.GaussianHMM(1, n_iter=1, random_state=0).fit(X)
    for model in (vae, mixture, chain):
        with pytest.raises(BadInput, match=r"^n_samples: found 1.*the draws would take .* GB"):
            model.sample(10**15)
    with pytest.raises(BadInput, match=r"^steps: found 1.*GB"):
        chain.forecast(X, 10**15)
    with pytest.raises(BadInput, match=r"^k: found 1.*GB"):
        chain.k_best(X, 10**15)


def test_symbols_and_counts_beyond_32_bits_are_refused():
    for model in (estimators.CategoricalHMM(2), estimators.PoissonHMM(2)):
        with pytest.raises(BadInput, match=r"^X: found 1e\+40 in row 1; expected .*below 2³¹"):
            model.fit([[0], [10**40]])


# -- tables and labels -----------------------------------------------------------------------------------


def test_an_error_about_a_vector_does_not_print_it():
    with pytest.raises(BadInput, match=r"got 1D array; .*X.reshape\(-1, 1\)") as caught:
        estimators.GaussianMixture(2).fit(np.arange(500.0))
    assert len(str(caught.value)) < 250


def test_columns_that_are_not_numbers_are_named():
    frame = pd.DataFrame({"size": X[:, 0], "city": ["Rome", "Oslo"] * 6})
    with pytest.raises(BadInput, match=r"^X: found the text 'Rome' in column 'city'; .*OneHotEncoder"):
        estimators.GaussianMixture(2).fit(frame)
    with pytest.raises(BadInput, match=r"^X: found the text 'Rome' in column 1; .*OneHotEncoder"):
        estimators.LinearClassifier().fit(frame.to_numpy(), Y)
    dates = frame.assign(city=pd.date_range("2020-01-01", periods=12))
    for table, column in ((dates, "'city'"), (dates[["city"]].to_numpy(), "0")):
        with pytest.raises(BadInput, match=f"^X: found dates .* in column {column}; .*Convert it to numbers"):
            estimators.KMeans(2).fit(table)


@pytest.mark.parametrize("model", [estimators.GaussianHMM(2), estimators.LinearGaussianChain(1)])
def test_sequences_are_dense_and_rectangular(model):
    for table, words in (
        (scipy.sparse.csr_array(X), "sparse"),
        ([[1.0, 2.0], [3.0]], "rows of different lengths"),
        ([["a", "b"]] * 4, "the text 'a' in column 0"),
    ):
        with pytest.raises(BadInput, match=f"^X: found .*{words}"):
            model.fit(table)
    with pytest.raises(BadInput, match=r"^lengths: found 'x'; expected whole numbers"):
        model.fit(X, lengths="x")


def test_labels_are_complete_and_of_one_type():
    model = estimators.LinearClassifier()
    for y, words in (
        ([None, *"ababababab", "a"], "None in row 0; expected labels without missing values"),
        (["a", 1] * 6, "labels of different types"),
        ([object()] * 12, "labels of different types"),
    ):
        with pytest.raises(BadInput, match=f"^y: found .*{words}"):
            model.fit(X, np.array(y, dtype=object))
    with pytest.raises(BadInput, match=r"^classes: found .*labels of different types"):
        model.partial_fit(X, Y, classes=np.array([0, "a"], dtype=object))


def test_a_single_weight_is_a_finite_number():
    for model in (estimators.EnergyModel((2,), max_iter=1), estimators.GaussianMixture(1)):
        with pytest.raises(BadInput, match=r"^sample_weight: found NaN"):
            model.fit(X, sample_weight=np.nan)


# -- `fit` of an energy ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("callbacks", 5, "a list of functions"),
        ("callbacks", [5], "a list of functions"),
        ("mesh", np.nan, "a jax.sharding.Mesh, or None"),
        ("progress", "yes", "True or False"),
        ("initialise", 2.5, "True or False"),
        ("freeze", np.array(1.5), "names of parameters"),
        ("n_init", 10**18, "the memory of this machine"),
        ("data", np.ones((12, 2)), "a dict of arrays by variable name"),
        ("data", pd.DataFrame(X), "columns among the variables"),
        ("data", {1: X, "y": X}, "some of"),
        ("data", lambda: 5, "a function that returns an iterator of dicts"),
        ("data", [({}, None, None)], r"a dict, or \(dict, weights\)"),
    ],
)
def test_arguments_of_fit(argument, value, expected):
    energy, learner = RBM.random(2, 2, key=0), learn.Descent(learn.NegativeLogLikelihood())
    arguments = {"data": {"x": SYMBOLS.repeat(2, 1)}, argument: value}
    with pytest.raises(BadInput, match=rf"^(batch 0|{argument}): found .*{expected}"):
        energax.fit(energy, learner=learner, key=0, epochs=1, **arguments)


def test_values_in_messages_are_short():
    assert describe(np.ones((99, 3))) == "an array of float64 of shape (99, 3)"
    for value in (list(range(9999)), "a" * 9999, 10**400, {i: i for i in range(999)}, pd.DataFrame(X)):
        assert len(describe(value)) < 120
    assert not re.search("0x", describe(object()) + describe(lambda: None))
