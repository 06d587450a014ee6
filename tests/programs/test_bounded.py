"""Programs are limited in number and in memory maps, and one that is dropped is freed at once.

Run as a script, this file does 1000 fits and reports the memory maps and the memory after each.
"""

from __future__ import annotations

import gc
import itertools
import json
import pathlib
import subprocess
import sys
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from energax import Energy, Real, fit
from energax.programs import _cache, clear, jit, use_engine

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="needs Linux")


# -- 1000 fits ---------------------------------------------------------------------------------------------

#: Numbers of columns and of components or classes, by kind of fit.
SIZES = {
    "kmeans": (range(1, 26), (2, 6, 12)),
    "diag": (range(1, 16), (1, 5)),
    "spherical": (range(1, 11), (2, 7)),
    "tied": (range(1, 8), (3,)),
    "full": (range(1, 11), (3,)),
    "linear": (range(1, 9), (2, 3)),
    "fit": (range(1, 11), (1,)),
}
#: The most memory maps, and the most megabytes from the 100th fit to the last; measured: 1441 and 25.
MOST_MAPS, MOST_GROWTH = 20_000, 100


def shapes() -> list[tuple[str, int, int, int]]:
    """1000 different kinds and sizes (kind, columns, components, rows).

    The first hundred need more programs than are kept. Of the others, ten in a row share theirs.
    """
    kinds = [(kind, *size) for kind, sizes in SIZES.items() for size in itertools.product(*sizes)]
    kinds = [kinds[i] for i in np.random.default_rng(0).permutation(len(kinds))]
    later = itertools.product(kinds[100:160] + kinds[:30], range(33, 43))
    return [(*kind, 64) for kind in kinds[:100]] + [(*kind, n) for kind, n in later]


class Bowl(Energy):
    """A quadratic energy with a centre."""

    center: jax.Array

    @property
    def spaces(self):
        return {"x": Real(len(self.center))}

    def __call__(self, *, x):
        return 0.5 * jnp.sum((x - self.center) ** 2)


def fit_once(kind: str, d: int, k: int, n: int) -> None:
    """Fit one model for two epochs."""
    from energax.estimators import GaussianMixture, KMeans, LinearClassifier
    from energax.learn import Descent, ScoreMatching

    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    if kind == "kmeans":
        KMeans(k, n_init=1, max_iter=2, random_state=0).fit(X)
    elif kind == "linear":
        LinearClassifier(max_iter=2).fit(X, np.arange(n) % k)
    elif kind == "fit":
        fit(
            Bowl(np.zeros(d, np.float32)), {"x": X}, Descent(ScoreMatching(), optax.sgd(0.1)), key=0, epochs=2
        )
    else:
        GaussianMixture(k, covariance_type=kind, max_iter=2, random_state=0).fit(X)


def main() -> None:
    """Fit models of 1000 different shapes; print the memory maps and the megabytes after each."""
    warnings.simplefilter("ignore")
    report = []
    for shape in shapes():
        fit_once(*shape)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        report.append((_cache.memory_maps(), pages * 4096 / 1e6))
    print(json.dumps(report))


def test_a_thousand_fits_of_different_shapes_need_no_more_memory_than_a_hundred():
    ran = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    maps, megabytes = zip(*json.loads(ran.stdout), strict=True)
    assert len(set(shapes())) == len(maps) == 1000
    assert max(maps) < MOST_MAPS
    assert max(megabytes) - megabytes[99] < MOST_GROWTH


# -- compiled programs -------------------------------------------------------------------------------------


def work(x, power):
    def step(c, _):
        c = jnp.sort(jnp.tanh(c @ c.T @ c), axis=1)
        return c / jnp.linalg.norm(c), c.sum()

    return jax.lax.scan(step, x**power, None, length=3)


@pytest.fixture
def programs():
    """A function that compiles one more program and returns it. Only reference counts free memory."""
    clear()
    gc.collect()
    gc.disable()
    function, powers = jit(work), itertools.count(1)

    def compile_one():
        with use_engine("xla"):
            function(np.eye(3, dtype=np.float32), next(powers))
        return next(reversed(_cache._programs.values()))

    compile_one()  # threads and libraries of the first compilation stay
    clear()
    yield compile_one
    gc.enable()
    clear()


def test_a_program_that_is_dropped_gives_its_memory_maps_back(programs):
    before = _cache.memory_maps()
    found = [weakref.ref(programs()) for _ in range(20)]
    held = _cache.memory_maps() - before
    assert held > 100, "else the test shows nothing"
    assert held >= 0.5 * sum(program().maps for program in found)
    clear()
    assert all(program() is None for program in found)
    assert _cache.memory_maps() - before < 0.2 * held


def test_the_number_of_programs_is_limited(programs, monkeypatch):
    monkeypatch.setattr(_cache, "MOST_PROGRAMS", 5)
    found = [weakref.ref(programs()) for _ in range(5)]
    before = _cache.memory_maps()
    for _ in range(35):
        found.append(weakref.ref(programs()))
        assert len(_cache._programs) == 5
    assert [program() is not None for program in found] == [False] * 35 + [True] * 5
    assert _cache.memory_maps() - before < 100


def test_the_memory_maps_of_programs_are_limited(programs, monkeypatch):
    monkeypatch.setattr(_cache, "MOST_MAPS", 4 * programs().maps)
    before = _cache.memory_maps()
    for _ in range(35):
        programs()
        assert sum(program.maps for program in _cache._programs.values()) <= _cache.MOST_MAPS
    assert 2 <= len(_cache._programs) <= 8
    assert _cache.memory_maps() - before < 2 * _cache.MOST_MAPS


def test_the_least_recently_used_program_is_freed_first(monkeypatch):
    clear()
    monkeypatch.setattr(_cache, "MOST_PROGRAMS", 2)
    traces = []

    @jit
    def function(x, n):
        traces.append(n)
        return x + n

    for n in (1, 2, 1, 3, 1, 2):
        function(np.zeros(3, np.float32), n)
    assert traces == [1, 2, 3, 2]
    clear()


if __name__ == "__main__":
    main()
