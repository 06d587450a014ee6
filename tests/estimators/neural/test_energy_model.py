"""EnergyModel against a known density."""

from __future__ import annotations

import pickle

import numpy as np
import optax
import pytest
from scipy.special import logsumexp

import energax
from energax.estimators import EnergyModel
from energax.learn import Descent, ScoreMatching

CENTRES = np.array([[-3.0, 0], [3, 0], [0, 4]])
SCALE, SHIFT = np.array([10.0, 0.1]), np.array([100.0, -3.0])


def draw(n, seed):
    rng = np.random.default_rng(seed)
    return (CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) * [0.5, 1.0]) * SCALE + SHIFT


def log_density(X):
    d = ((np.asarray(X, float) - SHIFT) / SCALE)[:, None] - CENTRES
    d = d / [0.5, 1.0]
    each = -0.5 * (d**2).sum(-1) - np.log(2 * np.pi) - np.log(0.5)
    return logsumexp(each, axis=1) - np.log(3) - np.log(SCALE).sum()


X, X_TEST = draw(1500, 0), draw(1000, 1)


@pytest.fixture(scope="module")
def three():
    return EnergyModel((32, 32), max_iter=60, learning_rate=5e-3, random_state=0).fit(X)


def test_the_density_is_the_true_one(three):
    """The Kullback–Leibler divergence to the truth, estimated from test rows, is small."""
    found = three.log_prob(X_TEST)
    assert found.kind == "estimate"
    divergence = log_density(X_TEST) - found.value
    assert -0.02 < divergence.mean() < 0.08
    assert 0 < three.log_partition_.stderr < 0.05


def test_the_density_integrates_to_one(three):
    side = np.stack(np.meshgrid(np.linspace(-8, 8, 300), np.linspace(-6, 10, 300)), -1).reshape(-1, 2)
    p = np.exp(three.score_samples(side * SCALE + SHIFT).astype(float))
    cell = (16 / 299) ** 2 * SCALE.prod()
    assert abs(p.sum() * cell - 1) < 5 * float(three.log_partition_.stderr) + 1e-3


def test_learned_log_z_agrees_with_the_estimated_one(three):
    assert abs(float(three.fit_.partner) - float(three.log_partition_)) < 0.1


def test_draws_come_from_the_density(three):
    drawn = three.sample(600)
    assert drawn.shape == (600, 2)
    # Under p the mean of log p is the negative entropy; both sides have a standard error of about 0.03.
    assert abs(log_density(drawn).mean() - log_density(X_TEST).mean()) < 0.2
    assert np.abs((drawn.mean(0) - X.mean(0)) / X.std(0)).max() < 0.2


def test_missing_values(three):
    rows = X_TEST[:40].copy()
    rows[:, 0] = np.where(rows[:, 1] > -2.7, np.nan, rows[:, 0])  # the upper centre has x near 100
    filled = three.impute(rows)
    missing = np.isnan(rows[:, 0])
    assert missing.sum() > 3 and np.abs(filled[missing, 0] - 100).max() < 12
    assert np.array_equal(filled[~missing], X_TEST[:40][~missing])


def test_another_learner():
    model = EnergyModel((16,), max_iter=40, learning_rate=5e-3, learner=ScoreMatching(), random_state=0).fit(
        X
    )
    assert model.fit_.partner is None
    gaussian = -0.5 * (np.linalg.slogdet(np.cov(X.T))[1] + 2 + 2 * np.log(2 * np.pi))
    assert model.score(X_TEST) > gaussian + 0.1


def test_saved_and_pickled_models_give_the_same_results(three, tmp_path):
    three.save(tmp_path / "m")
    for back in (energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(three))):
        assert repr(back) == repr(three)
        assert np.array_equal(back.score_samples(X_TEST), three.score_samples(X_TEST))
        assert np.array_equal(back.sample(2), three.sample(2))
        assert repr(back.log_partition_) == repr(three.log_partition_)


def test_partial_fit_keeps_the_scaling_of_the_first_call():
    model = EnergyModel((8,), random_state=0, n_importance=1024).partial_fit(X)
    scale = model.scale_
    model.partial_fit(2 * X)
    assert np.array_equal(model.scale_, scale)
    # With step size 0, only the noise differs between calls.
    model.set_params(learning_rate=0.0)
    still = [model.partial_fit(X).history_["objective"][-1] for _ in range(3)]
    assert len(set(still)) == 3


def test_the_error_of_log_z_is_shared_by_all_rows(three):
    error = float(three.log_partition_.stderr)
    rows = three.log_prob(X_TEST)
    assert rows.shared == pytest.approx(error)
    between = float(rows.value.std() / np.sqrt(len(rows)))
    assert float(rows.mean().stderr) == pytest.approx(np.hypot(error, between), rel=1e-2)
    assert float(rows.sum().stderr) == pytest.approx(error * len(rows), rel=1e-2)


def test_weight_decay_does_not_change_the_gaussian():
    learner = Descent(ScoreMatching(), optax.adamw(1e-2, weight_decay=1.0))
    model = EnergyModel((4,), learner=learner, max_iter=2, n_importance=256, random_state=0).fit(X)
    whitening = np.linalg.inv(model.noise_scale_.astype(float)).astype(np.float32)
    assert np.array_equal(model.energy_.network.root, whitening)
