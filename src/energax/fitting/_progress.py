"""A Rich progress bar with the time left, or nothing at all."""

from __future__ import annotations

from typing import Any

import numpy as np


class Bar:
    """Shows epochs done, the objective, and when it will be over."""

    def __init__(self, shown: bool, total: int, done: int = 0):
        self.bar: Any = None
        if not shown:
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            TextColumn("fit"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.task = self.bar.add_task("fit", total=total, completed=done, objective="…")

    def __enter__(self) -> Bar:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, done: int, objectives: Any) -> None:
        """`objectives`: one number, or one for every restart, of which the best is shown."""
        if self.bar:
            self.bar.update(self.task, completed=done, objective=f"{np.min(objectives):.5g}")
