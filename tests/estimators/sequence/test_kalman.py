"""The Kalman estimator: published numbers, statsmodels, coverage, missing values, input validation."""

from __future__ import annotations

import numpy as np
import pytest

import energax
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators._sequence.kalman import PARAMETERS, LinearGaussianChain
from energax.learn import Descent, NegativeLogLikelihood

# Annual flow of the Nile at Aswan, 1871-1970 (10⁸ m³): Cobb (1978), Biometrika 65, 243-251.
FLOWS = """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140
    1100 1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969
    831 726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759
    781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890
    744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740"""
NILE = np.array([float(flow) for flow in FLOWS.split()])[:, None]


@pytest.fixture(scope="module")
def nile():
    return LinearGaussianChain.local_level(max_iter=3000, tol=1e-9).fit(NILE)


def test_the_nile_has_its_published_variances(nile):
    """Durbin and Koopman (2012), 2.2.5 and 2.10.3: σ²_ε = 15099, σ²_η = 1469.1."""
    assert nile.converged_
    np.testing.assert_allclose(nile.emission_covariance_, 15099, rtol=1e-3)
    np.testing.assert_allclose(nile.transition_covariance_, 1469.1, rtol=2e-3)
    np.testing.assert_array_equal(nile.transition_, [[1.0]])  # given, so not learned


def test_statsmodels_says_the_same(nile):
    api = pytest.importorskip("statsmodels.tsa.statespace.structural", reason="the peer is not installed")
    ours = [nile.emission_covariance_[0, 0], nile.transition_covariance_[0, 0]]
    holes = NILE.copy()
    holes[20:40] = np.nan
    for x in (NILE, holes):
        model = api.UnobservedComponents(x[:, 0], "llevel")
        model.ssm.initialize_known(np.zeros(1), 1e7 * np.eye(1))
        model.ssm.loglikelihood_burn = 0
        theirs = model.smooth(ours)
        np.testing.assert_allclose(nile.score(x), theirs.llf, rtol=1e-9)
        mean, covariance = nile.smooth(x)
        np.testing.assert_allclose(mean[:, 0], theirs.smoothed_state[0], rtol=1e-7)
        np.testing.assert_allclose(covariance[:, 0, 0], theirs.smoothed_state_cov[0, 0], rtol=1e-6)
        mean, covariance = nile.filter(x)
        np.testing.assert_allclose(mean[:, 0], theirs.filtered_state[0], rtol=1e-7)
    ahead = theirs.get_forecast(5)
    bands = nile.forecast(holes, 5, level=0.9)
    np.testing.assert_allclose(bands.mean[:, 0], ahead.predicted_mean, rtol=1e-7)
    interval = ahead.conf_int(alpha=0.1)
    np.testing.assert_allclose(np.stack([bands.lower[:, 0], bands.upper[:, 0]], 1), interval, rtol=1e-6)


def test_descent_finds_what_em_finds(nile):
    import optax

    learner = Descent(NegativeLogLikelihood(), optax.lbfgs())
    start = {"level": 1000.0, "error": 10_000.0, "params": ("transition_covariance", "emission_covariance")}
    found = LinearGaussianChain.local_level(**start, learner=learner, max_iter=40).fit(NILE)
    np.testing.assert_allclose(found.emission_covariance_, nile.emission_covariance_, rtol=1e-3)
    np.testing.assert_allclose(found.score(NILE), nile.score(NILE), atol=1e-5)


def walks(n, steps, seed):
    """Local levels drawn from the model itself: (n, steps, 1)."""
    rng = np.random.default_rng(seed)
    level = np.cumsum(rng.normal(size=(n, steps, 1)), axis=1) + 10 * rng.normal(size=(n, 1, 1))
    return level + 1.5 * rng.normal(size=level.shape)


