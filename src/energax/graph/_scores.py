"""Scores of directed structures given data, as sums over families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, xlogy

from ..errors import BadInput
from ._contingency import Columns
from ._validation import check_directed

if TYPE_CHECKING:
    import networkx as nx


def _likelihood(counts: np.ndarray) -> float:
    """Σ N_jk log(N_jk / N_j): the log-likelihood at its maximum."""
    rows = counts.sum(1)
    return float(xlogy(counts, counts).sum() - xlogy(rows, rows).sum())


def _dirichlet(counts: np.ndarray, alpha: float) -> float:
    """log ∫ Π θ_jk^N_jk over independent Dirichlet(alpha) rows; rows without counts add 0."""
    rows, card = counts.sum(1), counts.shape[1]
    counts, rows = counts[rows > 0], rows[rows > 0]
    cells = counts[counts > 0]
    inside = gammaln(cells + alpha).sum() - len(cells) * gammaln(alpha)
    return float(inside + len(rows) * gammaln(card * alpha) - gammaln(rows + card * alpha).sum())


#: name -> score(counts (rows, states), number of parents' combinations, sum of weights, size of the prior)
SCORES: dict[str, Callable[[np.ndarray, int, float, float], float]] = {
    "likelihood": lambda counts, q, n, size: _likelihood(counts),
    "bic": lambda counts, q, n, size: _likelihood(counts) - 0.5 * math.log(n) * q * (counts.shape[1] - 1),
    "aic": lambda counts, q, n, size: _likelihood(counts) - q * (counts.shape[1] - 1),
    "k2": lambda counts, q, n, size: _dirichlet(counts, 1.0),
    "bdeu": lambda counts, q, n, size: _dirichlet(counts, size / (q * counts.shape[1])),
}


class FamilyScores:
    """The scores of families of one data set, cached."""

    def __init__(self, columns: Columns, score: str = "bic", equivalent_sample_size: float = 1.0):
        if score not in SCORES:
            raise BadInput("score", repr(score), f"one of {', '.join(SCORES)}")
        if not (math.isfinite(equivalent_sample_size) and equivalent_sample_size > 0):
            raise BadInput("equivalent_sample_size", f"{equivalent_sample_size}", "a number above 0")
        if columns.weights is not None and columns.total < 2:
            remedy = "If the weights sum to one, multiply them by the number of rows."
            raise BadInput("weights", f"the sum {columns.total:.4g}", "how often each row counts", remedy)
        columns.check_complete("a score")
        self.columns = columns.merge_rows()
        self._score, self._size = SCORES[score], float(equivalent_sample_size)
        self._cache: dict[tuple[int, frozenset[int]], float] = {}

    def _score_counts(self, counts: np.ndarray, parents: frozenset[int]) -> float:
        q = math.prod(self.columns.cards[u] for u in parents)
        return self._score(counts, q, self.columns.total, self._size)

    def family(self, child: int, parents: frozenset[int]) -> float:
        """The score of one variable with its parents."""
        key = (child, parents)
        if key not in self._cache:
            index, size = self.columns.combinations(sorted(parents))
            self._cache[key] = self._score_counts(self.columns.table(index, size, child), parents)
        return self._cache[key]

    def toggle_gains(self, child: int, parents: frozenset[int]) -> np.ndarray:
        """The change of the score, (d,), when each variable joins the parents, or leaves them."""
        current = self.family(child, parents)
        index, size = self.columns.combinations(sorted(parents))
        change = np.zeros(len(self.columns.names))
        for u in range(len(change)):
            if u == child:
                continue
            family = parents ^ {u}
            key = (child, family)
            if key not in self._cache and u not in parents:  # extend the combinations of the parents
                card = self.columns.cards[u]
                if self.columns.fits(size * card):
                    joint = index * card + self.columns.codes[u]
                    self._cache[key] = self._score_counts(
                        self.columns.table(joint, size * card, child), family
                    )
            change[u] = self.family(child, family) - current
        return change


def family_score(
    data: Any,
    cards: Mapping[Any, int] | Sequence[int] | None,
    child: Any,
    parents: Iterable[Any] = (),
    *,
    score: str = "bic",
    equivalent_sample_size: float = 1.0,
    names: Sequence[Any] | None = None,
    weights: Any = None,
) -> float:
    """The score of one variable given its parents, in nats; larger is better.

    With counts N_jk of the child's state k under the parents' combination j (q combinations, r states):

    - "likelihood": Σ N_jk log(N_jk / N_j), which more parents never lower;
    - "bic", "aic": the likelihood minus (log n)/2 or 1 for each of the q (r − 1) free parameters;
    - "k2", "bdeu": log p(data) with a Dirichlet prior on each row, of ones (k2) or of
      equivalent_sample_size / (q r) (bdeu).

    `data` are rows of states 0, 1, …, shape (n, d), a mapping of columns or a data frame. `weights`
    count rows more than once; n is their sum. Missing entries raise an error: scores of families
    counted on different rows cannot be compared.

    >>> rows = [[0, 0], [0, 0], [1, 1], [1, 1]]
    >>> round(family_score(rows, [2, 2], "x1", ["x0"], score="likelihood"), 6) + 0.0
    0.0
    >>> round(family_score(rows, [2, 2], "x1", score="likelihood"), 3)  # 4 log ½
    -2.773

    References: Schwarz, Ann. Statist. 6, 1978; Cooper and Herskovits, Machine Learning 9, 1992 (k2);
    Heckerman, Geiger and Chickering, Machine Learning 20, 1995 (bdeu).
    """
    columns = Columns.from_data(data, cards, names, weights)
    scores = FamilyScores(columns, score, equivalent_sample_size)
    at = columns.index(child, "child")
    group = frozenset(columns.index(parent, "parents") for parent in parents)
    if at in group:
        raise BadInput("parents", f"{child!r}, the child itself", "other variables")
    return scores.family(at, group)


def structure_score(
    data: Any,
    cards: Mapping[Any, int] | Sequence[int] | None,
    graph: nx.DiGraph,
    *,
    score: str = "bic",
    equivalent_sample_size: float = 1.0,
    names: Sequence[Any] | None = None,
    weights: Any = None,
) -> float:
    """The score of a directed graph: the sum of `family_score` over its nodes.

    Likelihood, bic, aic and bdeu give graphs of one equivalence class the same score; k2 does not.

    >>> import networkx as nx
    >>> rows, one, other = [[0, 0], [0, 1], [1, 1]], nx.DiGraph([("x0", "x1")]), nx.DiGraph([("x1", "x0")])
    >>> bool(np.isclose(structure_score(rows, None, one), structure_score(rows, None, other)))
    True
    """
    check_directed(graph)
    columns = Columns.from_data(data, cards, names, weights)
    scores = FamilyScores(columns, score, equivalent_sample_size)
    absent = [name for name in columns.names if name not in graph]
    if absent:
        raise BadInput("graph", f"no node {absent[0]!r}", "a node for every column of the data")
    where = {node: columns.index(node, "graph") for node in graph}
    return math.fsum(
        scores.family(where[node], frozenset(where[parent] for parent in graph.predecessors(node)))
        for node in graph
    )
