"""The body of a BIF probability block: rows, a table, a default."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ...algorithms.factors.model import TOLERANCE
from .lexer import Scanner, Token, names_in

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# Most rows of a file match one pattern, which is fast. Other rows are read token by token.
_ROW = re.compile(r'\s*\(([^()"/;{}|]*+)\)([0-9eE+.,\s-]*+);')
_NUMBERS = re.compile(r"([0-9eE+.,\s-]*+);")
_MAX_ENTRIES = 2**26  # 512 MiB, in all tables of a file: a default row can stand for any number of rows


class Block:
    """Parser of p(child | parents) up to the closing brace.

    `parents` have their states; `n_before` is the number of entries of the tables before.
    """

    def __init__(
        self,
        scan: Scanner,
        child: str,
        card: int,
        parents: Sequence[tuple[str, Sequence[str]]],
        n_before: int = 0,
    ):
        self.scan, self.child, self.card, self.parents, self.n_before = scan, child, card, parents, n_before
        self.index = [{state: i for i, state in enumerate(states)} for _, states in parents]
        self.shape = tuple(len(states) for _, states in parents)
        self.rows: dict[int, list[float]] = {}
        self.default: list[float] | None = None
        self.table: np.ndarray | None = None
        self.properties: list[str] = []

    def parse(self) -> np.ndarray:
        """The table with the axes (*parents, child)."""
        while True:
            while self._match_row():
                pass
            token = self.scan.take()
            if token.is_sign("}"):
                return self._assemble(token)
            if token.is_sign("("):
                self._parse_row(token)
            elif token.is_word("default"):
                self.default = self._parse_numbers(self.card, f"a default row of {self.child}")
            elif token.is_word("table"):
                self._parse_table(token)
            elif token.is_word("property"):
                self.properties.append(self.scan.property())
            else:
                self.scan.fail(token, "table, default, property, a row '(…)' or '}'")

    def _match_row(self) -> bool:
        """Read a row that matches the common pattern; False, and nothing is read, if it does not."""
        match = _ROW.match(self.scan.text, self.scan.at)
        if match is None:
            return False
        states = [state.strip() for state in match[1].split(",")]
        if len(states) != len(self.index):
            return False
        try:
            row = self._row_number(states)
            values = list(map(float, match[2].replace(",", " ").split()))
        except (KeyError, ValueError):
            return False
        if len(values) != self.card or row in self.rows or min(values) < 0:
            return False
        self.rows[row] = values
        self.scan.at = match.end()
        return True

    def _row_number(self, states: Sequence[str]) -> int:
        row = 0
        for state, index in zip(states, self.index, strict=True):
            row = row * len(index) + index[state]
        return row

    def _parse_row(self, start: Token) -> None:
        groups, _ = self.scan.groups(")", "a state of a parent")
        fits = lambda words: len(words) == len(self.index) and all(map(dict.__contains__, self.index, words))
        states = names_in(groups, fits)
        if states is None:
            self._fail_states(start, [token for group in groups for token in group])
        else:
            row = self._row_number(states)
            values = self._parse_numbers(self.card, f"a row of {self.child}")
            if self.rows.setdefault(row, values) != values:
                self.scan.fail(
                    start, "one row per combination of parent states", f"a second row for {self._given(row)}"
                )

    def _fail_states(self, start: Token, tokens: list[Token]) -> None:
        """Raise for the states of a row that are not those of the parents."""
        if len(tokens) != len(self.index):
            parents = ", ".join(name for name, _ in self.parents) or "none"
            expected = f"the states of the {len(self.index)} parents ({parents})"
            self.scan.fail(start, expected, f"{len(tokens)} states")
        for token, (name, states) in zip(tokens, self.parents, strict=True):
            if token.text not in states:
                some = ", ".join(states[:8]) + (", …" if len(states) > 8 else "")
                self.scan.fail(token, f"a state of {name} ({some})")

    def _parse_numbers(self, count: int, what: str) -> list[float]:
        """`count` numbers >= 0 up to the semicolon."""
        start = self.scan.at
        match = _NUMBERS.match(self.scan.text, start)
        if match is not None:
            try:
                values = list(map(float, match[1].replace(",", " ").split()))
            except ValueError:
                values = []
            if len(values) == count and min(values) >= 0 and max(values) < math.inf:
                self.scan.at = match.end()
                return values
        values = []
        while not (token := self.scan.take()).is_sign(";"):
            if token.is_sign(",|"):
                continue
            number = float(token.text) if _NUMBER.fullmatch(token.text) else math.nan
            if token.kind not in ("word", "string") or not 0 <= number < math.inf:
                self.scan.fail(token, f"{what}: numbers >= 0, then ';'")
            if len(values) == count:
                self.scan.fail(token, f"{what}: ';' after {count} numbers")
            values.append(number)
        if len(values) < count:
            self.scan.fail(token, f"{what}: {count} numbers", f"{len(values)}")
        return values

    def _parse_table(self, start: Token) -> None:
        """A table with the child slowest, as specified, or fastest if only then the rows sum to one."""
        n_rows = math.prod(self.shape)
        flat = np.array(self._parse_numbers(n_rows * self.card, f"the table of {self.child}"))
        if self.table is not None:
            self.scan.fail(start, "one table per block", "a second one")
        slow, fast = flat.reshape(self.card, n_rows).T, flat.reshape(n_rows, self.card)
        sums_to_one = lambda rows: np.abs(rows.sum(-1) - 1.0).max() <= TOLERANCE
        self.table = fast if sums_to_one(fast) and not sums_to_one(slow) else slow

    def _given(self, row: int) -> str:
        """The states of the parents in a row, for error messages."""
        where = np.unravel_index(row, self.shape)
        pairs = zip(self.parents, where, strict=True)
        return ", ".join(f"{name} = {states[int(i)]}" for (name, states), i in pairs) or "no parents"

    def _assemble(self, end: Token) -> np.ndarray:
        """The whole table from the table, the default and the rows; raises if a row is missing."""
        n_rows = math.prod(self.shape)
        if self.n_before + n_rows * self.card > _MAX_ENTRIES:
            expected = f"at most {_MAX_ENTRIES} entries of all tables"
            self.scan.fail(end, expected, f"{n_rows * self.card} for {self.child}")
        if self.table is not None:
            table = self.table.copy()
        elif self.default is not None:
            table = np.tile(self.default, (n_rows, 1))
        elif len(self.rows) == n_rows:
            table = np.empty((n_rows, self.card))
        else:
            row = next(row for row in range(n_rows) if row not in self.rows)
            given = f" for {self._given(row)}" if self.shape else ""
            self.scan.fail(end, f"the probabilities of {self.child}{given}, or a default")
        if self.rows:
            table[list(self.rows)] = list(self.rows.values())
        return table.reshape(*self.shape, self.card)
