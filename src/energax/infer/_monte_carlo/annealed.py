"""Annealed importance sampling: log Z by Markov chains from the uniform distribution to the model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.factors.gibbs import anneal_tables
from ...energy import Energy, checked_energy
from ...errors import BadInput, check_whole_number
from ...estimate import Estimate
from ...programs import jit
from ...samplers import Gibbs, Sampler, knows_conditional
from .._graphical.approximate import TableApproximation
from .._method import Cost
from .._query import Query
from .importance import intractable_reason, log_mean, log_prob_by_estimated_log_z, warn_low_ess


class AnnealedImportance(TableApproximation):
    """Annealed importance sampling of log Z, and of log p(x) = −F(x) − log Z.

    p_β ∝ exp(−β e), for β from 0, the uniform distribution, to 1, the model, in `n_steps` equal steps. A
    chain makes one move at each β and has the weight w = exp(−Σ_t (β_{t+1} − β_t) e(state_t)) Z_0. Weights
    are unbiased for Z, so that log mean w is a lower bound in expectation; its standard error comes from
    their spread.

    Networks of tables are swept by the colours of their graph, and log p(x) may sum out any of their
    variables. Other energies over finite variables are moved by `sampler`, and log p(x) needs their exact
    free energy.

    Args:
        n_chains: chains, one weight each; more lower the standard error.
        n_steps: steps of β; more lower the spread of the weights.
        sampler: the moves for energies without tables; None is `Gibbs()`.

    Neal (2001), Annealed importance sampling; Salakhutdinov and Murray (2008), On the quantitative
    analysis of deep belief networks.

    >>> from energax import log_partition
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.eye(40), jnp.zeros(40), jnp.zeros(40))                # log Z = 40 log(3 + e) = 69.7
    >>> found = log_partition(rbm, AnnealedImportance(), key=0)
    >>> bool(abs(found.value - 40 * np.log(3 + np.e)) < 4 * found.stderr)
    True
    """

    tasks = frozenset({"log_prob", "log_partition"})

    n_chains: int = eqx.field(static=True, default=256)
    n_steps: int = eqx.field(static=True, default=500)
    sampler: Sampler | None = None

    def __check_init__(self):
        check_whole_number("n_chains", self.n_chains, 2)
        check_whole_number("n_steps", self.n_steps)
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise BadInput("sampler", type(self.sampler).__name__, "a sampler of energax.samplers, or None")

    @property
    def label(self):
        return "annealed importance"

    def unsupported_reason(self, task, query):
        if query.energy.knows("tables"):
            return None
        infinite = [f"{n!r} in {s!r}" for n, s in query.spaces.items() if not s.is_finite]
        if infinite:
            return f"starts from the uniform distribution, which does not exist for {', '.join(infinite)}"
        return intractable_reason(query) if task == "log_prob" else None

    def why(self, task, query):
        return "the cost of chains does not depend on the width of the graph"

    def cost(self, task, query):
        if query.energy.knows("tables"):
            return super().cost(task, query)
        spaces, energy = query.spaces, query.energy
        evaluations = 1
        for name, space in spaces.items():
            others = {k: jax.ShapeDtypeStruct(s.shape, s.jax_dtype) for k, s in spaces.items() if k != name}
            in_block = knows_conditional(energy / 2.0, name, others)
            evaluations += 1 if in_block else space.size * space.values_per_coordinate
        size = sum(s.size for s in spaces.values())
        return Cost(evaluations=evaluations * self.n_chains * self.n_steps, n_bytes=8 * self.n_chains * size)

    def run(self, tables, evidence, key):
        settings = {"n_chains": self.n_chains, "n_steps": self.n_steps}
        return anneal_tables(tables.cards, tables.scopes, tables.logs, evidence, key=key, **settings)

    def log_z(self, result):
        return np.asarray(result.value)

    def log_partition(self, query, key):
        if query.energy.knows("tables"):
            ((_, result),) = self.run_rows(query, key)
            return Estimate(result.value, result.stderr, "estimate", self.label)
        sampler = self.sampler or Gibbs()
        sampler.check(query.energy)
        log_weights = _log_weights(query.energy, sampler, self.n_chains, self.n_steps, key)
        value, error, ess = log_mean(log_weights)
        remedy = "Use more n_steps, or more n_chains."
        warn_low_ess(type(self).__name__, np.asarray([ess]), self.n_chains, "log Z", remedy)
        log_z0 = sum(s.size * np.log(s.values_per_coordinate) for s in query.spaces.values())
        return Estimate(np.asarray(value) + log_z0, np.asarray(error), "estimate", self.label)

    def log_prob(self, query, key):
        if not query.energy.knows("tables"):
            return log_prob_by_estimated_log_z(self, query, key)
        given_key, whole_key = jax.random.split(key)
        results = [result for _, result in self.run_rows(query, given_key)]
        values, errors = np.array([r.value for r in results]), np.array([r.stderr for r in results])
        log_z = self.log_partition(Query(query.energy, {}), whole_key)
        difference = Estimate(values, errors, "estimate") - log_z
        return Estimate(difference.value, difference.stderr, "estimate", self.label, difference.shared)


@jit
def _log_weights(energy: Energy, sampler: Sampler, n_chains: int, n_steps: int, key: Any) -> Any:
    """Return −Σ_t (β_{t+1} − β_t) e(state_t) of every chain, where state_t is drawn at β_t: (n_chains,)."""
    start_key, key = jax.random.split(key)
    starts = jax.vmap(lambda k: sampler.start(energy, {}, k))(jax.random.split(start_key, n_chains))
    energies = jax.vmap(lambda state: checked_energy(energy, state))

    def step(t, carry):
        state, log_w = carry
        log_w = log_w - energies(state) / n_steps
        temperature = n_steps / (t + 1.0)
        return sampler.advance(energy / temperature, state, 1, jax.random.fold_in(key, t)), log_w

    return jax.lax.fori_loop(0, n_steps, step, (starts, jnp.zeros_like(energies(starts))))[1]
