"""Failures of contrastive divergence that are provoked: warnings, and tempered chains as the remedy."""

import numpy as np
import optax
import pandas as pd
import pytest

from energax import fit, log_prob
from energax.energies import RBM
from energax.errors import BadInput, ConvergenceWarning
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood, check_phases
from energax.samplers import Gibbs, ParallelTempering

PATTERNS = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]])


def separated_modes():
    rng = np.random.default_rng(0)
    x = PATTERNS[rng.integers(0, 4, 400)]
    return {"x": ((x + (rng.random(x.shape) < 0.05)) % 2).astype(np.float32)}


def learn(data, objective, step=0.02, epochs=40, **options):
    learner = Descent(objective, optax.adam(step))
    start = RBM.random(6, 5, key=0, scale=0.1)
    return fit(start, data, learner, epochs=epochs, batch_size=100, key=0, **options), learner


def test_chains_that_stay_in_one_mode_warn_and_tempered_chains_learn():
    """Rows of four separated modes: independent columns have −4.16, and plain chains end no better."""
    data = separated_modes()
    stuck, learner = learn(data, ContrastiveDivergence(3, persistent=True))
    with pytest.warns(
        ConvergenceWarning, match=r"negative phase are not where the data are.*ParallelTempering"
    ):
        found = check_phases(stuck, data, learner)
    assert found["gap"] > 0.5
    tempered = ParallelTempering(Gibbs(), n_temperatures=5, max_temperature=5.0)
    done, learner = learn(data, ContrastiveDivergence(3, persistent=True, sampler=tempered))
    assert check_phases(done, data, learner)["gap"] < 0.25
    score = lambda fit: log_prob(fit.energy, data).value.mean()
    assert score(stuck) < -3.8 and score(done) > -3.0


def test_exploding_weights_warn():
    """Steps of 3 with the exact gradient."""
    data = {"x": np.tile(PATTERNS[:2], (10, 1)).astype(np.float32)}
    done, learner = learn(data, NegativeLogLikelihood(), step=3.0, epochs=30)
    with pytest.warns(ConvergenceWarning, match=r"largest weight is \d+.*weight decay"):
        assert set(check_phases(done, data, learner)) == {"largest weight"}


def test_weights_and_missing_values_count_in_the_means():
    """Chains at the rates of the second half only: no gap where that half has all weight."""
    data = {"x": np.repeat([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]], 50, 0).astype(np.float32)}
    weights = np.repeat([0.0, 1.0], 50)
    start = RBM.random(3, 2, key=0)
    learner = Descent(ContrastiveDivergence(persistent=True), optax.sgd(0.0))
    done = fit(start, data, learner, epochs=1, key=0, weights=weights, initialise=True)
    assert check_phases(done, data, learner, weights=weights)["gap"] < 0.3
    with pytest.warns(ConvergenceWarning, match="not where the data are"):
        check_phases(done, data, learner)


def test_tempered_chains_resume_where_they_were(tmp_path):
    """A fit of ten epochs that is stopped after four and resumed from its file is that of ten epochs."""
    data = separated_modes()
    tempered = ParallelTempering(Gibbs(), n_temperatures=3, max_temperature=3.0)
    objective = ContrastiveDivergence(1, persistent=True, sampler=tempered)
    whole, _ = learn(data, objective, epochs=10, checkpoint=tmp_path / "whole.ckpt")

    def stop(state):
        if state["epoch"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(data, objective, epochs=10, checkpoint=tmp_path / "part.ckpt", callbacks=[stop])
    resumed, _ = learn(data, objective, epochs=10, checkpoint=tmp_path / "part.ckpt")
    np.testing.assert_array_equal(resumed.energy.weight, whole.energy.weight)


def test_only_a_fit_is_checked():
    with pytest.raises(BadInput, match="result"):
        check_phases(RBM.random(2, 2, key=0), {"x": np.zeros((2, 2))})


def test_rows_may_be_a_frame_or_have_holes_and_others_are_named():
    data = {"x": np.eye(3)[[0, 1, 2] * 9]}
    learner = Descent(ContrastiveDivergence(persistent=True), optax.sgd(0.0))
    done = fit(RBM.random(3, 2, key=0), data, learner, epochs=1, key=0, initialise=True)
    expected = check_phases(done, data, learner)
    frame = pd.DataFrame(data["x"], columns=list("abc"))
    assert (
        check_phases(done, frame, learner)
        == check_phases(done, {"x": data["x"].tolist()}, learner)
        == expected
    )
    twice = np.r_[data["x"], np.full((9, 3), np.nan)]
    assert check_phases(done, {"x": twice}, learner)["gap"] == pytest.approx(expected["gap"])
    with pytest.raises(BadInput, match="data"):
        check_phases(done, {"y": data["x"]}, learner)
    with pytest.raises(BadInput, match="weights"):
        check_phases(done, data, learner, weights=np.ones(5))
