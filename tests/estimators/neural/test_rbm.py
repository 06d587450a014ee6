"""BernoulliRBM: exact likelihoods against enumeration, learners, missing values, saving."""

from __future__ import annotations

import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

import energax
from energax.energies import RBM
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import BernoulliRBM
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood

PAIRS = np.tile([[1.0, 0, 1, 0], [0, 1, 0, 1]], (50, 1))


@pytest.fixture(scope="module")
def pairs():
    return BernoulliRBM(2, n_iter=100, learning_rate=0.1, random_state=0).fit(PAIRS)


def by_hand(model, X):
    """log p(x) from the fitted parameters, by sums over all joint values, in float64."""
    W, b, c = model.components_.T, model.intercept_visible_, model.intercept_hidden_
    zs = np.array(list(itertools.product([0, 1], repeat=W.shape[1])))
    free = lambda X: logsumexp(X @ b[:, None] + X @ W @ zs.T + zs @ c, axis=1)
    everything = np.array(list(itertools.product([0, 1], repeat=W.shape[0])))
    return free(np.asarray(X, float)) - logsumexp(free(everything))


def test_log_prob_is_exact(pairs):
    found = pairs.log_prob(PAIRS)
    assert found.kind == "exact" and found.value.dtype == np.float64
    assert np.allclose(found.value, by_hand(pairs, PAIRS), rtol=1e-10)
    assert pairs.score(PAIRS) > -np.log(2) - 0.1  # −log 2 is the maximum


def test_missing_pixels_are_summed_out(pairs):
    row = [[1.0, np.nan, np.nan, 0.0]]
    completions = [[1.0, a, b, 0.0] for a in (0, 1) for b in (0, 1)]
    assert np.allclose(pairs.score_samples(row), logsumexp(by_hand(pairs, completions)))
    assert pairs.impute(row).tolist() == [[1, 0, 1, 0]]
    assert pairs.impute(PAIRS) is not PAIRS and np.array_equal(pairs.impute(PAIRS), PAIRS)


def test_hidden_means(pairs):
    z = pairs.transform(PAIRS)
    field = PAIRS @ pairs.components_.T + pairs.intercept_hidden_
    assert np.allclose(z, 1 / (1 + np.exp(-field)))
    assert list(pairs.get_feature_names_out()) == ["bernoullirbm0", "bernoullirbm1"]


def test_draws_have_the_frequencies_of_the_model(pairs):
    """χ² test over the 16 patterns of exact, independent draws, at level 1e-4."""
    from scipy.stats import chisquare

    drawn = pairs.sample(2000)
    codes = (drawn @ [8, 4, 2, 1]).astype(int)
    p = np.exp(by_hand(pairs, np.array(list(itertools.product([0, 1], repeat=4)))))
    order = np.argsort(p)
    counts, expected = np.bincount(codes, minlength=16)[order], 2000 * p[order]
    rare = np.cumsum(expected) < 5  # rare patterns are merged into the next cell
    first = rare.sum()
    counts = np.append(counts[: first + 1].sum(), counts[first + 1 :])
    expected = np.append(expected[: first + 1].sum(), expected[first + 1 :])
    assert len(expected) > 2 and chisquare(counts, expected).pvalue > 1e-4


def test_gibbs_draws_new_binary_rows_in_every_call(pairs):
    one, two = pairs.gibbs(PAIRS), pairs.gibbs(PAIRS)
    assert set(np.unique(one)) <= {0.0, 1.0} and not np.array_equal(one, two)
    with pytest.raises(BadInput, match="impute"):
        pairs.gibbs([[1.0, np.nan, 0.0, 0.0]])


def test_digits(binary_digits):
    X, X_test = binary_digits
    cd = BernoulliRBM(12, n_iter=100, random_state=0).fit(X)
    assert cd.components_.dtype == np.float32
    assert cd.score(X_test) > -19.3
    exact = BernoulliRBM(
        12, learner=Descent(NegativeLogLikelihood(), optax.adam(0.01)), n_iter=20, random_state=0
    )
    assert exact.fit(X).score(X_test) > -22
    assert "log partition" in exact.history_


def test_learning_from_missing_pixels():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random(PAIRS.shape) < 0.3, np.nan, PAIRS)
    model = BernoulliRBM(2, n_iter=150, learning_rate=0.05, random_state=0).fit(rows)
    assert model.score(PAIRS) > -1.2  # independent fair coins have −4 log 2 = −2.8
    assert (model.impute(rows) == PAIRS).mean() > 0.97


def test_sample_weights():
    only = BernoulliRBM(1, n_iter=100, learning_rate=0.05, random_state=0).fit(
        PAIRS, sample_weight=PAIRS[:, 0] + 1e-6
    )
    assert only.score(PAIRS[:1]) > -0.5 and only.score(PAIRS[1:2]) < -5


