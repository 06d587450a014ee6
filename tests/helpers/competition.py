"""Problems of the UAI competitions, compared with the published results."""

from __future__ import annotations

import gzip

import jax
import numpy as np
import pytest
from brute import hard_evidence

from energax.algorithms.junction.tree import JunctionTree
from energax.data._model_files import load_tables, read_evidence


def unpack(path):
    """The text of a gzip file."""
    return gzip.decompress(path.read_bytes()).decode()


def setup(path):
    """The tree, the log-tables and the model of a file."""
    model = load_tables(path)
    with np.errstate(divide="ignore"):
        tables = [np.log(table) for table in model.tables]
    return JunctionTree.build(model.cards, model.scopes), tables, model


def check_problem(folder, name):
    """Compare log10 Z and the marginals with the published ones, which have six digits."""
    with jax.enable_x64(True):
        tree, tables, model = setup(folder / f"{name}.uai.gz")
        (observed,) = read_evidence(folder / f"{name}.uai.evid", model)
        log_z, marginals = tree.marginals(tables, hard_evidence(model.cards, observed))
        printed = float((folder / f"{name}.uai.PR").read_text().split()[1])
        assert float(log_z) / np.log(10) == pytest.approx(printed, rel=6e-6)
        words = unpack(folder / f"{name}.uai.MAR.gz").split()[2:]
        for marginal in marginals:
            wanted = [float(word) for word in words[1 : 1 + int(words[0])]]
            words = words[1 + int(words[0]) :]
            np.testing.assert_allclose(marginal, wanted, atol=6e-6)
        assert not words
