"""Problems of the UAI competitions, asked and compared with what is printed of them."""

from __future__ import annotations

import gzip

import jax
import numpy as np
import pytest

from energax.algorithms.factors.checks import hard_evidence
from energax.algorithms.junction.tree import JunctionTree
from energax.data._model_files import load_tables, read_evidence


def unpacked(path):
    return gzip.decompress(path.read_bytes()).decode()


def setup(path):
    """The tree, the log-tables and the model of a file."""
    model = load_tables(path)
    with np.errstate(divide="ignore"):
        tables = [np.log(table) for table in model.tables]
    return JunctionTree.build(model.cards, model.scopes), tables, model


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
