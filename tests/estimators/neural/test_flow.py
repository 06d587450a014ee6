"""The estimator of flows: two moons against the integral, files, weights, precision, failures."""

from __future__ import annotations

import pickle

import equinox as eqx
import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

import energax
from energax.errors import BadInput
from energax.estimators import Flow

NOISE = 0.1


def moons(n, seed):
    """Two half circles with normal noise, each angle uniform."""
    rng = np.random.default_rng(seed)
    t, upper = rng.uniform(0, np.pi, n), rng.random(n) < 0.5
    first, second = np.c_[np.cos(t), np.sin(t)], np.c_[1 - np.cos(t), 0.5 - np.sin(t)]
    return np.where(upper[:, None], first, second) + NOISE * rng.normal(size=(n, 2))


def moons_log_density(X):
    """log p = log ½ Σ over circles (1/π) ∫ N(x; circle(t), NOISE² I) dt, by 100 Gauss–Legendre nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    t = (nodes + 1) * np.pi / 2
    centres = np.r_[np.c_[np.cos(t), np.sin(t)], np.c_[1 - np.cos(t), 0.5 - np.sin(t)]]
    squares = ((X[:, None] - centres) ** 2).sum(-1) / NOISE**2
    return logsumexp(np.log(np.tile(weights / 4, 2)) - 0.5 * squares, axis=1) - np.log(2 * np.pi * NOISE**2)


@pytest.fixture(scope="module")
def fitted():
    settings = {"n_layers": 3, "width": 24, "max_iter": 20, "batch_size": 100, "learning_rate": 0.01}
    return Flow(**settings, early_stopping=False, random_state=0).fit(moons(6000, 0))


def test_two_moons_within_a_twentieth_of_a_nat_of_the_optimum(fitted):
    """The divergence ∫ p log(p / q) and ∫ q, on a grid on which ∫ p is 1 to seven digits."""
    first, second = np.linspace(-1.7, 2.7, 100), np.linspace(-1.2, 1.7, 75)
    grid = np.stack(np.meshgrid(first, second), -1).reshape(-1, 2)
    cell = (first[1] - first[0]) * (second[1] - second[0])
    log_p = moons_log_density(grid)
    p, log_q = np.exp(log_p) * cell, fitted.score_samples(grid).astype(float)
    assert abs(p.sum() - 1) < 1e-6
    assert 0 < p @ (log_p - log_q) < 0.05
    assert abs(np.exp(log_q).sum() * cell - 1) < 2e-3


def test_draws_come_from_the_density(fitted):
    """Draws have the mean of log p that the density has: the negative entropy."""
    drawn = fitted.sample(2000)
    assert drawn.shape == (2000, 2)
    of_draws, of_data = moons_log_density(drawn), moons_log_density(moons(2000, 1))
    assert abs(np.median(of_draws) - np.median(of_data)) < 0.1
    np.testing.assert_allclose(drawn.mean(0), [0.5, 0.25], atol=0.1)


def test_saved_and_pickled_models_give_the_same_results(fitted, tmp_path):
    X = moons(20, 2)
    fitted.save(tmp_path / "m")
    for back in (energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(fitted))):
        assert repr(back) == repr(fitted)
        np.testing.assert_array_equal(back.score_samples(X), fitted.score_samples(X))
        np.testing.assert_array_equal(back.sample(2), fitted.sample(2))


SMALL = {"n_layers": 1, "width": 4, "depth": 1, "max_iter": 5, "random_state": 0}


def test_units_weights_and_precision():
    """Scores are densities in the units of X; a row of weight 2 counts as two rows; float64 is kept."""
    X = moons(60, 3)
    settings = {**SMALL, "early_stopping": False, "batch_size": 200}
    plain = Flow(**settings, dtype="float64").fit(X)
    shifted = Flow(**settings, dtype="float64").fit(X * [1000, 0.01] + [1e6, 3])
    moved = shifted.score_samples(X * [1000, 0.01] + [1e6, 3])
    np.testing.assert_allclose(moved, plain.score_samples(X) - np.log(10), atol=1e-6)
    assert plain.score_samples(X).dtype == np.float64 and plain.log_prob(X).kind == "exact"
    weight = np.random.default_rng(0).integers(0, 3, 60)
    weighted = Flow(**settings, dtype="float64").fit(X, sample_weight=weight)
    repeated = Flow(**settings, dtype="float64").fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(weighted.score_samples(X), repeated.score_samples(X), atol=1e-8)


def test_partial_fit_continues_and_keeps_the_scaling():
    X = moons(200, 4)
    model = Flow(**SMALL).partial_fit(X)
    scale, first = model.scale_, model.score(X)
    for _ in range(10):
        model.partial_fit(X)
    assert np.array_equal(model.scale_, scale) and model.score(X) > first and model.n_batches_seen_ == 11


def test_early_stopping_keeps_the_best_flow():
    X = moons(60, 5)
    settings = {**SMALL, "max_iter": 60, "learning_rate": 0.05, "n_iter_no_change": 5}
    model = Flow(**settings).fit(X)
    assert model.n_iter_ < 60 and model.fit_.status == "stopped early"
    assert model.score(moons(500, 6)) > Flow(**settings, early_stopping=False).fit(X).score(moons(500, 6))


@pytest.mark.parametrize("elementwise", ["affine", "spline"])
def test_one_column_and_autoregressive_layers(elementwise):
    X = moons(80, 7)
    assert Flow(**SMALL, elementwise=elementwise).fit(X[:, :1]).sample(3).shape == (3, 1)
    model = Flow(**SMALL, elementwise=elementwise, layer="autoregressive").fit(X)
    assert np.isfinite(model.score_samples(X)).all() and model.sample(4).shape == (4, 2)


def test_bad_input_and_lost_digits():
    X = moons(40, 8)
    with pytest.raises(BadInput, match=r"X.*NaN"):
        Flow(**SMALL).fit(np.where(X > 1.5, np.nan, X))
    for name, value in {"layer": "convolution", "elementwise": 3, "width": 0, "weight_decay": -1.0}.items():
        with pytest.raises(BadInput, match=name):
            Flow(**{**SMALL, name: value}).fit(X)
    model = Flow(**SMALL).fit(X)
    linear = lambda flow: flow.bijection.layers[1].layers.layers[0].entries
    model.energy_ = eqx.tree_at(linear, model.energy_, replace_fn=lambda a: a * 0 + 3e4)
    with pytest.warns(ConvergenceWarning, match="loses digits"):
        model.sample(50)
