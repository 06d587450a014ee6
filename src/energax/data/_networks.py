"""Files of networks: BIF and UAI, also gzipped, as energies and back."""

from __future__ import annotations

import os
from typing import Any

from ..energies import BayesianNetwork, MarkovField
from ..errors import BadFile, BadInput
from ._model_files import load_tables, read_evidence, save_tables


def read_bif(path: str | os.PathLike) -> BayesianNetwork:
    """The Bayesian network of a BIF file (`.bif`, `.bif.gz`), its states by name."""
    return BayesianNetwork.from_tables(_load(path, "bif"))


def read_uai(path: str | os.PathLike, evidence: str | os.PathLike | None = None) -> Any:
    """The model of a UAI file: a `MarkovField`, or a `BayesianNetwork` where the file says BAYES.

    With the path of an evidence file, what it names is observed: a `MarkovField` whose log Z is that
    of the evidence. Variables are named x0, x1, ….
    """
    model = _load(path, "uai")
    network = (BayesianNetwork if model.kind == "bayes" else MarkovField).from_tables(model)
    if evidence is None:
        return network
    samples = read_evidence(evidence, model)
    return network.observe(**{model.names[v]: s for v, s in samples[0].items()} if samples else {})


def write_bif(network: BayesianNetwork, path: str | os.PathLike) -> None:
    """Write a Bayesian network as BIF, whole or not at all."""
    _save(network, path, "bif")


def write_uai(network: BayesianNetwork | MarkovField, path: str | os.PathLike) -> None:
    """Write a network as UAI, whole or not at all; names of variables and states are lost."""
    _save(network, path, "uai")


def _load(path: Any, kind: str) -> Any:
    _expect(path, kind)
    return load_tables(path)


def _save(network: Any, path: Any, kind: str) -> None:
    _expect(path, kind)
    if not hasattr(network, "to_tables") or (kind == "bif" and not isinstance(network, BayesianNetwork)):
        wanted = "a BayesianNetwork" if kind == "bif" else "a BayesianNetwork or a MarkovField"
        raise BadInput("network", type(network).__name__, wanted)
    save_tables(network.to_tables(), path)


def _expect(path: Any, kind: str) -> None:
    name = os.fspath(path).lower().removesuffix(".gz")
    if not name.endswith(f".{kind}"):
        raise BadFile(f"{path}: expected a name that ends in .{kind} or .{kind}.gz.")
