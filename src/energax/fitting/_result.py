"""What a fit leaves behind, with a status that cannot lie."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..energy import Energy


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of `fit`.

    `status` is one of `converged`, `stopped early`, `budget spent`, `diverged`; `message` says
    it in a sentence, with the term and the step where that matters. The energy is the last
    one whose every number was finite (the best one on validation, where there was any).
    """

    energy: Energy
    partner: Any
    history: dict[str, np.ndarray]
    status: str
    message: str
    seconds: float
    n_epochs: int
    n_steps: int
    state: Any = dataclasses.field(repr=False)
    restarts: tuple[Fit, ...] = dataclasses.field(default=(), repr=False)

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    @property
    def objective(self) -> float:
        """The last finite value of the objective (a loss: lower is better)."""
        values = self.history["objective"]
        finite = values[np.isfinite(values)]
        return float(finite[-1]) if finite.size else float("nan")

    @property
    def loss(self) -> float:
        """What restarts are compared on: the best validation loss, else the objective."""
        if "validation" in self.history and np.isfinite(self.history["validation"]).any():
            return float(np.nanmin(self.history["validation"]))
        return self.objective

    def __repr__(self) -> str:
        return (
            f"Fit({type(self.energy).__name__}: {self.message}; objective {self.objective:.6g}, "
            f"{self.seconds:.2f} s)"
        )