def test_partial_fit_continues_with_the_state_of_the_optimizer():
    passes, again = BernoulliRBM(2, learning_rate=0.05, random_state=0), BernoulliRBM(2, random_state=0)
    for _ in range(80):
        passes.partial_fit(PAIRS)
    assert passes.score(PAIRS) > -1.2 and int(passes.fit_.state.optimizer[0].count) == 80
    again.fit(PAIRS).partial_fit(PAIRS)
    assert again.n_features_in_ == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_and_pickled_models_give_the_same_results(dtype, tmp_path):
    model = BernoulliRBM(2, n_iter=3, random_state=0).fit(PAIRS.astype(dtype))
    model.save(tmp_path / "m")
    for back in (energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert repr(back) == repr(model)
        assert back.transform(PAIRS).dtype == dtype and np.array_equal(
            back.transform(PAIRS), model.transform(PAIRS)
        )
        assert np.array_equal(back.score_samples(PAIRS), model.score_samples(PAIRS))
        assert np.array_equal(
            back.partial_fit(PAIRS).components_,
            pickle.loads(pickle.dumps(model)).partial_fit(PAIRS).components_,
        )


def test_set_output_and_names():
    import pandas as pd

    frame = pd.DataFrame(PAIRS, columns=list("abcd"))
    out = BernoulliRBM(2, n_iter=1, random_state=0).set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == ["bernoullirbm0", "bernoullirbm1"] and len(out) == 100


def known_machine(n_components):
    """An RBM with strong weights, and its E[x] and E[z] given observed values, by enumeration."""
    rng = np.random.default_rng(3)
    model = BernoulliRBM(n_components, n_iter=1, random_state=0).fit(np.eye(5))
    weight = rng.normal(scale=1.5, size=(5, n_components))
    bias, hidden = rng.normal(size=5), rng.normal(size=n_components)
    with jax.enable_x64(True):
        model.energy_ = RBM(*map(jnp.asarray, (weight, bias, hidden)))
    x = np.array(list(itertools.product([0, 1], repeat=5)), float)
    z = np.array(list(itertools.product([0, 1], repeat=n_components)), float)
    p = np.exp(x @ weight @ z.T + (x @ bias)[:, None] + z @ hidden)

    def means(row):
        fits = np.all(np.isnan(row) | (x == row), axis=1)
        joint = p * fits[:, None] / (p * fits[:, None]).sum()
        return joint.sum(1) @ x, joint.sum(0) @ z

    return model, means


INCOMPLETE = np.array([[1, np.nan, np.nan, 0, 1], [np.nan] * 5, [0, 0, 1, 1, np.nan], [1, 0, 0, 0, 1]])


def test_hidden_units_given_observed_values():
    """p(z | observed) is the mean of p(z | x) over x, not p(z | mean of x)."""
    model, means = known_machine(3)
    found, filled = model.transform(INCOMPLETE), model.impute(INCOMPLETE)
    for row, units, picture in zip(INCOMPLETE, found, filled, strict=True):
        x, z = means(row)
        np.testing.assert_allclose(units, z, rtol=1e-6)
        assert (picture == np.where(np.isnan(row), x > 0.5, row)).all()


def test_many_hidden_units_given_observed_values_by_gibbs_sampling(monkeypatch):
    """4 chains of 200 sweeps are within 0.1 of the truth; these chains mix in a few sweeps."""
    model, _ = known_machine(3)
    with jax.enable_x64(True):
        model.energy_ = RBM(model.energy_.weight / 2, model.energy_.bias, model.energy_.hidden_bias)
    truth = model.transform(INCOMPLETE)
    monkeypatch.setattr("energax.estimators._neural.rbm._MOST_STATES", 1)
    assert np.abs(model.transform(INCOMPLETE) - truth).max() < 0.1


def test_weights_that_explode_and_chains_that_stay_behind_warn():
    with pytest.warns(ConvergenceWarning, match="the largest weight is"):
        BernoulliRBM(2, learning_rate=8.0, n_iter=10, random_state=0).fit(PAIRS)
    # Four patterns with single errors: plain chains stay in one of them (as in tests/learn/test_phases.py).
    patterns = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]])
    rng = np.random.default_rng(0)
    X = (np.tile(patterns, (100, 1)) + (rng.random((400, 6)) < 0.05)) % 2
    learner = Descent(ContrastiveDivergence(3, persistent=True), optax.adam(0.02))
    with pytest.warns(ConvergenceWarning, match="chains of the negative phase are not where the data are"):
        BernoulliRBM(5, n_iter=40, random_state=0, learner=learner).fit(X)
