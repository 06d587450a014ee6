"""A new part costs a module, an `__init__` line, a catalog row, an example and a test, for each kind of part.

A copy of the library gets one dummy part of each kind by exactly these edits. The contract and catalog tests
of the copy must then cover the parts and pass.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Part(NamedTuple):
    module: str  # path below src/energax
    code: str
    room: str
    name: str
    row: str  # kind and the other columns of the catalog
    example: str  # an entry for tests/helpers/parts.py


PARTS = (
    Part(
        "energies/_boltzmann/dummy_energy.py",
        '''
        from ...energy import Energy
        from ...spaces import Binary


        class DummyEnergy(Energy):
            """e(x) = −bᵀx, independent bits. A dummy."""

            bias: Array

            @property
            def spaces(self):
                return {"x": Binary(self.bias.size)}

            def __call__(self, *, x):
                return -(self.bias @ x)
        ''',
        "energies",
        "DummyEnergy",
        '"energy", "a dummy", "", "x: Binary(d)", "Fisher (1922)"',
        "ENERGIES['DummyEnergy'] = lambda: energies.DummyEnergy(jnp.ones(3))",
    ),
    Part(
        "learn/_dummy_objective.py",
        '''
        from ..energy import free_energy
        from ..errors import Unsuitable
        from ..spaces import Binary
        from ._objective import Objective


        class DummyObjective(Objective):
            """mean F(x): a dummy that has no minimum."""

            partner: None = None

            def check(self, energy, data):
                if not isinstance(energy.spaces.get("x"), Binary):
                    raise Unsuitable("DummyObjective needs binary x. For real x use ScoreMatching.")

            def __call__(self, energy, batch, carry, key):
                return {"free": batch.mean(batch.map(lambda x: free_energy(energy, {"x": x})))}, carry
        ''',
        "learn",
        "DummyObjective",
        '"objective", "a dummy", "", "x: Binary(d)", "Fisher (1922)"',
        "OBJECTIVES['DummyObjective'] = ('RBM', lambda e, d: learn.DummyObjective())",
    ),
    Part(
        "infer/_exact/dummy_inference.py",
        '''
        from ...estimate import Estimate
        from .._method import Method


        class DummyInference(Method):
            """log Z of independent bits, Σ log(1 + exp(b)). A dummy."""

            tasks = frozenset({"log_partition"})

            def unsupported_reason(self, task, query):
                return None if hasattr(query.energy, "bias") else "needs a bias"

            def log_partition(self, query, key):
                return Estimate(jnp.logaddexp(0, query.energy.bias).sum(), kind="exact", method=self.label)
        ''',
        "infer",
        "DummyInference",
        '"inference", "a dummy", "a bias", "x: Binary(d)", "Fisher (1922)"',
        "INFERENCES['DummyInference'] = InferenceExample("
        "'DummyEnergy', infer.DummyInference, _log_partition, 'MarkovField', _log_partition, 'needs a bias')",
    ),
    Part(
        "samplers/_dummy_sampler.py",
        '''
        import jax

        from ..errors import Unsuitable
        from ..spaces import Binary
        from ._sampler import Sampler


        class DummySampler(Sampler):
            """x ~ uniform: right for a constant energy only. A dummy."""

            def check(self, energy):
                if set(map(type, energy.spaces.values())) != {Binary}:
                    raise Unsuitable("DummySampler needs binary variables. For real ones use Langevin.")

            def step(self, energy, state, key, clamped=None):
                coin = lambda a: jax.random.bernoulli(key, shape=a.shape).astype(a.dtype)
                return {name: coin(value) for name, value in state.items()}
        ''',
        "samplers",
        "DummySampler",
        '"sampler", "a dummy", "", "Binary", "Fisher (1922)"',
        "SAMPLERS['DummySampler'] = ('RBM', samplers.DummySampler)",
    ),
    Part(
        "estimators/_mixture/dummy_estimator.py",
        '''
        from .gaussian import GaussianMixture


        class DummyEstimator(GaussianMixture):
            """p(x) = Σ_k π_k N(x; μ_k, Σ_k): a mixture under another name. A dummy."""
        ''',
        "estimators",
        "DummyEstimator",
        '"estimator", "a dummy", "", "X real", "Fisher (1922)"',
        "ESTIMATORS['DummyEstimator'] = {'n_components': 2, 'tol': 0.1}",
    ),
)
_HEAD = (
    '"""A dummy."""\n\nfrom __future__ import annotations\n\nimport jax.numpy as jnp\nfrom jax import Array\n'
)
_CHECK = """
import jax.numpy as jnp

import energax
from energax import catalog, log_partition
from energax.energies import DummyEnergy
assert catalog.find("DummySampler").load().__name__ == "DummySampler"
energy = DummyEnergy(jnp.ones(3))
named, exact = log_partition(energy, "dummyinference"), log_partition(energy)
assert abs(float(named) - float(exact)) < 1e-5 and named.method == "dummyinference"
assert energax.estimators.DummyEstimator is catalog.find("DummyEstimator").load()
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> pathlib.Path:
    """A copy of the library with the dummy parts, each added by four edits."""
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "energax", root / "src" / "energax", ignore=ignore)
    shutil.copytree(ROOT / "tests" / "helpers", root / "tests" / "helpers", ignore=ignore)
    for name in ("conftest.py", "test_contracts.py", "test_catalog.py"):
        shutil.copy(ROOT / "tests" / name, root / "tests")
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, root)
    source = root / "src" / "energax"
    for part in PARTS:
        (source / part.module).write_text(_HEAD + textwrap.dedent(part.code))
        line = part.module.removeprefix(f"{part.room}/").removesuffix(".py").replace("/", ".")
        with (source / part.room / "__init__.py").open("a") as file:
            file.write(f"from .{line} import {part.name} as {part.name}\n")
        row = f'    Row("{part.room}", "{part.name}", {part.row}),\n'
        catalog = source / "catalog.py"
        catalog.write_text(catalog.read_text().replace(")\n# fmt: on", row + ")\n# fmt: on"))
        with (root / "tests" / "helpers" / "parts.py").open("a") as file:
            file.write(f"{part.example}\n")
    return root


def run(root: pathlib.Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    return ran.stdout


def test_new_parts_are_found_by_name(extended):
    run(extended, "-c", _CHECK)


def test_new_parts_are_under_the_contracts_and_pass_them(extended):
    names = " or ".join(part.name for part in PARTS)
    selected = f"{names} or example or public_class"
    files = ("tests/test_contracts.py", "tests/test_catalog.py")
    told = run(extended, "-m", "pytest", "-q", "-p", "no:xdist", *files, "-k", selected)
    passed = int(told.rsplit(" passed", 1)[0].split()[-1])
    assert passed >= 5 * len(PARTS), told[-500:]
