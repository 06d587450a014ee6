"""`compare_evidence`: models of the same data compared by their evidence log p(data)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from scipy.special import softmax

from .._util.keys import as_key
from ..energy import Energy
from ..errors import BadInput, describe
from ..estimate import Estimate
from ..infer import log_partition
from ._display import number


@dataclasses.dataclass(frozen=True)
class EvidenceComparison:
    """The evidence of models, the best first.

    Args:
        evidences: log p(data | model) by the name of the model.
        probabilities: p(model | data), by name.
    """

    evidences: dict[str, Estimate]
    probabilities: dict[str, float]

    @property
    def best(self) -> str:
        return next(iter(self.evidences))

    def log_bayes_factor(self, one: str, other: str | None = None) -> Estimate:
        """Return log p(data | one) − log p(data | other); by default the other one is the best model."""
        other = self.best if other is None else other
        for name in (one, other):
            if name not in self.evidences:
                raise BadInput(
                    "one" if name == one else "other", repr(name), f"one of {list(self.evidences)}"
                )
        return Estimate(0.0) if one == other else self.evidences[one] - self.evidences[other]

    def to_frame(self) -> Any:
        """The table as a pandas frame, one row per model."""
        import pandas as pd

        rows = {
            name: {
                "log_evidence": float(found),
                "stderr": float(found.stderr),
                "kind": found.kind,
                "method": found.method,
                "log_bayes_factor": float(self.log_bayes_factor(name)),
                "probability": self.probabilities[name],
            }
            for name, found in self.evidences.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")

    def __rich__(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("model", no_wrap=True)
        for heading in ("log p(data)", "to the best", "p(model | data)"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("method", no_wrap=True)
        for name, found in self.evidences.items():
            factor = "best" if name == self.best else _with_error(self.log_bayes_factor(name))
            method = f"{found.method} ({found.kind})" if found.method else found.kind
            table.add_row(name, _with_error(found), factor, f"{self.probabilities[name]:.3f}", method)
        return table

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=100, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()


def _with_error(found: Estimate) -> str:
    text = number(float(found), 3)
    return f"{text} ± {number(float(found.stderr), 3)}" if float(found.stderr) else text


def compare_evidence(
    models: Mapping[str, Energy],
    method: Any = None,
    *,
    prior: Mapping[str, float] | None = None,
    key: Any = 0,
) -> EvidenceComparison:
    """Return the evidence log p(data | model) of models, and their probabilities given the data.

    A model is an energy over its hidden variables θ that includes the data, e(θ) = −log p(data, θ), such as
    `Bayes(prior)(energy, rows)` or `from_numpyro(model, …)`: its log Z is the evidence. Priors must be
    proper and densities normalised, constants included.

    Args:
        models: energies by name.
        method: the method of `log_partition`, for all models; None chooses one for each.
        prior: p(model) by name; equal by default.
        key: an int or a JAX key.

    Kass and Raftery (1995), Bayes factors.

    >>> import numpyro
    >>> from numpyro import distributions as d
    >>> from energax import from_numpyro
    >>> def coin(heads):
    ...     p = numpyro.sample("p", d.Uniform())
    ...     numpyro.sample("heads", d.Binomial(10, p), obs=heads)
    >>> def fair(heads):
    ...     p = numpyro.sample("p", d.Beta(100.0, 100.0))
    ...     numpyro.sample("heads", d.Binomial(10, p), obs=heads)
    >>> found = compare_evidence({"any": from_numpyro(coin, 9), "nearly fair": from_numpyro(fair, 9)})
    >>> found.best                                                       # 1/11 against about 1/91
    'any'
    """
    if not isinstance(models, Mapping) or not models:
        raise BadInput("models", describe(models), "energies by name")
    for name, model in models.items():
        if not isinstance(model, Energy):
            raise BadInput(f"models[{name!r}]", describe(model), "an Energy", "Try from_numpyro or Bayes.")
        if model.inputs:
            raise BadInput(f"models[{name!r}]", f"inputs {sorted(model.inputs)}", "an energy without inputs")
    weights = _prior_probabilities(models, prior)
    keys = dict(zip(models, jax.random.split(as_key(key), len(models)), strict=True))
    found = {name: log_partition(model, method, key=keys[name]) for name, model in models.items()}
    order = sorted(found, key=lambda name: -float(found[name]))
    logs = np.array([float(found[name]) for name in order])
    with np.errstate(divide="ignore"):
        posterior = softmax(logs + np.log([weights[name] for name in order]))
    probabilities = dict(zip(order, map(float, posterior), strict=True))
    return EvidenceComparison({name: found[name] for name in order}, probabilities)


def _prior_probabilities(models: Mapping[str, Energy], prior: Any) -> dict[str, float]:
    """Return the prior probability of every model."""
    if prior is None:
        return dict.fromkeys(models, 1 / len(models))
    if not isinstance(prior, Mapping) or set(prior) != set(models):
        raise BadInput("prior", describe(prior), f"a probability for each of {list(models)}")
    values = np.array([prior[name] for name in models], float)
    if not (np.isfinite(values).all() and (values >= 0).all() and np.isclose(values.sum(), 1)):
        raise BadInput("prior", f"values {values.tolist()}", "probabilities that sum to one")
    return dict(zip(models, map(float, values), strict=True))
