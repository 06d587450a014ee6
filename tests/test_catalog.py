"""The catalog and the library name the same parts, and each part is documented."""

from __future__ import annotations

import importlib
import inspect

import pytest

from energax import catalog
from energax.catalog import CATALOG
from energax.errors import BadInput

ROOMS = ("energies", "learn", "infer", "samplers", "estimators")
ids = lambda row: f"{row.home}.{row.name}"


def public_classes(room: str) -> set[tuple[str, str]]:
    module = importlib.import_module(f"energax.{room}")
    return {(room, name) for name, value in vars(module).items() if inspect.isclass(value) and name[0] != "_"}


def test_every_public_class_has_exactly_one_row_and_the_other_way_round():
    rows = [(row.home, row.name) for row in CATALOG]
    assert len(rows) == len(set(rows))
    classes = set().union(*map(public_classes, ROOMS))
    assert {r for r in rows if r[0] in ROOMS} == classes


@pytest.mark.parametrize("row", CATALOG, ids=ids)
def test_every_part_is_documented(row):
    part = row.load()
    text = inspect.cleandoc(part.__doc__ or "")
    assert len(text) > 30 and not text.startswith(f"{row.name}("), "no docstring of its own"
    assert row.summary and row.summary[-1] != "."
    if row.kind in ("energy", "objective", "learner", "inference", "sampler", "estimator"):
        signs = ("=", "→", "←", "≤", ">>>", "~", "∝", "Σ", "−", "min", "`")
        assert any(sign in text for sign in signs), "neither an equation nor an example"


@pytest.mark.parametrize(
    "row", [r for r in CATALOG if r.kind in ("energy", "objective", "learner", "estimator")], ids=ids
)
def test_parts_from_the_literature_have_a_reference(row):
    assert row.reference, "who thought of it?"


@pytest.mark.parametrize("row", [r for r in CATALOG if r.kind not in ("base", "result")], ids=ids)
def test_the_kind_is_what_the_class_is(row):
    import equinox as eqx

    from energax import Energy
    from energax.estimators._base import EnergyEstimator
    from energax.fitting import Learner
    from energax.infer import Method
    from energax.learn import Objective
    from energax.samplers import Sampler

    base = {
        "energy": Energy,
        "objective": Objective,
        "learner": Learner,
        "inference": Method,
        "sampler": Sampler,
        "estimator": EnergyEstimator,
        "option": eqx.Module,
    }[row.kind]
    assert issubclass(row.load(), base)


def test_find_is_exact_and_helpful():
    assert catalog.find("learn.Exact").home == "learn"
    with pytest.raises(BadInput, match=r"learn\.Exact or infer\.Exact"):
        catalog.find("Exact")
    with pytest.raises(BadInput, match="Did you mean GaussianMixture"):
        catalog.find("GausianMixture")
    assert {row.name for row in catalog.of_kind("sampler")} >= {"Gibbs", "Langevin"}
