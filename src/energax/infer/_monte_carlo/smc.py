"""Tempered sequential Monte Carlo: particles from a fitted base to the model, for draws and log Z."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import FRACTION, WHOLE, check_arguments, whole
from ..._util.arrays import asarray
from ...programs import jit
from ...samplers import Draws, Sampler
from .._method import Cost, Method
from .annealing import DATA, SAMPLER, Annealing, annealing_reason, prepare
from .weights import as_estimate, log_mean_weight, warn_low_ess

#: Halvings of the interval in which the next β is searched.
_HALVINGS = 40
_MOST_STAGES = 1000


class TemperedSMC(Method):
    """Sequential Monte Carlo along p_β ∝ q^(1 − β) exp(−β e), for log Z and for draws.

    Particles start at draws of a base q that is fitted to the energy by a pilot run. The next β is the one at
    which the weights p̃_β′ / p̃_β have the effective size `ess` · n; particles are then resampled
    (systematically) and moved `n_moves` times. The product of the mean weights is an estimate of Z.
    `n_runs` independent runs give its standard error. Draws are taken from the runs by their estimates of Z,
    so that separated modes have nearly their probabilities; the number of particles limits how nearly.

    Args:
        n_particles: particles of a run.
        n_runs: independent runs, at least 2.
        ess: the effective size at which the next β is chosen, as a share of the particles.
        n_moves: moves of every particle at each β.
        sampler: the moves; None is the default sampler of the energy.
        data: rows by name, whose rates or moments the base has instead of those of a pilot run.

    Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers; Jasra, Stephens, Doucet and Tsagaris
    (2011), Inference for Lévy-driven stochastic volatility models via adaptive sequential Monte Carlo.

    >>> from energax import log_partition
    >>> from energax.energies import RBM
    >>> rbm = RBM.random(9, 6, key=0, scale=1.0)
    >>> found, exact = log_partition(rbm, TemperedSMC(), key=0), log_partition(rbm)
    >>> bool(abs(found.value - exact.value) < 5 * found.stderr)
    True
    """

    tasks = frozenset({"log_partition", "sample"})

    n_particles: int = eqx.field(static=True, default=256)
    n_runs: int = eqx.field(static=True, default=16)
    ess: float = eqx.field(static=True, default=0.8)
    n_moves: int = eqx.field(static=True, default=5)
    sampler: Sampler | None = None
    data: Any = None

    def __check_init__(self):
        check_arguments(self, n_particles=whole(2), n_runs=whole(2), n_moves=WHOLE)
        check_arguments(self, ess=FRACTION, sampler=SAMPLER, data=DATA)

    @property
    def label(self):
        return "tempered SMC"

    def unsupported_reason(self, task, query):
        if query.given:
            return f"draws all variables, and {list(query.given)} are given: use energy.given(…)"
        return annealing_reason(query.energy, self.sampler)

    def why(self, task, query):
        return "particles move from a base to the model, and find its separated modes"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        n = self.n_particles * self.n_runs
        stages = 2 + int(np.sqrt(sum(max(1, s.size) for s in query.spaces.values())))
        return Cost(evaluations=n * stages * (self.n_moves + 1), n_bytes=8 * n * query.width)

    def log_partition(self, query, key):
        _, runs, _ = self._run(query.energy, key)
        found = log_mean_weight(runs)
        warn_low_ess(
            type(self).__name__, np.asarray([found.ess]), self.n_runs, "log Z", "Use more n_particles."
        )
        return as_estimate(found.value, found.stderr, "estimate", self.label, self.n_runs - 1)

    def sample(self, query, n, key):
        run_key, pick_key, hidden_key = jax.random.split(key, 3)
        annealing, runs, states = self._run(query.energy, run_key)
        weights = np.exp(runs - runs.max())
        picked = np.asarray(
            jax.random.choice(
                pick_key,
                self.n_runs * self.n_particles,
                (n,),
                p=asarray(np.repeat(weights, self.n_particles) / (weights.sum() * self.n_particles)),
            )
        )
        chosen = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[picked], states)
        values = _complete(annealing, chosen, hidden_key)
        chains = {name: np.asarray(v)[None] for name, v in values.items()}
        share = weights.sum() ** 2 / (weights**2).sum()
        caveat = (
            f"taken with repetition from {self.n_runs} runs of {self.n_particles} particles, of which "
            f"{share:.1f} runs are effective"
        )
        return Draws(chains, method=self.label, exact=True, caveat=caveat)

    def _run(self, energy: Any, key: Any) -> tuple[Annealing, np.ndarray, dict[str, Any]]:
        """Return the path, log Z of every run, and its last particles (n_runs, n_particles, …)."""
        base_key, run_key = jax.random.split(key)
        annealing = prepare(energy, base_key, self.sampler, self.data)
        settings = (self.n_particles, self.n_moves, self.ess)
        log_z, states, beta = _run_all(annealing, *settings, jax.random.split(run_key, self.n_runs))
        log_z = np.where(np.asarray(beta) >= 1, np.asarray(log_z, float), -np.inf)
        return annealing, log_z, states


@jit
def _complete(annealing: Annealing, states: dict[str, Any], key: Any) -> dict[str, Any]:
    """Return all variables of the energy at states of the model."""
    return annealing.constrain(annealing.complete(states, jnp.ones(()), key))


@jit
def _run_all(annealing, n_particles, n_moves, ess, keys):
    return jax.vmap(lambda key: _run_one(annealing, n_particles, n_moves, ess, key))(keys)


def _run_one(annealing: Annealing, n_particles: int, n_moves: int, ess: float, key: Any) -> Any:
    """Return log Z, the particles at β = 1, and the last β, which is 1 unless there were too many stages."""
    from blackjax.smc.resampling import systematic

    start_key, key = jax.random.split(key)
    states = annealing.start(n_particles, start_key)

    def stage(carry):
        t, beta, log_z, states = carry
        resample_key, move_key = jax.random.split(jax.random.fold_in(key, t))
        after = _next_beta(annealing, states, beta, ess * n_particles)
        log_w = annealing.log_ratios(states, beta, after)
        log_z = log_z + jax.nn.logsumexp(log_w) - np.log(n_particles)
        index = systematic(resample_key, jax.nn.softmax(log_w), n_particles)
        states = jax.tree.map(lambda a: a[index], states)
        return t + 1, after, log_z, annealing.move(states, after, move_key, n_moves)

    go_on = lambda carry: (carry[1] < 1) & (carry[0] < _MOST_STAGES)
    zero = jnp.zeros(())
    _, beta, log_z, states = jax.lax.while_loop(go_on, stage, (0, zero, zero, states))
    return log_z, states, beta


def _next_beta(annealing: Annealing, states: dict[str, Any], beta: Any, wanted: Any) -> Any:
    """Return the next β, at most 1, at which the weights have the wanted effective size."""

    def effective(after):
        log_w = annealing.log_ratios(states, beta, after)
        return jnp.exp(2 * jax.nn.logsumexp(log_w) - jax.nn.logsumexp(2 * log_w))

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        enough = effective(middle) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    one = jnp.ones_like(beta)
    low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (beta, one))
    # The least step keeps particles with extreme weights from standing still.
    return jnp.where(effective(one) >= wanted, one, jnp.minimum(jnp.maximum(low, beta + 1e-5), one))
