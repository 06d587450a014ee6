"""Likelihood weighting: hidden variables are drawn from their parents, given ones weight the draw."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._util.arrays import asarray
from ...algorithms.weights import log_mean_weight
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked
from ...programs import jit
from .._method import Cost, Method
from .._monte_carlo.weighted_posterior import WeightedDraws, WeightedPosterior
from .._query import Query


class LikelihoodWeighting(Method):
    """Ancestral draws of a Bayesian network, each weighted by p(given variables | their parents).

    p(x | e) ≈ Σ w_s [x_s = x] / Σ w_s and p(e) ≈ mean w, with their standard errors. The cost does not
    depend on the width of the network. The estimates are poor if the evidence is improbable, which
    `effective_draws` shows.

    Fung and Chang (1990), Weighing and integrating evidence for stochastic simulation in Bayesian networks.

    >>> from energax import posterior
    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])})
    >>> found = posterior(net, {"wet": 1}, LikelihoodWeighting(20_000), key=0)
    >>> bool(abs(found.marginals["rain"][1] - 2 / 3) < 0.02)
    True
    """

    tasks = frozenset({"posterior", "log_prob"})

    n_draws: int = eqx.field(static=True, default=10_000)

    def __check_init__(self):
        if not isinstance(self.n_draws, int) or self.n_draws < 2:
            raise BadInput("n_draws", repr(self.n_draws), "a whole number >= 2")

    @property
    def label(self):
        return "likelihood weighting"

    def unsupported_reason(self, task, query):
        if not query.energy.knows("ancestral_draw"):
            return f"needs a Bayesian network; got {type(query.energy).__name__}"
        if any(not s.is_finite for s in query.spaces.values()):
            return "is for finite variables"
        if query.partially_observed:
            missing = list(query.partially_observed)
            return f"needs the same variables given in every row; some rows lack {missing}"
        return None

    def why(self, task, query):
        return "the cost of a draw does not depend on the width of the network"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        return Cost(evaluations=self.n_draws * query.n)

    def _draw(self, query: Query, key: Any) -> WeightedDraws:
        """Return weighted draws of the hidden variables of every row."""
        rows = []
        for i, sub in enumerate(jax.random.split(key, query.n)):
            row = {k: asarray(v[i]) for k, v in query.given.items() if not is_masked(v)}
            rows.append(jax.tree.map(np.asarray, _weighted_draws(query.energy, row, sub, self.n_draws)))
        values, log_weights = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
        return WeightedDraws(
            values,
            log_weights,
            method=self.label,
            batched=query.batched,
            is_bounded=True,
            remedy="use more n_draws, or MessagePassing()",
        )

    def posterior(self, query, key):
        draws = self._draw(query, key)
        impossible = np.isneginf(draws.row_log_weights).all(1)
        if impossible.any():
            where = f" in row {int(impossible.argmax())}" if query.batched else ""
            raise BadInput(
                "given",
                f"evidence{where} that none of {self.n_draws:,} draws allows",
                "more draws, or evidence of positive probability",
                "Use MessagePassing() to find out whether it is impossible.",
            )
        return WeightedPosterior(query, draws, key, log_normaliser=0.0)

    def log_prob(self, query, key):
        value, error = log_mean_weight(self._draw(query, key).row_log_weights)
        return Estimate(value, error, kind="estimate", method=self.label)


@jit
def _weighted_draws(energy: Any, row: dict[str, Any], key: Any, n: int) -> tuple[dict[str, Any], Any]:
    def one(key):
        values, log_weight = energy.ancestral_draw(key, row)
        return {k: v for k, v in values.items() if k not in row}, log_weight

    return jax.vmap(one)(jax.random.split(key, n))
