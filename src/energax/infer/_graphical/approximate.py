"""Approximate inference in finite models too large for a junction tree: belief propagation, mean field."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import numpy as np

from ..._util.arguments import NONE, POSITIVE_NUMBER, WHOLE, check_arguments, number
from ..._util.labelled import Labelled
from ...algorithms.factors.loopy import loopy
from ...algorithms.factors.mean_field import mean_field
from ...errors import BadInput, Unsuitable
from ...estimate import Estimate
from .._method import Cost, Method
from .._posterior import Posterior
from .._query import Query
from .message_passing import solver_of, unsupported_without_tables


class TableApproximation(Method):
    """Base of approximations on factor tables: rows are computed one by one, on the hidden variables."""

    tasks = frozenset({"posterior", "log_prob", "log_partition"})

    def unsupported_reason(self, task, query):
        return unsupported_without_tables(query)

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        return Cost(n_bytes=2 * sum(t.nbytes for t in solver_of(query).tables.logs))

    @abstractmethod
    def run(self, tables: Any, evidence: Any, key: Any) -> Any:
        """The result of the algorithm for one row."""

    @abstractmethod
    def log_z(self, result: Any) -> Any:
        """log Z according to a result of `run`."""

    def run_rows(self, query: Query, key: Any) -> list[tuple[Any, Any]]:
        """The tables of the hidden variables and the result of `run`, for every row."""
        tables = solver_of(query).tables
        keys = jax.random.split(jax.random.key(0) if key is None else key, query.n)
        results = []
        for i in range(query.n):
            rest, evidence = tables.given(jax.tree.map(lambda a, i=i: a[i], query.given))
            if not rest.names:
                raise BadInput("given", "values of all variables", "at least one hidden variable")
            results.append((rest, self.run(rest, evidence, keys[i])))
        return results

    def posterior(self, query, key):
        return ApproximatePosterior(query, key, self)

    def log_partition(self, query, key):
        ((_, result),) = self.run_rows(query, key)
        return Estimate(
            np.asarray(self.log_z(result)), kind=self.kind("log_partition", query), method=self.label
        )

    def log_prob(self, query, key):
        log_evidence = np.stack([self.log_z(result) for _, result in self.run_rows(query, key)])
        log_z = self.log_partition(Query(query.energy, {}), key).value
        return Estimate(log_evidence - log_z, kind="estimate", method=self.label)


class BeliefPropagation(TableApproximation):
    """Loopy belief propagation: damped sum-product messages, until they stop changing.

    message f→v(x_v) ∝ Σ f(x) Π_{u≠v} message u→f(x_u). Exact on a tree; on other graphs an
    approximation, with the Bethe estimate of log Z. `converged`, `iterations` and `change` of the
    posterior describe the convergence.

    Pearl (1988); Murphy, Weiss and Jordan (1999), Loopy belief propagation for approximate inference.

    >>> from energax import posterior
    >>> from energax.energies import MarkovField
    >>> ring = MarkovField({tuple(p): [[2.0, 1.0], [1.0, 2.0]] for p in ("ab", "bc", "ca")})
    >>> found = posterior(ring, {"a": 0}, BeliefPropagation())
    >>> found.marginals["b"].round(2), bool(found.converged)
    (array([0.71, 0.29]), True)
    """

    deterministic = True

    damping: float = 0.5
    max_iter: int = 1000
    tol: float | None = None

    def __check_init__(self):
        damping = number(lambda value: 0 <= value < 1, "a number from 0 to below 1")
        check_arguments(self, damping=damping, max_iter=WHOLE, tol=POSITIVE_NUMBER | NONE)

    @property
    def label(self):
        return "belief propagation"

    def why(self, task, query):
        return "messages need no more memory than the tables"

    def run(self, tables, evidence, key):
        settings = {"damping": self.damping, "max_iter": self.max_iter, "tol": self.tol}
        return loopy(tables.cards, tables.scopes, tables.logs, evidence, **settings)

    def log_z(self, result):
        return np.asarray(result.log_z)


class MeanField(TableApproximation):
    """The best product of independent variables, q = Π q_v, by coordinate ascent from several starts.

    log Z is at least E_q[Σ log f] + H(q): a lower bound.

    Saul, Jaakkola and Jordan (1996), Mean field theory for sigmoid belief networks.

    >>> from energax import log_partition
    >>> from energax.energies import MarkovField
    >>> pair = MarkovField({("a", "b"): [[3.0, 1.0], [1.0, 3.0]]})               # log Z = log 8 = 2.079
    >>> log_partition(pair, MeanField(), key=0)
    1.936 (lower bound)
    """

    n_init: int = 8
    max_iter: int = 500
    tol: float | None = None

    def __check_init__(self):
        check_arguments(self, n_init=WHOLE, max_iter=WHOLE, tol=POSITIVE_NUMBER | NONE)

    @property
    def label(self):
        return "mean field"

    def why(self, task, query):
        return "a product of independent variables is cheap and gives a lower bound of log Z"

    def kind(self, task, query):
        return "lower bound" if task == "log_partition" else "estimate"

    def run(self, tables, evidence, key):
        settings = {"n_init": self.n_init, "max_iter": self.max_iter, "tol": self.tol}
        return mean_field(tables.cards, tables.scopes, tables.logs, evidence, key=key, **settings)

    def log_z(self, result):
        return np.asarray(result.elbo)


class ApproximatePosterior(Posterior):
    """Approximate marginals of every hidden variable, and the convergence of each row."""

    kind = "estimate"

    def __init__(self, query: Query, key: Any, approximation: TableApproximation):
        super().__init__(query, key)
        self._approximation, self.method = approximation, approximation.label

    def _rows(self) -> Any:
        return self._cached("rows", lambda: self._approximation.run_rows(self._query, self._key))

    @property
    def converged(self) -> Any:
        """Whether the iteration converged, one value per row."""
        return self._query.unbatch(np.array([bool(result.converged) for _, result in self._rows()]))

    @property
    def problem(self) -> str:
        if np.all(self.converged):
            return ""
        return f"it did not converge in {np.max(self.iterations)} iterations: use a larger max_iter"

    @property
    def iterations(self) -> Any:
        """The number of iterations, one per row."""
        return self._query.unbatch(np.array([int(result.iterations) for _, result in self._rows()]))

    @property
    def change(self) -> Any:
        """The change of the messages, or of the bound, in the last iteration; one number per row."""
        return self._query.unbatch(np.array([float(result.change) for _, result in self._rows()]))

    def _compute_marginals(self):
        rows, spaces = self._rows(), self._query.spaces
        found = {n: np.stack([r.variables[i] for _, r in rows]) for i, n in enumerate(rows[0][0].names)}
        return {n: Labelled.of(found[n], spaces[n].labels) for n in spaces if n in found}

    def _compute_mean(self):
        return {}

    def _compute_log_evidence(self):
        estimate = self._approximation.log_prob(self._query, self._key)
        return estimate if self._query.batched else estimate[0]

    def _unsupported(self, task: str) -> Unsuitable:
        return Unsuitable(
            f"{task}: {self.method} gives marginals of single variables only. Use MessagePassing() if its "
            "tree fits in memory, or draws: sample(energy, n, given, Gibbs(), key=0)."
        )

    def _compute_mode(self):
        raise self._unsupported("mode")

    def _compute_joint(self, names):
        if len(names) == 1:
            return np.asarray(self._compute_marginals()[names[0]])
        raise self._unsupported("joint")

    def _draw(self, n, key):
        raise self._unsupported("sample")
