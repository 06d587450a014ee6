"""`python -m benchmarks [word …]`: run the cases whose name contains one of the words, and report."""

from __future__ import annotations

import importlib
import math
import os
import pathlib
import platform
import sys

from .case import Case, Timing, measure

HERE = pathlib.Path(__file__).parent


def collect_cases(words: list[str]) -> list[Case]:
    found: list[Case] = []
    for path in sorted(HERE.glob("bench_*.py")):
        found += importlib.import_module(f"benchmarks.{path.stem}").cases()
    return [c for c in found if not words or any(w.lower() in c.name.lower() for w in words)]


def machine() -> str:
    """The hardware and the versions of libraries."""
    import jax
    import sklearn

    kinds = ", ".join(sorted({d.platform for d in jax.devices()}))
    return (
        f"{os.cpu_count()} {platform.machine()} cores, devices: {kinds}; Python {platform.python_version()}, "
        f"JAX {jax.__version__}, scikit-learn {sklearn.__version__}."
    )


def cells(t: Timing) -> list[str]:
    case = t.case
    rate = lambda s: f"{case.units / s:,.0f} {case.unit}/s" if case.units != 1 else _time(s)
    mark = {True: " ✓", False: " ✗", None: ""}[t.reached]
    first = "" if t.first is None else _time(t.first)
    target = f"≤ {case.target:g} s{mark}" if case.target else ""
    if t.theirs is None:
        return [case.name, rate(t.ours), "", "", target, first]
    if case.target and not case.in_seconds:
        target = f"≥ {1 / case.target:.2g} ×{mark}"
    theirs = f"{rate(t.theirs)} ({case.peer})"
    ratio = f"{t.theirs / t.ours:.2f} ×" if math.isfinite(t.theirs) else ""
    return [case.name, rate(t.ours), theirs, ratio, target, first]


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "failed"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2f} ms"


HEADINGS = ["case", "energax", "peer", "as fast", "target", "first call"]


def main() -> None:
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    console = Console()
    os.environ["ENERGAX_CACHE"] = "off"  # first calls compile; cases with a warm cache say so
    cases = collect_cases(sys.argv[1:])
    timings = [measure(case) for case in track(cases, "benchmarks", console=console, transient=True)]
    table = Table(box=None, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading)
    for t in timings:
        table.add_row(*cells(t), style="" if t.reached in (True, None) else "red")
    console.print(table)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`: one process, alternating with the peer, median of five; the first call",
        "(with compilation, nothing cached) is a separate column. Work is compiled (`use_engine('xla')`),",
        "except in rows of first uses, of loops over settings and of small work, where the engine is that of",
        "users. First uses and loops are measured in fresh processes after the imports, cold and with a",
        "warm cache on disk. Ratios on a shared machine vary by about 30 %.",
        "",
        machine(),
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + " --- |" * len(HEADINGS),
        *("| " + " | ".join(cells(t)) + " |" for t in timings),
        "",
        *(f"- {t.case.name}: {t.quality}." for t in timings if t.quality),
    ]
    if not sys.argv[1:]:
        (HERE / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n")
        console.print("Written to benchmarks/RESULTS.md.", style="dim")


if __name__ == "__main__":
    main()
