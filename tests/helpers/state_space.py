"""Random linear-Gaussian state-space models, and their joint normal distribution in NumPy."""

from __future__ import annotations

import functools

import numpy as np
from scipy.stats import multivariate_normal

from energax.energies import LinearGaussianSSM

NAMES = (
    "initial_mean",
    "initial_covariance",
    "transition",
    "transition_offset",
    "transition_covariance",
    "emission",
    "emission_offset",
    "emission_covariance",
)
K, D, STEPS = 2, 3, 4


def random_chain(seed=0, length=STEPS, **options):
    """In the precision of the scope."""
    rng = np.random.default_rng(seed)
    spread = lambda n: (lambda a: a @ a.T / n + 0.2 * np.eye(n))(rng.normal(size=(n, n)))
    return LinearGaussianSSM(
        0.6 * rng.normal(size=(K, K)),
        rng.normal(size=(D, K)),
        spread(K),
        spread(D),
        initial_mean=rng.normal(size=K),
        initial_covariance=spread(K),
        transition_offset=0.3 * rng.normal(size=K),
        emission_offset=rng.normal(size=D),
        length=length,
        **options,
    )


def joint(chain, steps):
    """Mean and covariance of (z₁ … z_T, x₁ … x_T)."""
    c = {name: np.asarray(getattr(chain, name), np.float64) for name in NAMES}
    m, P, A, b, Q, C, d, R = c.values()
    k = len(m)
    mean, cov = [m], np.zeros((steps * k, steps * k))
    cov[:k, :k] = P
    for t in range(1, steps):
        mean.append(A @ mean[-1] + b)
        old, new = slice((t - 1) * k, t * k), slice(t * k, (t + 1) * k)
        cov[new, : t * k] = A @ cov[old, : t * k]
        cov[: t * k, new] = cov[new, : t * k].T
        cov[new, new] = A @ cov[old, old] @ A.T + Q
    emission = np.kron(np.eye(steps), C)
    below = emission @ cov
    noise = np.kron(np.eye(steps), R)
    both = np.block([[cov, below.T], [below, below @ emission.T + noise]])
    return np.concatenate([np.ravel(mean), np.ravel(np.array(mean) @ C.T + d)]), both


def conditioned(chain, x, seen):
    """(mean, covariance) of (z, x) given the observed values of x, and their log p."""
    steps = len(x)
    mean, cov = joint(chain, steps)
    at = steps * K + np.flatnonzero(seen)
    block = cov[np.ix_(at, at)]
    gain = np.linalg.solve(block, cov[at]).T
    log_p = multivariate_normal.logpdf(x[seen], mean[at], block)
    return mean + gain @ (x[seen] - mean[at]), cov - gain @ cov[at], log_p


@functools.lru_cache
def sequences(n=3, seed=0):
    """(x, seen): single coordinates and whole steps missing, and one sequence shorter than the rest."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, STEPS, D)) * 1.5
    seen = rng.random(x.shape) < 0.7
    seen[0, 1] = False
    seen[1, 3:] = False
    seen[:, 0] |= ~seen.any(2)[:, 0, None]
    return x, seen
