"""`Fit`, the result of `fit`: energy, history, status."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..energy import Energy
from . import _epochs
from ._static_functions import unwrap_functions


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of `fit`.

    `status` is `converged`, `stopped early`, `reached max_iter` or `diverged`; `message` adds details, such
    as the term and the step that diverged. The energy is the last one with only finite parameters; with
    validation rows, the one with the lowest validation loss.
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
        """The loss that restarts are compared by: the lowest validation loss, else the objective."""
        if "validation" in self.history and np.isfinite(self.history["validation"]).any():
            return float(np.nanmin(self.history["validation"]))
        return self.objective

    def __repr__(self) -> str:
        return (
            f"Fit({type(self.energy).__name__}: {self.message}; objective {self.objective:.6g}, "
            f"{self.seconds:.2f} s)"
        )


def best_fit(
    program: _epochs.Program,
    carries: Any,
    history: np.ndarray,
    validated: bool,
    stopped: bool,
    seconds: float,
) -> Fit:
    """Return the best restart, with all of them in `restarts` if there are several.

    carries: one Carry, whose arrays have a leading axis of restarts. history: (restarts, epochs, terms + 1).
    """
    fits = []
    for i, rows in enumerate(history):
        carry = _epochs.take_restart(carries, i)
        fits.append(_single_fit(program, carry, rows, validated, stopped, seconds))
    if len(fits) == 1:
        return fits[0]
    rank = lambda f: (f.status == "diverged", np.nan_to_num(f.loss, nan=np.inf))
    return dataclasses.replace(min(fits, key=rank), restarts=tuple(fits))


def _single_fit(
    program: _epochs.Program, carry: Any, history: np.ndarray, validated: bool, stopped: bool, seconds: float
) -> Fit:
    use_best = validated and np.isfinite(carry.best_validation)
    energy, state = carry.best if use_best else (carry.energy, carry.state)
    state = _to_jax(state)
    n_epochs = int(carry.epoch)
    columns = history[:n_epochs]
    record = {"objective": sum_terms(columns)}
    if len(program.term_names) > 1:
        record |= {name: columns[:, j] for j, name in enumerate(program.term_names)}
    if validated:
        record["validation"] = columns[:, -1]
    status, message = _status(program, carry, stopped)
    return Fit(
        energy=unwrap_functions(_to_jax(energy)),
        partner=unwrap_functions(program.learner.partner(state)),
        history=record,
        status=status,
        message=message,
        seconds=seconds,
        n_epochs=n_epochs,
        n_steps=int(carry.step),
        state=unwrap_functions(state),
    )


def _to_jax(tree: Any) -> Any:
    """Return the tree with its NumPy arrays, those of an interpreted fit, as JAX arrays."""
    arrays, rest = eqx.partition(tree, lambda leaf: isinstance(leaf, np.ndarray | np.generic))
    return eqx.combine(jax.device_put(arrays), rest)


def sum_terms(columns: np.ndarray) -> np.ndarray:
    """Return the objective of every epoch; the last column is the validation loss."""
    with np.errstate(invalid="ignore", over="ignore"):  # the status reports divergence
        return columns[:, :-1].sum(-1)


def _status(program: _epochs.Program, carry: _epochs.Carry, stopped: bool) -> tuple[str, str]:
    """(status, message) of one restart."""
    code, epoch = int(carry.code), int(carry.epoch)
    if code == _epochs.CONVERGED:
        return "converged", f"converged after {epoch} epochs"
    if code == _epochs.STOPPED_EARLY:
        message = f"stopped early: no better validation for {program.patience} epochs, after {epoch}"
        return "stopped early", message
    if code == _epochs.DIVERGED:
        which = int(carry.bad_term)
        term = "a parameter" if which == _epochs.PARAMETERS else f"the term {program.term_names[which]!r}"
        where = f"at step {int(carry.bad_step)} (epoch {epoch})"
        return "diverged", f"diverged: {term} was not finite {where}; the last finite energy is kept"
    if stopped:
        return "stopped early", f"stopped early by a callback, after {epoch} epochs"
    message = f"reached max_iter after {epoch} epochs"
    first, last = float(carry.first_objective), float(carry.objective)
    if program.learner.monotone and last > first + 1e-3 * max(1.0, abs(first)):
        message += f", and the objective got worse: {first:.6g} to {last:.6g}"
    return "reached max_iter", message
