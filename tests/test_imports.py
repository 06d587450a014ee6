"""`import energax` is light: no flag changed, no device touched, nothing heavy loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

REPORT = """
import json, sys
import jax
before_modules = set(sys.modules)
flags = lambda: {name: repr(value) for name, value in jax.config.values.items()}
before = flags()
exec(STATEMENT)
from jax._src import xla_bridge
print(json.dumps({
    "new": sorted({m.split(".")[0] for m in set(sys.modules) - before_modules}),
    "changed": [k for k, v in flags().items() if before.get(k) != v],
    "backends": len(xla_bridge._backends),
    "rooms": sorted(m for m in sys.modules if m.startswith("energax.")),
}))
"""


def after(statement: str) -> dict:
    code = f"STATEMENT = {statement!r}\n{REPORT}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def bare():
    return after("import energax")


def test_importing_changes_no_flag_and_touches_no_device(bare):
    assert bare["changed"] == []
    assert bare["backends"] == 0


def test_importing_loads_nothing_but_itself(bare):
    # Modules are asserted instead of seconds: scikit-learn alone takes 0.9 s.
    assert set(bare["new"]) - set(sys.stdlib_module_names) == {"energax"}
    assert bare["rooms"] == ["energax._version"]


def test_writing_an_energy_needs_no_estimator_library():
    found = after("from energax import Energy, Real, fit; import energax.learn, energax.energies")
    assert not {"sklearn", "matplotlib", "pandas", "blackjax", "arviz", "networkx", "typer"} & set(
        found["new"]
    )
    assert found["changed"] == [] and found["backends"] == 0


def test_the_catalog_is_a_table_and_loads_nothing():
    found = after("import energax.catalog")
    assert found["rooms"] == ["energax._version", "energax.catalog", "energax.errors"]


def test_every_public_name_is_there():
    import energax

    for name in energax.__all__:
        assert getattr(energax, name) is not None
    assert set(dir(energax)) == set(energax.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        energax.nothing  # noqa: B018
