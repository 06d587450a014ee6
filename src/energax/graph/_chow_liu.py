"""The tree of highest likelihood, by the algorithm of Chow and Liu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import xlogy

from ..errors import BadInput
from ._contingency import Columns

if TYPE_CHECKING:
    import networkx as nx


def mutual_information(
    data: Any,
    cards: Mapping[Any, int] | Sequence[int] | None = None,
    weights: Any = None,
    *,
    names: Sequence[Any] | None = None,
    observed: Any = None,
) -> np.ndarray:
    """I(u; v) = Σ p(u, v) log p(u, v) / (p(u) p(v)) of every pair of columns, in nats, shape (d, d).

    p are the observed frequencies; the diagonal holds the entropies, I(u; u) = H(u). A pair is counted
    in the rows where both are observed; a pair that is never observed together has none.

    >>> mutual_information([[0, 0], [0, 0], [1, 1], [1, 1]]).round(3).tolist()  # log 2
    [[0.693, 0.693], [0.693, 0.693]]
    """
    return _pairwise_information(Columns.from_data(data, cards, names, weights, observed))


def _pairwise_information(columns: Columns) -> np.ndarray:
    columns = columns.merge_rows()
    d = len(columns.names)
    result = np.zeros((d, d))
    for u in range(d):
        for v in range(u, d):
            joint = columns.pair(u, v)
            n = joint.sum()
            if n > 0:
                rows, cols = joint.sum(1), joint.sum(0)
                nats = xlogy(joint, joint).sum() + xlogy(n, n) - xlogy(rows, rows).sum()
                result[u, v] = result[v, u] = max((nats - xlogy(cols, cols).sum()) / n, 0.0)
    return result


def chow_liu(
    data: Any,
    cards: Mapping[Any, int] | Sequence[int] | None = None,
    weights: Any = None,
    root: Any = None,
    *,
    names: Sequence[Any] | None = None,
    observed: Any = None,
) -> nx.DiGraph:
    """The tree of highest likelihood: a maximum spanning tree of the mutual informations.

    For every tree, log-likelihood / n = Σ_edges I(u; v) − Σ_nodes H(v), so that only the first sum
    matters. Arrows point away from `root` (by default the first column); any root gives the same
    likelihood. Edges carry their `information` in nats. Ties go to the earlier column.

    `data` are rows of states 0, 1, …, shape (n, d), a mapping of columns or a data frame; entries may be
    missing (NaN, a mask, or False in `observed`), and then each pair is counted in the rows where both
    are observed. With few such rows the information is overestimated.

    >>> rng = np.random.default_rng(0)
    >>> rain = rng.integers(0, 2, 500)
    >>> wet = rain ^ (rng.random(500) < 0.1)
    >>> slip = wet ^ (rng.random(500) < 0.1)
    >>> tree = chow_liu({"slip": slip, "rain": rain, "wet": wet}, root="rain")
    >>> list(tree.edges)
    [('rain', 'wet'), ('wet', 'slip')]

    Reference: Chow and Liu, IEEE Trans. Inform. Theory 14, 1968.
    """
    import networkx as nx

    columns = Columns.from_data(data, cards, names, weights, observed)
    start = 0 if root is None else columns.index(root, "root")
    if columns.observed is not None:
        _check_no_empty_column(columns)
    informations = _pairwise_information(columns)
    tree = nx.DiGraph()
    tree.add_nodes_from(columns.names)
    d = len(columns.names)
    nearest, inside = np.full(d, start), np.zeros(d, bool)
    inside[start] = True
    for _ in range(d - 1):  # Prim's algorithm, which grows the tree from its root
        reach = np.where(inside, -np.inf, informations[nearest, np.arange(d)])
        new = int(np.argmax(reach))
        tree.add_edge(columns.names[nearest[new]], columns.names[new], information=float(reach[new]))
        inside[new] = True
        closer = informations[new] > informations[nearest, np.arange(d)]
        nearest = np.where(closer & ~inside, new, nearest)
    return tree


def _check_no_empty_column(columns: Columns) -> None:
    assert columns.observed is not None
    counted = columns.observed if columns.weights is None else columns.observed & (columns.weights > 0)
    is_empty = ~counted.any(1)
    if is_empty.any():
        name = columns.names[int(np.argmax(is_empty))]
        raise BadInput("data", f"no observed entry of {name}", "some observed entries in every column")
