"""Importance sampling over Positive, Interval and Simplex variables, with the Jacobians of bijections."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, gammaln

from energax import Energy, log_partition, log_prob
from energax.infer import Importance
from energax.spaces import Binary, Categorical, Interval, Positive, Simplex

SCALE = 3.0  # exp(−e) integrates to this times the integral of the power function
ALPHA = np.array([2.5, 3.0, 1.5])


class Power(Energy):
    """exp(−e(z)) is `SCALE` times a Gamma, Beta or Dirichlet density without its constant."""

    space: Any = eqx.field(static=True)

    @property
    def spaces(self):
        return {"z": self.space}

    def __call__(self, *, z):
        return -jnp.log(SCALE) - _log_power(self.space, z)


def _log_power(space: Any, z: Any) -> Any:
    if isinstance(space, Positive):
        return jnp.sum(2.0 * jnp.log(z) - 1.5 * z)
    if isinstance(space, Interval):
        u = (z - space.low) / (space.high - space.low)
        return jnp.sum(2.0 * jnp.log(u) + 1.0 * jnp.log1p(-u))
    return jnp.sum((ALPHA - 1) * jnp.log(z))


def _log_integral(space: Any) -> float:
    """log ∫ exp(_log_power), in closed form."""
    if isinstance(space, Positive):
        return space.size * (gammaln(3.0) - 3.0 * np.log(1.5))
    if isinstance(space, Interval):
        return space.size * (betaln(3.0, 2.0) + np.log(space.high - space.low))
    return float(gammaln(ALPHA).sum() - gammaln(ALPHA.sum()))


SPACES = [Positive(2), Interval(-1, 4, 2), Simplex(3)]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_log_z_of_a_density_with_a_known_integral(space):
    found = log_partition(Power(space), Importance(n_samples=4000), key=0)
    truth = np.log(SCALE) + _log_integral(space)
    assert abs(float(found) - truth) < 4.5 * float(found.stderr) < 0.2


class Seen(Energy):
    """p(x, z) with z in a constrained space and a finite x: log Z = 0."""

    space: Any = eqx.field(static=True)

    @property
    def spaces(self):
        x = Categorical(3) if isinstance(self.space, Simplex) else Binary(*self.space.shape)
        return {"x": x, "z": self.space}

    def __call__(self, *, x, z):
        log_prior = _log_power(self.space, z) - _log_integral(self.space)
        return -log_prior - self._log_likelihood(x, z)

    def _log_likelihood(self, x, z):
        if isinstance(self.space, Simplex):
            return jnp.log(z)[x]
        on = jnp.exp(-z) if isinstance(self.space, Positive) else (z - self.space.low) / 5.0
        return jnp.sum(jnp.where(x > 0.5, jnp.log(on), jnp.log1p(-on)))

    def log_partition(self):
        return jnp.zeros(())


def _log_p(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values of x, and log p(x) in closed form."""
    if isinstance(space, Simplex):
        return np.arange(3), np.log(ALPHA / ALPHA.sum())
    # E exp(−z) of a Gamma(3, rate 1.5), and the mean of a Beta(3, 2)
    on = (1.5 / 2.5) ** 3 if isinstance(space, Positive) else 3.0 / 5.0
    x = np.array([[0, 0], [0, 1], [1, 1]], np.float32)
    return x, np.log(np.where(x == 1, on, 1 - on)).sum(1)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_log_p_with_a_hidden_variable_in_a_constrained_space(space):
    x, truth = _log_p(space)
    found = log_prob(Seen(space), {"x": x}, Importance(n_samples=2000), key=0)
    assert found.kind == "lower bound"
    np.testing.assert_array_less(np.abs(found.value - truth), 4.5 * found.stderr + 1e-5)
    assert found.stderr.max() < 0.05


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_the_jacobian_is_that_of_the_bijection(space):
    """log |det dz/du| by automatic differentiation; of the simplex, without its last coordinate."""
    bijection = space.bijection
    u = jnp.asarray(np.random.default_rng(0).normal(size=2))
    matrix = jax.jacobian(bijection)(u)[: u.size]
    found = jnp.sum(bijection.log_abs_det_jacobian(u, bijection(u)))
    np.testing.assert_allclose(found, np.linalg.slogdet(np.asarray(matrix))[1], rtol=1e-5)
