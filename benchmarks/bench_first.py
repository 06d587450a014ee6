"""First calls and loops over settings in fresh processes, without and with a warm compilation cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .case import Case

_HEAD = """
import sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from sklearn.datasets import load_digits, load_iris, load_wine
ours = sys.argv[1] == "ours"
rng = np.random.default_rng(0)
"""


class Loop(NamedTuple):
    """One program. `setup` is not timed; it imports either library under the same names.

    cold, warm: targets in seconds. peer: the library that `setup` imports instead, or "".
    """

    name: str
    setup: str
    work: str
    cold: float
    warm: float
    peer: str = "scikit-learn"


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

LOOPS = (
    Loop(
        "GaussianMixture, iris, k = 1…30 × 4 covariance types, bic",
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
        "KMeans, digits, k = 1…20, n_init = 3",
        _KMEANS,
        "for k in range(1, 21): KMeans(k, n_init=3, random_state=0).fit(D)",
        6,
        2,
    ),
    Loop(
        "CategoricalHMM, 600 symbols, 1…8 states",
        _HMM,
        "for k in range(1, 9): CategoricalHMM(k, random_state=0).fit(S)",
        5,
        1.5,
        "hmmlearn",
    ),
    Loop(
        "CategoricalHMM.score of 60 sequences of different length, one by one",
        _HMM + "model = CategoricalHMM(3, n_features=5, random_state=0).fit(S)\n",
        "for n in range(10, 70): model.score(S[:n])",
        1.5,
        0.5,
        "hmmlearn",
    ),
    Loop(
        "GaussianMixture on the first d = 1…13 columns of wine",
        _MIXTURE,
        "for d in range(1, 14): GaussianMixture(3, random_state=0).fit(W[:, :d])",
        12,
        3,
    ),
    Loop(
        "first posterior of six networks of different size",
        _NETWORKS,
        "for net in networks: energax.posterior(net, {'v1': 0}).marginals",
        3,
        1.2,
        "",
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
        "hmmlearn",
    ),
    Loop("first sample(100) of a mixture", _FITTED, "model.sample(100)", 0.4, 0.15),
    Loop("first predict of a mixture", _FITTED, "model.predict(X)", 0.15, 0.15),
    Loop(
        "grid search of LinearClassifier, wine, 8 × 5",
        _LINEAR,
        """
        name, values = ("alpha" if ours else "C"), np.logspace(-3, 3, 8)
        model = LinearClassifier(max_iter=3000)
        GridSearchCV(model, {name: values}, cv=5).fit(W, v)
        """,
        12.3,
        12.3,
    ),
)


def _run(loop: Loop, who: str, cache: str | None) -> float:
    """Seconds of the work in a fresh process."""
    timed = f"began = time.perf_counter()\n{textwrap.dedent(loop.work)}\nprint(time.perf_counter() - began)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION_CACHE")}
    environment |= {"ENERGAX_CACHE": cache or "off", "JAX_PLATFORMS": "cpu"}
    head = _HEAD
    if cache:
        head += "from energax.caching import use_compilation_cache\nuse_compilation_cache()\n"
    ran = subprocess.run(
        [sys.executable, "-c", head + loop.setup + timed, who],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(ran.stdout.split()[-1])


def _pair(loop: Loop) -> list[Case]:
    warm: list[str] = []

    def with_cache() -> float:
        if not warm:
            warm.append(tempfile.mkdtemp())
            _run(loop, "ours", warm[0])
        return _run(loop, "ours", warm[0])

    theirs: Callable[[], float] | None = partial(_run, loop, "theirs", None) if loop.peer else None
    options = {"peer": loop.peer, "reported": True, "repeats": 1, "seconds": True}
    return [
        Case(f"{loop.name}, cold", partial(_run, loop, "ours", None), theirs, target=loop.cold, **options),
        Case(f"{loop.name}, warm cache", with_cache, None, target=loop.warm, **options),
    ]


def cases() -> list[Case]:
    return [case for loop in LOOPS for case in _pair(loop)]
