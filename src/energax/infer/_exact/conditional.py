"""log p(data | given) = F(given) − F(data, given): log Z cancels, and each F is known or enumerated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import finite
from ...energy import Energy
from ...errors import BadInput, Intractable, Unsuitable
from ...estimate import Estimate
from .._method import Cost, Method, Plan
from .._query import Query, check_inputs, map_rows
from .closed_form import Exact
from .enumeration import Enumeration
from .marginals import (
    count,
    enumeration_plan,
    enumeration_width,
    free_energy_by_knowledge,
    free_energy_by_sum,
    has_closed_form,
    missing_value_hint,
    size_to_visit,
)


class Conditional:
    """A question about p(data | given), and for each of the two free energies who finds it."""

    def __init__(self, energy: Energy, data: Mapping[str, Any], given: Mapping[str, Any], method: Any = None):
        both = sorted(set(data) & set(given))
        # What the energy says nothing of is given, wherever it stands.
        given = {**given, **{k: v for k, v in data.items() if k in energy.inputs}}
        data = {k: v for k, v in data.items() if k not in energy.inputs}
        if not data:
            raise BadInput("data", f"only {sorted(given)}, which are given", "values of other variables too")
        if both:
            raise BadInput("given", f"{both}, which are also in data", "other variables")
        self.whole = Query(energy, {**data, **given}, "data, given")
        self.part = Query(energy, given)
        self.methods = {q: free_energy_method(q, method) for q in (self.part, self.whole)}
        check_inputs("log_prob", self.whole)

    @property
    def method(self) -> Method:
        """The dearer of the two."""
        return max(self.methods.values(), key=lambda m: isinstance(m, Enumeration))

    def log_prob(self) -> Estimate:
        before, after = (free_energy_rows(q, self.methods[q]) for q in (self.part, self.whole))
        return Estimate(before - after, kind="exact", method=self.method.label)

    def plan(self) -> Plan:
        enumerated = [q for q, m in self.methods.items() if isinstance(m, Enumeration)]
        sizes = [size_to_visit("log_prob", q) or 1 for q in enumerated]
        energy = type(self.whole.energy).__name__
        if enumerated:
            why = f"log Z cancels, and what is left to sum has only {count(max(sizes))} joint values"
        else:
            why = f"log Z cancels, and {energy} knows the rest in closed form"
        evaluations = self.whole.n * (sum(sizes) + 2 - len(sizes))
        return Plan("log_prob", self.method, why, "exact", Cost(evaluations, max(sizes, default=None)))


def free_energy_method(query: Query, method: Any = None) -> Method:
    """`Exact` or `Enumeration`, whichever finds F(given); or a sentence on why neither does."""
    if method is not None and not isinstance(method, (Exact, Enumeration)):
        raise Unsuitable(
            f"log_prob(..., given=): {type(method).__name__} gives no exact free energy. Use Enumeration()."
        )
    if has_closed_form(query) and not isinstance(method, Enumeration):
        return Exact()
    enumeration = method if isinstance(method, Enumeration) else Enumeration()
    size = size_to_visit("log_prob", query)
    if size is None or size > enumeration.most:
        raise Intractable(
            "log_prob(..., given=)",
            f"a sum over {count(size)} joint values",
            f"{enumeration.most:,}",
            missing_value_hint(query) or "Give the energy `free_energy`, or make what is hidden smaller.",
        )
    return enumeration


def free_energy_rows(query: Query, method: Method | None = None) -> np.ndarray:
    """F of every row."""
    method = free_energy_method(query) if method is None else method
    energy, n = query.energy, query.n
    if not isinstance(method, Enumeration):
        return map_rows(free_energy_by_knowledge, query.given, n, energy)
    these, rows = enumeration_plan(query)
    with finite.enumeration_limit(method.most):
        width = enumeration_width(query, these)
        return map_rows(free_energy_by_sum, rows, n, energy, these, numbers_per_row=width)
