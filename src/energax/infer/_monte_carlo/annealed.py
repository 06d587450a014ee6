"""Annealed importance sampling: log Z by chains that cool from independence to the model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.factors.gibbs import annealed_tables
from ...energy import Energy, checked_energy
from ...errors import BadInput, check_whole_number
from ...estimate import Estimate
from ...samplers import Gibbs, Sampler, knows_conditional
from .._graphical.approximate import OnTables
from .._method import Cost
from .._query import Query
from .importance import log_mean, log_prob_less_log_z, unsummable, warn_if_poor


class AnnealedImportance(OnTables):
    """log Z by chains that cool from independent variables to the model, each weighted by its way.

    p_β ∝ exp(−β e) for β from 0, where all values are equally probable, to 1, with one move of a chain at
    each. The weights are unbiased for Z, so that log mean w is a lower bound in expectation; the
    standard error is that of the mean. `n_steps` make the way smooth, `n_chains` the mean sharp.

    Networks of tables are swept a colour of their graph at a time, and log p(x) may leave out any of their
    variables. Any other energy over finite variables is moved by `sampler` (default: Gibbs, cheap where
    the energy knows its conditionals), and log p(x) needs its exact free energy.

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
        if hasattr(query.energy, "tables"):
            return None
        endless = [f"{n!r} in {s!r}" for n, s in query.spaces.items() if not s.is_finite]
        if endless:
            return f"starts where all values are equally probable, which {', '.join(endless)} have not"
        return unsummable(query) if task == "log_prob" else None

    def why(self, task, query):
        return "chains cost the same at any width"

    def cost(self, task, query):
        if hasattr(query.energy, "tables"):
            return super().cost(task, query)
        spaces, energy = query.spaces, query.energy
        moves = 1
        for name, space in spaces.items():
            others = {k: jax.ShapeDtypeStruct(s.shape, s.jax_dtype) for k, s in spaces.items() if k != name}
            known = knows_conditional(energy / 2.0, name, others)
            moves += 1 if known else space.size * space.values_per_coordinate
        size = sum(s.size for s in spaces.values())
        return Cost(evaluations=moves * self.n_chains * self.n_steps, n_bytes=8 * self.n_chains * size)

    def run(self, tables, evidence, key):
        settings = {"n_chains": self.n_chains, "n_steps": self.n_steps}
        return annealed_tables(tables.cards, tables.scopes, tables.logs, evidence, key=key, **settings)

    def log_z(self, found):
        return np.asarray(found.value)

    def log_partition(self, query, key):
        if hasattr(query.energy, "tables"):
            ((_, found),) = self.rows(query, key)
            return Estimate(found.value, found.stderr, "estimate", self.label)
        sampler = self.sampler or Gibbs()
        sampler.check(query.energy)
        log_weights = _log_weights(query.energy, sampler, self.n_chains, self.n_steps, key)
        value, error, effective = log_mean(log_weights)
        more = "Take more n_steps, or more n_chains."
        warn_if_poor(type(self).__name__, np.asarray([effective]), self.n_chains, "log Z", more)
        start = sum(s.size * np.log(s.values_per_coordinate) for s in query.spaces.values())
        return Estimate(np.asarray(value) + start, np.asarray(error), "estimate", self.label)

    def log_prob(self, query, key):
        if not hasattr(query.energy, "tables"):
            return log_prob_less_log_z(self, query, key)
        seen_key, whole_key = jax.random.split(key)
        rows = [found for _, found in self.rows(query, seen_key)]
        own = Estimate(np.array([f.value for f in rows]), np.array([f.stderr for f in rows]), "estimate")
        found = own - self.log_partition(Query(query.energy, {}), whole_key)
        return Estimate(found.value, found.stderr, "estimate", self.label, found.shared)


@eqx.filter_jit
def _log_weights(energy: Energy, sampler: Sampler, n_chains: int, n_steps: int, key: Any) -> Any:
    """log w = −Σ_t (β_{t+1} − β_t) e(state_t) of every chain, where state_t is drawn at β_t."""
    start_key, key = jax.random.split(key)
    starts = jax.vmap(lambda k: sampler.start(energy, {}, k))(jax.random.split(start_key, n_chains))
    energies = jax.vmap(lambda state: checked_energy(energy, state))

    def step(t, carry):
        state, log_w = carry
        log_w = log_w - energies(state) / n_steps
        temperature = n_steps / (t + 1.0)
        return sampler.advance(energy / temperature, state, 1, jax.random.fold_in(key, t)), log_w

    return jax.lax.fori_loop(0, n_steps, step, (starts, jnp.zeros_like(energies(starts))))[1]
