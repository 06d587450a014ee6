"""No refusal recommends the part that refuses: every objective is offered every energy of the catalog."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import parts
import pytest
from numpyro.distributions import Normal

from energax import learn, nn
from energax.energies import RBM, Decoder, UniformChoices
from energax.errors import EnergaxError
from energax.missing import Masked, is_masked

ENCODER = nn.Encoder.random(4, 2, key=1, width=5)
OBJECTIVES = {
    "Perceptron": learn.Perceptron(),
    "Margin": learn.Margin(),
    "CrossEntropy": learn.CrossEntropy(),
    "NegativeLogLikelihood": learn.NegativeLogLikelihood(),
    "PseudoLikelihood": learn.PseudoLikelihood(),
    "ELBO": learn.ELBO(ENCODER),
    "ELBO by scores": learn.ELBO(ENCODER, 1, learn.ScoreFunction()),
    "ELBO relaxed": learn.ELBO(ENCODER, 1, learn.GumbelSoftmax()),
    "ELBO without encoder": learn.ELBO(None),
    "ContrastiveDivergence": learn.ContrastiveDivergence(),
    "NoiseContrastive": learn.NoiseContrastive(Normal(jnp.zeros(7), 1.0).to_event(1)),
    "ScoreMatching": learn.ScoreMatching(),
    "Adversarial": learn.Adversarial(nn.Generator.random(2, 2, key=1, width=5)),
    "EM": learn.EM(),
}


def _mask(values):
    observed = np.ones(np.shape(values), bool)
    observed.flat[0] = False
    return Masked(jnp.asarray(values), jnp.asarray(observed))


def _queries():
    """(energy, data): all variables, each one alone, none; complete and with a missing value."""
    made = {**parts.ENERGIES, "large RBM": lambda: RBM.random(40, 40, key=0)}
    for make in made.values():
        energy = make()
        rows = {name: np.asarray(values) for name, values in parts.rows_of(energy, n=3).items()}
        for data in (rows, *({k: v} for k, v in rows.items()), {}):
            yield energy, {k: jnp.asarray(v) for k, v in data.items()}
            yield energy, {k: _mask(v) for k, v in data.items()}


@pytest.fixture(scope="module")
def queries():
    return list(_queries())


def _refusal(objective, energy, data) -> str:
    """The message of the refusal; empty if there is none."""
    try:
        objective.check(energy, data)
    except EnergaxError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_refusal_does_not_recommend_itself(name, queries):
    refusals = [_refusal(OBJECTIVES[name], energy, data) for energy, data in queries]
    assert any(refusals)
    own = name.split()[0]
    assert [text for text in refusals if own in text.partition(". ")[2]] == []


def test_an_elbo_without_log_z_is_not_told_to_try_another_estimator():
    """All estimators need log Z, so the first message must be the one about log Z."""
    machine, data = RBM.random(40, 40, key=0), {"x": np.zeros((2, 40))}
    with pytest.raises(EnergaxError, match=r"ELBO needs log Z.*ContrastiveDivergence"):
        learn.ELBO(ENCODER).check(machine, data)


def test_the_estimators_that_an_elbo_recommends_accept_the_energy():
    several = Decoder.random(4, UniformChoices(3), key=1)
    pair = {"x": np.zeros((2, 4))}
    for energy in (several, RBM.random(4, 3, key=0)):
        with pytest.raises(EnergaxError) as error:
            learn.ELBO(ENCODER).check(energy, pair)
        for estimator in (learn.GumbelSoftmax(), learn.ScoreFunction()):
            if type(estimator).__name__ in str(error.value):
                learn.ELBO(ENCODER, 1, estimator).check(energy, pair)
        assert "ScoreFunction" in str(error.value)


def test_complete_data_are_recommended_what_accepts_them(queries):
    for energy, data in queries:
        is_complete = set(data) == set(energy.spaces) and not any(map(is_masked, data.values()))
        if not is_complete or energy.inputs:
            continue
        with pytest.raises(EnergaxError) as error:
            learn.ELBO(ENCODER).check(energy, data)
        recommended = [n for n in OBJECTIVES if n in str(error.value).partition(". ")[2]]
        assert recommended
        for name in recommended:
            OBJECTIVES[name].check(energy, data)
