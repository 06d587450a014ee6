"""One comparison with another library, and its timing."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """`ours` and `theirs` do the same work; `target` is the largest acceptable ratio of times, ours / theirs.

    `units` is the amount of work in one call, reported in `unit` per second. `quality` describes the two
    results after the timing, since only equal quality compares. With `theirs=None` or `in_seconds`, `target`
    is in seconds. `reported`: the functions measure themselves, each time in a fresh process, and return what
    `float` makes seconds of; infinity is a failure. `rest` is a pause before every call: the threads of
    OpenBLAS spin for about 30 ms after their last product. `engine`: "xla" measures compiled work, which
    "auto" would interpret in the first calls.
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
    in_seconds: bool = False
    rest: float = 0.0
    engine: str = "xla"


@dataclasses.dataclass(frozen=True)
class Timing:
    """The times of a case, in seconds."""

    case: Case
    first: float | None  # our first call, including compilation; None if every call is one
    ours: float
    theirs: float | None
    quality: str

    @property
    def ratio(self) -> float:
        return self.ours if self.theirs is None else self.ours / self.theirs

    @property
    def reached(self) -> bool | None:
        if self.case.target is None:
            return None
        return (self.ours if self.case.in_seconds else self.ratio) <= self.case.target


def _seconds(case: Case, function: Callable[[], Any]) -> tuple[float, Any]:
    import jax

    from energax.programs import use_engine

    time.sleep(case.rest)
    if case.reported:
        result = function()
        return float(result), result

    began = time.perf_counter()
    with use_engine(case.engine):
        result = function()
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])
    return time.perf_counter() - began, result


def measure(case: Case) -> Timing:
    """Time a case: one call each to warm up, then alternating calls, so that noise affects both.

    Fresh processes are not warmed up.
    """
    ours: list[float] = []
    theirs: list[float] = []
    ours_result = theirs_result = None
    first = None
    if not case.reported:
        first, ours_result = _seconds(case, case.ours)
        theirs_result = _seconds(case, case.theirs)[1] if case.theirs else None
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