def test_bands_cover_what_they_say():
    """2000 forecasts of the true model: 80 % ± 4 standard errors, false alarm 1 in 10⁴."""
    n, steps = 2000, 24
    x = walks(n, steps + 3, 0)
    model = LinearGaussianChain.local_level(1.0, 2.25)
    before, after = x[:, :steps].reshape(-1, 1), x[:, steps:]
    bands = model.forecast(before, 3, level=0.8, lengths=[steps] * n)
    inside = ((bands.lower < after) & (after < bands.upper)).mean(axis=(0, 2))
    assert np.abs(inside - 0.8).max() < 4 * np.sqrt(0.8 * 0.2 / n)
    # The variance of the forecast grows by one per step, from the steady state of the filter.
    steady = (1 + np.sqrt(1 + 4 * 2.25)) / 2
    np.testing.assert_allclose(bands.covariance[0, :, 0, 0], steady + 2.25 + np.arange(3), rtol=1e-3)
    # Missing values inside a sequence are imputed with the right variance.
    missing = x[:, :steps].copy()
    missing[:, 10] = np.nan
    filled = model.impute(missing.reshape(-1, 1), lengths=[steps] * n).reshape(n, steps)
    error = filled[:, 10] - x[:, 10, 0]
    expected = 2.25 + model.smooth(missing[0])[1][10, 0, 0]
    assert abs(error.var() / expected - 1) < 5 * np.sqrt(2 / n)


def test_ragged_sequences_lists_and_lengths_are_one():
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=(t, 2)).cumsum(0) for t in (12, 5, 9)]
    stacked, lengths = np.concatenate(parts), [12, 5, 9]
    a = LinearGaussianChain(2, max_iter=20, tol=0.1, random_state=0).fit(stacked, lengths=lengths)
    b = LinearGaussianChain(2, max_iter=20, tol=0.1, random_state=0).fit(parts)
    for name in PARAMETERS:
        np.testing.assert_array_equal(getattr(a, f"{name}_"), getattr(b, f"{name}_"))
    np.testing.assert_allclose(a.score(parts), sum(a.score(p) for p in parts), rtol=1e-9)
    np.testing.assert_allclose(a.predict(stacked, lengths)[12:17], a.predict(parts[1]), atol=1e-9)
    assert a.forecast(parts, 4).mean.shape == (3, 4, 2)
    x, z = a.sample(7)
    assert x.shape == (7, 2) and z.shape == (7, 2)


def test_learning_finds_a_rotation():
    """A noisy rotation: the eigenvalues of A have its angle."""
    rng = np.random.default_rng(0)
    turn = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    z = [np.array([3.0, 0.0])]
    for _ in range(249):
        z.append(turn @ z[-1] + 0.3 * rng.normal(size=2))
    x = np.array(z) @ rng.normal(size=(2, 3)) + [5.0, -2.0, 100.0] + 0.3 * rng.normal(size=(250, 3))
    x[rng.random(x.shape) < 0.1] = np.nan
    with pytest.warns(ConvergenceWarning, match="did not converge.*Raise max_iter"):
        model = LinearGaussianChain(2, max_iter=50, tol=0, random_state=0).fit(x)
    found = np.linalg.eigvals(model.transition_)
    np.testing.assert_allclose(np.abs(np.angle(found)), 0.3, atol=0.03)
    np.testing.assert_allclose(np.abs(found), 0.97, atol=0.03)


def test_a_track_is_found_again():
    """Constant velocity: the smoothed track is nearer than the observations, with the right covariance."""
    truth = LinearGaussianChain.constant_velocity(
        2, dt=0.5, acceleration=0.2, error=4.0, diffuse=1.0, random_state=3
    )
    x, z = truth.sample(120)
    known = LinearGaussianChain.constant_velocity(2, dt=0.5, acceleration=0.2, error=4.0)
    mean, covariance = known.smooth(x)
    gap = mean - z
    assert np.sqrt((gap[:, :2] ** 2).mean()) < 0.6 * np.sqrt(((x - z[:, :2]) ** 2).mean())
    distance = np.einsum("ti,tij,tj->t", gap, np.linalg.inv(covariance), gap)
    assert abs(distance.mean() - 4) < 1.5  # χ² with 4 degrees, correlated in time
    filtered = known.filter(x)[0] - z
    assert (gap**2).sum() < (filtered**2).sum()
    learned = LinearGaussianChain.constant_velocity(2, dt=0.5, acceleration=0.2, tol=0.05).fit(x)
    np.testing.assert_allclose(np.diag(learned.emission_covariance_), 4.0, rtol=0.35)


