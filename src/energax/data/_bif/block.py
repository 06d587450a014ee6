"""The inside of a BIF probability block: rows, a table, a default."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ...algorithms.factors.model import TOLERANCE
from .lexer import Scanner, Token, names_in

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# The usual row, in one go: almost all of a large file. Whatever it does not fit is read word by word.
_ROW = re.compile(r'\s*\(([^()"/;{}|]*+)\)([0-9eE+.,\s-]*+);')
_NUMBERS = re.compile(r"([0-9eE+.,\s-]*+);")
_MOST_ENTRIES = 2**28  # 2 GiB: a default row can stand for more than any memory holds


class Block:
    """Reads p(child | parents) up to the closing brace; `family` are the parents with their states."""

    def __init__(self, scan: Scanner, child: str, card: int, family: Sequence[tuple[str, Sequence[str]]]):
        self.scan, self.child, self.card, self.family = scan, child, card, family
        self.index = [{state: i for i, state in enumerate(states)} for _, states in family]
        self.shape = tuple(len(states) for _, states in family)
        self.rows: dict[int, list[float]] = {}
        self.default: list[float] | None = None
        self.table: np.ndarray | None = None
        self.properties: list[str] = []

    def read(self) -> np.ndarray:
        """The table with the axes (*parents, child)."""
        while True:
            while self._usual_row():
                pass
            token = self.scan.take()
            if token.is_sign("}"):
                return self._whole(token)
            if token.is_sign("("):
                self._row(token)
            elif token.is_word("default"):
                self.default = self._numbers(self.card, f"a default row of {self.child}")
            elif token.is_word("table"):
                self._table(token)
            elif token.is_word("property"):
                self.properties.append(self.scan.property())
            else:
                self.scan.wrong(token, "table, default, property, a row '(…)' or '}'")

    def _usual_row(self) -> bool:
        match = _ROW.match(self.scan.text, self.scan.at)
        if match is None:
            return False
        states = [state.strip() for state in match[1].split(",")]
        if len(states) != len(self.index):
            return False
        try:
            row = self._place(states)
            values = list(map(float, match[2].replace(",", " ").split()))
        except (KeyError, ValueError):
            return False
        if len(values) != self.card or row in self.rows or min(values) < 0:
            return False
        self.rows[row] = values
        self.scan.at = match.end()
        return True

    def _place(self, states: Sequence[str]) -> int:
        row = 0
        for state, index in zip(states, self.index, strict=True):
            row = row * len(index) + index[state]
        return row

    def _row(self, start: Token) -> None:
        groups, _ = self.scan.groups(")", "a state of a parent")
        fits = lambda words: len(words) == len(self.index) and all(map(dict.__contains__, self.index, words))
        states = names_in(groups, fits)
        if states is None:
            self._wrong_states(start, [token for group in groups for token in group])
        else:
            row = self._place(states)
            values = self._numbers(self.card, f"a row of {self.child}")
            if self.rows.setdefault(row, values) != values:
                self.scan.wrong(start, "every row once", f"another row for {self._given(row)}")

    def _wrong_states(self, start: Token, tokens: list[Token]) -> None:
        if len(tokens) != len(self.index):
            parents = ", ".join(name for name, _ in self.family) or "none"
            expected = f"the states of the {len(self.index)} parents ({parents})"
            self.scan.wrong(start, expected, f"{len(tokens)} states")
        for token, (name, states) in zip(tokens, self.family, strict=True):
            if token.text not in states:
                some = ", ".join(states[:8]) + (", …" if len(states) > 8 else "")
                self.scan.wrong(token, f"a state of {name} ({some})")

    def _numbers(self, count: int, what: str) -> list[float]:
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
                self.scan.wrong(token, f"{what}: numbers from 0 up, then ';'")
            if len(values) == count:
                self.scan.wrong(token, f"{what}: ';' after {count} numbers")
            values.append(number)
        if len(values) < count:
            self.scan.wrong(token, f"{what}: {count} numbers", f"{len(values)}")
        return values

    def _table(self, start: Token) -> None:
        n_rows = math.prod(self.shape)
        flat = np.array(self._numbers(n_rows * self.card, f"the table of {self.child}"))
        if self.table is not None:
            self.scan.wrong(start, "one table in a block", "a second one")
        slow, fast = flat.reshape(self.card, n_rows).T, flat.reshape(n_rows, self.card)
        sums = lambda rows: np.abs(rows.sum(-1) - 1.0).max() <= TOLERANCE
        self.table = fast if sums(fast) and not sums(slow) else slow

    def _given(self, row: int) -> str:
        where = np.unravel_index(row, self.shape)
        pairs = zip(self.family, where, strict=True)
        return ", ".join(f"{name} = {states[int(i)]}" for (name, states), i in pairs) or "no parents"

    def _whole(self, end: Token) -> np.ndarray:
        n_rows = math.prod(self.shape)
        if n_rows * self.card > _MOST_ENTRIES:
            self.scan.wrong(end, f"at most {_MOST_ENTRIES} entries", f"{n_rows * self.card} for {self.child}")
        if self.table is not None:
            table = self.table.copy()
        elif self.default is not None:
            table = np.tile(self.default, (n_rows, 1))
        elif len(self.rows) == n_rows:
            table = np.empty((n_rows, self.card))
        else:
            row = next(row for row in range(n_rows) if row not in self.rows)
            given = f" for {self._given(row)}" if self.shape else ""
            self.scan.wrong(end, f"the probabilities of {self.child}{given}, or a default")
        if self.rows:
            table[list(self.rows)] = list(self.rows.values())
        return table.reshape(*self.shape, self.card)
