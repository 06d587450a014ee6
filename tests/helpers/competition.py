"""Problems of the UAI competitions, compared with the published results."""

from __future__ import annotations

import collections
import gzip
import math

import jax
import numpy as np
import pytest
from brute import hard_evidence

from energax.algorithms.junction.tree import JunctionTree
from energax.data._model_files import load_tables, read_evidence

_MOST_BYTES = 3 * 2**29  # of a tree, which leaves workers below 3 GB


def unpack(path):
    """The text of a gzip file."""
    return gzip.decompress(path.read_bytes()).decode()


def setup(path):
    """The tree, the log-tables and the model of a file."""
    model, tables = _load(path)
    return JunctionTree.build(model.cards, model.scopes), tables, model


def _load(path):
    model = load_tables(path)
    with np.errstate(divide="ignore"):
        return model, [np.log(table) for table in model.tables]


def check_problem(folder, name):
    """Compare log10 Z and the marginals with the published ones, which have six digits."""
    with jax.enable_x64(True):
        model, tables = _load(folder / f"{name}.uai.gz")
        (observed,) = read_evidence(folder / f"{name}.uai.evid", model)
        evidence = hard_evidence(model.cards, observed)
        log_z, marginals = _solve(model.cards, model.scopes, tables, evidence)
        printed = float((folder / f"{name}.uai.PR").read_text().split()[1])
        assert float(log_z) / np.log(10) == pytest.approx(printed, rel=6e-6)
        words = unpack(folder / f"{name}.uai.MAR.gz").split()[2:]
        for marginal in marginals:
            wanted = [float(word) for word in words[1 : 1 + int(words[0])]]
            words = words[1 + int(words[0]) :]
            np.testing.assert_allclose(marginal, wanted, atol=6e-6)
        assert not words


def _solve(cards, scopes, tables, evidence):
    """log Z and all marginals; a large tree is replaced by one for each state of a variable (Pearl's cutset).

    The states of the variable share one tree, because their tables have the same shapes.
    """
    tree = JunctionTree.build(cards, scopes)
    if tree.bytes <= _MOST_BYTES:
        return tree.marginals(tables, evidence)
    entries = collections.Counter()
    for clique in tree.cliques:
        entries.update(dict.fromkeys(clique, math.prod(cards[v] for v in clique)))
    cut = max(range(len(cards)), key=lambda v: entries[v] * (1 - 1 / cards[v]))
    found = [_solve(*_read_out(cards, scopes, tables, evidence, cut, s)) for s in range(cards[cut])]
    log_p = np.array([float(log_z) for log_z, _ in found]) + np.asarray(evidence[cut])
    log_z = np.logaddexp.reduce(log_p)
    weight = np.exp(log_p - log_z)
    marginals = [
        sum(w * np.asarray(m) for w, m in zip(weight, ms, strict=True))
        for ms in zip(*(m for _, m in found), strict=True)
    ]
    return log_z, [*marginals[:cut], weight, *marginals[cut:]]


def _read_out(cards, scopes, tables, evidence, cut, state):
    """The model without one variable, which is in this state."""
    drop = lambda values: (*values[:cut], *values[cut + 1 :])
    smaller = [tuple(v - (v > cut) for v in scope if v != cut) for scope in scopes]
    sliced = [
        table.take(state, axis=scope.index(cut)) if cut in scope else table
        for scope, table in zip(scopes, tables, strict=True)
    ]
    return drop(cards), smaller, sliced, drop(evidence)
