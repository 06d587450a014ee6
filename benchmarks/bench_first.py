"""First uses and loops over settings in fresh processes, cold and with a warm cache; small work thereafter.

Imports and the loading of data are not timed. The timed part is the first use of the library in its process,
so the start of JAX counts. Cold: no cache on disk. Warm: another process has done the same work with the same
cache before.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .case import Case

_HEAD = """
import json, pathlib, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from sklearn.datasets import load_digits, load_iris, load_wine
ours = sys.argv[1] == "ours"
rng = np.random.default_rng(0)
compiled = loaded = 0
if ours:
    import jax
    from energax.caching import use_compilation_cache
    use_compilation_cache()
    def count(name, *_, **__):
        global compiled, loaded
        compiled += name == "/jax/core/compile/backend_compile_duration"
        loaded += name == "/jax/compilation_cache/cache_hits"
    jax.monitoring.register_event_listener(count)
    jax.monitoring.register_event_duration_secs_listener(count)
"""
_TAIL = """
seconds = time.perf_counter() - began
maps = pathlib.Path("/proc/self/maps")
maps = maps.read_bytes().count(b"\\n") if maps.exists() else 0
print(json.dumps({"seconds": seconds, "maps": maps, "compiled": compiled - loaded, "loaded": loaded}))
"""


class Loop(NamedTuple):
    """One program. `setup` is not timed; it imports either library under the same names.

    cold, warm: targets in seconds; None for "not slower than the peer", which only the cold run is held to.
    peer: the library that `setup` imports instead, or "". needs: the module of the peer.
    """

    name: str
    setup: str
    work: str
    cold: float | None
    warm: float | None
    peer: str = "scikit-learn"
    needs: str = "sklearn"


_MIXTURE = """
if ours:
    from energax.estimators import GaussianMixture
else:
    from sklearn.mixture import GaussianMixture
X = load_iris().data
W = load_wine().data
"""
_KMEANS = """
if ours:
    from energax.estimators import KMeans
else:
    from sklearn.cluster import KMeans
X = load_iris().data
D = load_digits().data
"""
_LINEAR = """
if ours:
    from energax.estimators import LinearClassifier
else:
    from sklearn.linear_model import LogisticRegression as LinearClassifier
from sklearn.model_selection import GridSearchCV
X, y = load_iris(return_X_y=True)
W, v = load_wine(return_X_y=True)
"""
_HMM = """
if ours:
    from energax.estimators import CategoricalHMM
else:
    from hmmlearn.hmm import CategoricalHMM
S = rng.integers(0, 5, (600, 1))
"""
_NETWORKS = """
import energax
from energax.energies import BayesianNetwork
energax.posterior
def chain(n):
    tables = {"v0": [0.6, 0.4]}
    for i in range(1, n):
        tables[f"v{i}"] = (f"v{i - 1}", [[0.7, 0.3], [0.2, 0.8]])
    return BayesianNetwork(tables)
networks = [chain(n) for n in (4, 6, 9, 13, 18, 24)]
"""
_FITTED = _MIXTURE + "model = GaussianMixture(3, random_state=0).fit(X)\n"
_HMMLEARN = ("hmmlearn", "hmmlearn")

LOOPS = (
    Loop(
        "loop: GaussianMixture, iris, k = 1…30 × 4 covariance types, bic",
        _MIXTURE,
        """
        for kind in ("full", "tied", "diag", "spherical"):
            for k in range(1, 31):
                GaussianMixture(k, covariance_type=kind, random_state=0).fit(X).bic(X)
        """,
        20,
        6,
    ),
    Loop(
        "loop: KMeans, digits, k = 1…20, n_init = 3",
        _KMEANS,
        "for k in range(1, 21): KMeans(k, n_init=3, random_state=0).fit(D)",
        6,
        2,
    ),
    Loop(
        "loop: CategoricalHMM, 600 symbols, 1…8 states",
        _HMM,
        "for k in range(1, 9): CategoricalHMM(k, random_state=0).fit(S)",
        5,
        1.5,
        *_HMMLEARN,
    ),
    Loop(
        "loop: CategoricalHMM.score of 60 sequences of different length, one by one",
        _HMM + "model = CategoricalHMM(3, n_features=5, random_state=0).fit(S)\n",
        "for n in range(10, 70): model.score(S[:n])",
        1.5,
        0.5,
        *_HMMLEARN,
    ),
    Loop(
        "loop: GaussianMixture on the first d = 1…13 columns of wine",
        _MIXTURE,
        "for d in range(1, 14): GaussianMixture(3, random_state=0).fit(W[:, :d])",
        12,
        3,
    ),
    Loop(
        "loop: first posterior of six networks of different size",
        _NETWORKS,
        "for net in networks: energax.posterior(net, {'v1': 0}).marginals",
        3,
        1.2,
        "",
    ),
    Loop(
        "loop: grid search of LinearClassifier, wine, 8 × 5",
        _LINEAR,
        """
        name, values = ("alpha" if ours else "C"), np.logspace(-3, 3, 8)
        model = LinearClassifier(max_iter=3000)
        GridSearchCV(model, {name: values}, cv=5).fit(W, v)
        """,
        None,
        None,
    ),
    Loop(
        "first fit: GaussianMixture, iris", _MIXTURE, "GaussianMixture(3, random_state=0).fit(X)", 0.9, 0.35
    ),
    Loop("first fit: KMeans, iris", _KMEANS, "KMeans(3, random_state=0).fit(X)", 0.6, 0.35),
    Loop("first fit: LinearClassifier, iris", _LINEAR, "LinearClassifier().fit(X, y)", 0.8, 0.35),
    Loop(
        "first fit: CategoricalHMM, 600 symbols, 3 states",
        _HMM,
        "CategoricalHMM(3, random_state=0).fit(S)",
        1.1,
        0.35,
        *_HMMLEARN,
    ),
    Loop("first sample(100) of a mixture", _FITTED, "model.sample(100)", 0.4, 0.15),
    Loop("first predict of a mixture", _FITTED, "model.predict(X)", 0.15, 0.15),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a process reported, or how it failed. The counts are those of the whole process."""

    seconds: float = math.inf
    maps: int = 0
    compiled: int = 0
    loaded: int = 0
    failure: str = ""

    def __float__(self) -> float:
        return self.seconds

    def __str__(self) -> str:
        if self.failure:
            return f"failed ({self.failure})"
        found = f" and {self.loaded} programs from the cache" if self.loaded else ""
        return f"{self.compiled} compilations by XLA{found}, {self.maps:,} memory maps at the end"


