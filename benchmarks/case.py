"""One comparison with a peer, and how it is timed."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """`ours` and `theirs` do the same work; `target` is the largest ratio of times (ours / theirs) to reach.

    `units` is the amount of work in one call, told in `unit` per second. `quality` says, after the
    timing, how good the two results were (one short sentence), so that speed is never bought with it.
    `theirs=None` is an absolute case: `target` is then in seconds. `reported` says that the two return
    the seconds themselves, taken in a process of their own. `rest` is a pause before every call: the
    threads of OpenBLAS spin for some 30 ms after their last product, and would be charged to the next.
    """

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any] | None = None
    peer: str = "scikit-learn"
    target: float | None = None
    units: float = 1.0
    unit: str = "calls"
    quality: Callable[[Any, Any], str] | None = None
    repeats: int = 5
    reported: bool = False
    rest: float = 0.0


@dataclasses.dataclass(frozen=True)
class Timing:
    """What came of a case, in seconds."""

    case: Case
    first: float  # our first call, with compilation
    ours: float
    theirs: float | None
    quality: str

    @property
    def ratio(self) -> float:
        return self.ours if self.theirs is None else self.ours / self.theirs

    @property
    def reached(self) -> bool | None:
        return None if self.case.target is None else self.ratio <= self.case.target


def _seconds(case: Case, function: Callable[[], Any]) -> tuple[float, Any]:
    import jax

    time.sleep(case.rest)
    if case.reported:
        seconds = float(function())
        return seconds, seconds

    began = time.perf_counter()
    result = function()
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])
    return time.perf_counter() - began, result


def timed(case: Case) -> Timing:
    """Once each to warm up, then turn by turn, so that a busy moment falls on both."""
    first, ours_result = _seconds(case, case.ours)
    theirs_result = _seconds(case, case.theirs)[1] if case.theirs else None
    ours, theirs = [], []
    for _ in range(case.repeats):
        seconds, ours_result = _seconds(case, case.ours)
        ours.append(seconds)
        if case.theirs:
            seconds, theirs_result = _seconds(case, case.theirs)
            theirs.append(seconds)
    quality = case.quality(ours_result, theirs_result) if case.quality else ""
    return Timing(
        case, first, statistics.median(ours), statistics.median(theirs) if theirs else None, quality
    )
