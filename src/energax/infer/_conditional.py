"""F(given) of every row, by knowledge or enumeration: what log p(y | x) is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import finite
from ..errors import Intractable, Unsuitable
from ._enumeration import Enumeration, _count, _free_energy, _size, _to_sum, _width
from ._exact import Exact, _sums_out
from ._exact import _free_energy as _known_free_energy
from ._question import Question, map_rows


def free_energy_rows(question: Question, method: Any = None) -> tuple[np.ndarray, str]:
    """(F of every row, the name of the method)."""
    if method is not None and not isinstance(method, (Exact, Enumeration)):
        raise Unsuitable(
            f"log_prob(..., given=): {type(method).__name__} gives no exact free energy. Use Enumeration()."
        )
    if _sums_out(question) and not isinstance(method, Enumeration):
        return map_rows(_known_free_energy, question.given, question.n, question.energy), "exact"
    limit = finite.ENUMERATION_LIMIT if method is None or isinstance(method, Exact) else method._limit
    size = _size("log_prob", question)
    if size is None or size > limit:
        raise Intractable(
            "log_prob(..., given=)",
            f"a sum over {_count(size)} joint values",
            f"{limit:,}",
            "Give the energy `free_energy`, or make what is hidden smaller.",
        )
    these, rows = _to_sum(question)
    with finite.enumeration_limit(limit):
        free = map_rows(
            _free_energy, rows, question.n, question.energy, these, numbers_per_row=_width(question, these)
        )
    return free, "enumeration"
