"""L-BFGS finds known minima in every real space, and warns if it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import argmin
from energax.algorithms.optimise.lbfgs import minimise
from energax.energy import Energy
from energax.errors import ConvergenceWarning, Unsuitable
from energax.infer import LBFGS
from energax.spaces import Categorical, Interval, Ordered, Positive, PositiveDefinite, Real, Simplex


class Known(Energy):
    """An energy over one variable, with its function given."""

    function: object
    space: object

    @property
    def spaces(self):
        return {"x": self.space}

    def __call__(self, *, x):
        return self.function(x)


CASES = [
    (Real(3), lambda x: jnp.sum((x - jnp.arange(3)) ** 2), [0, 1, 2]),
    (Positive(2), lambda x: jnp.sum(x - jnp.array([2.0, 0.3]) * jnp.log(x)), [2.0, 0.3]),
    (Interval(-1, 4, 2), lambda x: jnp.sum((x - jnp.array([0.5, 3.5])) ** 2), [0.5, 3.5]),
    (Ordered(2), lambda x: jnp.sum((x - jnp.array([-1.0, 2.0])) ** 2), [-1.0, 2.0]),
    (Simplex(3), lambda x: -jnp.array([1.0, 2.0, 5.0]) @ jnp.log(x), [1 / 8, 2 / 8, 5 / 8]),
    (
        PositiveDefinite(2),
        lambda s: (
            jnp.trace(jnp.linalg.solve(s, jnp.array([[2.0, 0.5], [0.5, 1.0]]))) + jnp.linalg.slogdet(s)[1]
        ),
        [[2.0, 0.5], [0.5, 1.0]],
    ),
]


@pytest.mark.parametrize(("space", "function", "truth"), CASES, ids=lambda v: repr(v)[:20])
def test_known_minimum(space, function, truth):
    best = argmin(Known(function, space), {})
    assert best.method == "L-BFGS" and best.converged
    np.testing.assert_allclose(best["x"], truth, atol=2e-3)


def test_rosenbrock():
    """Rosenbrock's function in ten dimensions, in float64: the minimum is (1, …, 1)."""
    valley = lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    with jax.enable_x64(True):
        run = lambda start: minimise(valley, start, tol=1e-6, max_iter=500, memory_size=10)
        x, value, done = jax.jit(run)(jnp.zeros(10))
        assert done and value < 1e-10
        np.testing.assert_allclose(x, 1, atol=1e-5)


class Wells(Energy):
    """A double well in x that a label z tilts."""

    @property
    def spaces(self):
        return {"x": Real(2), "z": Categorical(2)}

    def __call__(self, *, x, z):
        return jnp.sum((x**2 - 1) ** 2) + 0.3 * jnp.sum(x) * (2 * z - 1)


def test_finite_variables_and_holes():
    """Labels are enumerated, observed coordinates stay, and rows are independent."""
    best = argmin(Wells(), {"x": [[np.nan, 1.0], [-1.0, np.nan]]}, LBFGS(n_starts=8))
    np.testing.assert_array_equal(np.asarray(best["x"])[[0, 1], [1, 0]], [1, -1])
    np.testing.assert_array_equal(best["z"], [0, 1])
    grid = np.linspace(-2, 2, 4001)
    right = grid[((grid**2 - 1) ** 2 - 0.3 * grid).argmin()]
    np.testing.assert_allclose([best["x"][0, 0], best["x"][1, 1]], [right, -right], atol=2e-3)


def test_more_starts_are_no_worse():
    bumpy = Known(lambda x: jnp.sum(0.1 * x**2 - jnp.cos(3 * x - 2)), Real(3))
    one, many = argmin(bumpy, {}, LBFGS()), argmin(bumpy, {}, LBFGS(n_starts=20))
    assert many.energy <= one.energy + 1e-6


def test_a_run_that_does_not_converge_warns():
    valley = Known(lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, Real(2))
    with pytest.warns(ConvergenceWarning, match="1 of 1 rows did not reach .* Raise max_iter"):
        best = argmin(valley, {}, LBFGS(max_iter=3))
    assert not best.converged
    endless = Known(lambda x: x.sum(), Real(2))
    with pytest.warns(ConvergenceWarning):
        argmin(endless, {}, LBFGS(max_iter=20))


def test_a_hole_in_a_simplex_is_refused():
    energy = Known(lambda x: x.sum(), PositiveDefinite(2))
    hole = np.ma.masked_array(np.eye(2), [[0, 1], [1, 0]])
    with pytest.raises(Unsuitable, match="constrained together"):
        argmin(energy, {"x": hole}, LBFGS())


def test_standing_still_at_a_kink_is_no_minimum():
    """The energy still falls along x₁ = −x₀, but the line search finds no lower value."""
    kinked = Known(lambda x: jnp.abs(x[0] - 0.3) + 5 * jnp.abs(x[1] + x[0]), Real(2))
    with pytest.warns(ConvergenceWarning, match="kink"):
        best = argmin(kinked, {})
    assert not best.converged and best.energy > 0.1


@pytest.mark.parametrize("height", [0.0, 1e4])
def test_standing_still_in_the_last_digit_is_a_minimum(height):
    """A stiff bowl on a large constant: in float32 no gradient below the tolerance can be reached."""
    stiff = Known(lambda x: height + jnp.sum(1000 * (x - 0.7) ** 4 + 300 * (x - 0.7) ** 2), Real(2))
    best = argmin(stiff, {}, LBFGS(tol=1e-12))
    assert best.converged
    np.testing.assert_allclose(best["x"], 0.7, atol=1e-2)
