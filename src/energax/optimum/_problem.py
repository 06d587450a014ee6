"""A problem with constraints as SciPy's solvers take it: NumPy vectors in, checked numbers out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..errors import BadInput, Diverged, describe
from . import _vector
from ._certificate import State
from ._vector import Layout, Point

#: Up to this many variables Hessians are matrices; above, products with vectors.
DENSE = 200


class Constraint:
    """h(x) = 0 or g(x) ≤ 0 with derivatives; without a function it has no values."""

    def __init__(self, functions: Any, point: Point, argument: str) -> None:
        self.argument, self.point, self.functions = argument, point, None
        if functions is None:
            return
        is_leaf = lambda node: not isinstance(node, dict | list | tuple)
        each = jax.tree.map(lambda f: _vector.hashable(f, argument), functions, is_leaf=is_leaf)
        # A single function as it is, so that a second call finds its programs.
        many = lambda x: jax.tree.map(lambda f: f(x), each, is_leaf=is_leaf)
        self.functions = each if is_leaf(functions) else many
        self.layout: Layout = _vector.output_layout(self.functions, point, argument)

    @property
    def size(self) -> int:
        return 0 if self.functions is None else self.layout.size

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values and the Jacobian."""
        if self.functions is None:
            return np.zeros(0), np.zeros((0, x.size))
        values, jacobian = _vector.values_and_jacobian(self.functions, x, self.point.rest, self.point.layout)
        check_finite(values, self.argument, x, self.layout)
        check_finite(jacobian, f"the derivative of {self.argument}", x)
        return values, jacobian

    def hessian(self, x: np.ndarray, weights: np.ndarray) -> Any:
        """Σ_j weights_j ∇²h_j, a matrix or a linear operator."""
        args = (self.point.rest, self.point.layout)
        if x.size <= DENSE:
            return _vector.weighted_hessian(self.functions, x, weights, *args)
        return _operator(
            lambda d: _vector.weighted_hessian_product(self.functions, x, weights, d, *args), x.size
        )

    def unflatten(self, vector: np.ndarray) -> Any:
        return None if self.functions is None else _plain(self.layout.unflatten(vector))


