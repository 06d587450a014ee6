"""Minima under constraints: textbook problems with known multipliers, and certificates that must fail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import BadInput, ConvergenceWarning, Diverged, Energy, Real, constrained
from energax.optimum import Certificate
from energax.optimum._certificate import Duals, State, certify
from energax.spaces import fixed

METHODS = ("SLSQP", "trust-constr")
FACES = np.arange(1.0, 7.0)


def negative_entropy(p):
    return (p * jnp.log(p)).sum()


@pytest.mark.parametrize("method", METHODS)
def test_projection_on_the_simplex(method):
    """x_i = max(y_i − λ, 0), where λ makes the sum 1. Duchi et al. (2008)."""
    y = np.array([0.9, 0.6, -0.2, 0.1])
    found = constrained(
        lambda x: ((x - y) ** 2).sum() / 2,
        np.full(4, 0.25),
        equalities=lambda x: x.sum() - 1,
        bounds=(0, None),
        method=method,
    )
    assert found.converged and found.method == method
    np.testing.assert_allclose(found.x, [0.65, 0.35, 0, 0], atol=1e-7)
    np.testing.assert_allclose(found.multipliers.equalities, 0.25, atol=1e-7)
    np.testing.assert_allclose(found.multipliers.lower, [0, 0, 0.45, 0.15], atol=1e-7)
    np.testing.assert_array_equal(found.multipliers.upper, 0)
    assert found.multipliers.inequalities is None
    assert found.status.startswith("A strict local minimum")


@pytest.mark.parametrize("method", METHODS)
def test_maximum_entropy_under_a_mean(method):
    """p_i ∝ exp(−λ i) (Jaynes 1957: a die with mean 4.5). From ∇L = 0: log p_i + 1 + λ₀ + λ₁ i = 0."""
    constraints = {"total": lambda p: p.sum() - 1, "mean": lambda p: p @ FACES - 4.5}
    found = constrained(
        negative_entropy, np.full(6, 1 / 6), equalities=constraints, bounds=(1e-9, None), method=method
    )
    assert found.converged
    np.testing.assert_allclose(found.x, [0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749], atol=1e-5)
    slope, start = np.polyfit(FACES, np.log(found.x), 1)
    assert found.multipliers.equalities["mean"] == pytest.approx(-slope, abs=1e-5)
    assert found.multipliers.equalities["total"] == pytest.approx(-start - 1, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_quadratic_programme(method):
    """Nocedal and Wright, example 16.4: x = (1.4, 1.7), the first constraint active with multiplier 0.8."""
    A = np.array([[1.0, -2], [-1, -2], [-1, 2], [1, 0], [0, 1]])
    b = np.array([-2.0, -6, -2, 0, 0])
    found = constrained(
        lambda x: (x[0] - 1) ** 2 + (x[1] - 2.5) ** 2,
        np.array([2.0, 0.0]),
        inequalities=lambda x: b - A @ x,
        method=method,
    )
    assert found.converged
    np.testing.assert_allclose(found.x, [1.4, 1.7], atol=1e-6)
    np.testing.assert_allclose(found.multipliers.inequalities, [0.8, 0, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_hock_and_schittkowski_71(method):
    """A nonlinear problem with all kinds of constraints. Hock and Schittkowski (1981), problem 71."""
    found = constrained(
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        [1, 5, 5, 1],
        inequalities=lambda x: 25 - x.prod(),
        equalities=lambda x: (x**2).sum() - 40,
        bounds=(1, 5),
        method=method,
    )
    assert found.converged
    assert found.value == pytest.approx(17.0140173, abs=1e-6)
    np.testing.assert_allclose(found.x, [1, 4.7429994, 3.8211503, 1.3794082], atol=1e-5)
    assert found.multipliers.inequalities == pytest.approx(0.55229366, abs=1e-5)
    assert found.multipliers.equalities == pytest.approx(0.16146857, abs=1e-5)
    assert found.multipliers.lower[0] == pytest.approx(1.08787123, abs=1e-4)


def test_soft_margin_dual_agrees_with_libsvm():
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2)) + np.repeat([[0.8, 0.8], [-0.8, -0.8]], 12, axis=0)
    y = np.repeat([1.0, -1.0], 12)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    Q = y[:, None] * y * K
    found = constrained(
        lambda a: a @ Q @ a / 2 - a.sum(), np.zeros(24), equalities=lambda a: a @ y, bounds=(0, 1.0)
    )
    peer = SVC(C=1.0, gamma=0.5, tol=1e-10).fit(X, y)
    alpha = np.zeros(24)
    alpha[peer.support_] = np.abs(peer.dual_coef_[0])
    assert found.converged
    np.testing.assert_allclose(found.x, alpha, atol=1e-5)
    # The multiplier of Σ α y = 0 is the intercept.
    assert found.multipliers.equalities == pytest.approx(peer.intercept_[0], abs=1e-5)
    slack = np.maximum(1 - y * peer.decision_function(X), 0)
    np.testing.assert_allclose(
        found.multipliers.upper, slack, atol=1e-5
    )  # of α ≤ C: the slacks of the primal


def test_trees_keep_their_structure():
    found = constrained(
        lambda x: ((x["a"] - 1) ** 2).sum() + (x["b"] - 2.0) ** 2,
        {"a": np.zeros((2, 2)), "b": 0},
        inequalities=[lambda x: x["a"] - 0.5, lambda x: x["b"] - 3.0],
        bounds=({"a": -1, "b": None}, {"a": None, "b": 1.5}),
    )
    assert found.converged
    np.testing.assert_allclose(found.x["a"], np.full((2, 2), 0.5), atol=1e-6)
    assert found.x["b"] == pytest.approx(1.5)
    first, second = found.multipliers.inequalities
    np.testing.assert_allclose(first, np.ones((2, 2)), atol=1e-6)
    assert second == 0.0 and found.multipliers.upper["b"] == pytest.approx(1.0)


class Bowl(Energy):
    """e(x) = |x − m|² / 2, with a scale that is not learned."""

    center: jax.Array
    scale: jax.Array = fixed()

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return self.scale * ((x - self.center) ** 2).sum() / 2


def test_the_parameters_of_an_energy():
    """The center closest to (3, 4) in the unit ball. ∇L = 2 (m − x) + μ m = 0 gives μ = 8."""
    bowl = Bowl(jnp.array([0.1, 0.0], jnp.float32), jnp.array(2.0))
    x = jnp.array([3.0, 4.0])
    found = constrained(lambda e: e(x=x), bowl, inequalities=lambda e: (e.center**2).sum() / 2 - 0.5)
    assert found.converged and isinstance(found.x, Bowl) and float(found.x.scale) == 2.0
    np.testing.assert_allclose(found.x.center, [0.6, 0.8], atol=1e-7)
    assert found.multipliers.inequalities == pytest.approx(8.0, abs=1e-5)


def test_many_variables_by_products_with_the_hessian():
    """More variables than `DENSE`: trust-constr sees Hessians as operators.

    The nearest point to y with sum 1 and norm ≤ r: (1 + 2μ) x = y − λ, so
    x = 1/n + s (y − ȳ) with s = 1 / (1 + 2μ).
    """
    n, radius = 300, 2.0
    y = np.linspace(-1, 1, n) ** 3 + 0.2
    found = constrained(
        lambda x: ((x - y) ** 2).sum() / 2,
        np.full(n, 1 / n),
        equalities=lambda x: x.sum() - 1,
        inequalities=lambda x: (x**2).sum() - radius**2,
        method="trust-constr",
    )
    s = np.sqrt((radius**2 - 1 / n) / ((y - y.mean()) ** 2).sum())
    assert found.converged and found.certificate.second_order is None
    np.testing.assert_allclose(found.x, 1 / n + s * (y - y.mean()), atol=1e-6)
    assert found.multipliers.inequalities == pytest.approx((1 / s - 1) / 2, abs=1e-6)
    assert found.multipliers.equalities == pytest.approx(y.mean() - 1 / (n * s), abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_random_quadratic_programmes(method):
    """Convex, so a certificate proves the minimum: both solvers must find it, in any unit of f."""
    for seed, unit in enumerate((1.0, 1e5, 1e-5, 1.0)):
        rng = np.random.default_rng(seed)
        root, c = rng.normal(size=(8, 8)), 3 * rng.normal(size=8)
        Q = root @ root.T + 0.1 * np.eye(8)
        A, b, B, d = rng.normal(size=(5, 8)), rng.random(5) / 2, rng.normal(size=(2, 8)), np.zeros(2)
        found = constrained(
            lambda x, Q=Q, c=c, unit=unit: unit * (x @ Q @ x / 2 + c @ x),
            np.zeros(8),
            equalities=lambda x, B=B, d=d: B @ x - d,
            inequalities=lambda x, A=A, b=b: A @ x - b,
            bounds=(-1, 1),
            method=method,
        )
        assert found.converged
        # The dual value of a convex problem: L at its minimum over x, which must equal the primal value.
        m = found.multipliers
        lagrangian = Q @ found.x + c + (B.T @ m.equalities + A.T @ m.inequalities + m.upper - m.lower) / unit
        np.testing.assert_allclose(lagrangian, 0, atol=1e-5 * np.abs(Q).max())
        gap = -(m.inequalities @ (A @ found.x - b)) - m.upper @ (found.x - 1) - m.lower @ (-1 - found.x)
        assert abs(gap) <= 1e-5 * unit


def test_the_certificate_does_not_depend_on_the_unit_of_f_or_the_start():
    """A point that is not stationary is not certified because f is small, or the start was steep."""
    steep = lambda x: jnp.exp(x).sum() - x.sum()
    for unit, start in ((1.0, 0.5), (1e-9, 0.5), (1e9, 0.5), (1.0, 15.0)):
        found = constrained(lambda x, unit=unit: unit * steep(x), np.full(2, start))
        np.testing.assert_allclose(found.x, 0, atol=1e-5)
        assert found.converged
    again = constrained(steep, found.x)  # from the minimum itself
    assert again.converged


# -- what must not be called a minimum ---------------------------------------------------------------


@pytest.mark.parametrize(
    "constraints",
    [
        {"equalities": {"low": lambda x: x.sum() - 1, "high": lambda x: x.sum() - 3}},
        {"inequalities": lambda x: jnp.stack([x[0] + 1 - x[1], x[1] + 1 - x[0]])},
        {"equalities": lambda x: (x**2).sum() + 1},
        {"inequalities": lambda x: 4 - x.sum(), "bounds": (0, 1)},
    ],
    ids=["equalities", "inequalities", "nonlinear", "bounds"],
)
def test_an_infeasible_problem_says_so(constraints):
    with pytest.warns(ConvergenceWarning, match="No feasible point was found.*equalities"):
        found = constrained(lambda x: (x**2).sum(), np.full(2, 0.3), **constraints)
    assert not found.converged and found.certificate.feasibility >= 0.5
    assert "feasibility" in found.certificate.failed


def test_a_start_from_which_the_solver_finds_nothing_feasible_is_repaired():
    """SLSQP stops where linearised constraints contradict each other; a feasible start is searched."""
    start = np.array([1e-3, -2e-3])
    found = constrained(lambda x: x.sum(), start, equalities=lambda x: (x**2).sum() - 2, method="SLSQP")
    np.testing.assert_allclose(found.x, [-1, -1], atol=1e-6)
    assert found.multipliers.equalities == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_saddle_is_not_a_minimum(method):
    with pytest.warns(ConvergenceWarning, match="curves down along the constraints"):
        found = constrained(lambda x: x[0] ** 2 - x[1] ** 2, np.zeros(2), bounds=(-1, 1), method=method)
    assert not found.converged and found.certificate.failed == ["second_order"]


def test_a_maximum_on_a_circle_is_not_a_minimum():
    with pytest.warns(ConvergenceWarning, match="Not a minimum"):
        found = constrained(
            lambda x: x[1],
            np.array([0.0, 1.0]),
            equalities=lambda x: (x**2).sum() - 1,
            method="SLSQP",
            max_iter=1,
        )
    assert not found.converged


def test_too_few_iterations_warn():
    rosenbrock = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    with pytest.warns(ConvergenceWarning, match="the gradient of the Lagrangian is"):
        found = constrained(rosenbrock, [-1.2, 1], method="SLSQP", max_iter=2)
    assert not found.converged and "Iteration limit" in found.status
    full = constrained(rosenbrock, [-1.2, 1])
    assert full.converged
    np.testing.assert_allclose(full.x, [1, 1], atol=1e-6)


def test_an_unbounded_problem_is_not_called_solved():
    with pytest.warns(ConvergenceWarning, match="Not a minimum"):
        found = constrained(lambda x: -x.sum(), np.zeros(2))
    assert not found.converged


def test_multipliers_of_dependent_constraints_still_certify():
    """The same equality twice: multipliers are not unique, the least-norm ones are equal halves."""
    twice = [lambda x: x.sum() - 1, lambda x: 2 * x.sum() - 2]
    found = constrained(lambda x: (x**2).sum() / 2, np.zeros(2), equalities=twice)
    assert found.converged and found.certificate.second_order is None
    assert found.status.startswith("A point that may be a local minimum")
    a, b = found.multipliers.equalities
    assert a + 2 * b == pytest.approx(-0.5, abs=1e-6)


def test_nan_names_the_function_and_the_point():
    with pytest.raises(Diverged, match=r"^f is nan at x = \[-1"):
        constrained(lambda x: jnp.log(x).sum(), [-1.0, 1.0])
    both = {"a": lambda x: x.sum(), "b": lambda x: jnp.sqrt(x)}
    with pytest.raises(Diverged, match=r"^equalities\['b'\]\[1\] is nan"):
        constrained(lambda x: x.sum(), [1.0, -1.0], equalities=both)
    with pytest.raises(Diverged, match=r"^the gradient of f\[0\] is"):
        constrained(lambda x: jnp.sqrt(x).sum(), [0.0, 1.0])


def test_bad_input_is_refused_in_words():
    f, x = (lambda x: (x**2).sum()), np.ones(2)
    for arguments, message in [
        ((3, x), "f"),
        ((lambda x: x, x), "one that returns one number"),
        ((lambda x: float(np.sum(np.asarray(x))), x), "JAX cannot trace"),
        ((f, np.array([1.0, np.nan])), "x0"),
        ((f, "abc"), "x0"),
        ((f, {}), "x0"),
    ]:
        with pytest.raises(BadInput, match=message):
            constrained(*arguments)
    for settings, message in [
        ({"method": "BFGS"}, "SLSQP, trust-constr"),
        ({"tolerance": 0}, "tolerance"),
        ({"max_iter": 0}, "max_iter"),
        ({"bounds": (2, 1)}, r"2 above 1 for x\[0\]"),
        ({"bounds": 3}, "bounds"),
        ({"bounds": (np.zeros(3), None)}, "bounds"),
        ({"equalities": 5}, "equalities"),
        ({"inequalities": [f, "g"]}, "inequalities"),
    ]:
        with pytest.raises(BadInput, match=message):
            constrained(f, x, **settings)


def test_a_certificate_fails_for_nan():
    assert Certificate(np.nan, 0.0, 0.0, 0.0, None, 1e-6).failed == ["stationarity"]
    assert Certificate(0.0, 0.0, 0.0, 0.0, -1.0, 1e-6).failed == ["second_order"]
    assert Certificate(0.0, 0.0, 0.0, 0.0, 1.0, 1e-6).holds


def test_a_negative_multiplier_is_reported_in_units_of_the_gradient():
    """f = 4x wants to leave x ≤ 0 at 0: ∇L = 0 with the multiplier −4, which a minimum does not have."""
    none, empty = np.zeros(0), np.zeros((0, 1))
    far = np.array([np.inf])
    state = State(np.zeros(1), np.array([4.0]), none, empty, np.zeros(1), np.ones((1, 1)), -far, far, 8.0)
    duals = Duals(none, np.array([-4.0]), np.zeros(1), np.zeros(1), np.array([True]), np.array([False]))
    found = certify(state, duals, None, 1e-6)
    assert found.dual_feasibility == 0.5 and found.stationarity == 0.0
    assert found.failed == ["dual_feasibility"] and not found.holds