def test_float32_stays_float32_and_close():
    small = LinearGaussianChain.local_level(1469.1, 15099.0, params=()).fit(NILE.astype(np.float32))
    exact = LinearGaussianChain.local_level(1469.1, 15099.0)
    mean, covariance = small.smooth(NILE.astype(np.float32))
    assert mean.dtype == np.float32 and covariance.dtype == np.float32
    np.testing.assert_allclose(mean, exact.smooth(NILE)[0], rtol=1e-3)
    np.testing.assert_allclose(small.score(NILE.astype(np.float32)), exact.score(NILE), rtol=1e-4)


def test_saved_loaded_cloned_and_shown(tmp_path, nile):
    from sklearn.base import clone

    nile.save(tmp_path / "nile")
    loaded = LinearGaussianChain.load(tmp_path / "nile")
    np.testing.assert_array_equal(loaded.smooth(NILE)[0], nile.smooth(NILE)[0])
    fresh = clone(nile)
    assert not hasattr(fresh, "energy_") and fresh.max_iter == 3000
    assert "0x" not in repr(nile)


def test_what_makes_no_sense_is_refused_with_a_sentence():
    X, level = np.arange(6.0)[:, None] ** 2, LinearGaussianChain.local_level
    cases = [
        (
            lambda: LinearGaussianChain(1).filter(X),
            energax.errors.NotFitted,
            "fit.X. first, or give transition",
        ),
        (lambda: LinearGaussianChain(0).fit(X), BadInput, "n_states: found 0"),
        (lambda: LinearGaussianChain(1).fit(X[:1]), BadInput, "two steps or more"),
        (lambda: LinearGaussianChain(1).fit(X[:0]), BadInput, "0 sample"),
        (
            lambda: LinearGaussianChain(1).fit(np.full((5, 1), np.nan)),
            BadInput,
            "only missing values in column 0",
        ),
        (lambda: LinearGaussianChain(1).fit(np.full((5, 1), np.inf)), BadInput, "infinity"),
        (lambda: LinearGaussianChain(1).fit(np.ones((5, 1))), BadInput, "the constant column 0"),
        (
            lambda: LinearGaussianChain(1).fit(X, lengths=[3, 4]),
            BadInput,
            "lengths: found a sum of 7; expected 6",
        ),
        (lambda: LinearGaussianChain(1).fit(X, lengths=[6, 0]), BadInput, "whole numbers >= 1"),
        (lambda: LinearGaussianChain(1).fit([X, X[:0]]), BadInput, "an empty sequence"),
        (lambda: LinearGaussianChain(1).fit([X, X], lengths=[6, 6]), BadInput, "besides a list"),
        (lambda: LinearGaussianChain(1, params=("A",)).fit(X), BadInput, "params: found"),
        (lambda: LinearGaussianChain(1, tol=-1).fit(X), BadInput, "tol"),
        (lambda: LinearGaussianChain(1, max_iter=0).fit(X), BadInput, "max_iter"),
        (lambda: LinearGaussianChain(1, learner="em").fit(X), BadInput, "learner"),
        (lambda: level(1.0, 0.0).filter(X), BadInput, "emission_covariance.*small variance"),
        (lambda: level(-1.0, 1.0).filter(X), BadInput, "transition_covariance.*negative"),
        (lambda: level(1.0, 1.0).filter(np.ones((4, 2))), BadInput, "2 columns"),
        (lambda: level(1.0, 1.0).fit(np.ones((4, 2))), BadInput, "emission: found 1 rows"),
        (lambda: level(1.0, 1.0).forecast(X, 0), BadInput, "steps"),
        (lambda: level(1.0, 1.0).forecast(X, 2, level=95), BadInput, "level"),
        (lambda: level(1.0, 1.0).sample(0), BadInput, "n_samples"),
        (lambda: LinearGaussianChain.local_trend(level=1.0), BadInput, "both variances"),
    ]
    for call, error, sentence in cases:
        with pytest.raises(error, match=sentence):
            call()
