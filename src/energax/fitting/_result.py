"""`Fit`, the result of `fit`: energy, history, status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..energy import Energy
from . import _epochs
from ._learner import MONITOR
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
    restarts: Sequence[Fit] = dataclasses.field(default=(), repr=False)

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    @property
    def objective(self) -> float:
        """The last finite value of the objective (a loss: lower is better)."""
        return _last_finite(self.history["objective"])

    @property
    def loss(self) -> float:
        """The loss that restarts are compared by: the lowest validation loss, else the objective."""
        return loss_of(self.history)

    def __repr__(self) -> str:
        return (
            f"Fit({type(self.energy).__name__}: {self.message}; objective {self.objective:.6g}, "
            f"{self.seconds:.2f} s)"
        )


def _last_finite(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else float("nan")


def loss_of(history: dict[str, np.ndarray]) -> float:
    """Return the lowest validation loss, else the last objective, of a history by names of terms."""
    if "validation" in history and np.isfinite(history["validation"]).any():
        return float(np.nanmin(history["validation"]))
    return _last_finite(history["objective"])


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
    epochs = np.asarray(carries.epoch).tolist()
    records = [_record(program, rows, n, validated) for rows, n in zip(history, epochs, strict=True)]

    def make(i: int) -> Fit:
        return _single_fit(program, _epochs.read_restart(carries, i), records[i], stopped, seconds)

    if len(records) == 1:
        return make(0)
    diverged = np.asarray(carries.code) == _epochs.DIVERGED
    rank = lambda i: (diverged[i], np.nan_to_num(loss_of(records[i]), nan=np.inf))
    return dataclasses.replace(
        make(min(range(len(records)), key=rank)), restarts=Restarts(make, len(records))
    )


class Restarts(Sequence):
    """The fits of all restarts; each is made when it is read.

    Converting the arrays of ten restarts took a fifth of the time of a small k-means.
    """

    def __init__(self, make: Callable[[int], Fit], n: int):
        self._make, self._n = make, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return tuple(self._make(j) for j in range(self._n)[i])
        return self._make(range(self._n)[i])

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def _record(
    program: _epochs.Program, history: np.ndarray, n_epochs: int, validated: bool
) -> dict[str, np.ndarray]:
    """Return the history of one restart by the names of its terms."""
    columns = history[:n_epochs]
    names = program.term_names
    record = {"objective": sum_terms(columns, names)}
    if len(names) > 1:
        record |= {name.removeprefix(MONITOR): columns[:, j] for j, name in enumerate(names)}
    if validated:
        record["validation"] = columns[:, -1]
    return record


def _single_fit(
    program: _epochs.Program, carry: Any, record: dict[str, np.ndarray], stopped: bool, seconds: float
) -> Fit:
    use_best = "validation" in record and np.isfinite(carry.best_validation)
    energy, state = carry.best if use_best else (carry.energy, carry.state)
    state = _to_jax(state)
    status, message = _status(program, carry, stopped)
    return Fit(
        energy=unwrap_functions(_to_jax(energy)),
        partner=unwrap_functions(program.learner.partner(state)),
        history=record,
        status=status,
        message=message,
        seconds=seconds,
        n_epochs=int(carry.epoch),
        n_steps=int(carry.step),
        state=unwrap_functions(state),
    )


def _to_jax(tree: Any) -> Any:
    """Return the tree with its NumPy arrays, those of an interpreted fit, as JAX arrays."""
    arrays, rest = eqx.partition(tree, lambda leaf: isinstance(leaf, np.ndarray | np.generic))
    return eqx.combine(jax.device_put(arrays), rest)


def sum_terms(columns: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return the objective of every epoch; the last column is the validation loss."""
    counted = [j for j, name in enumerate(names) if not name.startswith(MONITOR)]
    with np.errstate(invalid="ignore", over="ignore"):  # the status reports divergence
        return columns[:, counted].sum(-1)


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
