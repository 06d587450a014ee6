"""A Rich progress bar of a fit, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np


class Bar:
    """A bar with the number of epochs, the objective, the elapsed and the remaining time."""

    def __init__(self, visible: bool, total: int, done: int = 0):
        self.bar: Any = None
        if not visible:
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
        """Show `done` epochs and the best of `objectives`: one number, or one per restart."""
        if self.bar:
            self.bar.update(self.task, completed=done, objective=f"{np.min(objectives):.5g}")
