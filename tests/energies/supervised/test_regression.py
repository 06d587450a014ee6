"""Generalised linear models: densities, predictions, draws, and EM of scale mixtures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from energax import fit, learn, log_prob, posterior, sample
from energax.energies import Bernoulli, Gamma, Gaussian, LinearModel, Poisson, StudentT
from energax.errors import BadInput, Unsuitable

W, B = np.array([0.5, -1.0]), 0.3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
ETA = X @ W + B
#: likelihood, y, the distribution by SciPy, its mean
FAMILIES = {
    "Gaussian": (Gaussian(0.7), ETA + 0.5, stats.norm(ETA, 0.7)),
    "StudentT": (StudentT(3.0, 0.7), ETA + 2.0, stats.t(3.0, ETA, 0.7)),
    "Poisson": (Poisson(), RNG.poisson(2.0, 40), stats.poisson(np.exp(ETA))),
    "Gamma": (Gamma(2.5), np.exp(ETA) * 1.5, stats.gamma(2.5, scale=np.exp(ETA) / 2.5)),
    "Bernoulli": (Bernoulli(), np.arange(40) % 2, stats.bernoulli(1 / (1 + np.exp(-ETA)))),
}


def model(likelihood, w=W, b=B):
    return LinearModel(jnp.asarray(w, float), jnp.asarray(b, float), likelihood)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", FAMILIES)
def test_density_and_mean(name):
    likelihood, y, exact = FAMILIES[name]
    energy = model(likelihood)
    density = exact.logpmf(y) if hasattr(exact.dist, "logpmf") else exact.logpdf(y)
    found = log_prob(energy, {"y": y}, given={"x": X})
    assert found.kind == "exact"
    np.testing.assert_allclose(found.value, density, rtol=1e-9)
    np.testing.assert_allclose(posterior(energy, {"x": X}).mean["y"], exact.mean(), rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(lambda x: energy.predict(x=x))(X), exact.mean(), rtol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_mean_and_the_distribution(name):
    """A mean of 4000 draws is within 5 standard errors: wrong for one of 40 with probability 2e-5."""
    likelihood, _, exact = FAMILIES[name]
    draws = np.asarray(sample(model(likelihood), 4000, {"x": X}, key=0)["y"])
    error = np.abs(draws.mean(0) - exact.mean()) / (exact.std() / np.sqrt(4000))
    assert draws.shape == (4000, 40) and error.max() < (9 if name == "StudentT" else 5)


def test_bad_shapes_and_settings():
    with pytest.raises(BadInput, match="weight, bias"):
        LinearModel(jnp.zeros(2), jnp.zeros(2))
    for wrong in (lambda: StudentT(0.0), lambda: StudentT(1.0, -1.0), lambda: Gamma(0.0)):
        with pytest.raises(BadInput, match="a number > 0"):
            wrong()
    with pytest.raises(BadInput, match="'y' given only 'x'"):
        model(Poisson()).conditional("x", y=1.0)


# -- EM ----------------------------------------------------------------------------------------------


def noisy():
    rng = np.random.default_rng(1)
    y = X @ W + B + 0.3 * rng.standard_t(2, size=40)
    y[:4] += 20
    return y


def start():
    return LinearModel(jnp.zeros(2), jnp.zeros(()), StudentT(4.0, jnp.ones(())))


def test_em_finds_the_maximum_that_descent_finds():
    data, weights = {"x": X, "y": noisy()}, RNG.uniform(0.2, 2, 40)
    by_em = fit(start(), data, learn.EM(tol=1e-14), weights=weights, epochs=2000, key=0)
    learner = learn.Descent(learn.NegativeLogLikelihood(), optax.lbfgs(), tol=1e-15)
    by_descent = fit(start(), data, learner, weights=weights, epochs=300, key=0)
    assert by_em.converged and (np.diff(by_em.history["objective"]) <= 1e-12).all()
    for a, b in zip(jax.tree.leaves(by_em.energy), jax.tree.leaves(by_descent.energy), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert np.abs(np.asarray(by_em.energy.weight) - W).max() < 0.3  # the four outliers are ignored


def test_one_step_of_em_with_normal_noise_is_least_squares():
    y = noisy()
    begin = LinearModel(jnp.zeros(2), jnp.zeros(()), Gaussian(jnp.ones(())))
    found = fit(begin, {"x": X, "y": y}, learn.EM(tol=None), epochs=1, key=0).energy
    design = np.column_stack([X, np.ones(40)])
    best = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(np.append(found.weight, found.bias), best, rtol=1e-10)
    np.testing.assert_allclose(found.likelihood.scale, (y - design @ best).std(), rtol=1e-10)


def test_frozen_parameters_stay_and_the_others_are_optimal_given_them():
    y = noisy()
    begin = LinearModel(jnp.zeros(2), jnp.asarray(0.5), Gaussian(jnp.ones(())))
    found = fit(begin, {"x": X, "y": y}, learn.EM(), freeze="bias", epochs=3, key=0).energy
    assert float(found.bias) == 0.5
    np.testing.assert_allclose(found.weight, np.linalg.lstsq(X, y - 0.5, rcond=None)[0], rtol=1e-9)


def test_recentred_statistics_are_those_at_the_other_parameters():
    data = {"x": jnp.asarray(X), "y": jnp.asarray(noisy())}
    here, there = model(StudentT(4.0, jnp.ones(()))), start()
    posterior, _ = there.expectations(data, 1.0)
    moved = here.recenter(there.statistics(data, posterior), there)
    for a, b in zip(moved, here.statistics(data, posterior), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_em_is_not_for_counts():
    assert model(Gaussian(1.0)).has_m_step and not model(Poisson()).has_m_step
    with pytest.raises(Unsuitable):
        learn.EM().check(model(Poisson()), {"x": X, "y": np.ones(40)})