def _run(loop: Loop, who: str, cache: str | None = None) -> Run:
    """Do the work in a fresh process."""
    code = f"{_HEAD}{loop.setup}began = time.perf_counter()\n{textwrap.dedent(loop.work)}{_TAIL}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION_CACHE")}
    environment |= {"ENERGAX_CACHE": cache or "off", "ENERGAX_ENGINE": "auto", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", code, who], capture_output=True, text=True, check=False, env=environment
    )
    if ran.returncode:
        last = ran.stderr.strip().splitlines() or ["no message"]
        return Run(failure=f"exit status {ran.returncode}: {last[-1]}")
    return Run(**json.loads(ran.stdout.splitlines()[-1]))


def _quality(missing: str, ours: Run, theirs: Run | None) -> str:
    if missing:
        return f"{ours}; {missing} is not installed"
    return f"{ours}; the peer {theirs}" if theirs and theirs.failure else str(ours)


def _pair(loop: Loop) -> list[Case]:
    """The cold run beside the peer, if it is installed, and the warm run."""

    @functools.cache
    def filled() -> str:
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _run(loop, "ours", folder)
        return folder

    missing = loop.peer if loop.peer and importlib.util.find_spec(loop.needs) is None else ""
    theirs = partial(_run, loop, "theirs") if loop.peer and not missing else None
    cold = partial(_run, loop, "ours")
    options: dict[str, Any] = {"reported": True, "in_seconds": loop.cold is not None}
    options |= {"quality": partial(_quality, missing), "repeats": 1 if loop.name.startswith("loop") else 3}
    target = 1.0 if loop.cold is None and theirs else loop.cold
    return [
        Case(f"{loop.name}, cold", cold, theirs, loop.peer, target, **options),
        Case(f"{loop.name}, warm cache", lambda: _run(loop, "ours", filled()), target=loop.warm, **options),
    ]


# -- small work in one process ------------------------------------------------------------------------------

#: The slowest acceptable, as a ratio of times.
_SLOWEST = 1.2


def _times(n: int, call: Callable[[], Any]) -> Callable[[], Any]:
    """A function that calls n times and returns the last result."""
    return lambda: [call() for _ in range(n)][-1]


def _fits(Model: Any, X: np.ndarray, **options: Any) -> Callable[[], Any]:
    """A function that fits with another seed at every call: the number of iterations differs by seed."""
    seeds = itertools.count()

    def call() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Model(random_state=next(seeds), **options).fit(X)

    return call


def _small_cases() -> list[Case]:
    from sklearn import cluster, mixture
    from sklearn.datasets import load_digits, load_iris

    from energax import estimators

    iris = load_iris().data

    @functools.cache
    def fitted(Model: Any) -> Any:
        return Model(3, random_state=0).fit(iris)

    def mixtures(n: int, ask: Callable[[Any], Any]) -> list[Callable[[], Any]]:
        kinds = (estimators.GaussianMixture, mixture.GaussianMixture)
        return [_times(n, lambda Model=Model: ask(fitted(Model))) for Model in kinds]

    def agreement(a: np.ndarray, b: np.ndarray) -> str:
        from sklearn.metrics import adjusted_rand_score

        return f"adjusted Rand index of the two partitions {adjusted_rand_score(a, b):.3f}"

    def inertia(a: Any, b: Any) -> str:
        return f"inertia {a.inertia_:.6g} and {b.inertia_:.6g} with the last seed"

    def both(name: str, ours: Any, theirs: Any, **options: Any) -> list[Case]:
        """The first calls, which are interpreted, and those once the function is compiled."""
        case = Case(f"small: {name}, first calls", ours, theirs, rest=0.05, engine="auto", **options)
        compiled = {"name": f"small: {name}, once compiled", "engine": "xla", "target": _SLOWEST}
        return [case, dataclasses.replace(case, **compiled)]

    many: dict[str, Any] = {"repeats": 25, "units": 20}
    tables = ("digits", load_digits().data), ("iris", iris)
    return [
        *both("sample(100) of a mixture of iris", *mixtures(20, lambda m: m.sample(100)), **many),
        *both(
            "predict of a mixture, iris",
            *mixtures(20, lambda m: m.predict(iris)),
            quality=agreement,
            **many,
        ),
        *itertools.chain.from_iterable(
            both(
                f"KMeans(10, n_init=10), {name}",
                _fits(estimators.KMeans, X, n_clusters=10, n_init=10),
                _fits(cluster.KMeans, X, n_clusters=10, n_init=10),
                quality=inertia,
                repeats=11,
            )
            for name, X in tables
        ),
    ]


def cases() -> list[Case]:
    return [case for loop in LOOPS for case in _pair(loop)] + _small_cases()
