"""The printed comparison: its table, its legend, and the progress bar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._result import Comparison, Score

_KINDS = {"exact": "exact", "lower bound": "bound", "upper bound": "above", "estimate": "estimate"}
_COLOURS = {
    "converged": "green",
    "stopped early": "green",
    "failed": "red",
    "skipped": "dim",
    "not converged": "yellow",
}


def number(value: float, decimals: int = 2) -> str:
    """A number with a typographic minus sign, and none before zero.

    >>> number(-18.764), number(-0.001)
    ('−18.76', '0.00')
    """
    text = f"{value:.{decimals}f}"
    text = text.lstrip("-") if float(text) == 0 else text
    return text.replace("-", "−")


def _decimals(comparison: Comparison) -> int:
    """Two decimals, or more if two would round every interval to zero."""
    halves = [float(s.mean.stderr) for s in comparison.scores if s.mean is not None]
    smallest = min((h for h in halves if h > 0), default=0.1)
    return int(np.clip(1 - np.floor(np.log10(smallest)), 2, 4))


def _cells(score: Score, best: Score | None, decimals: int) -> list[str]:
    if score.mean is None:
        return [score.label, "", "", "", _seconds(score.seconds), score.status]
    low, high = score.interval()
    mean = f"{number(float(score.mean), decimals)} ± {number((high - low) / 2, decimals)}"
    behind = "best"
    if score is not best and score.difference is not None:
        low, high = score.difference.interval()
        behind = f"{number(float(score.difference), decimals)} ± {number((high - low) / 2, decimals)}"
    return [score.label, mean, _KINDS[score.mean.kind], behind, _seconds(score.seconds), score.status]


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds else ""


def render(comparison: Comparison) -> Any:
    """A Rich renderable that fits into 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    decimals = _decimals(comparison)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("nats per row", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("to the best", justify="right", no_wrap=True)
    table.add_column("fit s", justify="right", no_wrap=True)
    table.add_column("status")
    not_worse = _not_worse(comparison)
    for score in comparison.scores:
        *cells, status = _cells(score, comparison.best, decimals)
        style = "bold" if score.name in not_worse else "dim" if score.rows is None else ""
        table.add_row(*cells, Text(status, style=_COLOURS.get(score.status, "")), style=style)

    heading = Text()
    heading.append(comparison.source, style="bold")
    heading.append(
        f"\n{comparison.space!r}: {comparison.n_train} rows to learn from, {comparison.n_test} held out."
    )
    lines: list[Any] = [heading]
    lines += [Text(note) for note in comparison.notes]
    lines += [Text(), table, Text()]
    lines.append(Text(_legend(comparison, not_worse), style="dim"))
    for score in comparison.scores:
        if score.rows is None:
            lines.append(Text(f"{score.label}: {score.status}, because {score.message}", style="dim"))
    return Group(*lines)


def _not_worse(comparison: Comparison) -> set[str]:
    """The best model, and every model that is not significantly worse at the 95 % level."""
    best = comparison.best
    if best is None:
        return set()
    near = {s.name for s in comparison.scores if s.difference is not None and s.difference.interval()[1] >= 0}
    return near | {best.name}


def _legend(comparison: Comparison, not_worse: set[str]) -> str:
    if comparison.best is None:
        return "No model could be scored; the reasons are below."
    kinds = {s.mean.kind for s in comparison.scores if s.mean is not None}
    parts = [
        "How to read it: the mean of log p(row) over the held-out rows, higher is better, ± a 95 % interval.",
        "“To the best” is paired row by row: it can be significant although the intervals overlap;",
        "bold: not significantly worse than the best." if len(not_worse) > 1 else "bold: the best.",
    ]
    if "lower bound" in kinds:
        parts.append("“Bound”: a lower bound of the true value.")
    if "estimate" in kinds:
        parts.append("“Estimate”: log Z or an integral was estimated by sampling.")
    parts.append("“Fit s”: seconds to fit, including compilation.")
    return " ".join(parts)


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Any]:
    """A progress bar on the error stream; plain lines if it is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:

        def say(event: str, label: str, done: int, of: int) -> None:
            if event == "end":
                console.print(f"[{done}/{of}] {label}", markup=False, highlight=False, soft_wrap=True)

        yield say
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("", total=total)

        def watch(event: str, label: str, done: int, of: int) -> None:
            display.update(task, completed=done, description=label if event == "start" else None)

        yield watch
