"""Networks from the literature come back from their own draws."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from energax.data._model_files import load_tables
from energax.graph._equivalence import equivalent, skeleton
from energax.graph._hill_climbing import hill_climb
from energax.graph._scores import structure_score

pytestmark = pytest.mark.slow


def draw(model, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.zeros((n, len(model.names)), int)
    for name in nx.topological_sort(model.graph()):
        v = model.names.index(name)
        p = model.tables[v][tuple(rows[:, u] for u in model.parents(v))]
        rows[:, v] = (np.cumsum(np.broadcast_to(p, (n, p.shape[-1])), 1)[:, :-1] < rng.random((n, 1))).sum(1)
    return rows


@pytest.mark.parametrize(
    ("name", "n", "extra", "lacking"),
    [("asia", 50_000, 0, 0), ("sachs", 20_000, 0, 0), ("child", 20_000, 1, 1), ("alarm", 10_000, 5, 3)],
)
def test_the_skeleton_comes_back(shared_data, name, n, extra, lacking):
    model = load_tables(shared_data / "bayesnets-bif" / f"{name}.bif.gz")
    truth = model.graph()
    rows = draw(model, n, seed=0)
    found = hill_climb(rows, model.cards, names=model.names, tabu=200)
    # The truth is one of the graphs searched: a score below its own would be a failed search.
    assert found.score >= structure_score(rows, model.cards, truth, names=model.names) - 1e-6
    mine, its = ({frozenset(e) for e in skeleton(g).edges} for g in (found.graph, truth))
    assert len(mine - its) <= extra and len(its - mine) <= lacking
    if extra == lacking == 0:
        assert equivalent(found.graph, truth)
