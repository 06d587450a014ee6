"""Bridge sampling: log Z from draws of the model and of a normal distribution that is fitted to them."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from ..._util.arguments import check_arguments, whole
from ..._util.arrays import asarray
from ...energy import Energy, free_energy
from ...errors import ConvergenceWarning, EnergaxError
from ...programs import jit
from ...samplers import Sampler, default_sampler, run_chains
from .._method import Cost, Method
from .annealing import SAMPLER
from .proposals import draw_student, student_log_density
from .unconstrained import VECTOR, Standardised, as_scale, flat_unconstrained
from .weights import as_estimate, effective_size

_MOST_ITERATIONS, _TOLERANCE = 1000, 1e-10
_MAX_SIZE = 256


class BridgeSampling(Method):
    """log Z by a bridge between draws of the model and of a Student t that is fitted to them.

    With l = exp(−e) / q at draws, Z is the fixed point of
    Z ← [mean_q l / (s₁ l + s₂ Z)] / [mean_p 1 / (s₁ l + s₂ Z)], which has the least error of all bridges.
    Real variables are in unconstrained coordinates, and finite ones are summed out. Half of the draws fit q,
    the other half enter the bridge; s₁ and s₂ are their effective numbers. The standard error is the relative
    mean squared error of Z, with the effective number of the draws of the chains.

    Args:
        n_draws: draws of the model, over all chains, and of q.
        n_chains: chains that run in parallel.
        warmup: moves of each chain that are discarded.
        sampler: the sampler of the draws; None is the default sampler of the energy.

    Meng and Wong (1996), Simulating ratios of normalizing constants via a simple identity;
    Frühwirth-Schnatter (2004), Estimating marginal likelihoods for mixture and Markov switching models using
    bridge sampling techniques.

    >>> from energax import log_partition
    >>> from energax.energies import NeuralEnergy
    >>> bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 3, confinement=2.0)       # log Z = 3/2 log π
    >>> found = log_partition(bowl, BridgeSampling(), key=0)
    >>> bool(abs(found.value - 1.5 * np.log(np.pi)) < 4 * found.stderr)
    True
    """

    tasks = frozenset({"log_partition"})

    n_draws: int = eqx.field(static=True, default=8000)
    n_chains: int = eqx.field(static=True, default=8)
    warmup: int = eqx.field(static=True, default=1000)
    sampler: Sampler | None = None

    def __check_init__(self):
        check_arguments(self, n_draws=whole(100), n_chains=whole(2), warmup=whole(0), sampler=SAMPLER)

    @property
    def label(self):
        return "bridge sampling"

    def unsupported_reason(self, task, query):
        spaces = query.spaces
        real = [n for n, s in spaces.items() if s.is_real]
        if not real:
            return "needs real variables"
        size = sum(spaces[n].size for n in real)
        if size > _MAX_SIZE:
            return f"fits a covariance to {_MAX_SIZE} dimensions at most, not {size}"
        try:
            _marginal_sampler(query.energy, self.sampler)
        except EnergaxError as error:
            return f"has no draws: {str(error).rstrip('.')}"
        return None

    def why(self, task, query):
        return "draws of the model and of a distribution near it overlap"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        moves = self.n_draws + self.warmup * self.n_chains
        return Cost(evaluations=moves + 2 * self.n_draws, n_bytes=8 * self.n_draws * query.width)

    def log_partition(self, query, key):
        draw_key, proposal_key = jax.random.split(key)
        energy = query.energy
        marginal, sampler = _marginal_sampler(energy, self.sampler)
        settings = {"n_chains": self.n_chains, "warmup": self.warmup}
        draws = run_chains(sampler, marginal, self.n_draws, key=draw_key, **settings)
        if draws.problem:
            message = f"BridgeSampling: the draws cannot be trusted: {draws.problem}. Use another sampler=."
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        flat = {n: np.asarray(v) for n, v in draws.chains.items()}
        half = next(iter(flat.values())).shape[1] // 2
        part = lambda cut: flat_unconstrained(
            marginal, {n: v[:, cut].reshape(-1, *v.shape[2:]) for n, v in flat.items()}
        )
        target = Standardised(marginal, as_scale(part(slice(0, half)), 1.1))
        ratios = _log_ratios(target, asarray(part(slice(half, None)), jnp.zeros(()).dtype))
        proposed = _proposal_log_ratios(target, len(ratios), proposal_key)
        at_draws = np.asarray(ratios, float).reshape(self.n_chains, -1)
        value, error = _bridge(at_draws, np.asarray(proposed, float))
        return as_estimate(value, error, "estimate", self.label)


def _marginal_sampler(energy: Energy, sampler: Sampler | None) -> tuple[Energy, Sampler]:
    """Return the energy of the real variables alone, and a sampler that supports it."""
    finite = [n for n, s in energy.spaces.items() if not s.is_real]
    marginal = energy.over(*finite) if finite else energy
    if sampler is None:
        return marginal, default_sampler(marginal)
    sampler.check(marginal)
    return marginal, sampler


@jit
def _log_ratios(target: Standardised, flat: Any) -> Any:
    """Return log exp(−e) / q at vectors u in ℝᵈ, (n,)."""
    mean, factor, _ = target.location
    white = jnp.linalg.solve(factor, (flat - mean).T).T
    return jax.lax.map(lambda v: _log_ratio(target, v), white, batch_size=1024)


@jit
def _proposal_log_ratios(target: Standardised, n: int, key: Any) -> Any:
    """Return log exp(−e) / q at `n` draws of q."""
    mean = target.location.mean
    d = mean.shape[0]
    white = jax.vmap(lambda k: draw_student(k, d, mean.dtype))(jax.random.split(key, n))
    return jax.lax.map(lambda v: _log_ratio(target, v), white, batch_size=1024)


def _log_ratio(target: Standardised, white: Any) -> Any:
    return -free_energy(target, {VECTOR: white}) - student_log_density(white)


def _bridge(at_draws: np.ndarray, at_proposals: np.ndarray) -> tuple[float, float]:
    """Return log Z and its standard error from log l at draws (chains, n) and at draws of q (n,)."""
    n2 = len(at_proposals)
    n1 = effective_size(at_draws)
    log_s1, log_s2 = np.log(n1 / (n1 + n2)), np.log(n2 / (n1 + n2))
    drawn, log_z = at_draws.ravel(), float(np.median(at_draws))
    for _ in range(_MOST_ITERATIONS):
        above = at_proposals - np.logaddexp(log_s1 + at_proposals, log_s2 + log_z)
        below = -np.logaddexp(log_s1 + drawn, log_s2 + log_z)
        new = logsumexp(above) - np.log(n2) - logsumexp(below) + np.log(len(drawn))
        change, log_z = abs(new - log_z), float(new)
        if change < _TOLERANCE * max(1.0, abs(log_z)):
            break
    # f₁ = p / (s₁ p + s₂ q) at draws of q, and f₂ = q / (s₁ p + s₂ q) at draws of p, for a normalised p.
    first = np.exp(at_proposals - log_z - np.logaddexp(log_s1 + at_proposals - log_z, log_s2))
    second = np.exp(-np.logaddexp(log_s1 + at_draws - log_z, log_s2))
    variance = lambda f, n: f.var(ddof=1) / f.mean() ** 2 / n
    relative = variance(first, n2) + variance(second, effective_size(second))
    return log_z, float(np.sqrt(relative))
