"""The choice of a method: candidates by priority, methods by name, and the cache of `Query.supports`."""

import jax.numpy as jnp
import pytest

from energax import catalog, infer, log_partition
from energax.energies import RBM, BayesianNetwork, NeuralEnergy
from energax.errors import BadInput
from energax.estimate import Estimate
from energax.infer import MCMC, Method
from energax.infer._choose import as_method, candidates
from energax.infer._method import TASKS
from energax.infer._query import Query

rbm = RBM.random(3, 2, key=0)
network = BayesianNetwork({"a": [0.5, 0.5], "b": ("a", [[0.9, 0.1], [0.2, 0.8]])})
ROWS = [row for row in catalog.of_kind("inference") if row.name != "MCMC"]


def names(task, energy):
    return [type(getattr(m, "sampler", None) or m).__name__ for m in candidates(task, energy)]


def test_candidates():
    """Exact methods of a family first, its approximations after enumeration, general ones last."""
    assert names("posterior", rbm) == ["Exact", "Enumeration", "FiniteFirst", "Gibbs", "NUTS", "Compound"]
    chains = ["FiniteFirst", "Gibbs", "NUTS", "Compound"]
    assert names("sample", rbm) == ["Ancestral", "Exact", "Enumeration", *chains]
    assert names("log_prob", rbm) == ["Exact", "Enumeration", "AnnealedImportance", "Importance"]
    assert names("argmin", NeuralEnergy.random(2, key=0)) == ["Exact", "Enumeration", "LBFGS"]
    assert names("posterior", network)[0] == "MessagePassing"


@pytest.mark.parametrize("task", TASKS)
def test_candidates_implement_the_task(task):
    found = candidates(task, network)
    assert all(task in method.tasks for method in found)
    assert [m.priority for m in found] == sorted(m.priority for m in found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_methods_by_name(row):
    assert type(as_method(row.name.lower())) is type(as_method(row.name)) is row.load()


def test_samplers_by_name():
    needs_arguments = {"MetropolisHastings", "EllipticalSlice", "SGLD", "SGHMC"}
    for row in catalog.of_kind("sampler"):
        if row.name in needs_arguments:
            with pytest.raises(BadInput, match="method"):
                as_method(row.name)
            continue
        method = as_method(row.name)
        assert isinstance(method, MCMC) and isinstance(method.sampler, row.load())


class Zero(Method):
    """log Z = 0."""

    tasks = frozenset({"log_partition"})

    def unsupported_reason(self, task, query):
        return None

    def log_partition(self, query, key):
        return Estimate(0.0, method=self.label)


def test_a_new_method_needs_only_a_row_in_the_catalog(monkeypatch):
    row = catalog.Row("infer", "Zero", "inference", "log Z = 0")
    monkeypatch.setattr(infer, "Zero", Zero, raising=False)
    monkeypatch.setattr(catalog, "CATALOG", (*catalog.CATALOG, row))
    assert float(log_partition(rbm, "zero")) == 0
    with pytest.raises(BadInput, match=r"one of exact, .*zero, gibbs"):
        log_partition(rbm, "nought")


def test_support_is_traced_once_for_each_type_of_row():
    traced = []

    def call(row):
        traced.append(row)
        return row["x"].sum()

    energy = RBM.random(3, 2, key=1)
    for given in ({"x": [0, 1, 1]}, {"x": [[1, 1, 1], [0, 0, 0]]}):
        assert Query(energy, given).supports("sum of x", call)
    assert len(traced) == 1
    assert not Query(energy, {"x": [0, 1, jnp.nan]}).supports("sum of x", call)
    assert not Query(energy, {"z": [0, 1]}).supports("sum of x", call)
    assert len(traced) == 3
