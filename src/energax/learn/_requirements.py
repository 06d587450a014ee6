"""Checks of energies and data shared by several objectives.

Each raises `Unsuitable` with a message that suggests a compatible alternative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..energy import Energy, log_partition_cost
from ..errors import Unsuitable
from ..finite import ENUMERATION_LIMIT, Assignments
from ..missing import is_masked
from ..spaces import Real


def check_variables(objective: Any, data: Mapping[str, Any], *names: str) -> None:
    """Raise unless the data has these variables."""
    absent = [n for n in names if n not in data]
    if absent:
        raise Unsuitable(
            f"{type(objective).__name__} needs values of {absent} in the data; got only {sorted(data)}."
        )


def check_no_missing(objective: Any, data: Mapping[str, Any], *names: str, instead: str) -> None:
    """Raise if these variables have missing values, for objectives that cannot sum them out."""
    for name in names:
        if is_masked(data[name]):
            raise Unsuitable(
                f"{type(objective).__name__} cannot learn from missing values of {name!r}. "
                f"Impute them first, or use {instead}."
            )


def check_inputs(objective: Any, energy: Energy, data: Mapping[str, Any]) -> None:
    """Raise unless the data has complete values of all inputs of the energy, which have no distribution."""
    check_variables(objective, data, *energy.inputs)
    check_no_missing(objective, data, *sorted(energy.inputs), instead="rows that have all inputs")


def check_missing(objective: Any, energy: Energy, data: Mapping[str, Any]) -> None:
    """Raise if there are missing values that the energy can neither integrate out nor enumerate."""
    for name, value in data.items():
        if is_masked(value) and name not in energy.marginalises and not energy.spaces[name].is_finite:
            raise Unsuitable(
                f"{type(objective).__name__}: {type(energy).__name__} cannot integrate out missing values of "
                f"{name!r}. Impute them first, or use an energy that can, such as a mixture."
            )


def check_joint(objective: Any, energy: Energy) -> None:
    """Raise if the energy has inputs: variables whose distribution it does not model."""
    if energy.inputs:
        raise Unsuitable(
            f"{type(objective).__name__} learns the distribution of all variables, but "
            f"{type(energy).__name__} does not model {sorted(energy.inputs)}, its inputs. To learn the other "
            "variables given them, use CrossEntropy or NegativeLogLikelihood."
        )


def check_not_input(objective: Any, energy: Energy, name: str) -> None:
    """Raise if this variable is an input of the energy, whose distribution it does not model."""
    if name in energy.inputs:
        raise Unsuitable(
            f"{type(objective).__name__} learns the distribution of {name!r}, but {type(energy).__name__} "
            "does not model it: it is an input. To learn the other variables given it, use CrossEntropy or "
            "NegativeLogLikelihood."
        )


def check_no_after_update(learner: Any, objective: Any) -> None:
    """Raise if the objective changes running statistics, which this learner would not do."""
    if objective.has_after_update:
        name = type(objective).__name__
        raise Unsuitable(
            f"{type(learner).__name__} does not call `after_update` of {name}. Use Descent({name}(…))."
        )


def check_real(objective: Any, energy: Energy, name: str, instead: str) -> None:
    """Raise unless the energy has this variable, in ℝⁿ."""
    if name not in energy.spaces:
        raise Unsuitable(
            f"{type(objective).__name__} learns from {name!r}, but {type(energy).__name__} has only "
            f"{sorted(energy.spaces)}. Pass one of these as variable=."
        )
    space = energy.spaces[name]
    if not isinstance(space, Real):
        raise Unsuitable(
            f"{type(objective).__name__} needs gradients in {name!r} in all of ℝⁿ, but it is in {space!r}. "
            f"Use {instead}."
        )


def check_free_energy(objective: Any, energy: Energy, data: Mapping[str, Any]) -> None:
    """Raise if there are hidden variables that the energy can neither sum out nor enumerate."""
    reason = free_energy_problem(energy, data)
    if reason is not None:
        hidden = {k: v for k, v in energy.spaces.items() if k not in data}
        raise Unsuitable(
            f"{type(objective).__name__} sums out hidden variables, but {type(energy).__name__} {reason}. "
            f"{suggest_encoder(energy, hidden)}"
        )


def free_energy_problem(energy: Energy, data: Mapping[str, Any]) -> str | None:
    """The reason why the hidden variables cannot be summed out, or None if they can."""
    hidden = {k: v for k, v in energy.spaces.items() if k not in data}
    if not hidden or (data and energy.knows("free_energy", data)):
        return None
    infinite = [k for k, v in hidden.items() if not v.is_finite]
    if infinite:
        return f"cannot integrate out {', '.join(f'{k!r} in {hidden[k]!r}' for k in infinite)}"
    n = Assignments(hidden).n
    if n <= ENUMERATION_LIMIT:
        return None
    return f"would have to sum {', '.join(map(repr, hidden))} over {n:.3g} joint values"


def suggest_encoder(energy: Energy, hidden: Mapping[str, Any]) -> str:
    """A suggestion for energies whose hidden variables cannot be summed out: the ELBO."""
    if len(hidden) > 1:
        return (
            f"Give the energy `free_energy`, which sums out {', '.join(map(repr, hidden))}; or sum out all "
            "but one of them, energy.over(name), and learn with an encoder: Descent(ELBO(encoder))."
        )
    if not has_log_partition(energy):
        return (
            "Give the energy `free_energy`, which sums them out; or `log_partition`, and learn it together "
            "with an encoder: Descent(ELBO(encoder))."
        )
    one = next(iter(hidden.values()))
    estimator = "" if one.is_real else ", estimator=ScoreFunction()"
    return (
        f"Learn it together with an encoder: Descent(ELBO(encoder{estimator})), "
        "where encoder(x=row) is a distribution over the hidden variable, such as nn.Encoder.random(…)."
    )


def suggest_without_hidden(energy: Energy, data: Mapping[str, Any]) -> str:
    """A suggestion for complete data: an objective without hidden variables that accepts the energy."""
    if has_log_partition(energy):
        return "Use NegativeLogLikelihood"
    real = all(isinstance(energy.spaces[name], Real) and not is_masked(data[name]) for name in data)
    return "Use ScoreMatching or ContrastiveDivergence" if real else "Use ContrastiveDivergence"


def check_log_partition(objective: Any, energy: Energy, instead: str) -> None:
    """Raise unless log Z is known or can be enumerated; `instead` completes the suggestion."""
    if not has_log_partition(energy):
        raise Unsuitable(
            f"{type(objective).__name__} needs log Z, which {type(energy).__name__} does not know and which "
            f"cannot be enumerated. {instead}"
        )


def has_log_partition(energy: Energy) -> bool:
    """Whether log Z is known, or small enough to enumerate."""
    _, cost = log_partition_cost(energy)
    return energy.knows("log_partition") or (cost is not None and cost <= ENUMERATION_LIMIT)
