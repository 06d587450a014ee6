"""Benchmarks take peers that warn when they are imported or used."""

from __future__ import annotations

import pathlib
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
WARNING = 'warnings.warn("a feature of JAX is deprecated", DeprecationWarning, stacklevel=2)'
MODELS = f"""
import warnings

{WARNING}


class CategoricalHMM:
    def __init__(self, *sizes, **priors):
        {WARNING}

    def initialize(self, **parameters):
        {WARNING}
        return {{}}, {{}}


def hmm_filter(*arrays): ...


def hmm_posterior_mode(*arrays): ...
"""


@pytest.fixture
def warning_dynamax(tmp_path, monkeypatch):
    """A package dynamax that warns, ahead of an installed one."""
    package = tmp_path / "dynamax"
    package.mkdir()
    (package / "__init__.py").write_text(f"import warnings\n\n{WARNING}\n")
    (package / "hidden_markov_model.py").write_text(textwrap.dedent(MODELS))
    for name in [name for name in sys.modules if name.split(".")[0] == "dynamax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "dynamax"]:
        del sys.modules[name]


def test_warnings_of_dynamax_are_no_errors(warning_dynamax, monkeypatch):
    pytest.importorskip("hmmlearn")
    from benchmarks import bench_hmm

    monkeypatch.setattr(bench_hmm, "LONG", 1000)
    peers = {case.peer for case in bench_hmm.cases()}
    assert {"dynamax, likelihoods given", "dynamax", "dynamax in a jit"} <= peers
