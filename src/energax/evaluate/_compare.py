"""Many models, one data set, one held-out scale."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from .._util.keys import as_key
from ..catalog import Row, find
from ..data import Standardised, Table, digits, find_spaces
from ..data._table import known_name, listed
from ..errors import BadInput, ConvergenceWarning, EnergaxError
from ..estimate import Estimate
from ..spaces import Binary, Space
from ._intervals import mean_interval, paired_difference
from ._model_specs import MODEL_SPECS, ModelSpec
from ._split import hold_out


@dataclasses.dataclass(frozen=True)
class Score:
    """How one model did. `rows` is log p of every held-out row, or None if there is none."""

    name: str
    label: str
    status: str
    message: str = ""
    seconds: float = 0.0
    rows: Estimate | None = dataclasses.field(default=None, repr=False)
    difference: Estimate | None = None
    estimator: Any = dataclasses.field(default=None, repr=False)

    @property
    def mean(self) -> Estimate | None:
        """Held-out log-likelihood per row, in nats."""
        return None if self.rows is None else self.rows.mean()

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's interval for the mean, with every row's own error and the one they share."""
        return mean_interval(self.rows, level) if self.rows is not None else (np.nan, np.nan)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`: scores, best first, then the models that gave none."""

    scores: tuple[Score, ...]
    space: Space
    n_train: int
    n_test: int
    source: str
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Score | None:
        return self.scores[0] if self.scores and self.scores[0].rows is not None else None

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self.scores)

    def to_frame(self) -> Any:
        """The table as a pandas frame, one row a model."""
        import pandas as pd

        out = []
        for score in self.scores:
            low, high = score.interval()
            out.append(
                {
                    "model": score.name,
                    "log_likelihood": np.nan if score.mean is None else float(score.mean),
                    "low": low,
                    "high": high,
                    "kind": "" if score.mean is None else score.mean.kind,
                    "difference": np.nan if score.difference is None else float(score.difference),
                    "difference_stderr": np.nan
                    if score.difference is None
                    else float(score.difference.stderr),
                    "seconds": score.seconds,
                    "status": score.status,
                    "message": score.message,
                }
            )
        return pd.DataFrame(out).set_index("model")

    def __rich__(self) -> Any:
        from ._display import rendered

        return rendered(self)

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=100, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()


_FARTHEST = 1e15  # standard deviations from the mean; single precision squares no more than 1e19

Watch = Callable[[str, str, int, int], None]  # (event, label, number, of how many)


def compare(
    data: Any = None,
    models: str | Iterable[str] | None = None,
    *,
    test: float | int = 0.2,
    key: Any = 0,
    progress: bool | Watch = False,
) -> Comparison:
    """Fit every model of the catalog that suits the data, and score each on the same held-out rows.

    The score is the mean of log p(x) over the held-out rows, in nats and in the units of the data
    as given: real columns are standardised by the training rows for the fit, and the log-determinant
    of that is given back. `difference` is paired, row by row, with the best model.

    Args:
        data: rows of numbers (array, frame or `Table`); by default the bundled digits. All zeros
            and ones: binary models; anything else: models of real numbers. NaN: a missing value.
        models: names to compare (see `contenders()`); a family name such as `rbm` or
            `GaussianMixture` means all of it. Default: every one that suits the data.
        test: the fraction, or number, of rows held out.
        key: decides the split and every model's randomness.
        progress: show a bar; or a function to call as things happen.

    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> result = compare(X, ["gaussian", "gmm-diag"], key=0)
    >>> result.best.mean.kind, len(result)
    ('exact', 2)
    """
    _chosen(models, "real")  # a wrong name is told before anything is said of the data
    table = digits() if data is None else Table.of(data)
    key = as_key(key)
    train, test_rows, space, notes, log_det = _prepare(table, test, key)
    chosen = _chosen(models, _kind(space))
    holes = bool(np.isnan(train).any() or np.isnan(test_rows).any())
    _check_any_model(chosen, _kind(space), holes)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    scores = []
    with _watching(progress, len(chosen)) as watch:
        for i, (row, contender) in enumerate(chosen):
            watch("start", contender.label, i, len(chosen))
            reason = _unsuitable(contender, _kind(space), holes)
            score = (
                Score(contender.name, contender.label, "skipped", f"it is {reason}")
                if reason
                else _scored(row, contender, train, test_rows, log_det, seed)
            )
            scores.append(score)
            watch("end", f"{contender.label}: {score.status}", i + 1, len(chosen))
    return Comparison(_ranked(scores), space, len(train), len(test_rows), table.source, tuple(notes))


def contenders() -> list[tuple[Row, ModelSpec]]:
    """Every model that `compare` can fit, with its row of the catalog."""
    return [(find(spec.estimator), spec) for spec in MODEL_SPECS]


def _chosen(models: str | Iterable[str] | None, data: str) -> list[tuple[Row, ModelSpec]]:
    everything = contenders()
    if models is None:
        return [(row, c) for row, c in everything if c.data == data]
    wanted = [m.strip() for m in (models.split(",") if isinstance(models, str) else models) if m.strip()]
    if not wanted:
        raise BadInput("models", "no name", "at least one model")
    picked: list[tuple[Row, ModelSpec]] = []
    for name in wanted:
        exact = [(row, c) for row, c in everything if c.name == name.lower()]
        family = [
            (row, c) for row, c in everything if name.lower() in (row.name.lower(), c.name.split("-")[0])
        ]
        # A family means those of its members that suit; a full name means that one, whatever it says.
        found = exact or [pair for pair in family if pair[1].data == data] or family
        if not found:
            known_name("models", name, [c.name for _, c in everything], "a model", "`energax models` lists")
        picked += [pair for pair in found if pair not in picked]
    return picked


_KINDS = {"binary": "zeros and ones", "real": "real numbers"}


def _kind(space: Space) -> str:
    return "binary" if isinstance(space, Binary) else "real"


def _unsuitable(contender: ModelSpec, data: str, holes: bool) -> str:
    """Why the model makes no sense for such data, or nothing."""
    if contender.data != data:
        return f"for {_KINDS[contender.data]}, and the data are {_KINDS[data]}"
    return "not for rows with missing values" if holes and not contender.missing else ""


def _check_any_model(chosen: list[tuple[Row, ModelSpec]], data: str, holes: bool) -> None:
    reasons: dict[str, list[str]] = {}
    for _, contender in chosen:
        reasons.setdefault(_unsuitable(contender, data, holes), []).append(contender.name)
    if "" in reasons:
        return
    found = " and ".join(f"{listed(names, 6)} ({reason})" for reason, names in reasons.items())
    suits = [c.name for _, c in contenders() if not _unsuitable(c, data, holes)]
    raise BadInput("models", found, f"at least one that suits: {listed(suits)}")


def _prepare(
    table: Table, test: Any, key: Any
) -> tuple[np.ndarray, np.ndarray, Space, list[str], np.ndarray]:
    """(training rows, held-out rows, their space, what to tell, log-determinant of each held-out row)."""
    notes = list(table.notes)
    reasons: dict[str, list[str]] = {}
    for column, why in table.dropped:
        reasons.setdefault(why, []).append(column)
    values = table.values
    empty = np.isnan(values).all(axis=1)
    if empty.any():
        notes.append(f"{empty.sum()} rows without any value were left out.")
        values = values[~empty]
    if len(values) < 4:
        found = f"{len(values)} row{'s' * (len(values) != 1)}{' with a value' if empty.any() else ''}"
        raise BadInput("data", found, "at least 4, to have 2 rows on each side of the split", "Bring more.")
    train_rows, test_rows = hold_out(len(values), test, key=key)
    train, test_rows = values[train_rows], values[test_rows]
    space = find_spaces(values)["x"]
    log_det = np.zeros(len(test_rows))
    if not isinstance(space, Binary):
        # Compared, not subtracted: 1e308 less −1e308 is not a number.
        varies = np.nanmax(train, axis=0, initial=-np.inf) > np.nanmin(train, axis=0, initial=np.inf)
        flat = [c for c, v in zip(table.columns, varies, strict=True) if not v]
        if flat:
            reasons.setdefault("constant in the training rows", []).extend(flat)
        if not varies.any():
            raise BadInput("data", "only constant columns", "at least one that varies")
        train, test_rows = train[:, varies], test_rows[:, varies]
        space = type(space)(int(varies.sum()))
        left = [c for c, v in zip(table.columns, varies, strict=True) if v]
        notes += _told_of_codes(left, train)
        scaling = Standardised.fit(train)
        log_det = scaling.log_det(test_rows)
        train, test_rows = scaling.transform(train), _in_reach(scaling, test_rows, left)
    for why, columns in reasons.items():
        notes.append(f"Left out, {why}: {listed(columns, 6)}.")
    gaps = int(np.isnan(train).sum() + np.isnan(test_rows).sum())
    if gaps:
        notes.append(
            f"{gaps} values are missing; models that learn from such rows do, the others are skipped."
        )
    return train, test_rows, space, notes, log_det


def _told_of_codes(columns: list[str], values: np.ndarray) -> list[str]:
    """Of columns that may be codes of categories, and are treated as real numbers."""
    known = [column[~np.isnan(column)] for column in values.T]
    coded = [c for c, v in zip(columns, known, strict=True) if np.isin(v, (0, 1)).all()]
    # From 2⁵³ on every float is whole, which says nothing of where it comes from.
    counts = lambda v: (v == np.floor(v)).all() and (np.abs(v) < 2**53).all()
    whole = [c for c, v in zip(columns, known, strict=True) if counts(v) and c not in coded]
    told = []
    if coded:
        told.append(
            f"Only 0 and 1, yet treated as real numbers beside the others: {listed(coded, 6)}. "
            "A density on such columns can be arbitrarily high; leave them out to compare fairly."
        )
    if whole:
        told.append(
            f"Whole numbers, treated as real numbers: {listed(whole, 6)}. Counts and grades are read well "
            "so; codes of categories are not: leave those out, or write a column of 0 and 1 for each."
        )
    return told


def _in_reach(scaling: Standardised, test_rows: np.ndarray, columns: list[str]) -> np.ndarray:
    """The held-out rows standardised, unless one is so far off that its square is not a number."""
    with np.errstate(over="ignore"):
        scaled = scaling.transform(test_rows)
    far = np.nan_to_num(np.abs(scaled), posinf=np.inf)
    if far.max() < _FARTHEST:
        return scaled
    row, column = np.unravel_index(far.argmax(), far.shape)
    typical = f"{scaling.mean[column]:.3g} ± {scaling.scale[column]:.3g}"
    raise BadInput(
        "data",
        f"{test_rows[row, column]:.3g} in column {listed([columns[column]])}, whose other values are {typical}",
        "held-out rows on the scale of the others",
        "Correct it, leave it empty if it is not known, or leave the column out.",
    )


def _scored(
    row: Row,
    contender: ModelSpec,
    train: np.ndarray,
    test_rows: np.ndarray,
    log_det: np.ndarray,
    seed: int,
) -> Score:
    """Fit one model and score it. Whatever goes wrong is its status, never ours."""
    name, label = contender.name, contender.label
    began = time.perf_counter()
    heard: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator = row.load()(**contender.parameters(train), random_state=seed)
            estimator.fit(train)
            seconds = time.perf_counter() - began
            rows = estimator.log_prob(test_rows)
            heard = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    except EnergaxError as error:
        return Score(name, label, "failed", str(error), time.perf_counter() - began)
    except Exception as error:  # a model must not take the others down with it
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Score(name, label, "failed", reason, time.perf_counter() - began)
    rows = rows + log_det
    result = getattr(estimator, "fit_", None)
    status = getattr(result, "status", "not converged" if heard else "fitted")
    message = heard[0] if heard else getattr(result, "message", "")
    unscored = int((~np.isfinite(rows.value)).sum())
    if unscored:
        said = f"{unscored} of {len(test_rows)} held-out rows have no finite log-likelihood under it"
        return Score(name, label, "failed", said, seconds, estimator=estimator)
    return Score(name, label, status, message, seconds, rows, estimator=estimator)


def _ranked(scores: list[Score]) -> tuple[Score, ...]:
    """Best first, each with its paired difference to the best; then those without a score."""
    pairs = sorted(
        ((s.rows, s) for s in scores if s.rows is not None), key=lambda pair: -pair[0].value.mean()
    )
    scored = []
    for i, (rows, score) in enumerate(pairs):
        # The best is no distance from itself, however badly it is known.
        difference = paired_difference(rows, pairs[0][0]) if i else Estimate(0.0)
        scored.append(dataclasses.replace(score, difference=difference))
    return (*scored, *(s for s in scores if s.rows is None))


@contextlib.contextmanager
def _watching(progress: bool | Watch, total: int):
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda *_: None
    else:
        from ._display import bar

        with bar(total) as watch:
            yield watch
