"""Laplace's method: exact for Gaussians, the closed form of the error for others, structured Newton."""

from __future__ import annotations

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from energax import Energy, Positive, Real, argmin, log_partition, log_prob, posterior, sample
from energax.algorithms.gaussian.laplace import find_mode
from energax.energies import RBM, GaussianProcess, LogisticProcess
from energax.errors import ConvergenceWarning, Unsuitable
from energax.infer import Laplace
from energax.kernels import RBF

GENERATOR = np.random.default_rng(0)
X = np.linspace(0, 4, 6)[:, None]
PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])


class Quadratic(Energy):
    """½ (z − Ax)ᵀ P (z − Ax), over (x, z)."""

    precision: jax.Array

    @property
    def spaces(self):
        return {"x": Real(), "z": Real(2)}

    def __call__(self, *, x, z):
        gap = z - x * jnp.array([1.0, 2.0])
        return 0.5 * gap @ self.precision @ gap


class Gamma(Energy):
    """−(a − 1) log x + x on x > 0: log Z = log Γ(a)."""

    shape: jax.Array

    @property
    def spaces(self):
        return {"x": Positive()}

    def __call__(self, *, x):
        return -(self.shape - 1) * jnp.log(x) + x


with jax.enable_x64(True):
    QUADRATIC = Quadratic(jnp.asarray(PRECISION))
    GAMMA = Gamma(jnp.asarray(30.0))


def test_it_is_exact_for_quadratic_energies():
    found = posterior(QUADRATIC, {"x": [1.0, -3.0]}, Laplace())
    np.testing.assert_allclose(found.mean["z"], [[1, 2], [-3, -6]], atol=1e-10)
    np.testing.assert_allclose(found.covariance, [np.linalg.inv(PRECISION)] * 2, rtol=1e-9)
    with jax.enable_x64(True):
        integral = -Laplace().free_energies(found._query)
    np.testing.assert_allclose(integral, math.log(2 * math.pi / math.sqrt(1.64)), rtol=1e-9)
    minimum = argmin(QUADRATIC, {"x": 1.0}, Laplace())
    np.testing.assert_allclose(minimum["z"], [1, 2], atol=1e-10)
    assert minimum.converged is True


def test_draws_have_the_covariance():
    """A Kolmogorov–Smirnov test of whitened draws at 1e-4."""
    draws = sample(QUADRATIC, 3000, {"x": 0.0}, Laplace(), key=0)["z"]
    white = draws @ np.linalg.cholesky(PRECISION)
    assert min(scipy.stats.kstest(column, "norm").pvalue for column in white.T) > 1e-4
    assert np.shape(posterior(QUADRATIC, {"x": [0.0, 1.0]}, Laplace()).sample(5, key=0)["z"]) == (5, 2, 2)


def test_a_constrained_variable_is_integrated_through_its_bijection():
    """log Γ(30) by Stirling's series is exact within 1/(12·30); Laplace has an error of that order."""
    assert abs(float(log_partition(GAMMA, Laplace())) - math.lgamma(30.0)) < 0.01
    # The mode of u = log(exp x − 1) is near x = 29, since the bijection is nearly linear there.
    assert abs(float(posterior(GAMMA, {}, Laplace()).mean["x"]) - 30) < 0.05 * 30


def test_it_equals_the_exact_posterior_of_a_gaussian_process():
    gp = GaussianProcess(RBF(0.8), 0.1, length=6)
    given = {"x": X, "y": np.sin(X[:, 0])}
    exact, found = posterior(gp, given), posterior(gp, given, Laplace())
    np.testing.assert_allclose(found.mean["f"], exact.mean["f"], atol=1e-8)
    np.testing.assert_allclose(found.log_evidence.value, exact.log_evidence.value, rtol=1e-8)


def test_it_equals_the_structured_newton_method_of_a_logistic_process():
    kernel, y = 2.0 * RBF(0.5), np.array([0.0, 1, 1, 0, 1, 1])
    process = LogisticProcess(kernel, length=6)
    found = posterior(process, {"x": X, "y": y}, Laplace())
    with jax.enable_x64(True):
        mode = find_mode(np.asarray(kernel.matrix(X)), 2 * y - 1, np.ones(6))
    np.testing.assert_allclose(found.mean["f"], mode.f, atol=1e-7)
    evidence = log_prob(process, {"y": y}, Laplace(), given={"x": X})
    assert evidence.kind == "estimate"
    np.testing.assert_allclose(evidence.value, mode.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(found.log_evidence.value, mode.log_evidence, rtol=1e-8)


def test_queries_that_it_cannot_answer():
    with pytest.raises(Unsuitable, match=r"Laplace needs real hidden variables, but \['z'\] are not"):
        posterior(RBM.random(2, 2, key=0), {"x": [0, 1]}, Laplace())
    with pytest.raises(Unsuitable, match=r"needs the length of \['f'\]"):
        posterior(LogisticProcess(RBF()), {"x": X, "y": np.ones(6)}, Laplace())
    with pytest.warns(ConvergenceWarning, match="have no minimum of the energy"):
        log_partition(Gamma(jnp.asarray(-1.0)), Laplace(max_iter=5))


class NormalLogit(Energy):
    """x = softplus(u) with u ~ N(1, 1): −log p(x), the derivative of the map included; log Z = ½ log 2π."""

    @property
    def spaces(self):
        return {"x": Positive()}

    def __call__(self, *, x):
        return 0.5 * (jnp.log(jnp.expm1(x)) - 1) ** 2 + jnp.log(-jnp.expm1(-x))


def test_the_mode_is_that_of_the_density_in_unconstrained_coordinates():
    """There p is normal, so that Laplace's method is exact; E[x] is a sum over quadrature points."""
    found = posterior(NormalLogit(), {}, Laplace())
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    mean = weights @ np.logaddexp(0, nodes + 1) / weights.sum()
    np.testing.assert_allclose(found.mode["x"], np.logaddexp(0, 1), rtol=1e-3)
    np.testing.assert_allclose(found.mean["x"], mean, atol=0.03)  # of draws; the image of E[u] is 0.08 less
    np.testing.assert_allclose(float(log_partition(NormalLogit(), Laplace())), 0.5 * np.log(2 * np.pi), 1e-3)


class Bend(Energy):
    """(z₀² − x)² + z₁²: with x > 0 two minima at z₀ = ±√x, and no slope at z = 0, where the search starts."""

    @property
    def spaces(self):
        return {"x": Real(), "z": Real(2)}

    def __call__(self, *, x, z):
        return (z[0] ** 2 - x) ** 2 + z[1] ** 2


@pytest.mark.parametrize("x", [[1.0], [1.0, -1.0, 4.0]])
def test_a_saddle_point_is_left(x):
    """Of rows in one program only those at a saddle point move."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = posterior(Bend(), {"x": np.array(x)}, Laplace())
    at = np.sqrt(np.maximum(x, 0))
    np.testing.assert_allclose(np.abs(found.mean["z"]), np.c_[at, 0 * at], atol=1e-4)
    curvature = np.where(np.array(x) > 0, 8 * np.array(x), 4)
    np.testing.assert_allclose(found.covariance, [np.diag([1 / c, 1 / 2]) for c in curvature], rtol=1e-3)
