"""Estimators of Boltzmann machines and deep belief networks: scores, draws, warnings, files."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

import energax
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import BoltzmannMachine, DeepBeliefNetwork, DeepBoltzmannMachine

PAIRS = np.tile([[1.0, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
EVERY = np.array(list(itertools.product([0.0, 1.0], repeat=4)))


def test_couplings_without_hidden_units_are_exact():
    model = BoltzmannMachine(learning_rate=0.1, n_iter=80, random_state=0).fit(PAIRS)
    found = model.log_prob(EVERY)
    assert found.kind == "exact" and np.allclose(logsumexp(found.value), 0, atol=1e-6)
    j, b = np.triu(model.energy_.visible_weight, 1), np.asarray(model.energy_.bias)
    logs = ((EVERY @ j) * EVERY).sum(1) + EVERY @ b
    assert np.allclose(found.value, logs - logsumexp(logs), atol=1e-6)
    assert model.score(PAIRS) > -0.75
    drawn = model.sample(200)
    assert abs((drawn[:, 0] == drawn[:, 2]).mean() - 1) < 0.15


# After few steps the chains have not caught up with the weights.
@pytest.mark.filterwarnings("ignore:After learning, the chains")
@pytest.mark.parametrize("cls", [DeepBoltzmannMachine, DeepBeliefNetwork])
def test_deep_models_learn_draw_continue_and_are_saved(cls, tmp_path):
    rng = np.random.default_rng(0)
    X = (np.tile(PAIRS, (4, 1)) + (rng.random((400, 4)) < 0.1)) % 2
    settings = {"learning_rate": 0.03, "random_state": 0}
    model = cls((4, 3), n_iter_pretrain=20, n_iter=40, **settings).fit(X)
    found = model.log_prob(EVERY)
    assert found.kind == "lower bound" and logsumexp(found.value) < 0.1
    assert model.score(X) > -2.4  # independent columns: −2.77; the true distribution: −1.99
    drawn = model.sample(100)
    assert drawn.shape == (100, 4) and (drawn.sum(1) == 2).mean() > 0.45  # 3/8 by chance, 0.73 in X
    hidden = model.transform(X)
    assert hidden.shape == (400, 3) and ((hidden > 0) & (hidden < 1)).all()
    assert len(model.get_feature_names_out()) == 3
    if cls is DeepBeliefNetwork:  # by the recognition weights, which the tuning frees from the layers
        (q,), top, rates = model.energy_.recognition, model.energy_.top, X
        for weight, bias in ((q.weight, q.bias), (top.weight, top.hidden_bias)):
            rates = expit(rates @ np.asarray(weight) + np.asarray(bias))
        np.testing.assert_allclose(hidden, rates, rtol=1e-5)
    energax.save(model, tmp_path / "model.safetensors")
    again = energax.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.transform(X), hidden)
    assert again.partial_fit(X).fit_.n_steps == 4
    light = cls((4, 3), n_iter_pretrain=20, n_iter=20, **settings)
    first = np.tile(PAIRS, (4, 1))
    light.fit(first, sample_weight=np.where(first[:, 0] > 0, 1.0, 0.0))
    assert light.score(PAIRS[:1]) > -0.6  # with equal weights at most −log 2


def test_a_fit_that_fails_says_so():
    model = DeepBoltzmannMachine((4, 3), learning_rate=8.0, n_iter_pretrain=2, n_iter=10, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(PAIRS)
    assert any("the largest weight is" in str(warning.message) for warning in caught)
    # Filters of either library apply.
    assert all(issubclass(warning.category, SklearnConvergenceWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught), [w.filename for w in caught]
    with pytest.raises(BadInput, match=r"hidden_layer_sizes.*two or more.*BernoulliRBM"):
        DeepBeliefNetwork((5,)).fit(PAIRS)
    with pytest.raises(BadInput, match="zeros and ones"):
        DeepBoltzmannMachine((3, 2)).fit(PAIRS + 0.5)
