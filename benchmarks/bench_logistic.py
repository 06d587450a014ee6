"""Logistic regression on a9a (32 561 × 123, sparse) to the same objective, warm and in a fresh process."""

from __future__ import annotations

import atexit
import functools
import gzip
import os
import pathlib
import shutil
import tempfile
from functools import partial
from typing import Any

import numpy as np

from .bench_first import Loop, Run, _run
from .case import Case

#: Newton's last step ends 4e-12 above the minimum, relative to it. L-BFGS of scikit-learn ends there with
#: this tolerance, and with its default of 1e-4 at 9e-5.
_TOL = 1e-8


def _path() -> pathlib.Path:
    here = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    return pathlib.Path(os.environ.get("ENERGAX_DATA", here)) / "libsvm" / "a9a.gz"


def _load() -> tuple[Any, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    with gzip.open(_path()) as file:
        return load_svmlight_file(file, n_features=123)


def _quality(X: Any, y: np.ndarray, ours: Any, theirs: Any) -> str:
    def objective(w):
        return w @ w / 2 + np.logaddexp(0, -y * (X @ w)).sum()

    values = " and ".join(f"{objective(model.coef_[0]):.7f}" for model in (ours, theirs))
    return f"objective {values}, iterations {ours.n_iter_} and {theirs.n_iter_[0]}"


_SETUP = f"""
import gzip
from sklearn.datasets import load_svmlight_file
if ours:
    from energax.estimators import LogisticRegression
    model = LogisticRegression(fit_intercept=False)
else:
    from sklearn.linear_model import LogisticRegression
    model = LogisticRegression(fit_intercept=False, tol={_TOL}, max_iter=10_000)
with gzip.open({str(_path())!r}) as file:
    X, y = load_svmlight_file(file, n_features=123)
"""


def _first_call() -> Case:
    loop = Loop("first fit: LogisticRegression, a9a", _SETUP, "model.fit(X, y)", None, None)

    @functools.cache
    def filled() -> str:
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _run(loop, "ours", folder)
        return folder

    def ours() -> Run:
        return _run(loop, "ours", filled())

    quality = lambda a, b: str(a)
    theirs = partial(_run, loop, "theirs")
    return Case(
        f"{loop.name}, warm cache", ours, theirs, target=1.0, reported=True, quality=quality, repeats=3
    )


def cases() -> list[Case]:
    if not _path().exists():  # the data are not part of the repository
        return []
    from sklearn.linear_model import LogisticRegression as Theirs

    from energax.estimators import LogisticRegression as Ours

    X, y = _load()
    ours = lambda: Ours(fit_intercept=False).fit(X, y)
    theirs = lambda: Theirs(fit_intercept=False, tol=_TOL, max_iter=10_000).fit(X, y)
    title = "logistic regression, a9a, to the same objective as L-BFGS"
    return [Case(title, ours, theirs, target=1.0, quality=partial(_quality, X, y)), _first_call()]
