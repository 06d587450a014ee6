"""All competition problems whose tables fit: log Z and marginals as printed, within 8 GB and minutes."""

from __future__ import annotations

import pytest
from competition import check_problem

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
