"""F(given) and log Z as sums: by the energy's knowledge or one value at a time, and how many that is."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from ... import finite
from ...energy import free_energy, log_partition_cost, supports_call
from ...finite import endless_sum, log_sum_exp
from ...missing import known
from .._query import Query
from .unknowns import Unknowns, unknowns


@eqx.filter_jit
def closed_log_partition(energy: Any) -> Any:
    """log Z as the energy itself finds it, compiled."""
    return energy.log_partition()


# -- functions of one row, for `map_rows` ----------------------------------------------------


def free_energy_by_knowledge(row, key, energy):
    return free_energy(energy, row)


def free_energy_by_sum(row, key, energy, these: Unknowns):
    """F(given) over the unknowns that `enumeration_plan` found; the energy sums out the rest."""
    if not these.spaces:
        return free_energy(energy, row["given"])
    term = lambda i: -free_energy(energy, {**row["given"], **these.at(row, i)})
    return these.log_copies(row) - log_sum_exp(term, these.n)


# -- what is known, and the size of the rest ----------------------------------------------------


def has_closed_form(query: Query) -> bool:
    """Whether the energy knows F(given), missing coordinates and all."""
    energy = query.energy
    if any(name not in energy.marginalises for name in query.partially_observed):
        return False
    if not query.hidden:
        return True
    if not query.given or not energy.knows("free_energy", query.names):
        return False
    return supports_call(energy.free_energy, **query.row())


def enumeration_plan(query: Query) -> tuple[Unknowns, dict[str, Any]]:
    """The cheapest set to enumerate for F(given); the energy's knowledge sums out the rest.

    Either the missing coordinates, with the hidden variables by `free_energy`; or the hidden
    variables, with those missing coordinates that the energy's own call sums out.
    """
    energy = query.energy
    complete = {k: known(v) for k, v in query.row().items()}
    by_knowledge = not query.hidden or (
        bool(query.given)
        and energy.knows("free_energy", query.names)
        and supports_call(energy.free_energy, **complete)
    )
    left = energy.marginalises & frozenset(query.partially_observed)
    ways = [unknowns(query, hidden=not by_knowledge)]
    if left:
        ways.append(unknowns(query, left=left))
    return min(ways, key=lambda way: way[0].n if way[0].is_finite else float("inf"))


def size_to_visit(task: str, query: Query) -> int | None:
    """How many joint values a row's answer is made of; None if they cannot be listed."""
    these, _ = enumeration_plan(query) if task == "log_prob" else unknowns(query)
    return these.n if these.is_finite else None


def partition_size(energy: Any) -> int | None:
    """How many joint values log Z is a sum over; 0 if it is known."""
    if energy.knows("log_partition"):
        return 0
    return log_partition_cost(energy)[1]


def enumeration_width(query: Query, these: Unknowns) -> int:
    """Numbers that one row's enumeration holds at a time."""
    size = sum(max(1, space.size) for space in query.spaces.values())
    return min(these.n, finite._CHUNK) * (size + 1)


def count(n: int | None) -> str:
    """A number of joint values, in words."""
    if n is None:
        return "infinitely many"
    return f"{n:,}" if n < 10**15 else f"about 10^{len(str(n)) - 1}"


def joint_values_needed(task: str, query: Query) -> str:
    """The size of the exact computation, in words."""
    sizes = [partition_size(query.energy)] if task.startswith("log_") else []
    sizes += [] if task == "log_partition" else [size_to_visit(task, query)]
    finite = [size for size in sizes if size is not None]
    if len(finite) < len(sizes):
        return endless_sum(query.spaces)
    return f"{count(max(finite))} joint values"


def missing_value_hint(query: Query) -> str:
    """What to do about missing coordinates that nobody can sum out; nothing, if there are none."""
    energy = query.energy
    size = size_to_visit("log_prob", query)
    if not query.partially_observed or (size is not None and size <= finite.ENUMERATION_LIMIT):
        return ""
    name = type(energy).__name__
    these = [k for k in query.partially_observed if k not in energy.marginalises]
    if not these:
        return (
            f"With missing values in {', '.join(map(repr, query.partially_observed))} {name} would have to list all "
            "that is hidden: impute them, or leave out the rows that have them."
        )
    return (
        f"{name} does not sum out missing values of {', '.join(map(repr, these))}: impute "
        "them, leave out the rows that have them, or use an energy that does (one that names the variable "
        "in `marginalises`, such as a mixture of Gaussians)."
    )
