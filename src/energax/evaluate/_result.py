"""The result of a comparison."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..estimate import Estimate
from ..spaces import Space
from ._intervals import mean_interval


@dataclasses.dataclass(frozen=True)
class Score:
    """The score of one model. `rows` is log p of every held-out row, or None if there is no score."""

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
        """Student's interval of the mean, from the error of each row and the error that all rows share."""
        return mean_interval(self.rows, level) if self.rows is not None else (np.nan, np.nan)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`: scores with the best first, then the models that were not scored."""

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
        """The table as a pandas frame, one row per model."""
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
        from ._display import render

        return render(self)

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=100, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()
