"""Variable elimination as a method: one question at a time, along the cheapest order found."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.factors.elimination import eliminate
from ...errors import Unsuitable
from ...estimate import Estimate
from .._method import Method
from .._posterior import Posterior
from .._query import Query
from .message_passing import check_possible, solve


class VariableElimination(Method):
    """log Σ Π φ with the sums pushed into the product: exact, for log Z and for few variables at a time.

    The order is opt_einsum's. Where a single number or a single joint table is asked, this needs less
    memory than a junction tree, which answers for all variables at once.

    Zhang and Poole (1996), Exploiting causal independence in Bayesian network inference.

    >>> from energax import posterior
    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])})
    >>> posterior(net, {"wet": 1}, VariableElimination()).joint("rain").round(3)
    array([0.333, 0.667])
    """

    tasks = frozenset({"posterior", "log_prob", "log_partition"})

    @property
    def label(self):
        return "variable elimination"

    def unsupported_reason(self, task, query):
        if not hasattr(query.energy, "tables"):
            return f"needs tables over finite variables, which {type(query.energy).__name__} has not"
        return None

    def why(self, task, query):
        return "sums are pushed into the product"

    def posterior(self, query, key):
        check_possible(query, _log_z(query))
        return EliminatedPosterior(query, key)

    def log_partition(self, query, key):
        return Estimate(_log_z(query)[0], kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = _log_z(Query(query.energy, {}))[0]
        return Estimate(_log_z(query) - log_z, kind="exact", method=self.label)


class EliminatedPosterior(Posterior):
    """p(hidden | given), each variable or joint table by an elimination of its own."""

    method = "variable elimination"
    kind = "exact"

    def _marginals(self):
        spaces = self._query.spaces
        return {n: Labelled.of(self._joint((n,)), spaces[n].labels) for n in self.spaces}

    def _mean(self):
        return {}

    def _joint(self, names):
        return solve(functools.partial(_kept, names=names), self._query, together=False)

    def _log_evidence(self):
        estimate = VariableElimination().log_prob(self._query, None)
        return estimate if self._query.many else estimate[0]

    def _mode(self):
        raise self._refusal("mode")

    def _sample(self, n, key):
        raise self._refusal("sample")

    def _refusal(self, what: str) -> Unsuitable:
        return Unsuitable(f"{what}: variable elimination only sums. Use MessagePassing().")


def _log_z(query: Query) -> np.ndarray:
    return np.asarray(solve(functools.partial(_kept, names=()), query, together=False))


def _kept(tables: Any, evidence: Any, key: Any, names: tuple[str, ...]) -> Any:
    if not tables.names:
        return np.asarray(sum(tables.logs))
    keep = tuple(tables.names.index(n) for n in names)
    log_joint = np.asarray(eliminate(tables.cards, tables.scopes, tables.logs, evidence, keep))
    if not names:
        return log_joint
    table = np.exp(log_joint - log_joint.max())
    return table / table.sum()
