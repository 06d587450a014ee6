"""Printed networks and competition problems: marginals and log P(evidence) as the references give them."""

from __future__ import annotations

import gzip
import json

import jax
import numpy as np
import pytest

from energax.data._model_files import load_tables, read_evidence
from energax.infer._factor_tables import hard_evidence
from energax.infer._junction import JunctionTree

NETWORKS = ("asia", "cancer", "earthquake", "survey", "sachs", "child", "insurance", "alarm", "win95pts")
LARGE = tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("hailfinder", "andes", "pigs"))
PROBLEMS = ("Promedus_24", "Alchemy_11")


def unpacked(path):
    return gzip.decompress(path.read_bytes()).decode()


def setup(path):
    """The tree, the log-tables and the model of a file."""
    model = load_tables(path)
    with np.errstate(divide="ignore"):
        tables = [np.log(table) for table in model.tables]
    return JunctionTree.build(model.cards, model.scopes), tables, model


@pytest.mark.parametrize("name", [*NETWORKS, *LARGE])
def test_networks_have_their_reference_marginals(shared_data, name):
    folder = shared_data / "bayesnets-bif"
    reference = json.loads(unpacked(folder / "exact_marginals" / f"{name}.json.gz"))
    # Rows of printed tables do not all sum to one, and the reader divides by the sum.
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


def check_problem(folder, name):
    """log10 Z and the marginals are printed with six digits."""
    with jax.enable_x64(True):
        tree, tables, model = setup(folder / f"{name}.uai.gz")
        (seen,) = read_evidence(folder / f"{name}.uai.evid", model)
        log_z, marginals = tree.marginals(tables, hard_evidence(model.cards, seen))
        printed = float((folder / f"{name}.uai.PR").read_text().split()[1])
        assert float(log_z) / np.log(10) == pytest.approx(printed, rel=6e-6)
        words = unpacked(folder / f"{name}.uai.MAR.gz").split()[2:]
        for marginal in marginals:
            wanted = [float(word) for word in words[1 : 1 + int(words[0])]]
            words = words[1 + int(words[0]) :]
            np.testing.assert_allclose(marginal, wanted, atol=6e-6)
        assert not words
