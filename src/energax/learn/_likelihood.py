"""Exact maximum likelihood, and maximum a posteriori."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..energy import free_energy, log_partition_cost
from ..errors import Unsuitable
from ..finite import ENUMERATION_LIMIT
from ._objective import Objective


class NegativeLogLikelihood(Objective):
    """mean F(x) + log Z, plus prior(θ) / n if there is one.

    `prior` is a function from the energy to a number: one more energy, over θ. Divided by
    `n_rows`, the number of rows in the whole data set, it makes the estimate MAP.
    """

    prior: Callable[[Any], Any] | None = None
    n_rows: float | None = None
    partner: None = None

    def check(self, energy, data):
        if self.prior is not None and not self.n_rows:
            raise Unsuitable("NegativeLogLikelihood(prior=) needs n_rows=, the size of the data set.")
        _, cost = log_partition_cost(energy)
        if not energy.knows("log_partition") and (cost is None or cost > ENUMERATION_LIMIT):
            raise Unsuitable(
                f"NegativeLogLikelihood needs log Z, which {type(energy).__name__} does not know and which "
                "cannot be enumerated. Use ContrastiveDivergence, NoiseContrastive or ScoreMatching."
            )

    def __call__(self, energy, batch, carry, key):
        terms = {
            "free energy": batch.mean(batch.map(lambda **row: free_energy(energy, row))),
            "log partition": energy.log_partition(),
        }
        if self.prior is not None:
            terms["prior"] = self.prior(energy) / self.n_rows
        return terms, carry
