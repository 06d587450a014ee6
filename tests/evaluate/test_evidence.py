"""Models compared by their evidence, against closed forms."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

from energax import from_numpyro
from energax.errors import BadInput
from energax.evaluate import compare, compare_evidence
from energax.infer import Laplace

Y = np.array([1.0, 2.0, 4.0, 0.5])


def normal(y, scale):
    m = numpyro.sample("m", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(m, 1.0), obs=y)


def exact(scale):
    return multivariate_normal(np.zeros(4), np.eye(4) + scale**2).logpdf(Y)


@pytest.fixture(scope="module")
def models():
    return {f"scale {s:g}": from_numpyro(normal, Y, s) for s in (0.1, 2.0)}


def test_evidence_and_probabilities_are_the_closed_forms(models):
    """Laplace's method is exact for a normal model."""
    found = compare_evidence(models, Laplace(), prior={"scale 0.1": 0.9, "scale 2": 0.1})
    assert found.best == "scale 2"
    factor = exact(0.1) - exact(2.0)
    assert float(found.evidences["scale 2"]) == pytest.approx(exact(2.0), abs=1e-3)
    assert float(found.log_bayes_factor("scale 0.1")) == pytest.approx(factor, abs=2e-3)
    assert found.probabilities["scale 0.1"] == pytest.approx(1 / (1 + np.exp(-factor) / 9), rel=1e-2)
    assert list(found.to_frame().index) == ["scale 2", "scale 0.1"] and "scale 2" in repr(found)


def test_the_chosen_method_has_a_standard_error(models):
    found = compare_evidence(models, key=1)
    for scale in (0.1, 2.0):
        evidence = found.evidences[f"scale {scale:g}"]
        assert 0 < float(evidence.stderr) < 0.1
        assert abs(float(evidence) - exact(scale)) < 4.5 * float(evidence.stderr)


@pytest.mark.parametrize(
    ("given", "settings", "says"),
    [
        ({}, {}, "energies by name"),
        ({"a": 3}, {}, r"models\['a'\].*an Energy"),
        (None, {"prior": {"scale 2": 1.0}}, "prior"),
        (None, {"prior": {"scale 0.1": 0.9, "scale 2": 0.9}}, "sum to one"),
    ],
)
def test_what_cannot_be_compared(given, settings, says, models):
    with pytest.raises(BadInput, match=f"(?s){says}"):
        compare_evidence(models if given is None else given, **settings)


def test_compare_of_tables_names_the_comparison_of_energies(models):
    with pytest.raises(BadInput, match=r"energies by name.*evaluate\.compare_evidence"):
        compare(models)