class Problem:
    """f, its constraints and bounds, as functions of one vector of 64-bit numbers."""

    def __init__(self, f: Any, point: Point, equalities: Any, inequalities: Any, bounds: Any) -> None:
        self.f, self.point = _vector.hashable(f, "f"), point
        _vector.check_scalar(self.f, point)
        self.equalities = Constraint(equalities, point, "equalities")
        self.inequalities = Constraint(inequalities, point, "inequalities")
        self.has_bounds = bounds is not None
        self.lower, self.upper = read_bounds(bounds, point)
        self.n_evaluations = 0
        self.unit = 1.0  # of f in the solvers
        self.signs = np.sign(np.random.default_rng(0).normal(size=point.layout.size))
        self.first_gradient = 0.0  # the largest entry at the start

    def scale_at(self, x: np.ndarray, gradient: np.ndarray) -> float:
        """The size of ∇f near x: here, and at a relative distance of 1 by the Hessian.

        So the certificate does not depend on the unit of f, nor on how far away the start was. Where both
        vanish, as at the minimum of x⁴, a millionth of the gradient at the start decides.
        """
        direction = (1 + np.abs(x).max()) * self.signs
        change = _vector.hessian_product(self.f, x, direction, self.point.rest, self.point.layout)
        sizes = [np.abs(gradient).max(), np.abs(change).max(), 1e-6 * self.first_gradient]
        largest = max(float(size) for size in sizes if np.isfinite(size))
        return largest if largest > 0 else 1.0

    def scaled(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient of f in its unit."""
        value, gradient = self.value_and_gradient(x)
        return value / self.unit, gradient / self.unit

    def scaled_hessian(self, x: np.ndarray) -> Any:
        return self.hessian(x) * (1 / self.unit)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.n_evaluations += 1
        value, gradient = _vector.value_and_gradient(self.f, x, self.point.rest, self.point.layout)
        check_finite(value, "f", x)
        check_finite(gradient, "the gradient of f", x, self.point.layout)
        return float(value), gradient

    def hessian(self, x: np.ndarray) -> Any:
        args = (self.point.rest, self.point.layout)
        if x.size <= DENSE:
            return _vector.hessian(self.f, x, *args)
        return _operator(lambda d: _vector.hessian_product(self.f, x, d, *args), x.size)

    def lagrangian_hessian(self, x: np.ndarray, h: np.ndarray, g: np.ndarray) -> np.ndarray:
        """∇²f + Σ λ_j ∇²h_j + Σ μ_j ∇²g_j, for few variables."""
        total = np.asarray(self.hessian(x))
        for constraint, weights in ((self.equalities, h), (self.inequalities, g)):
            if constraint.size:
                total = total + constraint.hessian(x, weights)
        return total

    def state(self, x: np.ndarray) -> State:
        gradient = self.value_and_gradient(x)[1]
        h, jacobian_h = self.equalities.evaluate(x)
        g, jacobian_g = self.inequalities.evaluate(x)
        scale = self.scale_at(x, gradient)
        return State(x, gradient, h, jacobian_h, g, jacobian_g, self.lower, self.upper, scale)

    def worst(self, state: State) -> str:
        """The name of the constraint with the largest violation."""
        h = np.abs(state.h)
        if h.size and h.max() >= state.g.max(initial=0.0):
            index = int(h.argmax())
            return f"equalities{self.equalities.layout.name(index)} = {state.h[index]:.3g}"
        index = int(state.g.argmax()) if state.g.size else 0
        found = state.g[index] if state.g.size else 0.0
        return f"inequalities{self.inequalities.layout.name(index)} = {found:.3g}"

    # -- the solvers ----------------------------------------------------------------------------------

    def solve(self, x: np.ndarray, method: str, tolerance: float, max_iter: int, barrier: float) -> Any:
        """SciPy's result from this start, which must be within the bounds.

        `barrier`: the first weight of the barrier of trust-constr, small for a start near the minimum.
        """
        from scipy.optimize import OptimizeResult

        run: Callable[..., Any] = self._slsqp if method == "SLSQP" else self._trust_constr
        with warnings.catch_warnings():
            # Whether the result can be trusted is decided by the certificate.
            warnings.simplefilter("ignore")
            try:
                return run(x, tolerance, max_iter, barrier)
            except (ValueError, np.linalg.LinAlgError) as error:  # of a step that SciPy cannot compute
                return OptimizeResult(x=x, nit=0, message=f"{type(error).__name__}: {error}")

    def _slsqp(self, x, tolerance, max_iter, _):
        from scipy.optimize import minimize

        constraints = []
        for constraint, kind, sign in ((self.equalities, "eq", 1.0), (self.inequalities, "ineq", -1.0)):
            if constraint.size:
                last = _Memo(constraint.evaluate)
                fun = lambda v, last=last, sign=sign: sign * last(v)[0]
                jac = lambda v, last=last, sign=sign: sign * last(v)[1]
                constraints.append({"type": kind, "fun": fun, "jac": jac})
        size = max(1.0, abs(self.scaled(x)[0]))
        return minimize(
            self.scaled,
            x,
            jac=True,
            bounds=list(zip(self.lower, self.upper, strict=True)) if self.has_bounds else None,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": min(1e-13, tolerance**2 / 10) * size, "maxiter": max_iter},
        )

    def _trust_constr(self, x, tolerance, max_iter, barrier):
        from scipy.optimize import Bounds, NonlinearConstraint, minimize

        constraints = []
        for constraint, low in ((self.equalities, 0.0), (self.inequalities, -np.inf)):
            if constraint.size:
                last = _Memo(constraint.evaluate)
                constraints.append(
                    NonlinearConstraint(
                        lambda v, last=last: last(v)[0],
                        low,
                        0.0,
                        jac=lambda v, last=last: last(v)[1],
                        hess=constraint.hessian,
                    )
                )
        small = min(1e-10, tolerance * 1e-2)
        return minimize(
            self.scaled,
            x,
            jac=True,
            hess=self.scaled_hessian,
            bounds=Bounds(self.lower, self.upper, keep_feasible=True) if self.has_bounds else None,
            constraints=constraints,
            method="trust-constr",
            options={
                "gtol": small,
                "xtol": 1e-14,
                "barrier_tol": small,
                "maxiter": max_iter,
                "initial_barrier_parameter": barrier,
                "initial_barrier_tolerance": barrier,
            },
        )

    def least_violation(self, x: np.ndarray) -> np.ndarray:
        """The point near x, within the bounds, with the least sum of squared violations."""
        from scipy.optimize import least_squares

        free = self.lower < self.upper

        def put(part):
            full = x.copy()
            full[free] = part
            return full

        def residuals(part):
            state = self.state_of_constraints(put(part))
            return np.concatenate([state[0], np.maximum(state[2], 0.0)])

        def jacobian(part):
            _, jacobian_h, g, jacobian_g = self.state_of_constraints(put(part))
            return np.concatenate([jacobian_h, jacobian_g * (g > 0)[:, None]])[:, free]

        if not free.any():
            return x
        bounds = (self.lower[free], self.upper[free])
        found = least_squares(residuals, x[free], jacobian, bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15)
        return put(np.clip(found.x, *bounds))

    def state_of_constraints(self, x):
        return (*self.equalities.evaluate(x), *self.inequalities.evaluate(x))


class _Memo:
    """A function that remembers its last value: solvers ask for values, then for derivatives."""

    def __init__(self, function):
        self.function, self.x, self.found = function, None, None

    def __call__(self, x):
        if self.x is None or not np.array_equal(x, self.x):
            self.x, self.found = np.array(x), self.function(np.asarray(x, float))
        return self.found


def _operator(product: Callable[[np.ndarray], np.ndarray], n: int) -> Any:
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator((n, n), matvec=lambda d: product(np.ravel(d).astype(float)), dtype=float)


def _plain(tree: Any) -> Any:
    """Numbers without axes as floats."""
    return jax.tree.map(lambda a: float(a) if np.ndim(a) == 0 else np.asarray(a), tree)


def check_finite(values: Any, what: str, x: np.ndarray, layout: Layout | None = None) -> None:
    """Raise `Diverged` if a number is NaN or infinite; it names the function and the point."""
    bad = ~np.isfinite(np.ravel(values))
    if not bad.any():
        return
    where = layout.name(int(bad.argmax())) if layout is not None else ""
    found = float(np.ravel(values)[bad.argmax()])
    shown = np.array2string(x, precision=4, threshold=6)
    raise Diverged(
        f"{what}{where} is {found} at x = {shown}. "
        "Start where it is finite, or give bounds that keep x there."
    )


def read_bounds(bounds: Any, point: Point) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest values of x as vectors; ±∞ where there is none."""
    expected = "(lower, upper): numbers, arrays or trees that fit x, or None"
    if bounds is None:
        bounds = (None, None)
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):  # SciPy's Bounds
        bounds = (bounds.lb, bounds.ub)
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise BadInput("bounds", describe(bounds), expected)
    lower = _spread(bounds[0], -np.inf, point, expected)
    upper = _spread(bounds[1], np.inf, point, expected)
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise BadInput("bounds", "NaN", expected, "Use None or infinity where there is no bound.")
    crossed = lower > upper
    if crossed.any():
        i = int(crossed.argmax())
        found = f"{lower[i]:g} above {upper[i]:g} for x{point.layout.name(i)}"
        raise BadInput("bounds", found, "lower <= upper", "No x satisfies these.")
    return lower, upper


def _spread(bound: Any, default: float, point: Point, expected: str) -> np.ndarray:
    """One side of the bounds as a vector."""
    if bound is None:
        return np.full(point.layout.size, default)
    if isinstance(bound, bool | int | float | np.number):
        return np.full(point.layout.size, float(bound))
    structure: Any = point.layout.structure
    shapes = point.layout.shapes
    try:
        is_array = structure.num_nodes == 1
        parts = [bound] if is_array else structure.flatten_up_to(bound)
        sides = [
            np.broadcast_to(np.asarray(default if part is None else part, float), shape)
            for part, shape in zip(parts, shapes, strict=True)
        ]
    except (TypeError, ValueError):
        raise BadInput("bounds", describe(bound), expected) from None
    return np.concatenate([np.ravel(side) for side in sides])
