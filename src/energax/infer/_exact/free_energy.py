"""F(given) and log Z as sums over hidden values: closed forms, enumeration, and the sizes of the sums."""

from __future__ import annotations

from typing import Any

from ... import finite
from ..._util import sizes
from ...energy import free_energy, log_partition_cost
from ...finite import describe_infinite_sum, log_sum_exp
from ...missing import value_of
from ...programs import jit
from .._query import Query
from .unknowns import Unknowns, find_unknowns


@jit
def compiled_log_partition(energy: Any) -> Any:
    """Return `energy.log_partition()`, compiled."""
    return energy.log_partition()


# -- functions of one row, for `map_rows` --------------------------------------------------------


def closed_free_energy(row, key, energy):
    """Return F(given) in closed form."""
    return free_energy(energy, row)


def enumerated_free_energy(row, key, energy, unknowns: Unknowns):
    """Return F(given) as a sum over the unknowns of `enumeration_plan`; the energy sums out the rest."""
    if not unknowns.spaces:
        return free_energy(energy, row["given"])
    term = lambda i: -free_energy(energy, {**row["given"], **unknowns.at(row, i)})
    return unknowns.log_copies(row) - log_sum_exp(term, unknowns.n)


# -- how F(given) can be computed ----------------------------------------------------------------


def has_closed_form(query: Query) -> bool:
    """Return whether the energy has F(given) in closed form, missing coordinates included."""
    energy = query.energy
    if any(name not in energy.marginalises for name in query.partially_observed):
        return False
    if not query.hidden:
        return True
    if not query.given or not energy.knows("free_energy", query.names):
        return False
    return query.supports("free_energy", lambda row: energy.free_energy(**row))


def enumeration_plan(query: Query) -> tuple[Unknowns, dict[str, Any]]:
    """Return the smallest set of unknowns whose enumeration gives F(given), and the rows for it.

    Either the missing coordinates are enumerated, and the hidden variables summed out by `free_energy`; or
    the hidden variables are, and the energy's own call sums out the missing coordinates that it can.
    """
    energy = query.energy
    complete = lambda row: energy.free_energy(**{k: value_of(v) for k, v in row.items()})
    sums_hidden = not query.hidden or (
        bool(query.given)
        and energy.knows("free_energy", query.names)
        and query.supports("free_energy of complete rows", complete)
    )
    summed = energy.marginalises & frozenset(query.partially_observed)
    plans = [find_unknowns(query, hidden=not sums_hidden)]
    if summed:
        plans.append(find_unknowns(query, without=summed))
    return min(plans, key=lambda plan: plan[0].n if plan[0].is_finite else float("inf"))


# -- sizes of the sums ---------------------------------------------------------------------------


def n_joint_values(task: str, query: Query) -> int | None:
    """Return how many joint values are enumerated for one row; None if they are not finite."""
    unknowns, _ = enumeration_plan(query) if task == "log_prob" else find_unknowns(query)
    return unknowns.n if unknowns.is_finite else None


def n_partition_values(energy: Any) -> int | None:
    """Return how many joint values log Z is a sum over: 0 if it has a closed form, None if not finite."""
    if energy.knows("log_partition"):
        return 0
    return log_partition_cost(energy)[1]


def enumeration_width(query: Query, unknowns: Unknowns) -> int:
    """Return how many numbers the enumeration of one row holds at a time."""
    return min(unknowns.n, sizes.JOINT_VALUES.value) * (query.width + 1)


# -- error messages ------------------------------------------------------------------------------


def format_count(n: int | None) -> str:
    """Return a number of joint values as text.

    >>> format_count(2**20), format_count(2**100), format_count(None)
    ('1,048,576', 'about 10^30', 'infinitely many')
    """
    if n is None:
        return "infinitely many"
    return f"{n:,}" if n < 10**15 else f"about 10^{len(str(n)) - 1}"


def describe_size(task: str, query: Query) -> str:
    """Return the size of the exact computation as text."""
    counts = [n_partition_values(query.energy)] if task.startswith("log_") else []
    counts += [] if task == "log_partition" else [n_joint_values(task, query)]
    finite_counts = [n for n in counts if n is not None]
    if len(finite_counts) < len(counts):
        return describe_infinite_sum(query.spaces)
    return f"{format_count(max(finite_counts))} joint values"


def missing_value_hint(query: Query) -> str:
    """Return advice on missing coordinates that cannot be summed out; empty if there are none."""
    energy = query.energy
    size = n_joint_values("log_prob", query)
    if not query.partially_observed or (size is not None and size <= finite.ENUMERATION_LIMIT):
        return ""
    name = type(energy).__name__
    quote = lambda names: ", ".join(map(repr, names))
    not_summed = [k for k in query.partially_observed if k not in energy.marginalises]
    if not not_summed:
        return (
            f"With missing values in {quote(query.partially_observed)}, {name} would have to enumerate all "
            "hidden values: impute them, or leave out the rows that have them."
        )
    return (
        f"{name} does not sum out missing values of {quote(not_summed)}: impute them, leave out the rows "
        "that have them, or use an energy that sums them out (one that lists the variable in `marginalises`, "
        "such as a mixture of Gaussians)."
    )
