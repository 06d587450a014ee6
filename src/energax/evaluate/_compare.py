"""Fit several models to one data set and score them on the same held-out rows."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from .._util.keys import as_key
from ..data import Table, digits
from ..energy import Energy
from ..errors import BadInput, ConvergenceWarning, EnergaxError
from ..estimate import Estimate
from ._intervals import paired_difference
from ._model_specs import ModelSpec, check_any_supported, select
from ._prepare import Split, prepare
from ._result import Comparison, Score

Watch = Callable[[str, str, int, int], None]  # (event, label, number, total)


def compare(
    data: Any = None,
    models: str | Iterable[str] | None = None,
    *,
    test: float | int = 0.2,
    key: Any = 0,
    progress: bool | Watch = False,
) -> Comparison:
    """Fit every model that suits the data, and score each on the same held-out rows.

    The score is the mean of log p(x) over the held-out rows, in nats and in the units of the data:
    real columns are standardised by the training rows, and the log-determinant of the standardisation is
    added to the score. `difference` is paired, row by row, with the best model.

    Args:
        data: rows of numbers (array, frame or `Table`); by default the bundled digits. Binary models are
            compared on tables of zeros and ones, real models on all others. NaN marks a missing value.
        models: names to compare (see `model_specs()`). A family name such as `rbm` or
            `GaussianMixture` selects all of its members. Default: every model that suits the data.
        test: the fraction, or number, of rows held out.
        key: determines the split and the randomness of every model.
        progress: show a progress bar; or a function to call at the start and end of each fit.

    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> result = compare(X, ["gaussian", "gmm-diag"], key=0)
    >>> result.best.mean.kind, len(result)
    ('exact', 2)
    """
    if isinstance(data, Mapping) and data and all(isinstance(e, Energy) for e in data.values()):
        remedy = "Use evaluate.compare_evidence, which compares such models by log p(data)."
        raise BadInput("data", "energies by name", "rows of numbers", remedy)
    select(models, "real")  # a wrong name raises before the data are read
    table = digits() if data is None else Table.of(data)
    key = as_key(key)
    split = prepare(table, test, key)
    specs = select(models, split.kind)
    check_any_supported(specs, split.kind, split.has_missing)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    scores = []
    with _progress_watch(progress, len(specs)) as watch:
        for i, spec in enumerate(specs):
            watch("start", spec.label, i, len(specs))
            reason = spec.unsupported_reason(split.kind, split.has_missing)
            if reason:
                score = Score(spec.name, spec.label, "skipped", f"it is {reason}")
            else:
                score = _fit_and_score(spec, split, seed)
            scores.append(score)
            watch("end", f"{spec.label}: {score.status}", i + 1, len(specs))
    return Comparison(
        _rank(scores), split.space, len(split.train), len(split.test), table.source, split.notes
    )


def _fit_and_score(spec: ModelSpec, split: Split, seed: int) -> Score:
    """Fit one model and score it. Failures become the status of its score."""
    began = time.perf_counter()
    messages: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator = spec.build(split.train, seed)
            estimator.fit(split.train)
            seconds = time.perf_counter() - began
            rows = estimator.log_prob(split.test)
            messages = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    except EnergaxError as error:
        return Score(spec.name, spec.label, "failed", str(error), time.perf_counter() - began)
    except Exception as error:  # the other models are still compared
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Score(spec.name, spec.label, "failed", reason, time.perf_counter() - began)
    rows = rows + split.log_det
    result = getattr(estimator, "fit_", None)
    status = getattr(result, "status", "not converged" if messages else "fitted")
    message = messages[0] if messages else getattr(result, "message", "")
    n_infinite = int((~np.isfinite(rows.value)).sum())
    if n_infinite:
        reason = f"{n_infinite} of {len(split.test)} held-out rows have no finite log-likelihood under it"
        return Score(spec.name, spec.label, "failed", reason, seconds, estimator=estimator)
    return Score(spec.name, spec.label, status, message, seconds, rows, estimator=estimator)


def _rank(scores: list[Score]) -> tuple[Score, ...]:
    """Best first, each with its paired difference to the best; then the models without a score."""
    pairs = sorted(
        ((s.rows, s) for s in scores if s.rows is not None), key=lambda pair: -pair[0].value.mean()
    )
    ranked = []
    for i, (rows, score) in enumerate(pairs):
        # The difference of the best to itself is exactly 0, whatever its standard error.
        difference = paired_difference(rows, pairs[0][0]) if i else Estimate(0.0)
        ranked.append(dataclasses.replace(score, difference=difference))
    return (*ranked, *(s for s in scores if s.rows is None))


@contextlib.contextmanager
def _progress_watch(progress: bool | Watch, total: int) -> Iterator[Watch]:
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda *_: None
    else:
        from ._display import progress_bar

        with progress_bar(total) as watch:
            yield watch
