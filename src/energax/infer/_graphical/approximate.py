"""Approximate answers on networks that are too wide for a junction tree: messages on loops, mean field."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.factors.loopy import loopy
from ...algorithms.factors.mean_field import mean_field
from ...errors import BadInput, Unsuitable
from ...estimate import Estimate
from ...parameters import cached_on
from .._method import Cost, Method
from .._posterior import Posterior
from .._query import Query
from .message_passing import on_host


class OnTables(Method):
    """What approximations on tables share: rows one after another, on what is left once they are known."""

    tasks = frozenset({"posterior", "log_prob", "log_partition"})

    def unsupported_reason(self, task, query):
        if not hasattr(query.energy, "tables"):
            return f"needs tables over finite variables, which {type(query.energy).__name__} has not"
        return None

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        tables = cached_on(query.energy, "tables", on_host)
        return Cost(n_bytes=2 * sum(t.nbytes for t in tables.logs))

    @abstractmethod
    def run(self, tables: Any, evidence: Any, key: Any) -> Any:
        """The beliefs of one row."""

    @abstractmethod
    def log_z(self, found: Any) -> Any:
        """log Z as these beliefs have it."""

    def rows(self, query: Query, key: Any) -> list[tuple[Any, Any]]:
        """(tables, beliefs) of every row."""
        tables = cached_on(query.energy, "tables", on_host)
        keys = jax.random.split(jax.random.key(0) if key is None else key, query.n)
        out = []
        for i in range(query.n):
            rest, evidence = tables.given(jax.tree.map(lambda a, i=i: a[i], query.given))
            if not rest.names:
                raise BadInput("given", "values of all variables", "something left to find")
            out.append((rest, self.run(rest, evidence, keys[i])))
        return out

    def posterior(self, query, key):
        return ApproximatePosterior(query, key, self)

    def log_partition(self, query, key):
        ((_, found),) = self.rows(query, key)
        return Estimate(
            np.asarray(self.log_z(found)), kind=self.kind("log_partition", query), method=self.label
        )

    def log_prob(self, query, key):
        log_z = np.stack([self.log_z(found) for _, found in self.rows(query, key)])
        whole = self.log_partition(Query(query.energy, {}), key).value
        return Estimate(log_z - whole, kind="estimate", method=self.label)


class BeliefPropagation(OnTables):
    """Sum-product messages on a graph with loops, damped, until they stop changing.

    message f→v(x_v) ∝ Σ f(x) Π_{u≠v} message u→f(x_u). Exact on a tree; elsewhere the usual
    approximation, with the Bethe estimate of log Z. The posterior says by `converged`, `iterations` and
    `change` how the messages ended.

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

    @property
    def label(self):
        return "belief propagation"

    def why(self, task, query):
        return "messages on loops cost no more than the tables"

    def run(self, tables, evidence, key):
        settings = {"damping": self.damping, "max_iter": self.max_iter, "tol": self.tol}
        return loopy(tables.cards, tables.scopes, tables.logs, evidence, **settings)

    def log_z(self, found):
        return np.asarray(found.log_z)


class MeanField(OnTables):
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

    @property
    def label(self):
        return "mean field"

    def why(self, task, query):
        return "a product of independent variables is cheap, and bounds log Z from below"

    def kind(self, task, query):
        return "lower bound" if task == "log_partition" else "estimate"

    def run(self, tables, evidence, key):
        settings = {"n_init": self.n_init, "max_iter": self.max_iter, "tol": self.tol}
        return mean_field(tables.cards, tables.scopes, tables.logs, evidence, key=key, **settings)

    def log_z(self, found):
        return np.asarray(found.elbo)


class ApproximatePosterior(Posterior):
    """Beliefs about every hidden variable, and how the search for them ended (`converged`, one a row)."""

    kind = "estimate"

    def __init__(self, query: Query, key: Any, by: OnTables):
        super().__init__(query, key)
        self._by, self.method = by, by.label

    def _rows(self) -> Any:
        return self._once("rows", lambda: self._by.rows(self._query, self._key))

    @property
    def converged(self) -> Any:
        return self._query.answer(np.array([bool(found.converged) for _, found in self._rows()]))

    @property
    def iterations(self) -> Any:
        return self._query.answer(np.array([int(found.iterations) for _, found in self._rows()]))

    @property
    def change(self) -> Any:
        """Of a message, or of the bound, in the last iteration."""
        return self._query.answer(np.array([float(found.change) for _, found in self._rows()]))

    def _marginals(self):
        rows, spaces = self._rows(), self._query.spaces
        found = {n: np.stack([b.variables[i] for _, b in rows]) for i, n in enumerate(rows[0][0].names)}
        return {n: Labelled.of(found[n], spaces[n].labels) for n in spaces if n in found}

    def _mean(self):
        return {}

    def _log_evidence(self):
        estimate = self._by.log_prob(self._query, self._key)
        return estimate if self._query.many else estimate[0]

    def _only_single(self, what: str) -> Unsuitable:
        return Unsuitable(
            f"{what}: {self._by.label} knows single variables only. Use MessagePassing() if its tree fits, "
            "or draws: sample(energy, n, given, Gibbs(), key=0)."
        )

    def _mode(self):
        raise self._only_single("mode")

    def _joint(self, names):
        if len(names) == 1:
            return np.asarray(self._marginals()[names[0]])
        raise self._only_single("joint")

    def _sample(self, n, key):
        raise self._only_single("sample")
