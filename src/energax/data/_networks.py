"""Read and write networks as BIF and UAI files, also gzipped."""

from __future__ import annotations

import os
from typing import Any

from .._util.files import check_path
from ..energies import BayesianNetwork, MarkovField
from ..errors import BadFile, BadInput
from ._model_files import load_tables, read_evidence, save_tables


def read_bif(path: str | os.PathLike) -> BayesianNetwork:
    """The Bayesian network of a BIF file (`.bif`, `.bif.gz`), with the names of its states."""
    return BayesianNetwork.from_tables(_load(path, "bif"))


def read_uai(path: str | os.PathLike, evidence: str | os.PathLike | None = None) -> Any:
    """The model of a UAI file: a `MarkovField`, or a `BayesianNetwork` if the file begins with BAYES.

    With an evidence file the variables in it are observed: the result is a `MarkovField` whose log Z is
    that of the evidence. Variables are named x0, x1, ….
    """
    model = _load(path, "uai")
    network = (BayesianNetwork if model.kind == "bayes" else MarkovField).from_tables(model)
    if evidence is None:
        return network
    samples = read_evidence(evidence, model)
    return network.observe(**{model.names[v]: s for v, s in samples[0].items()} if samples else {})


def write_bif(network: BayesianNetwork, path: str | os.PathLike) -> None:
    """Write a Bayesian network as BIF, atomically."""
    _save(network, path, "bif")


def write_uai(network: BayesianNetwork | MarkovField, path: str | os.PathLike) -> None:
    """Write a network as UAI, atomically; names of variables and states are lost."""
    _save(network, path, "uai")


def _load(path: Any, kind: str) -> Any:
    _check_suffix(path, kind)
    return load_tables(path)


def _save(network: Any, path: Any, kind: str) -> None:
    _check_suffix(path, kind)
    if not hasattr(network, "to_tables") or (kind == "bif" and not isinstance(network, BayesianNetwork)):
        expected = "a BayesianNetwork" if kind == "bif" else "a BayesianNetwork or a MarkovField"
        raise BadInput("network", type(network).__name__, expected)
    save_tables(network.to_tables(), path)


def _check_suffix(path: Any, kind: str) -> None:
    name = str(check_path(path)).lower().removesuffix(".gz")
    if not name.endswith(f".{kind}"):
        raise BadFile(f"{path}: the name must end in .{kind} or .{kind}.gz.")
