"""Annealed importance sampling: log Z by Markov chains from a fitted base to the model, and back."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._util.arguments import NONE, POSITIVE_NUMBER, WHOLE, check_arguments, whole
from ..._util.keys import as_key
from ...algorithms.factors.gibbs import anneal_tables
from ...energy import Energy
from ...errors import ConvergenceWarning, Unsuitable
from ...estimate import Estimate
from ...parameters import precision_of
from ...samplers import Sampler
from .._graphical.approximate import TableApproximation
from .._method import Cost
from .._query import Query
from .annealed_run import Run, draw_base, move_at_end, resample, run_schedule
from .annealing import DATA, SAMPLER, Annealing, annealing_reason, prepare
from .importance import intractable_reason, log_prob_by_estimated_log_z
from .schedule import even_schedule, local_costs, n_steps_for, place, spread
from .weights import LogMean, as_estimate, log_mean_weight, warn_low_ess

#: Steps of the trial runs that place the steps of β, and the least steps of the run that counts.
_TRIALS, _LEAST = (500, 1000), 1000
#: How many times as many steps as the last trial a run may have; beyond it there is another trial.
_GROWTH = 8
#: The share of the wanted standard error that is planned for, since the plan is itself uncertain.
_SHARE = 0.5
_REMEDY = "Use more n_steps or max_steps, or more n_chains."
#: Nats that a trial may exceed log Z by: weights are unbiased, so that more has a probability of e⁻⁴ at most.
_EXCESS = 4.0


class AnnealedImportance(TableApproximation):
    """Annealed importance sampling of log Z, and of log p(x) = −F(x) − log Z.

    p_β ∝ q^(1 − β) exp(−β e), for β from 0, a base of independent variables, to 1, the model. A chain makes
    one move at each β and has the weight w = Π_t p̃_{β_{t+1}}(state_t) / p̃_{β_t}(state_t). Weights are
    unbiased for Z, so that log mean w is a lower bound in expectation; its standard error comes from their
    spread. Hidden variables that can be summed out are summed out of the weights.

    The base has the rates, or the mean and covariance, of a pilot run of the model from noise. Trial runs
    place the steps of β, dense where weights spread most, and choose their number for the wanted standard
    error; the run that counts has a key of its own.

    `bracket` also runs chains from the model back to the base, whose weights give an upper bound. Networks of
    tables start at equal probabilities and are swept by the colours of their graph, and log p(x) may sum out
    any of their variables; log p(x) of other energies needs their exact free energy.

    Args:
        n_chains: chains, one weight each; more lower the standard error.
        n_steps: steps of β; None chooses them for `stderr`.
        sampler: the moves for energies without tables; None is the default sampler of the energy.
        stderr: the wanted standard error of log Z, if `n_steps` is None.
        max_steps: the most steps that are chosen.
        data: rows by name, whose rates or moments the base has instead of those of a pilot run.

    Neal (2001), Annealed importance sampling; Salakhutdinov and Murray (2008), On the quantitative
    analysis of deep belief networks; Burda, Grosse and Salakhutdinov (2015), Accurate and conservative
    estimates of MRF log-likelihood using reverse annealing.

    >>> from energax import log_partition
    >>> from energax.energies import RBM
    >>> rbm = RBM(np.eye(40, dtype="f"), np.zeros(40, "f"), np.zeros(40, "f"))   # log Z = 69.7
    >>> found = log_partition(rbm, AnnealedImportance(), key=0)
    >>> bool(abs(found.value - 40 * np.log(3 + np.e)) < 4 * found.stderr)
    True
    """

    tasks = frozenset({"log_prob", "log_partition"})

    n_chains: int = eqx.field(static=True, default=100)
    n_steps: int | None = eqx.field(static=True, default=None)
    sampler: Sampler | None = None
    stderr: float = eqx.field(static=True, default=0.1)
    max_steps: int = eqx.field(static=True, default=20000)
    data: Any = None

    def __check_init__(self):
        check_arguments(self, n_chains=whole(2), n_steps=WHOLE | NONE, max_steps=WHOLE)
        check_arguments(self, stderr=POSITIVE_NUMBER, sampler=SAMPLER, data=DATA)

    @property
    def label(self):
        return "annealed importance"

    def unsupported_reason(self, task, query):
        if query.energy.knows("tables"):
            return None
        reason = annealing_reason(query.energy, self.sampler)
        return reason or (intractable_reason(query) if task == "log_prob" else None)

    def why(self, task, query):
        return "the cost of chains does not depend on the width of the graph"

    def cost(self, task, query):
        if query.energy.knows("tables"):
            return super().cost(task, query)
        steps = sum(_TRIALS) + (self.n_steps or self.max_steps)
        size = sum(s.size for s in query.spaces.values())
        return Cost(evaluations=2 * self.n_chains * steps, n_bytes=8 * self.n_chains * size)

    # -- networks of tables ----------------------------------------------------------------------

    def run(self, tables, evidence, key):
        run = lambda n, k: anneal_tables(
            tables.cards, tables.scopes, tables.logs, evidence, key=k, n_chains=self.n_chains, n_steps=n
        )
        if self.n_steps is not None:
            return run(self.n_steps, key)
        steps, result = _TRIALS[0], None
        while result is None or (result.stderr > self.stderr and steps <= self.max_steps):
            key, sub = jax.random.split(key)
            result, steps = run(steps, sub), 4 * steps
        return result

    def log_z(self, result):
        return np.asarray(result.value)

    # -- the tasks -------------------------------------------------------------------------------

    def log_partition(self, query, key):
        if query.energy.knows("tables"):
            ((_, result),) = self.run_rows(query, key)
            return Estimate(result.value, result.stderr, "estimate", self.label)
        run = self._run_forward(query.energy, key)
        found = log_mean_weight(run.log_weights)
        warn_low_ess(type(self).__name__, np.asarray([found.ess]), self.n_chains, "log Z", _REMEDY)
        _warn_if_below_trial(found, run.highest_trial)
        return as_estimate(found.value, found.stderr, "estimate", self.label)

    def log_prob(self, query, key):
        if not query.energy.knows("tables"):
            return log_prob_by_estimated_log_z(self, query, key)
        given_key, whole_key = jax.random.split(key)
        results = [result for _, result in self.run_rows(query, given_key)]
        values, errors = np.array([r.value for r in results]), np.array([r.stderr for r in results])
        log_z = self.log_partition(Query(query.energy, {}), whole_key)
        difference = Estimate(values, errors, "estimate") - log_z
        return Estimate(difference.value, difference.stderr, "estimate", self.label, difference.shared)

    def bracket(self, energy: Energy, *, key: Any) -> tuple[Estimate, Estimate]:
        """Return log Z by chains to the model, and by chains from the model back to the base.

        The first is a lower bound in expectation. The second, −log mean(1 / w), is an upper bound in
        expectation if its chains start at draws of the model. They start at the ends of the first chains,
        resampled by their weights and moved on: if these miss a mode, both numbers do.

        >>> from energax.energies import RBM
        >>> rbm = RBM.random(12, 10, key=0, scale=0.5)
        >>> lower, upper = AnnealedImportance().bracket(rbm, key=0)
        >>> bool(abs(upper.value - lower.value) < 4 * (lower.stderr + upper.stderr)), upper.kind
        (True, 'upper bound')
        """
        query = Query(energy, {})
        query.check_inputs("bracket")
        reason = annealing_reason(energy, self.sampler)
        if reason is not None:
            raise Unsuitable(f"bracket: AnnealedImportance {reason}. Use log_partition(energy, key=0).")
        with precision_of(energy):
            forward_key, *keys = jax.random.split(as_key(key), 4)
            run = self._run_forward(energy, forward_key)
            states = resample(run.states, run.log_weights, keys[0])
            states = move_at_end(run.annealing, states, max(100, run.n_steps // 10), keys[1])
            pieces, _ = run_schedule(run.annealing, run.knots[::-1], run.n_steps, states, keys[2])
            forward, backward = log_mean_weight(run.log_weights), log_mean_weight(pieces.sum(0))
            _warn_if_below_trial(forward, run.highest_trial)
            for found in (forward, backward):
                warn_low_ess(type(self).__name__, np.asarray([found.ess]), self.n_chains, "log Z", _REMEDY)
            lower = as_estimate(forward.value, forward.stderr, "lower bound", self.label)
            upper = as_estimate(-backward.value, backward.stderr, "upper bound", f"reverse {self.label}")
        return lower, upper

    def _run_forward(self, energy: Energy, key: Any) -> Run:
        """Return the chains from the base to the model, after trial runs that place the steps."""
        base_key, trial_key, start_key, run_key = jax.random.split(key, 4)
        annealing = prepare(energy, base_key, self.sampler, self.data)
        knots, n_steps, highest = self._plan(annealing, trial_key)
        states = draw_base(annealing, self.n_chains, start_key)
        pieces, states = run_schedule(annealing, knots, n_steps, states, run_key)
        return Run(annealing, knots, n_steps, pieces.sum(0), states, highest)

    def _plan(self, annealing: Annealing, key: Any) -> tuple[np.ndarray, int, float]:
        """Return the ends of pieces of equal cost, the number of steps and log Z of the trial runs."""
        knots, steps = even_schedule(), list(_TRIALS)
        if self.n_steps is not None:
            steps = [min(max(self.n_steps, 100), _TRIALS[0])]
        n_chains, highest = max(self.n_chains, 64), -np.inf
        while True:
            key, start_key, run_key = jax.random.split(key, 3)
            trial = steps.pop(0)
            states = draw_base(annealing, n_chains, start_key)
            pieces, _ = run_schedule(annealing, knots, trial, states, run_key)
            knots = place(knots, local_costs(pieces))
            highest = max(highest, log_mean_weight(pieces.sum(0)).value)
            if steps:
                continue
            if self.n_steps is not None:
                return knots, self.n_steps, highest
            wanted = n_steps_for(trial * spread(pieces), self.n_chains, _SHARE * self.stderr)
            if wanted <= _GROWTH * trial or 4 * trial >= self.max_steps:
                n_steps = int(np.clip(wanted, min(_LEAST, self.max_steps), self.max_steps))
                return knots, n_steps, highest
            steps.append(4 * trial)


def _warn_if_below_trial(found: LogMean, trial: float) -> None:
    """Warn if a trial run found a mode that the run missed."""
    if trial > found.value + _EXCESS + 3 * found.stderr:
        warnings.warn(
            f"AnnealedImportance: log Z is {found.value:.2f} by the run and {trial:.2f} by a trial run with "
            "fewer steps, so that the run missed a mode of the energy. Use more n_chains, or data= from all "
            "modes.",
            ConvergenceWarning,
            stacklevel=4,
        )
