"""The interchange format of Bayesian networks (BIF 0.15): text into tables and back.

    network asia { }
    variable smoke { type discrete [ 2 ] { yes, no }; }
    variable lung  { type discrete [ 2 ] { yes, no }; }
    probability ( smoke ) { table 0.5, 0.5; }
    probability ( lung | smoke ) { (yes) 0.1, 0.9;  (no) 0.01, 0.99; }

Commas and bars are blanks in the format; comments are // and /* */; a name may be quoted. Rows that are
not in the file take the numbers of `default`. In a `table` of a variable with parents the child changes
slowest and the last parent fastest; if the numbers are probabilities only with the child fastest, as some
programs write them, they are read in this order.

Reference: Cozman, The interchange format for Bayesian networks, version 0.15, 1996.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np

from ...algorithms.factors.model import TableModel, find_cycle, normalise_rows, row_sum_error
from ...errors import BadInput
from .block import Block
from .lexer import SKIP, Scanner, names_in

_TYPE = re.compile(rf"{SKIP}type\s+(\w+)\s*\[\s*(\d{{1,9}})\s*\]", re.ASCII)
_PLAIN = re.compile(r"[\w.+<>=%:#'*&@!?~^$-]+")


def parse_bif(text: str, source: str = "BIF text") -> TableModel:
    """The tables of a Bayesian network.

    Rows that sum to one within 1e-4 are divided by their sums. `properties` holds the "name" of the
    network and the texts of its properties, if any: "network" (a tuple), "variables" and "probabilities"
    (tuples by name).

    >>> model = parse_bif('''
    ... network story { }
    ... variable fire { type discrete [ 2 ] { yes, no }; }
    ... variable smoke { type discrete [ 2 ] { yes, no }; }
    ... probability ( fire ) { table 0.01, 0.99; }
    ... probability ( smoke | fire ) { (yes) 0.9, 0.1; default 0.01, 0.99; }
    ... ''')
    >>> model.names, model.scopes, model.tables[1].tolist()
    (('fire', 'smoke'), ((0,), (0, 1)), [[0.9, 0.1], [0.01, 0.99]])
    >>> parse_bif("network story {\\n  proprety x;\\n}")
    Traceback (most recent call last):
    energax.errors.BadInput: BIF text, line 2, column 3: found 'proprety'; expected property or '}'.
    """
    return _Parser(text.removeprefix("\ufeff"), source).parse()


class _Parser:
    def __init__(self, text: str, source: str):
        self.scan = Scanner(text, source)
        self.states: dict[str, tuple[str, ...]] = {}
        self.tables: dict[str, tuple[list[str], np.ndarray, int]] = {}  # parents, table, offset
        self.n_entries = 0
        self.properties: dict[str, Any] = {}

    def parse(self) -> TableModel:
        scan = self.scan
        blocks = {"network": self._network, "variable": self._variable, "probability": self._probability}
        while (token := scan.take()).kind != "end":
            if not token.is_word(*blocks):
                scan.fail(token, "network, variable or probability")
            blocks[token.text]()
            scan.skip(";")
        if not self.states:
            scan.fail(token, "at least one variable")
        for name in self.states:
            if name not in self.tables:
                scan.fail(token, f"a probability block for {name}")
        names = tuple(self.states)
        index = {name: i for i, name in enumerate(names)}
        scopes = tuple(tuple(index[v] for v in (*self.tables[name][0], name)) for name in names)
        cycle = find_cycle([scope[:-1] for scope in scopes])
        if cycle:
            path = " → ".join(names[v] for v in [*cycle, cycle[0]])
            start = self.tables[names[cycle[0]]][2]
            scan.fail(start, "a directed graph without cycles", f"the cycle {path}")
        tables = tuple(self.tables[name][1] for name in names)
        return TableModel("bayes", names, tuple(self.states.values()), scopes, tables, self.properties)

    def _add_properties(self, block: str, name: str, texts: list[str]) -> None:
        if texts:
            self.properties.setdefault(block, {})[name] = tuple(texts)

    def _network(self) -> None:
        name, start = self.scan.name()
        if "name" in self.properties:
            self.scan.fail(start, "one network block", "a second one")
        self.scan.sign("{", " and the properties of the network")
        found = []
        while not self.scan.skip("}"):
            token = self.scan.take()
            if not token.is_word("property"):
                self.scan.fail(token, "property or '}'")
            found.append(self.scan.property())
        self.properties["name"] = name
        if found:
            self.properties["network"] = tuple(found)

    def _variable(self) -> None:
        scan = self.scan
        if scan.peek().kind not in ("word", "string"):
            scan.fail(scan.peek(), "the name of a variable")
        name, start = scan.name()
        if name in self.states:
            scan.fail(start, "every variable once", f"a second variable {name}")
        scan.sign("{", " and the type of the variable")
        states: tuple[str, ...] = ()
        found = []
        while not scan.skip("}"):
            token = scan.peek()
            if token.is_word("property"):
                scan.take()
                found.append(scan.property())
            elif token.is_word("type") and not states:
                states = self._type(name)
            else:
                scan.fail(token, "property or '}'" if states else "type, property or '}'")
        if not states:
            scan.fail(start, f"the type of {name}", "a variable without one")
        self.states[name] = states
        self._add_properties("variables", name, found)

    def _type(self, name: str) -> tuple[str, ...]:
        scan = self.scan
        match = _TYPE.match(scan.text, scan.at)
        if match is None:
            scan.take()
            scan.fail(scan.peek(), "discrete [ number of states ]")
        if match[1] != "discrete":
            scan.fail(match.start(1), "discrete: other types are not supported", repr(match[1]))
        scan.at, count = match.end(), int(match[2])
        brace = scan.sign("{", " and the names of the states")
        groups, _ = scan.groups("}", "the name of a state")
        scan.skip(";")
        names = names_in(groups, lambda words: 0 < len(words) == count)
        if names is None:
            scan.fail(brace, f"{max(count, 1)} states of {name}", f"{sum(map(len, groups))}")
        if len(set(names)) != count:
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            scan.fail(brace, "every state once", f"the state {twice} of {name} twice")
        return tuple(names)

    def _probability(self) -> None:
        scan = self.scan
        start = scan.sign("(", " and the name of a variable").start
        child, parents = self._header(start)
        if child in self.tables:
            scan.fail(start, "one probability block per variable", f"a second one for {child}")
        scan.sign("{", " and the probabilities")
        family = [(name, self.states[name]) for name in parents]
        block = Block(scan, child, len(self.states[child]), family, self.n_entries)
        table = block.parse()
        self.n_entries += table.size
        error = row_sum_error(table, child, family)
        if error:
            scan.fail(start, error[1], error[0])
        self.tables[child] = (parents, normalise_rows(table), start)
        self._add_properties("probabilities", child, block.properties)

    def _header(self, start: int) -> tuple[str, list[str]]:
        """The child and its parents: the names before and after the bar, or the first and the other names."""
        scan = self.scan
        groups, bars = scan.groups(")", "the name of a variable")
        if not groups or len(bars) > 1:
            scan.fail(
                start, "a variable, a bar, its parents", "no variable" if not groups else "several bars"
            )
        known = lambda words: all(word in self.states for word in words)
        parts = [groups[: bars[0]], groups[bars[0] :]] if bars else [groups]
        names = [names_in(part, known) for part in parts]
        for part, found in zip(parts, names, strict=True):
            if found is None:
                unknown = next(t for group in part for t in group if t.text not in self.states)
                scan.fail(unknown, "a variable declared above")
        if bars and len(names[0] or ()) != 1:
            scan.fail(start, "one variable before the bar", f"{len(names[0] or ())}")
        child, *parents = itertools.chain.from_iterable(found or () for found in names)
        if len({child, *parents}) <= len(parents):
            scan.fail(start, "every variable once", f"a variable twice in the block of {child}")
        return child, parents


def format_bif(model: TableModel) -> str:
    """The network as BIF text, which `parse_bif` reads without loss.

    >>> coin = TableModel("bayes", ("coin",), (("heads", "tails"),), ((0,),), (np.array([0.5, 0.5]),))
    >>> print(format_bif(coin), end="")
    network unknown {
    }
    variable coin {
      type discrete [ 2 ] { heads, tails };
    }
    probability ( coin ) {
      table 0.5, 0.5;
    }
    """
    if model.kind != "bayes":
        raise BadInput("model", "an undirected model", "a Bayesian network", "Write it as UAI: .uai")
    notes = model.properties
    properties = lambda texts: [f"  property {_property(text)};" for text in texts]
    lines = [f"network {_name(notes.get('name', 'unknown'))} {{", *properties(notes.get("network", ())), "}"]
    for name, states in zip(model.names, model.states, strict=True):
        listed = ", ".join(map(_name, states))
        lines += [f"variable {_name(name)} {{", f"  type discrete [ {len(states)} ] {{ {listed} }};"]
        lines += [*properties(notes.get("variables", {}).get(name, ())), "}"]
    for name, scope, table in zip(model.names, model.scopes, model.tables, strict=True):
        given = ", ".join(_name(model.names[v]) for v in scope[:-1])
        lines.append(f"probability ( {_name(name)}{' | ' if given else ''}{given} ) {{")
        rows = np.asarray(table, float).reshape(-1, len(model.states[scope[-1]])).tolist()
        for states, row in zip(itertools.product(*(model.states[v] for v in scope[:-1])), rows, strict=True):
            head = f"({', '.join(map(_name, states))})" if states else "table"
            lines.append(f"  {head} {', '.join(map(repr, row))};")
        lines += [*properties(notes.get("probabilities", {}).get(name, ())), "}"]
    return "\n".join(lines) + "\n"


def _name(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    if '"' in text:
        raise BadInput("model", f"the name {text!r}", "names without quotes, which BIF cannot contain")
    return f'"{text}"'


def _property(text: str) -> str:
    if text != text.strip() or text.count('"') % 2 or ";" in re.sub(r'"[^"]*"', "", text):
        raise BadInput(
            "properties", repr(text), "text without blanks around it, and without ';' outside of quotes"
        )
    return text
