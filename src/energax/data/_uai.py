"""The UAI format of the inference competitions: tables and evidence by number.

A model is a sequence of numbers after the word MARKOV or BAYES: the number of variables, their numbers of
states, the number of tables, the scope of each, then each table with its length, the last variable of the
scope changing fastest. In a BAYES model the last variable of a scope is the child. Lines that begin
with a single `c` are comments.

Reference: UAI 2014 inference competition, model and evidence formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..algorithms.factors.model import TableModel, find_cycle, normalise_rows, row_sum_error
from ..errors import BadInput
from ._position import position

_COMMENT = re.compile(r"^[ \t]*c(?:[ \t][^\n]*)?$", re.MULTILINE)
_NATURAL = re.compile(
    r"[0-9]{1,19}", re.ASCII
)  # Python rejects numbers of thousands of digits with another error
# Every state gets a name, so that a damaged file could fill the memory.
_MAX_STATES = 10**6
_MAX_STATES_OF_ALL = 10**7


class _Numbers:
    """The words of a text in order; their positions are computed for error messages only."""

    def __init__(self, text: str, source: str):
        self.text = _COMMENT.sub(lambda found: " " * len(found[0]), text)
        self.source, self.words, self.next = source, self.text.split(), 0

    def error(self, expected: str, index: int | None = None, found: str | None = None) -> BadInput:
        """The error for word number `index`, by default the next one."""
        index = self.next if index is None else index
        if index < len(self.words):
            word = next(w for i, w in enumerate(re.finditer(r"\S+", self.text)) if i == index)
            return BadInput(position(self.text, word.start(), self.source), found or repr(word[0]), expected)
        return BadInput(
            position(self.text, len(self.text), self.source), found or "the end of the file", expected
        )

    def natural(self, what: str, least: int = 0, below: int | None = None) -> int:
        """The next word as a whole number."""
        word = self.words[self.next] if self.next < len(self.words) else ""
        value = int(word) if _NATURAL.fullmatch(word) else -1
        if value < least or (below is not None and value >= below):
            limits = [f">= {least}"] * bool(least) + [f"< {below}"] * (below is not None)
            raise self.error(f"{what}: a whole number {' and '.join(limits)}".rstrip())
        self.next += 1
        return value

    def table(self, shape: tuple[int, ...], what: str) -> np.ndarray:
        """The next words as an array."""
        count = math.prod(shape)
        words = self.words[self.next : self.next + count]
        try:
            values = np.array(list(map(float, words)), float)
        except ValueError:
            values = np.array([_number(word) for word in words])
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            raise self.error(f"{what}: a number >= 0", self.next + int(bad.argmax()))
        if len(words) < count:
            raise self.error(f"{what}: {count - len(words)} more numbers", self.next + len(words))
        self.next += count
        return values.reshape(shape)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def parse_uai(text: str, source: str = "UAI text") -> TableModel:
    """The tables of a UAI model; variables are named x0, x1, … and their states 0, 1, ….

    >>> model = parse_uai("MARKOV 2  2 3  1  2 0 1  6  1 2 3 4 5 6")
    >>> model.names, model.cards, model.tables[0].tolist()
    (('x0', 'x1'), (2, 3), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    """
    numbers = _Numbers(text, source)
    word = numbers.words[0].upper() if numbers.words else ""
    if word not in ("MARKOV", "BAYES"):
        raise numbers.error("MARKOV or BAYES")
    kind: Literal["bayes", "markov"] = "bayes" if word == "BAYES" else "markov"
    numbers.next = 1
    n = numbers.natural("the number of variables", least=1)
    cards = [numbers.natural(f"the number of states of variable {v}", 1, _MAX_STATES) for v in range(n)]
    if sum(cards) > _MAX_STATES_OF_ALL:
        found, expected = f"{sum(cards)} states of all variables", f"at most {_MAX_STATES_OF_ALL}"
        raise numbers.error(expected, numbers.next - 1, found)
    n_tables = numbers.natural("the number of tables")
    starts, scopes = [], []
    for i in range(n_tables):
        starts.append(numbers.next)
        scopes.append(_scope(numbers, i, n, kind))
    children = _children(numbers, scopes, starts, n) if kind == "bayes" else []
    tables = []
    for i, scope in enumerate(scopes):
        shape = tuple(cards[v] for v in scope)
        at = numbers.next
        length = numbers.natural(f"the number of entries of table {i}")
        if length != math.prod(shape):
            over = " × ".join(map(str, shape)) or "no variable"
            raise numbers.error(f"{math.prod(shape)} entries of table {i} ({over})", at)
        tables.append(numbers.table(shape, f"table {i}"))
        if kind == "bayes":
            parents = [(f"x{v}", [str(s) for s in range(cards[v])]) for v in scope[:-1]]
            error = row_sum_error(tables[i], f"x{scope[-1]}", parents)
            if error:
                raise numbers.error(error[1], at + 1, error[0])
            tables[i] = normalise_rows(tables[i])
    if numbers.next < len(numbers.words):
        raise numbers.error("the end of the file, after the last table")
    if kind == "bayes":
        scopes, tables = [scopes[i] for i in children], [tables[i] for i in children]
    names_of_states = {card: tuple(map(str, range(card))) for card in set(cards)}
    return TableModel(
        kind,
        tuple(f"x{v}" for v in range(n)),
        tuple(names_of_states[card] for card in cards),
        tuple(scopes),
        tuple(tables),
    )


def _scope(numbers: _Numbers, i: int, n: int, kind: str) -> tuple[int, ...]:
    size = numbers.natural(f"the number of variables of table {i}", int(kind == "bayes"), n + 1)
    scope: list[int] = []
    for _ in range(size):
        at = numbers.next
        scope.append(numbers.natural(f"a variable of table {i}", below=n))
        if scope[-1] in scope[:-1]:
            raise numbers.error(f"every variable once in table {i}", at)
    return tuple(scope)


def _children(
    numbers: _Numbers, scopes: Sequence[tuple[int, ...]], starts: Sequence[int], n: int
) -> list[int]:
    """The position of each variable's table in a directed model."""
    table_of: dict[int, int] = {}
    for i, scope in enumerate(scopes):
        if scope[-1] in table_of:
            raise numbers.error(
                "one table per child (the last variable); a file of factors begins with MARKOV",
                starts[i] + len(scope),
                f"a second table for variable {scope[-1]}",
            )
        table_of[scope[-1]] = i
    for v in range(n):
        if v not in table_of:
            raise numbers.error(f"a table with the child {v}", found=f"no table for variable {v}")
    ordered = [table_of[v] for v in range(n)]
    cycle = find_cycle([scopes[i][:-1] for i in ordered])
    if cycle:
        path = " → ".join(map(str, [*cycle, cycle[0]]))
        raise numbers.error(
            "a directed graph without cycles", starts[table_of[cycle[0]]], f"the cycle {path}"
        )
    return ordered


def format_uai(model: TableModel) -> str:
    """The model as UAI text; names and states become numbers.

    >>> print(format_uai(parse_uai("MARKOV 2 2 1 1 1 0 2 0.25 0.75")))
    MARKOV
    2
    2 1
    1
    1 0
    <BLANKLINE>
    2
     0.25 0.75
    <BLANKLINE>
    """
    lines = [
        model.kind.upper(),
        str(len(model.names)),
        " ".join(map(str, model.cards)),
        str(len(model.tables)),
    ]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in model.scopes]
    for table in model.tables:
        values = np.asarray(table, float)
        rows = values.reshape(-1, values.shape[-1] if values.ndim else 1)
        lines += ["", str(values.size)]
        lines += [" " + " ".join(map(repr, row)) for row in rows.tolist()]
    return "\n".join(lines) + "\n"


