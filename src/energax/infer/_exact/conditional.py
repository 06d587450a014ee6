"""log p(data | given) = F(given) − F(data, given): log Z cancels. F(given) is exact, the other one often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...energy import Energy
from ...errors import BadInput, Intractable, Unsuitable, check_instance
from ...estimate import Estimate
from .._method import Cost, Plan
from .._query import Query
from .closed_form import Exact
from .enumeration import Enumeration
from .free_energy import format_count, has_closed_form, missing_value_hint, n_joint_values


class ConditionalQuery:
    """A query of p(data | given), and the method for each of its two free energies.

    Args:
        energy: the energy.
        data: values by name.
        given: values of other variables. Inputs of the energy count as given, also if they are in `data`.
        method: `Exact()` or `Enumeration()` for both free energies; None chooses. One with `log_integrals`,
            such as `Importance`, is for F(data, given).
    """

    def __init__(self, energy: Energy, data: Mapping[str, Any], given: Mapping[str, Any], method: Any = None):
        for name, values in (("data", data), ("given", given)):
            check_instance(name, values, Mapping, "a dict from variable names to values")
        both = sorted(set(data) & set(given))
        given = {**given, **{k: v for k, v in data.items() if k in energy.inputs}}
        data = {k: v for k, v in data.items() if k not in energy.inputs}
        if not data:
            raise BadInput("data", f"only {sorted(given)}, which are given", "values of other variables too")
        if both:
            raise BadInput("given", f"{both}, which are also in data", "other variables")
        self.joint = Query(energy, {**data, **given}, "data, given")
        self.given = Query(energy, given)
        before = None if hasattr(method, "log_integrals") else method
        self.methods = {
            self.given: free_energy_method(self.given, before),
            self.joint: free_energy_method(self.joint, method),
        }
        self.joint.check_inputs("log_prob")

    @property
    def method(self) -> Any:
        """The less exact, or else the more expensive, of the two methods."""
        return max(self.methods.values(), key=lambda m: (Exact, Enumeration, type(m)).index(type(m)))

    def log_prob(self, key: Any = None) -> Estimate:
        """Return log p(data | given) of every row."""
        before, method = self.methods[self.given].free_energies(self.given), self.methods[self.joint]
        if hasattr(method, "log_integrals"):
            return method.log_integrals(self.joint, key) + before
        after = method.free_energies(self.joint)
        return Estimate(before - after, kind=self.kind, method=self.method.label)

    @property
    def kind(self) -> Any:
        """The kind of the number: that of the less exact of the two free energies."""
        if hasattr(self.method, "log_integrals"):
            return "lower bound"
        return "exact" if isinstance(self.method, Exact | Enumeration) else "estimate"

    def plan(self) -> Plan:
        """Return the plan of `log_prob`."""
        if hasattr(self.method, "log_integrals"):
            why = "log Z cancels, and the hidden variables have a proposal"
            return Plan("log_prob", self.method, why, self.kind, self.method.cost("posterior", self.joint))
        enumerated = [q for q, m in self.methods.items() if isinstance(m, Enumeration)]
        counts = [n_joint_values("log_prob", q) or 1 for q in enumerated]
        if enumerated:
            why = f"log Z cancels, and the remaining sum has only {format_count(max(counts))} joint values"
        else:
            why = f"log Z cancels, and {type(self.joint.energy).__name__} has the rest in closed form"
        evaluations = self.joint.n * (sum(counts) + 2 - len(counts))
        return Plan("log_prob", self.method, why, self.kind, Cost(evaluations, max(counts, default=None)))


def free_energy_method(query: Query, method: Any = None) -> Any:
    """Return `Exact` or `Enumeration`, whichever computes F(given); raise if neither does.

    A given method with `free_energies`, such as `Laplace`, is used where there is no closed form, and one
    with `log_integrals` allowed only there.
    """
    bounds = hasattr(method, "log_integrals") and not has_closed_form(query)
    if not (method is None or hasattr(method, "free_energies") or bounds):
        raise Unsuitable(
            f"log_prob(..., given=): {type(method).__name__} gives no exact free energy. Use Enumeration()."
        )
    if has_closed_form(query) and not isinstance(method, Enumeration):
        return Exact()
    if method is not None and not isinstance(method, Exact | Enumeration):
        reason = method.unsupported_reason("posterior", query)
        if reason is not None:
            raise Unsuitable(f"log_prob(..., given=): {type(method).__name__} {reason}.")
        return method
    enumeration = method if isinstance(method, Enumeration) else Enumeration()
    size = n_joint_values("log_prob", query)
    if size is None or size > enumeration.max_joint_values:
        raise Intractable(
            "log_prob(..., given=)",
            f"a sum over {format_count(size)} joint values",
            f"{enumeration.max_joint_values:,}",
            missing_value_hint(query) or _remedy(query),
        )
    return enumeration


def _remedy(query: Query) -> str:
    if all(space.is_real for space in query.hidden.values()):
        return "Give the energy `free_energy`, or approximate it by method=Laplace() or Importance()."
    return "Give the energy `free_energy`, or use smaller hidden variables."


def free_energies(query: Query) -> np.ndarray:
    """Return the exact F(given) of every row, (n,)."""
    return free_energy_method(query).free_energies(query)
