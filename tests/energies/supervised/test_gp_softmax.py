"""The softmax of Gaussian processes as an energy: by hand, by quadrature, and by the structured method."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

from energax import argmin, log_prob, posterior, sample
from energax.algorithms.gaussian.laplace_softmax import find_mode
from energax.energies import LogisticProcess, SoftmaxProcess
from energax.errors import BadInput
from energax.infer import Laplace
from energax.kernels import RBF
from energax.missing import Masked

GENERATOR = np.random.default_rng(0)
X = np.linspace(0, 4, 6)[:, None]
Y = np.array([0, 2, 1, 1, 0, 2])
F = GENERATOR.normal(size=(6, 3))
with jax.enable_x64(True):
    KERNEL = (2.0 * RBF(0.7)).astype(np.float64)
    MATRIX = np.asarray(KERNEL.matrix(X))
PROCESS = SoftmaxProcess(KERNEL, 3, length=6)
close = np.testing.assert_allclose


def test_the_energy_is_prior_and_likelihood():
    prior = multivariate_normal(np.zeros(6), MATRIX).logpdf(F.T).sum()
    log_p = log_softmax(F, 1)[np.arange(6), Y]
    with jax.enable_x64(True):
        x, f = jnp.asarray(X), jnp.asarray(F)
        close(PROCESS(x=x, y=jnp.asarray(Y), f=f), -prior - log_p.sum(), rtol=1e-9)
        close(PROCESS.free_energy(x=x, f=f), -prior, rtol=1e-9)
        seen = np.array([True, False, True, True, True, False])
        close(PROCESS(x=x, y=Masked(jnp.asarray(Y), seen), f=f), -prior - log_p[seen].sum(), rtol=1e-9)
        close(PROCESS.conditional("f", x=x).log_prob(f), prior, rtol=1e-9)
        close(PROCESS.conditional("y", x=x, f=f).log_prob(jnp.asarray(Y)), log_p.sum(), rtol=1e-9)
        with pytest.raises(BadInput, match="'y' given x and f, or 'f' given x"):
            PROCESS.conditional("y", x=x)


def test_the_general_method_finds_the_mode_and_evidence_of_the_structured_one():
    mode = find_mode(MATRIX, np.where(np.arange(3)[:, None] == Y, 1.0, -1.0), np.ones(6))
    found = posterior(PROCESS, {"x": X, "y": Y}, Laplace())
    close(found.mean["f"], mode.f.T, atol=1e-7)
    close(found.log_evidence.value, mode.log_evidence, rtol=1e-8)
    close(log_prob(PROCESS, {"y": Y}, Laplace(), given={"x": X}).value, mode.log_evidence, rtol=1e-8)
    close(argmin(PROCESS, {"x": X, "y": Y}, Laplace())["f"], mode.f.T, atol=1e-7)


def test_evidences_of_all_labels_are_those_of_quadrature_and_add_to_one():
    """Two points, three classes: a Gauss–Hermite sum over the six latent values; σ² = 0.3, so within 1 %."""
    process = SoftmaxProcess(0.3 * RBF(), 3, length=2)
    points = np.array([[0.0], [1.0]])
    labels = np.array(list(itertools.product(range(3), repeat=2)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    z = np.stack(np.meshgrid(*[nodes] * 6), -1).reshape(-1, 2, 3)
    mass = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * 6), -1).reshape(-1, 6), 1)
    root = np.linalg.cholesky(0.3 * np.exp(-0.5 * (points - points.T) ** 2))
    log_p = log_softmax(np.einsum("ij,mjc->mic", root, z), 2)
    exact = np.array([mass @ np.exp(log_p[:, 0, a] + log_p[:, 1, b]) for a, b in labels])
    assert exact.sum() == pytest.approx(1, abs=1e-12)
    given = {"x": np.stack([points] * 9)}
    found = np.exp(log_prob(process, {"y": labels}, Laplace(), given=given).value)
    close(found, exact, rtol=1e-2)


def test_two_classes_are_a_logistic_process_with_twice_the_kernel():
    y = (Y > 0).astype(int)
    two, one = SoftmaxProcess(KERNEL, 2, length=6), LogisticProcess(2.0 * KERNEL, length=6)
    ours, theirs = (posterior(e, {"x": X, "y": y}, Laplace()) for e in (two, one))
    close(ours.log_evidence.value, theirs.log_evidence.value, rtol=1e-8)
    close(ours.mean["f"][:, 1] - ours.mean["f"][:, 0], theirs.mean["f"], atol=1e-6)


def test_draws_have_the_covariance_of_the_kernel_and_uniform_labels():
    """4000 draws: covariances within six standard errors of 2/√4000, counts within 5 of √(p(1 − p) n)."""
    drawn = sample(PROCESS, 4000, {"x": X}, key=0)
    f, y = np.asarray(drawn["f"]), np.asarray(drawn["y"])
    assert f.shape == (4000, 6, 3) and y.shape == (4000, 6)
    for c in range(3):
        close(f[:, :, c].T @ f[:, :, c] / 4000, MATRIX, atol=0.2)
    close(np.einsum("mi,mj->ij", f[:, :, 0], f[:, :, 1]) / 4000, 0, atol=0.2)
    counts = np.stack([(y == c).sum(0) for c in range(3)])
    assert (np.abs(counts - 4000 / 3) < 5 * np.sqrt(4000 * 2 / 9)).all()
    draws = sample(PROCESS, 3, {"x": X, "y": Y}, Laplace(), key=0)
    assert np.shape(draws["f"]) == (3, 6, 3)


def test_bad_fields_are_answered_by_a_sentence():
    with pytest.raises(BadInput, match="n_classes: found 1; expected"):
        SoftmaxProcess(RBF(), 1)
    with pytest.raises(BadInput, match="kernel: found length scales of 2 columns"):
        SoftmaxProcess(RBF([1.0, 2.0]), 3, n_features=3)