def parse_evidence(
    text: str, cards: Sequence[int] | None = None, source: str = "evidence"
) -> tuple[dict[int, int], ...]:
    """The observations of each sample of an evidence file: {variable: state}, by number.

    Two layouts are in use: one line `n variable state variable state …`, and the number of samples
    followed by one such line per sample. An empty text is one sample without observations.

    >>> parse_evidence("2 1 0 2 1")
    ({1: 0, 2: 1},)
    >>> parse_evidence("2\\n1 0 1\\n0")
    ({0: 1}, {})
    """
    numbers = _Numbers(text, source)
    if not numbers.words:
        return ({},)
    alone = len(numbers.text.lstrip().partition("\n")[0].split()) == 1 and len(numbers.words) > 1
    one, many = _fits(numbers.words, False), _fits(numbers.words, True)
    # If both layouts fit, a first number alone on its line is the number of samples.
    samples = _samples(numbers, cards) if (many if one != many else alone) else (_sample(numbers, cards),)
    if numbers.next < len(numbers.words):
        raise numbers.error("the end of the file, after the last observation")
    return samples


def _fits(words: list[str], samples: bool) -> bool:
    """Whether the counts in an evidence file add up to its length."""
    at = int(samples)
    left = _count(words, 0) if samples else 1
    while left > 0 and (observed := _count(words, at)) >= 0:
        at += 1 + 2 * observed
        left -= 1
    return at == len(words) and left == 0


def _count(words: list[str], at: int) -> int:
    return int(words[at]) if at < len(words) and _NATURAL.fullmatch(words[at]) else -1


def _samples(numbers: _Numbers, cards: Sequence[int] | None) -> tuple[dict[int, int], ...]:
    count = numbers.natural("the number of samples")
    return tuple(_sample(numbers, cards) for _ in range(count))


def _sample(numbers: _Numbers, cards: Sequence[int] | None) -> dict[int, int]:
    observed: dict[int, int] = {}
    for _ in range(numbers.natural("the number of observed variables")):
        at = numbers.next
        variable = numbers.natural("an observed variable", below=None if cards is None else len(cards))
        state = numbers.natural(
            f"the state of variable {variable}", below=None if cards is None else cards[variable]
        )
        if observed.setdefault(variable, state) != state:
            raise numbers.error(
                "one state per variable",
                at,
                f"variable {variable} in state {observed[variable]} and {state}",
            )
    return observed
