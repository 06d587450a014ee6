"""One row for every public part: what it is, what it needs, where it is from.

Parts are named, not imported, so that the table itself costs nothing to load; `Row.load` fetches
one. The command line, the documents and the common tests read this table.

>>> row = find("EM")
>>> row.kind, row.home
('learner', 'energax.learn')
>>> row.load().__name__
'EM'
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal

from .errors import BadInput

Kind = Literal["energy", "objective", "learner", "inference", "sampler", "estimator"]
Data = Literal["binary", "real"]


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to build an estimator for `compare`.

    `parameters` is a function, so that whatever it needs is loaded only when the model is fitted.
    """

    name: str
    label: str
    data: Data
    parameters: Callable[[], dict[str, Any]]
    missing: bool = False  # whether missing values are marginalised


@dataclasses.dataclass(frozen=True)
class Row:
    """A public part of energax."""

    name: str
    kind: Kind
    summary: str
    needs: str = ""
    spaces: str = ""
    reference: str = ""
    contenders: tuple[Contender, ...] = ()

    @property
    def home(self) -> str:
        """The package that a person imports it from."""
        return f"energax.{HOMES[self.kind]}"

    def load(self) -> Any:
        return part(f"{self.home}:{self.name}")


HOMES: dict[Kind, str] = {
    "energy": "energies",
    "objective": "learn",
    "learner": "learn",
    "inference": "infer",
    "sampler": "samplers",
    "estimator": "estimators",
}


def part(path: str) -> Any:
    """The object at `module:name`, loaded now."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def find(name: str) -> Row:
    """The row of this name, or a `BadInput` with the nearest ones."""
    for row in CATALOG:
        if row.name == name:
            return row
    import difflib

    near = difflib.get_close_matches(name, [row.name for row in CATALOG], n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput("name", repr(name), "the name of a part in the catalog", hint)


def of_kind(kind: Kind) -> tuple[Row, ...]:
    return tuple(row for row in CATALOG if row.kind == kind)


CATALOG: tuple[Row, ...] = ()
