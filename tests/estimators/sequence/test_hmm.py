"""The HMM estimators against hmmlearn, from the same start; input validation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from energax import load
from energax.errors import BadInput, NotFitted
from energax.estimators._sequence.gmm_hmm import GMMHMM
from energax.estimators._sequence.hmm import CategoricalHMM, GaussianHMM, PoissonHMM

K, LENGTHS = 3, [40, 1, 25, 34]
N = sum(LENGTHS)
RNG = np.random.default_rng(0)
START = {"startprob_": RNG.dirichlet(np.ones(K)), "transmat_": RNG.dirichlet(np.full(K, 2.0), K)}
SYMBOLS, COUNTS = RNG.integers(0, 5, (N, 1)), RNG.poisson(4, (N, 2))
REALS = 2 * RNG.normal(size=(N, 2)) + 2 * RNG.integers(0, 3, (N, 1))
EMIT = RNG.dirichlet(np.ones(5), K)
MEANS = RNG.normal(size=(K, 2))


def given(model, **values):
    for name, value in {**START, **values}.items():
        setattr(model, name, np.array(value))
    return model


def dice(**options):
    return given(CategoricalHMM(K, **options), emissionprob_=EMIT)


def cases():
    kw = {"n_iter": 10, "tol": -np.inf, "init_params": ""}
    priors = {"startprob_prior": 1.5, "transmat_prior": np.linspace(1, 3, 9).reshape(3, 3)}
    normal = {"means_prior": 1.0, "means_weight": 2.0, "covars_prior": 0.3, "covars_weight": 4}
    mixed = {"means_": RNG.normal(size=(K, 2, 2)), "weights_": np.full((K, 2), 0.5)}
    eye = np.broadcast_to(np.eye(2), (K, 2, 2, 2))
    return {
        "categorical": (CategoricalHMM, {**kw, **priors}, SYMBOLS, {"emissionprob_": EMIT}),
        "poisson": (PoissonHMM, kw, COUNTS, {"lambdas_": 1 + 5 * EMIT[:, :2]}),
        "diagonal": (GaussianHMM, kw, REALS, {"means_": MEANS, "covars_": np.ones((K, 2))}),
        "full": (
            GaussianHMM,
            {**kw, **normal, "covariance_type": "full"},
            REALS,
            {"means_": MEANS, "covars_": eye[:, 0]},
        ),
        "mixture": (GMMHMM, {**kw, "n_mix": 2, "covariance_type": "full"}, REALS, {**mixed, "covars_": eye}),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_baum_welch_takes_the_same_steps_as_hmmlearn(name):
    peer = pytest.importorskip("hmmlearn.hmm")
    cls, options, X, values = cases()[name]
    ours, theirs = (given(c(K, **options), **values) for c in (cls, getattr(peer, cls.__name__)))
    assert ours.score(X, LENGTHS) == pytest.approx(theirs.score(X, LENGTHS), rel=1e-12)
    value, path = ours.decode(X, LENGTHS)
    expected, best = theirs.decode(X, LENGTHS)
    assert value == pytest.approx(expected, rel=1e-12) and path.tolist() == best.tolist()
    np.testing.assert_allclose(ours.predict_proba(X, LENGTHS), theirs.predict_proba(X, LENGTHS), atol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours.fit(X, LENGTHS)
        theirs.fit(X, LENGTHS)
    np.testing.assert_allclose(ours.monitor_.history, list(theirs.monitor_.history), rtol=0, atol=1e-8)
    for attribute in (*START, *values):
        found, expected = getattr(ours, attribute), getattr(theirs, attribute)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8, err_msg=attribute)
    assert ours.n_iter_ == 10 and not ours.monitor_.converged


def test_lists_lengths_and_padding_are_one_thing_and_nan_is_missing():
    model = dice()
    rows = np.split(SYMBOLS, np.cumsum(LENGTHS)[:-1])
    whole = model.score(SYMBOLS, LENGTHS)
    assert model.score(rows) == pytest.approx(whole, rel=1e-12)
    assert sum(model.score(r) for r in rows) == pytest.approx(whole, rel=1e-12)
    assert model.decode(rows)[1].tolist() == model.decode(SYMBOLS, LENGTHS)[1].tolist()
    same = SYMBOLS.reshape(4, 25, 1)
    assert model.score(same) == pytest.approx(model.score(SYMBOLS, [25] * 4), rel=1e-12)
    holes = SYMBOLS[:12].astype(float)
    holes[[2, 5, 6]] = np.nan
    brute = np.exp(
        [model.score(_filled(holes, a, b, c)) for a in range(5) for b in range(5) for c in range(5)]
    )
    assert model.score(holes) == pytest.approx(np.log(brute.sum()), rel=1e-10)


def _filled(holes, *symbols):
    X = holes.copy()
    X[[2, 5, 6], 0] = symbols
    return X


def test_k_best_forecast_sample_and_criteria():
    model = dice()
    X = SYMBOLS[:10]
    values, paths = model.k_best(X, 4)
    value, best = model.decode(X)
    assert values[0] == pytest.approx(value) and paths[0].tolist() == best.tolist()
    assert np.all(np.diff(values) <= 0) and len({tuple(p) for p in paths}) == 4
    ahead = model.forecast(X, 3)
    last = model.predict_proba(X)[-1]
    np.testing.assert_allclose(ahead.states[2], last @ np.linalg.matrix_power(START["transmat_"], 3))
    np.testing.assert_allclose(ahead.mean, ahead.states @ EMIT)
    assert model.forecast(SYMBOLS, 2, LENGTHS).mean.shape == (4, 2, 5)
    shown, states = model.sample(4000, random_state=0, currstate=1)
    assert states[0] == 1 and shown.shape == (4000, 1)
    # 4000 draws: the frequency of a state within 5 standard errors at twice the variance of independent ones.
    at_rest = model.get_stationary_distribution()
    np.testing.assert_allclose(at_rest @ START["transmat_"], at_rest)
    assert np.all(np.abs(np.bincount(states, minlength=3) / 4000 - at_rest) < 5 * np.sqrt(0.5 / 4000))
    again, _ = model.sample(4000, random_state=0, currstate=1)
    assert np.array_equal(again, shown)
    score = model.score(X)
    assert model.aic(X) == pytest.approx(-2 * score + 2 * (2 + 6 + 12))
    assert model.bic(X) == pytest.approx(-2 * score + (2 + 6 + 12) * np.log(10))
    changed = dice()
    changed.score(X)
    changed.transmat_[:] = 1 / 3  # by hand, in place
    assert changed.score(X) != pytest.approx(score)


def test_params_restarts_zeros_and_labels():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = dice(params="s", init_params="").fit(SYMBOLS, LENGTHS)
        assert np.array_equal(held.transmat_, START["transmat_"]) and np.array_equal(held.emissionprob_, EMIT)
        assert not np.allclose(held.startprob_, START["startprob_"])
        left_right = dice(init_params="e", n_init=3, random_state=0, n_iter=5)
        left_right.startprob_ = np.array([1.0, 0, 0])
        left_right.transmat_ = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1.0]])
        left_right.fit(SYMBOLS, LENGTHS)
        assert not left_right.transmat_[np.tril_indices(3, -1)].any()
        assert len(left_right.fit_.restarts) == 3
        states = RNG.integers(0, 3, N)
        told = CategoricalHMM(K, n_iter=1, n_features=5).fit(SYMBOLS, LENGTHS, states=states)
    shown = np.zeros((K, 5))
    np.add.at(shown, (states, SYMBOLS[:, 0]), 1)
    np.testing.assert_allclose(told.emissionprob_, shown / shown.sum(1, keepdims=True))
    assert told.monitor_.iter == 1


def test_a_state_nobody_reaches_keeps_its_parameters():
    model = dice(init_params="", n_iter=2, tol=-1.0)
    model.startprob_, model.transmat_ = np.array([0.5, 0.5, 0]), np.array([[0.5, 0.5, 0]] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(SYMBOLS, LENGTHS)
    assert np.isfinite(model.transmat_).all() and model.transmat_[2].tolist() == [0.5, 0.5, 0]
    np.testing.assert_allclose(model.emissionprob_[2], EMIT[2])


def test_manners(tmp_path):
    model = clone(dice(n_iter=7))
    assert model.get_params()["n_iter"] == 7 and not hasattr(model, "startprob_")
    with pytest.raises(NotFitted, match="startprob_"):
        model.score(SYMBOLS)
    model = dice()
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").score(SYMBOLS) == model.score(SYMBOLS)
    assert np.array_equal(CategoricalHMM.load(tmp_path / "model").emissionprob_, EMIT)


def test_columns_may_be_told_by_hand():
    """As scripts for hmmlearn do; a number that contradicts the means raises."""
    model = GaussianHMM(2)
    model.n_features = 3
    model.startprob_, model.transmat_ = np.full(2, 0.5), np.full((2, 2), 0.5)
    model.means_, model.covars_ = np.zeros((2, 3)), np.ones((2, 3))
    model.n_features = 3
    assert model.n_features == 3
    with pytest.raises(BadInput, match="n_features"):
        model.n_features = 2


@pytest.mark.parametrize(
    ("change", "X", "lengths", "words"),
    [
        ({}, SYMBOLS, [40, 61], "lengths.*sum of 101"),
        ({}, SYMBOLS, [100, 0], "lengths"),
        ({}, [SYMBOLS[:3], SYMBOLS[:0]], None, "empty"),
        ({}, SYMBOLS[:0], None, "X"),
        ({}, [[0], [7]], None, "symbols from 0 to 4"),
        ({}, [[0.5]], None, "symbols"),
        ({"transmat_": np.full((3, 3), 0.5)}, SYMBOLS, None, "transmat_"),
        ({"startprob_": np.ones(2) / 2}, SYMBOLS, None, "startprob_"),
        ({"emissionprob_": np.ones((3, 5))}, SYMBOLS, None, "emissionprob_"),
    ],
)
def test_the_door(change, X, lengths, words):
    model = dice()
    for name, value in change.items():
        setattr(model, name, value)
    with pytest.raises(BadInput, match=words):
        model.score(X, lengths)


def test_bad_arguments_are_refused_before_any_work():
    for options, words in (
        ({"params": "sx"}, "params"),
        ({"algorithm": "greedy"}, "algorithm"),
        ({"n_components": 0}, "n_components"),
    ):
        with pytest.raises(BadInput, match=words):
            CategoricalHMM(**options).fit(SYMBOLS)
    with pytest.raises(BadInput, match="states"):
        CategoricalHMM(2).fit(SYMBOLS, states=np.full(N, 2))
    with pytest.raises(BadInput, match="covariance_type"):
        GaussianHMM(2, covariance_type="round").fit(REALS)
    with pytest.raises(BadInput, match="counts"):
        PoissonHMM(2).fit(REALS)
    with pytest.raises(BadInput, match="covars_"):
        given(GaussianHMM(K), means_=MEANS, covars_=-np.ones((K, 2))).score(REALS)
