"""Variable elimination: exact inference for one query at a time."""

from __future__ import annotations

import numpy as np

from ..._util.labelled import Labelled
from ...errors import Unsuitable
from ...estimate import Estimate
from .._method import Method
from .._posterior import Posterior
from .._query import Query
from .message_passing import check_possible, solver_of, unsupported_without_tables


class VariableElimination(Method):
    """log Σ Π φ with the sums moved into the product: exact, for log Z and for few variables at a time.

    The elimination order is found by opt_einsum. For a single number or a single joint table this needs
    less memory than a junction tree, which computes all marginals together.

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
        return unsupported_without_tables(query)

    def why(self, task, query):
        return "sums are moved into the product"

    def posterior(self, query, key):
        check_possible(query, _log_z(query))
        return EliminationPosterior(query, key)

    def log_partition(self, query, key):
        return Estimate(_log_z(query)[0], kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = _log_z(Query(query.energy, {}))[0]
        return Estimate(_log_z(query) - log_z, kind="exact", method=self.label)


class EliminationPosterior(Posterior):
    """p(hidden | given), with one elimination per variable or joint table."""

    method = "variable elimination"
    kind = "exact"

    def _compute_marginals(self):
        spaces = self._query.spaces
        return {n: Labelled.of(self._compute_joint((n,)), spaces[n].labels) for n in self.spaces}

    def _compute_mean(self):
        return {}

    def _compute_joint(self, names):
        return solver_of(self._query).eliminate(names, self._query.given, self._query.n)

    def _compute_log_evidence(self):
        estimate = VariableElimination().log_prob(self._query, None)
        return estimate if self._query.batched else estimate[0]

    def _compute_mode(self):
        raise self._unsupported("mode")

    def _draw(self, n, key):
        raise self._unsupported("sample")

    def _unsupported(self, task: str) -> Unsuitable:
        return Unsuitable(f"{task}: variable elimination computes sums only. Use MessagePassing().")


def _log_z(query: Query) -> np.ndarray:
    return np.asarray(solver_of(query).eliminate((), query.given, query.n))
