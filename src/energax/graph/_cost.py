"""Memory and operations of tables, known before anything is computed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class TableCost:
    """Entries, bytes and operations of a set of tables, as exact integers of any size."""

    tables: int
    largest: int  # entries of the largest table
    entries: int  # of all tables together
    itemsize: int = 8
    operations: int = 0  # multiplications and additions of one calibration

    @property
    def bytes(self) -> int:
        """The memory of all tables."""
        return self.entries * self.itemsize

    @property
    def log2_largest(self) -> float:
        """log2 of the entries of the largest table: its number of variables if all are binary."""
        return math.log2(self.largest) if self.largest else 0.0

    def __str__(self) -> str:
        return (
            f"{self.tables} tables with {_short(self.entries)} entries ({_bytes(self.bytes)}), "
            f"the largest with {_short(self.largest)} (2^{self.log2_largest:.1f}); "
            f"about {_short(self.operations)} operations"
        )


def table_cost(
    cliques: Iterable[Sequence[Any]],
    cards: Mapping[Any, int] | Sequence[int],
    edges: Iterable[tuple[int, int]] | None = None,
    itemsize: int = 8,
) -> TableCost:
    """The cost of one table for each clique, and of calibrating them.

    A clique of c entries with d neighbours in the tree takes c operations to fill and 2 c for each
    neighbour: to sum a message out and to multiply one in. Without `edges`, d = 2, as in a chain.

    >>> print(table_cost([("a", "b"), ("b", "c")], {"a": 2, "b": 3, "c": 4}, [(0, 1)]))
    2 tables with 18 entries (144 B), the largest with 12 (2^3.6); about 54 operations
    """
    sizes = [math.prod(cards[v] for v in clique) for clique in cliques]
    degree = [0 if edges is not None else 2] * len(sizes)
    for a, b in edges or ():
        degree[a] += 1
        degree[b] += 1
    operations = sum(size * (1 + 2 * d) for size, d in zip(sizes, degree, strict=True))
    return TableCost(len(sizes), max(sizes, default=0), sum(sizes), itemsize, operations)


def _short(number: int) -> str:
    return str(number) if number < 100_000 else f"{float(number):.2g}" if number < 10**300 else "over 1e300"


def _bytes(number: int) -> str:
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= unit:
            amount = number / unit if number < 10**300 else math.inf
            return f"{amount:.3g} {name}"
    return f"{number} B"
