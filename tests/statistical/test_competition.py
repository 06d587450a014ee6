"""All competition problems whose tables fit: log Z and marginals as printed, within 8 GB and minutes."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from competition import check_problem

from energax.algorithms.junction.tree import JunctionTree

PROBLEMS = (
    *(f"DBN_{i}" for i in (11, 13, 15)),
    *(f"Grids_{i}" for i in (11, 13)),
    *(f"ObjectDetection_{i}" for i in (11, 34)),
    *(f"Pedigree_{i}" for i in (11, 13)),
    *(f"Promedus_{i}" for i in (12, 15, 20, 22, 26, 28, 30, 32, 34, 36, 38)),
    *(f"Segmentation_{i}" for i in (12, 14, 16)),
    "CSP_12",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_competition_problems(shared_data, name):
    check_problem(shared_data / "uai2014", name)


def grid_log_z(n, ones, pairs):
    """log Z of an n × n grid by sites one after the other: a table over the last n of them."""
    front, log_z = np.ones(()), 0.0
    for v in range(n * n):
        sites = [*range(max(0, v - n), v), v]
        front = front[..., None] * ones[v]
        for u in ([v - n] if v >= n else []) + ([v - 1] if v % n else []):
            shape = [2 if site in (u, v) else 1 for site in sites]
            front = front * pairs[u, v].reshape(shape)
        if len(sites) > n:
            front = front.sum(0)
        log_z += np.log(front.sum())
        front = front / front.sum()
    return log_z


@pytest.mark.slow
def test_a_swept_grid_has_the_sum_of_its_transfer_matrices():
    n, rng = 18, np.random.default_rng(0)
    ones = np.exp(rng.normal(size=(n * n, 2)))
    below = [(v, v + n) for v in range(n * (n - 1))]
    beside = [(v, v + 1) for v in range(n * n) if (v + 1) % n]
    pairs = {edge: np.exp(rng.normal(size=(2, 2))) for edge in below + beside}
    tables = [np.log(table) for table in (*ones, *pairs.values())]
    with jax.enable_x64(True):
        tree = JunctionTree.build((2,) * (n * n), [(v,) for v in range(n * n)] + list(pairs))
        assert tree.width == n
        log_z = float(tree.log_partition(tables, [np.zeros(2)] * (n * n)))
    assert log_z == pytest.approx(grid_log_z(n, ones, pairs), rel=1e-12)
