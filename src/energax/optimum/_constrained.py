"""`constrained`: a minimum under equalities, inequalities and bounds, with a checked certificate."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from ..errors import BadInput, ConvergenceWarning, Diverged, check_number, check_whole_number, describe
from ._certificate import Certificate, Duals, Multipliers, State, certify, find_multipliers, tangent_basis
from ._problem import DENSE, Problem, _plain
from ._vector import as_point

METHODS = ("SLSQP", "trust-constr")
#: SLSQP factors a matrix of all variables at every step; above this many, trust-constr is tried first.
_MANY = 500


@dataclasses.dataclass(frozen=True)
class ConstrainedMinimum:
    """A minimum under constraints, with multipliers and a certificate."""

    x: Any  #: in the structure of `x0`, 64-bit
    value: float
    multipliers: Multipliers
    certificate: Certificate
    status: str  #: one sentence
    method: str
    n_iter: int
    n_evaluations: int  #: of f with its gradient

    @property
    def converged(self) -> bool:
        """Whether the certificate holds."""
        return self.certificate.holds

    def __repr__(self) -> str:
        c = self.certificate
        second = "not computed" if c.second_order is None else f"{c.second_order:.1e}"
        return (
            f"ConstrainedMinimum(value={self.value:.6g}, {self.method}, {self.n_iter} iterations)\n"
            f"  {self.status}\n"
            f"  stationarity {c.stationarity:.1e}, feasibility {c.feasibility:.1e}, "
            f"complementarity {c.complementarity:.1e}, dual feasibility {c.dual_feasibility:.1e}, "
            f"second order {second}"
        )


def constrained(
    f: Any,
    x0: Any,
    *,
    equalities: Any = None,
    inequalities: Any = None,
    bounds: Any = None,
    method: str | None = None,
    tolerance: float = 1e-6,
    max_iter: int = 1000,
) -> ConstrainedMinimum:
    """Minimise f(x) subject to h(x) = 0, g(x) ≤ 0 and lower ≤ x ≤ upper.

    A solver of SciPy proposes x; derivatives are JAX's. The multipliers are then computed from the
    derivatives at x alone, as those that make the gradient of

        L = f + λᵀh + μᵀg + ν_lowᵀ(lower − x) + ν_highᵀ(x − upper),   μ, ν ≥ 0

    least, and the conditions of Karush, Kuhn and Tucker are checked with them. If these do not hold, whatever
    the solver said, `converged` is False, `status` says what fails, and a `ConvergenceWarning` is issued.
    Arithmetic is 64-bit.

    Args:
        f: the function to minimise, written with jax.numpy.
        x0: the start: an array, a tree of arrays, or an energy, whose trainable parameters vary.
        equalities: h, a function of x that returns a number, an array or a tree; or a list or dict of such.
        inequalities: g, likewise. The multipliers come in the same structure.
        bounds: (lower, upper), each a number, an array or tree like x, or None.
        method: "SLSQP", "trust-constr", or None for the first that gives a certificate.
        tolerance: of every number in the certificate.
        max_iter: the most iterations of one run of the solver.

    >>> import jax.numpy as jnp
    >>> target = jnp.array([0.9, 0.6, -0.2])
    >>> onto_simplex = constrained(
    ...     lambda x: ((x - target) ** 2).sum() / 2,
    ...     np.full(3, 1 / 3), equalities=lambda x: x.sum() - 1, bounds=(0, None))
    >>> onto_simplex.x.round(4), round(onto_simplex.multipliers.equalities, 4)
    (array([0.65, 0.35, 0.  ]), 0.25)
    >>> print(onto_simplex.status)
    A strict local minimum: the Karush-Kuhn-Tucker conditions hold to 1e-06.

    References: Karush (1939), Minima of functions of several variables with inequalities as side conditions;
    Kuhn and Tucker (1951), Nonlinear programming; Nocedal and Wright (2006), Numerical optimization, ch. 12.
    """
    if method is not None and method not in METHODS:
        raise BadInput("method", describe(method), f"one of {', '.join(METHODS)}, or None")
    check_number("tolerance", tolerance, lambda t: 0 < t < 1, "a number between 0 and 1")
    check_whole_number("max_iter", max_iter)
    with jax.enable_x64(True):
        point = as_point(x0, "x0")
        point = dataclasses.replace(point, vector=point.vector.astype(np.float64))
        problem = Problem(f, point, equalities, inequalities, bounds)
        start = np.clip(point.vector, problem.lower, problem.upper)
        order = [method] if method else list(METHODS if start.size <= _MANY else METHODS[::-1])
        # The first evaluation raises if something is not finite there.
        problem.first_gradient = float(np.abs(problem.state(start).gradient).max())
        result = _report(problem, _first_certified(problem, start, order, tolerance, max_iter))
    if not result.converged:
        warnings.warn(result.status, ConvergenceWarning, stacklevel=2)
    return result


def _first_certified(
    problem: Problem, start: np.ndarray, order: list[str], tolerance, max_iter
) -> _Candidate:
    """The end of the first solver that has a certificate, else the best end."""
    best: _Candidate | None = None
    for name in order:
        try:
            found = _run(problem, start, name, tolerance, max_iter)
        except Diverged:
            if best is None and name == order[-1]:
                raise
            continue  # another solver may not step there
        if best is None or _rank(found) < _rank(best):
            best = found
        if best.certificate.holds:
            break
    assert best is not None
    return best


@dataclasses.dataclass
class _Candidate:
    """Where a solver ended."""

    state: State
    duals: Duals
    certificate: Certificate
    method: str
    n_iter: int
    message: str
    least_violation: float = np.nan  # the least found near the end, if the end is not feasible


def _rank(candidate: _Candidate) -> tuple[bool, float, float]:
    c = candidate.certificate
    return not c.holds, max(0.0, c.feasibility - c.tolerance), max(c.stationarity, c.complementarity)


def _run(problem: Problem, x: np.ndarray, method: str, tolerance: float, max_iter: int) -> _Candidate:
    """The end of a solver. It is restarted where it stopped early: from a feasible point if it had none."""
    best: Any = None
    total = 0
    has_barrier = method == "trust-constr" and (problem.has_bounds or problem.inequalities.size > 0)
    # trust-constr ends as soon as the gradient with its barrier is small, also while the barrier is large.
    for barrier in (0.1, 1e-9, 1e-12):
        problem.unit = problem.state(x).scale
        result = problem.solve(x, method, tolerance, max_iter, barrier)
        total += int(result.nit)
        end = np.clip(np.asarray(result.x, float), problem.lower, problem.upper)
        candidate = _judge(problem, end, tolerance, method, total, str(result.message))
        candidate = _polish(problem, candidate, tolerance)
        is_better = best is None or _rank(candidate) < _rank(best)
        best = candidate if is_better else best
        if (best.certificate.holds and not (has_barrier and barrier == 0.1)) or not (
            is_better or has_barrier
        ):
            break
        x = best.state.x
        if best.certificate.feasibility > tolerance:  # search a feasible start
            x = problem.least_violation(x)
            best.least_violation = problem.state(x).violation
            if best.least_violation > tolerance:
                # The least violation is more informative than the point at which the solver gave up.
                least = best.least_violation
                best = _judge(problem, x, tolerance, method, total, best.message)
                best.least_violation = least
                break
    best.n_iter = total
    return best


def _judge(problem, x, tolerance, method, n_iter, message) -> _Candidate:
    state = problem.state(x)
    duals = find_multipliers(state, tolerance)
    certificate = certify(state, duals, _second_order(problem, state, duals), tolerance)
    return _Candidate(state, duals, certificate, method, n_iter, message)


def _polish(problem: Problem, candidate: _Candidate, tolerance: float) -> _Candidate:
    """The point after Newton steps on the active constraints, as long as they improve the certificate.

    An interior solver ends near active constraints, and SLSQP as soon as f changes little.
    """
    for _ in range(3 if candidate.state.x.size <= DENSE else 0):
        state, duals = candidate.state, candidate.duals
        sides = np.where(duals.upper > 0, state.upper - state.x, state.lower - state.x)
        at_bound = (duals.lower > 0) | (duals.upper > 0)
        active = duals.g > 0
        A = np.concatenate([state.jacobian_h, state.jacobian_g[active], np.eye(state.x.size)[at_bound]])
        a = np.concatenate([state.h, state.g[active], -sides[at_bound]])
        H = problem.lagrangian_hessian(state.x, duals.h, duals.g)
        system = np.block([[H / state.scale, A.T], [A, np.zeros((len(a), len(a)))]])
        right = -np.concatenate([state.gradient / state.scale, a])
        if not np.isfinite(system).all():
            break
        step = np.linalg.lstsq(system, right, rcond=None)[0][: state.x.size]
        x = np.clip(state.x + step, problem.lower, problem.upper)
        try:
            better = _judge(problem, x, tolerance, candidate.method, candidate.n_iter, candidate.message)
        except Diverged:
            break
        is_uphill = "second_order" in better.certificate.failed  # Newton's method goes to saddles, too
        if is_uphill or not _rank(better) < _rank(candidate):
            break
        candidate = better
    return candidate


def _second_order(problem: Problem, state: State, duals: Duals) -> float | None:
    """The least eigenvalue of ∇²L along the active constraints, divided by its largest |eigenvalue|."""
    basis = tangent_basis(state, duals) if state.x.size <= DENSE else None
    if basis is None:
        return None
    hessian = problem.lagrangian_hessian(state.x, duals.h, duals.g)
    if not np.isfinite(hessian).all():
        return None
    if not basis.shape[1]:
        return 1.0  # a vertex: there is no direction left
    values = np.linalg.eigvalsh(basis.T @ ((hessian + hessian.T) / 2) @ basis)
    largest = np.abs(np.linalg.eigvalsh((hessian + hessian.T) / 2)).max()
    return float(values.min() / largest) if largest > 0 else 0.0


def _status(problem: Problem, found: _Candidate) -> str:
    """One sentence: what is true of the point, by the certificate."""
    c, t = found.certificate, f"{found.certificate.tolerance:g}"
    if c.holds:
        # Without a unique multiplier, or with zero curvature, the point may be one of many.
        strict = c.second_order is not None and c.second_order > c.tolerance
        kind = "A strict local minimum" if strict else "A point that may be a local minimum"
        return f"{kind}: the Karush-Kuhn-Tucker conditions hold to {t}."
    ended = f"{found.method} ended with: {found.message.rstrip('.')}."
    first = c.failed[0]
    if first == "feasibility":
        where = problem.worst(found.state)
        return (
            f"No feasible point was found: the least violation near the end is {c.feasibility:.3g} "
            f"({where}), so the constraints contradict each other, or x0 is too far away. {ended}"
        )
    negative = -c.dual_feasibility * found.state.scale
    words = {
        "stationarity": f"the gradient of the Lagrangian is {c.stationarity:.1e}",
        "dual_feasibility": f"a multiplier of an inequality is negative, {negative:.3g}",
        "complementarity": f"a multiplier times its slack is {c.complementarity:.1e}",
        "second_order": f"the Lagrangian curves down along the constraints ({c.second_order or 0.0:.1e})",
    }
    return f"Not a minimum to {t}: {words[first]}. {ended} Try another x0, or a larger max_iter."


def _report(problem: Problem, found: _Candidate) -> ConstrainedMinimum:
    point, duals = problem.point, found.duals
    sides = [
        point.layout.unflatten(side) if problem.has_bounds else None for side in (duals.lower, duals.upper)
    ]
    multipliers = Multipliers(
        problem.equalities.unflatten(duals.h), problem.inequalities.unflatten(duals.g), *map(_plain, sides)
    )
    return ConstrainedMinimum(
        x=point.tree(found.state.x),
        value=problem.value_and_gradient(found.state.x)[0],
        multipliers=multipliers,
        certificate=found.certificate,
        status=_status(problem, found),
        method=found.method,
        n_iter=found.n_iter,
        n_evaluations=problem.n_evaluations,
    )
