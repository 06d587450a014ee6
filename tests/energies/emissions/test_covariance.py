"""Energies compiled for large tables equal those of single rows.

XLA chooses its fusions by size, so large tables run different code than small ones. Tied covariances were
once compiled wrongly from 1024 × 17 on.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import default_compiler
from scipy.stats import multivariate_normal

from energax import Mixture, log_prob
from energax.energies import Diagonal, Full, Gaussians, Spherical, Tied
from energax.energies._emissions.mixtures import TiedWithin

SIZES = [(512, 8), (1024, 17), (1024, 30), (4096, 8), (4096, 30), (16384, 20), (4000, 65)]


def covariances(rng, d, k):
    root = rng.normal(size=(k, d, d)) / np.sqrt(d)
    full = root @ root.transpose(0, 2, 1) + np.eye(d)
    scale = rng.uniform(0.5, 2, (k, d))
    return {
        "full": (Full(jnp.asarray(full)), full),
        "tied": (Tied(jnp.asarray(full[0])), full[[0, 0, 0, 0]]),
        "tied within states": (TiedWithin(jnp.asarray(full[:2]), n_each=2), full[[0, 0, 1, 1]]),
        "diagonal": (Diagonal(jnp.asarray(scale)), np.stack([np.diag(s) for s in scale])),
        "spherical": (Spherical(jnp.asarray(scale[:, 0])), np.stack([s * np.eye(d) for s in scale[:, 0]])),
    }


@pytest.mark.parametrize("kind", ["full", "tied", "tied within states", "diagonal", "spherical"])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gaussian_energies(kind, size, dtype):
    (n, d), k, rng = size, 4, np.random.default_rng(0)
    x, means = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(k, d)).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        covariance, matrices = covariances(rng, d, k)[kind]
        compiled = jax.jit(lambda c, x, m: c.row_energies(x, m), compiler_options=default_compiler())
        found = np.asarray(compiled(covariance, x, means))
    expected = np.stack(
        [-multivariate_normal(m, s).logpdf(x) for m, s in zip(means, matrices, strict=True)], 1
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("kind", ["full", "tied", "diagonal", "spherical"])
def test_a_whole_question(kind):
    """The program that `log_prob` compiles, not only its largest part."""
    (n, d), rng = (4096, 30), np.random.default_rng(1)
    x, means = rng.normal(size=(n, d)), rng.normal(size=(4, d))
    with jax.enable_x64(True):
        covariance, matrices = covariances(rng, d, 4)[kind]
        found = log_prob(Mixture(Gaussians(jnp.asarray(means), covariance)), {"x": x}).value
    parts = [multivariate_normal(m, s).logpdf(x) for m, s in zip(means, matrices, strict=True)]
    np.testing.assert_allclose(found, np.logaddexp.reduce(parts, axis=0) - np.log(4), rtol=1e-11)
