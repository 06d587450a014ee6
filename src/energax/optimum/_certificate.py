"""Multipliers at a point, and the check of the Karush-Kuhn-Tucker conditions there."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np


class Multipliers(NamedTuple):
    """The multipliers of the constraints, each in the structure of what it belongs to; None without one."""

    equalities: Any
    inequalities: Any
    lower: Any
    upper: Any


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far a point is from satisfying the conditions of a minimum under constraints.

    Each number should be at most `tolerance`; `second_order` should be at least −`tolerance`. Numbers with
    the unit of f are relative to the size of ∇f at x and at a relative distance of 1 from it.
    """

    stationarity: float  #: the largest entry of ∇L, relative
    feasibility: float  #: the largest violation of an equality, an inequality or a bound
    complementarity: float  #: the largest |multiplier × slack|, relative
    dual_feasibility: float  #: the most negative multiplier of an inequality, relative, as a number >= 0
    second_order: float | None  #: the least eigenvalue of ∇²L along the constraints, relative to the largest
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether all conditions hold to the tolerance."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the conditions that do not hold."""
        first = ("feasibility", "stationarity", "dual_feasibility", "complementarity")
        found = [name for name in first if not getattr(self, name) <= self.tolerance]
        if self.second_order is not None and not self.second_order >= -self.tolerance:
            found.append("second_order")
        return found


class State(NamedTuple):
    """All first derivatives at one point, with the bounds of x."""

    x: np.ndarray
    gradient: np.ndarray
    h: np.ndarray
    jacobian_h: np.ndarray
    g: np.ndarray
    jacobian_g: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scale: float  # of the gradient of f near x

    @property
    def violation(self) -> float:
        """The largest violation of a constraint."""
        rest = (np.abs(self.h), self.g, self.lower - self.x, self.x - self.upper)
        return float(max(0.0, *(part.max(initial=0.0) for part in rest)))


class Duals(NamedTuple):
    """Multipliers as vectors, with the constraints that count as active."""

    h: np.ndarray
    g: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    active: np.ndarray  # of the inequalities
    at_bound: np.ndarray  # of the variables


def find_multipliers(state: State, tolerance: float) -> Duals:
    """The multipliers that make ∇L = ∇f + Jₕᵀλ + J_gᵀμ − ν_low + ν_high least, of active constraints alone.

    They do not depend on the solver. Plain least squares first; if it makes a multiplier negative, least
    squares with μ, ν ≥ 0. Where no multipliers ≥ 0 exist, those of any sign are kept if they make ∇L vanish:
    they name the constraint that f would like to leave.

    An interior solver ends near active constraints, not on them. So constraints within several distances are
    taken as active in turn; complementary slackness shows if one was too far away.
    """
    best = None
    for near in (max(tolerance, 1e-6), 1e-5, 1e-4, 1e-3):
        found = _multipliers(state, tolerance, near)
        certificate = certify(state, found, None, tolerance)
        worst = max(certificate.stationarity, certificate.complementarity, certificate.dual_feasibility)
        if best is None or worst < best[0]:
            best = worst, found
        if worst <= tolerance:
            break
    assert best is not None
    return best[1]


def _multipliers(state: State, tolerance: float, near: float) -> Duals:
    active = state.g >= -near * np.maximum(1.0, np.abs(state.jacobian_g).sum(1))
    is_low = state.x - state.lower <= near * np.maximum(1.0, np.abs(state.x))
    is_high = state.upper - state.x <= near * np.maximum(1.0, np.abs(state.x))
    free = ~(is_low | is_high)
    columns = np.concatenate([state.jacobian_h, state.jacobian_g[active]]).T
    plain = np.linalg.lstsq(columns[free], -state.gradient[free], rcond=None)[0]
    found = _assemble(state, plain, columns, active, is_low, is_high)
    enough = tolerance * state.scale
    if _residual(state, found) <= enough and found.g.min(initial=0.0) >= -enough:
        return found
    signed = _nonnegative(state, columns, active, is_low, is_high)
    if signed is None or (_residual(state, signed) > enough >= _residual(state, found)):
        return found
    return signed


def _assemble(state, solution, columns, active, is_low, is_high) -> Duals:
    m = len(state.h)
    g = np.zeros(len(state.g))
    g[active] = solution[m:]
    # What is left of ∇L at a bound is the multiplier of the bound, if its sign fits.
    left = state.gradient + columns @ solution
    lower = np.where(is_low, np.maximum(left, 0.0), 0.0)
    upper = np.where(is_high, np.maximum(-left, 0.0), 0.0)
    return Duals(solution[:m], g, lower, upper, active, is_low | is_high)


def _nonnegative(state, columns, active, is_low, is_high) -> Duals | None:
    from scipy.optimize import nnls

    m, unit = len(state.h), np.eye(len(state.x))
    A = np.concatenate([columns, -columns[:, :m], -unit[:, is_low], unit[:, is_high]], axis=1)
    if not A.shape[1]:  # SciPy's nnls (1.17) crashes without columns
        return None
    try:
        found = nnls(A, -state.gradient)[0]
    except RuntimeError:  # its limit of iterations
        return None
    solution = found[: columns.shape[1]].copy()
    solution[:m] -= found[columns.shape[1] :][:m]
    return _assemble(state, solution, columns, active, is_low, is_high)


def lagrangian_gradient(state: State, duals: Duals) -> np.ndarray:
    """∇f + Jₕᵀλ + J_gᵀμ − ν_low + ν_high."""
    along = state.jacobian_h.T @ duals.h + state.jacobian_g.T @ duals.g
    return state.gradient + along - duals.lower + duals.upper


def _residual(state: State, duals: Duals) -> float:
    return float(np.abs(lagrangian_gradient(state, duals)).max(initial=0.0))


def tangent_basis(state: State, duals: Duals) -> np.ndarray | None:
    """Directions along all active constraints, (n, k); None if their gradients are dependent.

    With dependent gradients the multipliers are not unique, and the second-order condition is not necessary.
    """
    bounds = np.eye(len(state.x))[duals.at_bound]
    rows = np.concatenate([state.jacobian_h, state.jacobian_g[duals.active], bounds])
    if not len(rows):
        return np.eye(len(state.x))
    _, values, directions = np.linalg.svd(rows, full_matrices=True)
    rank = int((values > 1e-8 * values.max(initial=0.0)).sum())
    return directions[rank:].T if rank == len(rows) else None


def certify(state: State, duals: Duals, second_order: float | None, tolerance: float) -> Certificate:
    """The certificate of a point with these multipliers."""
    slack_low = np.where(duals.lower > 0, state.x - state.lower, 0.0)
    slack_high = np.where(duals.upper > 0, state.upper - state.x, 0.0)
    products = np.concatenate([duals.g * state.g, duals.lower * slack_low, duals.upper * slack_high])
    return Certificate(
        stationarity=_residual(state, duals) / state.scale,
        feasibility=state.violation,
        complementarity=float(np.abs(products).max(initial=0.0)) / state.scale,
        dual_feasibility=max(0.0, -float(duals.g.min(initial=0.0)) / state.scale),
        second_order=second_order,
        tolerance=tolerance,
    )
