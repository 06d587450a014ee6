"""The programs of a fit do not grow: how many there are, their equations, and what XLA compiles.

Counts instead of seconds: they are the same on every machine. Run as a script, this file prints the table of
`LIMITS` with the counts of today.
"""

from __future__ import annotations

import json
import os
import pprint
import subprocess
import sys
import warnings
from typing import Any

import jax
import numpy as np
import pytest

from energax.programs import _jit
from energax.programs._cost import n_equations

#: The counts of a first fit: all programs, and the equations of the two large ones as XLA would get them and
#: as NumPy does. With a version of JAX that traces more equations, raise them.
LIMITS: dict[str, dict[str, Any]] = {
    "GaussianMixture full": {"programs": 4, "start_restarts": (794, 496), "run_epochs": (598, 424)},
    "GaussianMixture diag": {"programs": 4, "start_restarts": (588, 412), "run_epochs": (384, 334)},
    "KMeans": {"programs": 5, "start_restarts": (200, 200), "run_epochs": (314, 223)},
    "LinearClassifier": {"programs": 4, "start_restarts": (23, 23), "run_epochs": (514, 514)},
    "CategoricalHMM": {"programs": 4, "start_restarts": (170, 170), "run_epochs": (680, 812)},
}
#: Programs that XLA compiles in all these fits, one after the other in a fresh process.
MOST_COMPILED = 0


def fit_models() -> dict[str, Any]:
    """Functions that fit one model each."""
    from sklearn.datasets import load_iris

    from energax.estimators import CategoricalHMM, GaussianMixture, KMeans, LinearClassifier

    X, y = load_iris(return_X_y=True)
    symbols = np.random.default_rng(0).integers(0, 5, (600, 1))
    return {
        "GaussianMixture full": lambda: GaussianMixture(3, random_state=0).fit(X),
        "GaussianMixture diag": lambda: GaussianMixture(3, covariance_type="diag", random_state=0).fit(X),
        "KMeans": lambda: KMeans(3, random_state=0).fit(X),
        "LinearClassifier": lambda: LinearClassifier().fit(X, y),
        "CategoricalHMM": lambda: CategoricalHMM(3, random_state=0).fit(symbols),
    }


def main() -> None:
    """Fit every model and print its counts, and the names of what was compiled."""
    warnings.simplefilter("ignore")
    programs: dict[Any, list[int]] = {}  # the equations of every program: as XLA would get them, as NumPy did
    compiled: list[str] = []
    call, lower = _jit.Program.__call__, _jit.lower

    def record_call(self, arrays, *options):
        if self not in programs:
            programs[self] = [n_equations(jax.make_jaxpr(self._flat)(*arrays))]
        return call(self, arrays, *options)

    def record_equations(jaxpr, *arguments):
        programs[next(reversed(programs))].append(n_equations(jaxpr))
        return lower(jaxpr, *arguments)

    def record_compilation(name, _, fun_name="", **__):
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(fun_name)

    _jit.Program.__call__, _jit.lower = record_call, record_equations
    jax.monitoring.register_event_duration_secs_listener(record_compilation)
    counts: dict[str, Any] = {}
    for model, fit in fit_models().items():
        programs.clear()
        fit()
        counts[model] = {"programs": len(programs)}
        for name in ("start_restarts", "run_epochs"):
            equations = [found for program, found in programs.items() if program._flat.__name__ == name]
            counts[model][name] = tuple(map(sum, zip(*equations, strict=True)))
    print(json.dumps({"counts": counts, "compiled": compiled}))
    pprint.pprint(counts, sort_dicts=False, width=100, stream=sys.stderr)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """What a fresh process prints."""
    settings = {k: v for k, v in os.environ.items() if k != "ENERGAX_ENGINE"}
    ran = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=False, env=settings
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def test_nothing_is_compiled_in_first_fits_to_little_data(report):
    assert len(report["compiled"]) <= MOST_COMPILED, report["compiled"]


@pytest.mark.parametrize("model", LIMITS)
def test_the_programs_of_a_fit_do_not_grow(model, report):
    counts = report["counts"][model]
    for name, limit in LIMITS[model].items():
        assert np.all(np.array(counts[name]) <= np.array(limit)), f"{name}: {counts[name]}, at most {limit}"


if __name__ == "__main__":
    main()
