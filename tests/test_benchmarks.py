"""The benchmark report: ratios, targets, and cases."""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import __main__ as main

    return main


def test_ratios_and_targets(benchmarks):
    case, timing = sys.modules["benchmarks.case"].Case, sys.modules["benchmarks.case"].Timing
    fast = timing(case("a", lambda: 0, lambda: 0, target=1 / 3), first=1.0, ours=1.0, theirs=4.0, quality="")
    slow = timing(case("a", lambda: 0, lambda: 0, target=1 / 3), first=1.0, ours=2.0, theirs=4.0, quality="")
    assert fast.reached and not slow.reached
    assert benchmarks.cells(fast)[3:5] == ["4.00 ×", "≥ 3 × ✓"]
    assert benchmarks.cells(slow)[4].endswith("✗")
    alone = timing(case("b", lambda: 0, target=1.0), first=1.0, ours=0.5, theirs=None, quality="")
    assert alone.reached and benchmarks.cells(alone)[1] == "500 ms"


def test_every_file_has_cases(benchmarks):
    """Building the cases runs none of them."""
    cases = benchmarks.collect_cases([])
    assert cases and len({c.name for c in cases}) == len(cases)
    assert all(callable(c.ours) for c in cases)
