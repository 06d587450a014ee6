"""What several objectives ask of an energy and its data, refused in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..energy import Energy, log_partition_cost
from ..errors import Unsuitable
from ..finite import ENUMERATION_LIMIT, Assignments
from ..missing import is_masked


def check_complete(
    objective: Any, energy: Energy, data: Mapping[str, Any], *names: str, instead: str
) -> None:
    """Refuse missing values in these variables where the objective cannot sum them out."""
    for name in names:
        if is_masked(data[name]):
            raise Unsuitable(
                f"{type(objective).__name__} cannot learn from missing values of {name!r}. "
                f"Impute them first, or use {instead}."
            )


def check_joint(objective: Any, energy: Energy) -> None:
    """Refuse an energy that says nothing of how its inputs are distributed."""
    if energy.inputs:
        raise Unsuitable(
            f"{type(objective).__name__} is for all variables of an energy, but {type(energy).__name__} says "
            f"nothing of how {sorted(energy.inputs)} are distributed. Learn the answers: CrossEntropy, or "
            "NegativeLogLikelihood."
        )


def check_output(objective: Any, energy: Energy, name: str) -> None:
    """Refuse to learn how a variable is distributed of which the energy says nothing."""
    if name in energy.inputs:
        raise Unsuitable(
            f"{type(objective).__name__} learns how {name!r} is distributed, and {type(energy).__name__} "
            "says nothing of that: it is only ever given. Learn the answers: CrossEntropy, or "
            "NegativeLogLikelihood."
        )


def check_marginals(objective: Any, energy: Energy, data: Mapping[str, Any]) -> None:
    """Refuse missing values that the energy neither integrates out nor can enumerate."""
    for name, value in data.items():
        if is_masked(value) and name not in energy.marginalises and not energy.spaces[name].is_finite:
            raise Unsuitable(
                f"{type(objective).__name__}: {type(energy).__name__} cannot integrate out missing values of "
                f"{name!r}. Impute them first, or use an energy that can, such as a mixture."
            )


def check_free_energy(objective: Any, energy: Energy, data: Mapping[str, Any]) -> None:
    """Refuse hidden variables that the energy neither sums out by itself nor can enumerate."""
    hidden = {k: v for k, v in energy.spaces.items() if k not in data}
    if not hidden or (data and energy.knows("free_energy", data)):
        return
    joint, name = Assignments(hidden), type(energy).__name__
    endless = [k for k, v in hidden.items() if not v.is_finite]
    if not endless and joint.n <= ENUMERATION_LIMIT:
        return
    what = f"cannot integrate out {', '.join(f'{k!r} in {hidden[k]!r}' for k in endless)}"
    if not endless:
        what = f"would have to sum {', '.join(map(repr, hidden))} over {joint.n:.3g} joint values"
    raise Unsuitable(
        f"{type(objective).__name__} sums out what is hidden, but {name} {what}. {by_encoder(energy, hidden)}"
    )


def by_encoder(energy: Energy, hidden: Mapping[str, Any]) -> str:
    """The way to learn an energy whose hidden variables nobody can sum out."""
    if not has_log_partition(energy):
        return (
            "Give the energy `free_energy`, which sums them out; or `log_partition`, and learn it with an "
            "encoder beside it: Descent(ELBO(encoder))."
        )
    one = next(iter(hidden.values()))
    estimator = "" if one.is_real else ", estimator=ScoreFunction()"
    return (
        f"Learn it with an encoder beside it: Descent(ELBO(encoder{estimator})), "
        "where encoder(x=row) is a distribution over what is hidden, such as nn.Encoder.random(…)."
    )


def check_real(objective: Any, energy: Energy, name: str, instead: str) -> None:
    """Refuse a variable that is not in ℝⁿ."""
    if name not in energy.spaces:
        raise Unsuitable(
            f"{type(objective).__name__} learns from {name!r}, but {type(energy).__name__} has only "
            f"{sorted(energy.spaces)}. Name one of these."
        )
    space = energy.spaces[name]
    if type(space).__name__ != "Real":
        raise Unsuitable(
            f"{type(objective).__name__} needs gradients in {name!r} in all of ℝⁿ, but it is in {space!r}. "
            f"Use {instead}."
        )


def check_log_partition(objective: Any, energy: Energy, instead: str) -> None:
    """Refuse an energy whose log Z is neither known nor small enough to enumerate."""
    if not has_log_partition(energy):
        raise Unsuitable(
            f"{type(objective).__name__} needs log Z, which {type(energy).__name__} does not know and which "
            f"cannot be enumerated. Use {instead}."
        )


def has_log_partition(energy: Energy) -> bool:
    """Whether log Z is known, or small enough to enumerate."""
    _, cost = log_partition_cost(energy)
    return energy.knows("log_partition") or (cost is not None and cost <= ENUMERATION_LIMIT)
