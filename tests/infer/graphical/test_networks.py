"""Published networks and competition problems: marginals and log P(evidence) against references."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from brute import hard_evidence
from competition import check_problem, setup, unpack

NETWORKS = ("asia", "cancer", "earthquake", "survey", "sachs", "child", "insurance", "alarm", "win95pts")
LARGE = tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("hailfinder", "andes", "pigs"))
PROBLEMS = ("Promedus_24", "Alchemy_11")


@pytest.mark.parametrize("name", [*NETWORKS, *LARGE])
def test_networks_have_their_reference_marginals(shared_data, name):
    folder = shared_data / "bayesnets-bif"
    reference = json.loads(unpack(folder / "exact_marginals" / f"{name}.json.gz"))
    # Rows of published tables do not all sum to one; the reader divides by the sum.
    tolerance = 1e-10 + 20 * reference["max_cpt_row_sum_deviation"]
    with jax.enable_x64(True):
        tree, tables, model = setup(folder / f"{name}.bif.gz")
        queries = [{"evidence": {}, "log_p_evidence": 0.0, "posterior": reference["prior"]}]
        for query in [*queries, *reference["queries"]]:
            at = {name: i for i, name in enumerate(model.names)}
            seen = {at[v]: model.states[at[v]].index(s) for v, s in query["evidence"].items()}
            log_z, marginals = tree.marginals(tables, hard_evidence(model.cards, seen))
            assert float(log_z) == pytest.approx(query["log_p_evidence"], abs=tolerance)
            for v, wanted in query["posterior"].items():
                values = [wanted[state] for state in model.states[at[v]]]
                np.testing.assert_allclose(marginals[at[v]], values, atol=tolerance)


@pytest.mark.parametrize("name", PROBLEMS)
def test_competition_problems(shared_data, name):
    check_problem(shared_data / "uai2014", name)
