"""Lower bounds of log p(x) by the energy's own variational distribution of its hidden variables."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax

from ...energy import Energy, free_energy
from ...errors import BadInput, check_whole_number
from ...estimate import Estimate
from .._exact.closed_form import Exact
from .._exact.enumeration import Enumeration
from .._map_rows import map_rows
from .._method import Cost, Method
from .._monte_carlo.annealed import AnnealedImportance
from .._monte_carlo.weighing import log_mean
from .._monte_carlo.weights import warn_low_ess
from .._query import Query

#: Draws for an energy that has only `propose`.
_DRAWS = 100
#: Draws whose free energies are computed together.
_AT_ONCE = 50


class VariationalBound(Method):
    """A lower bound of log p(x) = −F(x) − log Z, by the energy's own approximation q(z | x).

    Without draws, F(x) ≤ E_q[e(x, z)] − H(q), the energy's `free_energy_bound`. With K draws of the
    energy's `propose`, F(x) ≤ −E log (1/K) Σ_k exp(−F(x, z_k)) / q(z_k | x), which falls to F(x) with K.
    Where log Z is not exact, it is replaced by the upper bound of annealed chains that run back from the
    model, so that log p(x) is still bounded from below in expectation.

    Args:
        n_samples: K; None is the bound without draws if the energy has it, else 100.

    Salakhutdinov and Murray (2008), On the quantitative analysis of deep belief networks; Burda, Grosse and
    Salakhutdinov (2016), Importance weighted autoencoders.

    >>> from energax.energies import DeepBoltzmannMachine
    >>> from energax.infer import log_prob
    >>> machine = DeepBoltzmannMachine.random((4, 3, 2), key=0)
    >>> log_prob(machine, {"x": [0, 1, 0, 1]}, VariationalBound())              # near −4 log 2 = −2.773
    -2.78... (lower bound)
    """

    n_samples: int | None = eqx.field(static=True, default=None)

    tasks = frozenset({"log_prob"})
    deterministic = True

    def __check_init__(self):
        if self.n_samples is not None:
            check_whole_number("n_samples", self.n_samples)

    def _needs_draws(self, energy: Energy, names: Any) -> bool:
        return self.n_samples is not None or not energy.knows("free_energy_bound", names)

    def unsupported_reason(self, task, query):
        energy, names = query.energy, query.names
        if query.partially_observed:
            return f"needs complete values of {list(query.partially_observed)}"
        known = energy.knows("propose" if self._needs_draws(energy, names) else "free_energy_bound", names)
        if not known:
            what = f"needs `free_energy_bound` or `propose` given {', '.join(names)}"
            return f"{what}, which {type(energy).__name__} does not have"
        return None

    def why(self, task, query):
        return f"{type(query.energy).__name__} has an approximation of its hidden variables"

    def kind(self, task, query):
        return "lower bound"

    def cost(self, task, query):
        k = self.n_samples or _DRAWS if self._needs_draws(query.energy, query.names) else 1
        return Cost(evaluations=query.n * k)

    def log_prob(self, query, key):
        row_key, z_key = (None, None) if key is None else jax.random.split(key)
        log_z = _log_partition(query.energy, z_key)
        if not self._needs_draws(query.energy, query.names):
            value, error = -map_rows(_bound, query.given, query.n, query.energy), 0.0
        else:
            k = self.n_samples or _DRAWS
            width = min(k, _AT_ONCE) * query.width
            row_key = _check_key(row_key, "draws of the hidden variables")
            arguments = (query.given, query.n, query.energy, k)
            value, error, ess = map_rows(_weigh, *arguments, key=row_key, numbers_per_row=width)
            if k > 1:
                warn_low_ess(type(self).__name__, ess, k, "log p(x)", "Use more n_samples.")
            error = error if k > 1 else 0.0
        found = Estimate(value, error, "lower bound", self.label) - log_z
        return Estimate(found.value, found.stderr, "lower bound", self.label, found.shared)


def _bound(row, key, energy):
    return energy.free_energy_bound(**row)


def _weigh(row, key, energy, k):
    def log_weight(sub):
        values, log_q = energy.propose(sub, **row)
        return -free_energy(energy, {**row, **values}) - log_q

    return log_mean(jax.lax.map(log_weight, jax.random.split(key, k), batch_size=min(k, _AT_ONCE)))


def _log_partition(energy: Any, key: Any) -> Estimate:
    """Return log Z, exact or an upper bound."""
    query = Query(energy, {})
    for method in (Exact(), Enumeration()):
        if method.unsupported_reason("log_partition", query) is None:
            return method.log_partition(query, key)
    whole, _ = energy.undirected() if energy.knows("undirected") else (energy, {})
    return AnnealedImportance().bracket(whole, key=_check_key(key, "an annealed log Z"))[1]


def _check_key(key: Any, what: str) -> Any:
    if key is None:
        raise BadInput("key", "none", "an int or a JAX key", f"The bound uses {what}; pass key=0.")
    return key
