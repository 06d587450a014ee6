"""The Gaussian process as an energy: evidence, posterior, missing values, draws, learning."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peers

from energax import argmin, fit, log_prob, posterior, sample
from energax.energies import GaussianProcess
from energax.errors import BadInput
from energax.kernels import RBF
from energax.learn import Descent, NegativeLogLikelihood

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(0, 5, (12, 1))
Y = np.sin(X[:, 0]) + 0.1 * GENERATOR.normal(size=12)
HOLES = np.where(np.arange(12) < 8, Y, np.nan)
GP = GaussianProcess(1.5 * RBF(0.8), 0.02)


def peer(n):
    kernel = peers.ConstantKernel(1.5) * peers.RBF(0.8)
    return GaussianProcessRegressor(kernel, alpha=0.02, optimizer=None).fit(X[:n], Y[:n])


def test_the_evidence_is_that_of_scikit_learn():
    found = log_prob(GP, {"y": Y}, given={"x": X})
    assert found.kind == "exact"
    np.testing.assert_allclose(found.value, peer(12).log_marginal_likelihood_value_, rtol=1e-9)
    missing = posterior(GP, {"x": X, "y": HOLES}).log_evidence
    np.testing.assert_allclose(missing.value, peer(8).log_marginal_likelihood_value_, rtol=1e-9)


def test_predictions_are_posteriors_at_points_whose_y_is_missing():
    found = posterior(GP, {"x": X, "y": HOLES})
    mean, covariance = peer(8).predict(X, return_cov=True)
    np.testing.assert_allclose(found.mean["f"], mean, atol=1e-9)
    np.testing.assert_allclose(found.mean["y"], np.where(np.isnan(HOLES), mean, HOLES), atol=1e-9)
    np.testing.assert_allclose(argmin(GP, {"x": X, "y": HOLES})["f"], mean, atol=1e-9)
    with jax.enable_x64(True):
        normal = GP.conditional("f", x=X[:8], y=Y[:8])
        np.testing.assert_allclose(normal.covariance_matrix, covariance[:8, :8], atol=1e-9)


def test_the_free_energy_is_the_integral_of_the_energy():
    """∫ exp(−e(y, f | x)) df over a grid, for two points."""
    x, y = X[:2], Y[:2]
    # The first two points are 2 apart or more in units of the length scale, so the grid resolves f.
    gp = GaussianProcess(RBF(0.5), 0.3)
    axis = np.linspace(-6, 6, 241)
    f = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    with jax.enable_x64(True):
        energies = np.asarray(jax.jit(jax.vmap(lambda f: gp(x=x, y=y, f=f)))(f))
    total = np.exp(-energies).sum() * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(np.log(total), log_prob(gp, {"y": y}, given={"x": x}).value, rtol=1e-6)


def test_joint_and_conditionals_agree():
    """log p(y, f | x) = log p(f | x) + log p(y | f) = log p(y | x) + log p(f | x, y)."""
    gp = GaussianProcess(RBF(0.3), 0.5)
    x, f = X[:5], GENERATOR.normal(size=5)
    with jax.enable_x64(True):
        joint = -float(gp(x=x, y=Y[:5], f=f))
        one = gp.conditional("f", x=x).log_prob(f) + gp.conditional("y", x=x, f=f).log_prob(Y[:5])
        other = gp.conditional("y", x=x).log_prob(Y[:5]) + gp.conditional("f", x=x, y=Y[:5]).log_prob(f)
    np.testing.assert_allclose([float(one), float(other)], joint, rtol=1e-9)


def test_draws_have_the_covariance_of_the_kernel():
    """Each entry within 4.5 standard errors of a Gaussian covariance: 36 entries, error rate 3e-4."""
    x = np.linspace(0, 2, 8)[:, None]
    draws = sample(GP, 4000, {"x": x}, key=0)
    with jax.enable_x64(True):
        kernel = np.asarray(GP.kernel.matrix(x))
    f = np.asarray(draws["f"])
    error = np.sqrt((np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2) / 4000)
    assert (np.abs(f.T @ f / 4000 - kernel) < 4.5 * error).all()
    noise = (np.asarray(draws["y"]) - f).ravel()
    assert scipy.stats.kstest(noise / np.sqrt(0.02), "norm").pvalue > 1e-4


def test_posterior_draws_fill_in_missing_values_only():
    draws = posterior(GP, {"x": X, "y": HOLES}).sample(2000, key=1)
    y, f = np.asarray(draws["y"]), np.asarray(draws["f"])
    np.testing.assert_array_equal(y[:, :8], np.tile(Y[:8], (2000, 1)))
    mean, std = peer(8).predict(X, return_std=True)
    assert (np.abs(f.mean(0) - mean) < 4.5 * std / np.sqrt(2000)).all()
    assert (np.abs(y.var(0)[8:] / (std[8:] ** 2 + 0.02) - 1) < 4.5 * np.sqrt(2 / 2000)).all()


def test_descent_reaches_the_optimum_of_scikit_learn():
    learner = Descent(NegativeLogLikelihood(), optax.lbfgs(), tol=1e-9)
    data = {"x": X[None], "y": Y[None]}
    found = fit(GP, data, learner, key=0, epochs=100, freeze="noise")
    kernel = peers.ConstantKernel(1.5) * peers.RBF(0.8)
    best = GaussianProcessRegressor(kernel, alpha=0.02).fit(X, Y).log_marginal_likelihood_value_
    assert found.converged
    np.testing.assert_allclose(-found.history["objective"][-1], best, rtol=1e-6)
    several = fit(GP, data, learner, key=0, epochs=100, n_init=3)
    assert several.history["objective"][-1] <= found.history["objective"][-1] + 1e-6


def test_bad_input_is_answered_by_a_sentence():
    with pytest.raises(BadInput, match=r"kernel: found length scales of 2 columns; expected n_features=1"):
        GaussianProcess(RBF([1.0, 2.0]))
    with pytest.raises(BadInput, match="kernel: found float"):
        GaussianProcess(1.0)
    with pytest.raises(BadInput, match=r"noise: found 0\.0"):
        GaussianProcess(RBF(), 0.0)
    with pytest.raises(BadInput, match="'f' or 'y', whichever is not given"):
        GP.conditional("y", x=X, y=Y)
