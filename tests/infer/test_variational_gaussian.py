"""Variational Gaussians: exact for quadratic energies, the closed form of the gap, reference draws, flows."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from posteriordb import posteriordb_energy

from energax import Energy, Positive, Real, log_partition, log_prob, posterior, sample
from energax.errors import BadInput, ConvergenceWarning, Unsuitable
from energax.infer import VariationalGaussian

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])
LOG_Z = math.log(2 * math.pi) - 0.5 * np.linalg.slogdet(PRECISION)[1]
#: log Z minus the ELBO of the best product of independent Gaussians.
GAP = 0.5 * (np.log(np.diag(PRECISION)).sum() - np.linalg.slogdet(PRECISION)[1])


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


class Affine(eqx.Module):
    """A flow u = μ + Lz."""

    mean: jax.Array
    lower: jax.Array

    def _root(self):
        return jnp.tril(self.lower, -1) + jnp.diag(jnp.exp(jnp.diag(self.lower)))

    def sample(self, key):
        return self.mean + self._root() @ jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def log_prob(self, u):
        z = jax.scipy.linalg.solve_triangular(self._root(), u - self.mean, lower=True)
        return -0.5 * z @ z - jnp.diag(self.lower).sum() - 0.5 * u.size * math.log(2 * math.pi)


with jax.enable_x64(True):
    QUADRATIC = Quadratic(jnp.asarray(PRECISION))
    AT_ONE = QUADRATIC.given(x=1.0)
    GAMMA = Gamma(jnp.asarray(30.0))


def test_full_rank_is_exact_for_quadratic_energies_also_for_rows():
    found = posterior(QUADRATIC, {"x": [1.0, -3.0]}, VariationalGaussian("full-rank", tol=1e-8))
    np.testing.assert_allclose(found.mean["z"], [[1, 2], [-3, -6]], atol=1e-7)
    np.testing.assert_allclose(found.covariance, [np.linalg.inv(PRECISION)] * 2, rtol=1e-6)
    np.testing.assert_allclose(found.elbo.value, LOG_Z, atol=1e-6)
    assert found.elbo.stderr.max() < 1e-6 and found.elbo.kind == "lower bound"


def test_mean_field_has_the_conditional_variances_and_its_gap():
    found = posterior(AT_ONE, {}, VariationalGaussian(tol=1e-8))
    np.testing.assert_allclose(found.mean["z"], [1, 2], atol=1e-7)
    np.testing.assert_allclose(found.covariance, np.diag(1 / np.diag(PRECISION)), rtol=1e-6)
    bound = log_partition(AT_ONE, VariationalGaussian())
    assert abs(float(bound) - (LOG_Z - GAP)) < 5 * float(bound.stderr)
    assert bound.kind == "lower bound" and float(bound.stderr) < GAP / 5


def test_it_bounds_the_normaliser_of_a_constrained_variable():
    bound = log_partition(GAMMA, VariationalGaussian("full-rank"))
    exact = math.lgamma(30.0)
    assert exact - 0.02 < float(bound) < exact + 5 * float(bound.stderr)
    draws = sample(GAMMA, 4000, method=VariationalGaussian("full-rank"), key=0)
    # Five standard errors of the mean, and of the standard deviation of a nearly normal variable.
    assert abs(draws["x"].mean() - 30) < 5 * math.sqrt(30 / 4000) + 0.05
    assert abs(draws["x"].std() / math.sqrt(30) - 1) < 5 / math.sqrt(8000) + 0.02
    assert "variational, full-rank approximation" in draws.verdict


def test_a_poor_fit_warns_by_pareto_k():
    with jax.enable_x64(True):
        narrow = Quadratic(jnp.asarray([[1.0, 0.99], [0.99, 1.0]])).given(x=0.0)
    with pytest.warns(ConvergenceWarning, match=r"Pareto k-hat"):
        found = posterior(narrow, {}, VariationalGaussian())
    assert found.pareto_k > 0.7 and found.effective_share < 0.5
    with pytest.warns(ConvergenceWarning, match=r"variational, mean-field cannot be trusted: Pareto k-hat"):
        sample(narrow, 10, method=VariationalGaussian(), key=0)
    assert posterior(narrow, {}, VariationalGaussian("full-rank")).pareto_k < 0.7


@pytest.mark.parametrize("name", ["nes1980", "arK", "low_dim_gauss_mix"])
def test_full_rank_agrees_with_reference_draws(name, shared_data):
    """Means within a tenth of a standard deviation, standard deviations within 6 %."""
    energy, reference = posteriordb_energy(name, shared_data / "posteriordb")
    draws = sample(energy, 10_000, method=VariationalGaussian("full-rank"), key=0)
    for variable in energy.spaces:
        true = reference[variable]
        assert (np.abs(draws[variable].mean(0) - true.mean(0)) < 0.1 * true.std(0)).all()
        np.testing.assert_allclose(draws[variable].std(0), true.std(0), rtol=0.06)


def test_a_flow_is_trained_to_the_posterior():
    with jax.enable_x64(True):
        method = VariationalGaussian(
            Affine(jnp.zeros(2), jnp.zeros((2, 2))), 16, max_iter=1500, learning_rate=0.02
        )
    found = posterior(AT_ONE, {}, method)
    assert abs(float(found.elbo) - LOG_Z) < 1e-3 and found.pareto_k < 0.7
    draws = found.sample(4000, key=0)["z"]
    np.testing.assert_allclose(draws.mean(0), [1, 2], atol=5 / math.sqrt(4000))
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(PRECISION), atol=0.12)
    with pytest.raises(BadInput, match=r"a flow of shape \(2,\)"):
        posterior(GAMMA, {}, method)


def test_the_evidence_of_given_values_is_bounded():
    class Normalised(Quadratic):
        """p(x) = N(0, 1) times p(z | x)."""

        def __call__(self, *, x, z):
            return super().__call__(x=x, z=z) + 0.5 * x**2

        def log_partition(self):
            return 1.5 * math.log(2 * math.pi) - 0.5 * jnp.linalg.slogdet(self.precision)[1]

    with jax.enable_x64(True):
        energy = Normalised(jnp.asarray(PRECISION))
    bound = log_prob(energy, {"x": [0.0, 2.0]}, VariationalGaussian("full-rank", tol=1e-8))
    np.testing.assert_allclose(bound.value, -0.5 * np.array([0, 4]) - 0.5 * math.log(2 * math.pi), atol=1e-6)
    assert bound.kind == "lower bound"


def test_bad_arguments_are_refused():
    with pytest.raises(BadInput, match=r"family.*'full-rank'"):
        VariationalGaussian("rank")
    with pytest.raises(BadInput, match=r"n_samples"):
        VariationalGaussian(n_samples=1)
    wide = Wide(jnp.asarray(2.0))
    with pytest.raises(Unsuitable, match=r"512.*mean-field"):
        posterior(wide, {}, VariationalGaussian("full-rank"))


class Wide(Gamma):
    @property
    def spaces(self):
        return {"x": Positive(600)}

    def __call__(self, *, x):
        return super().__call__(x=x).sum()
