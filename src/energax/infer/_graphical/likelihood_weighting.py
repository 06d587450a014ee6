"""Likelihood weighting: hidden variables are drawn from their parents, given ones weight the draw."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ... import finite
from ..._util.arrays import asarray
from ..._util.labelled import Labelled
from ...algorithms.factors.weights import (
    effective_sample_size,
    log_mean_weight,
    normalise_weights,
    weighted_table,
)
from ...energy import checked_energy
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked
from ...programs import jit
from ...samplers import Draws
from .._method import Cost, Method
from .._posterior import Posterior
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

    def draw_rows(self, query: Query, key: Any) -> list[tuple[dict[str, Any], Any]]:
        """Draws of the hidden variables and their log weights, for every row."""
        rows = []
        for i, sub in enumerate(jax.random.split(key, query.n)):
            row = {k: asarray(v[i]) for k, v in query.given.items() if not is_masked(v)}
            rows.append(jax.tree.map(np.asarray, _weighted_draws(query.energy, row, sub, self.n_draws)))
        return rows

    def posterior(self, query, key):
        posterior = WeightedPosterior(query, key, self)
        for i, (_, log_weights) in enumerate(posterior.weighted_draws()):
            if np.isneginf(log_weights).all():
                where = f" in row {i}" if query.batched else ""
                raise BadInput(
                    "given",
                    f"evidence{where} that none of {self.n_draws:,} draws allows",
                    "more draws, or evidence of positive probability",
                    "Use MessagePassing() to find out whether it is impossible.",
                )
        return posterior

    def log_prob(self, query, key):
        return _log_evidence(self.draw_rows(query, key), self.label)


@jit
def _weighted_draws(energy: Any, row: dict[str, Any], key: Any, n: int) -> tuple[dict[str, Any], Any]:
    def one(key):
        values, log_weight = energy.ancestral_draw(key, row)
        return {k: v for k, v in values.items() if k not in row}, log_weight

    return jax.vmap(one)(jax.random.split(key, n))


_draw_indices = jit(finite.draw)


def _log_evidence(rows: list[tuple[dict[str, Any], Any]], label: str) -> Estimate:
    value, error = log_mean_weight(np.stack([log_weights for _, log_weights in rows]))
    return Estimate(value, error, kind="estimate", method=label)


class WeightedPosterior(Posterior):
    """p(hidden | given) as weighted draws."""

    kind = "estimate"
    method = "likelihood weighting"

    def __init__(self, query: Query, key: Any, weighting: LikelihoodWeighting):
        super().__init__(query, key)
        self._weighting = weighting

    def weighted_draws(self) -> Any:
        """Draws of the hidden variables and their log weights, for every row."""
        return self._cached("draws", lambda: self._weighting.draw_rows(self._query, self._key))

    def normalised_weights(self) -> list[np.ndarray]:
        """Weights of the draws that sum to one, for every row."""
        return [normalise_weights(log_weights) for _, log_weights in self.weighted_draws()]

    @property
    def effective_draws(self) -> Any:
        """The effective sample size 1 / Σ w² of the normalised weights, one per row."""
        sizes = [effective_sample_size(w) for w in self.normalised_weights()]
        return self._query.unbatch(np.array(sizes))

    def _compute_marginals(self):
        spaces = self._query.spaces
        return {n: Labelled.of(self._compute_joint((n,)), spaces[n].labels) for n in self.spaces}

    def _compute_mean(self):
        return {}

    def _compute_mode(self):
        modes = []
        for i, (draws, _) in enumerate(self.weighted_draws()):
            best = int(np.argmax(self._log_joint(draws, i)))
            modes.append({k: v[best] for k, v in draws.items()})
        return {k: np.stack([mode[k] for mode in modes]) for k in self.spaces}

    def _log_joint(self, draws: dict[str, Any], row: int) -> Any:
        query = self._query
        n = len(next(iter(draws.values())))
        given = {k: np.broadcast_to(v[row], n) for k, v in query.given.items()}
        return -jax.vmap(lambda row: checked_energy(query.energy, row))({**draws, **given})

    def _compute_joint(self, names):
        cards = tuple(self._query.spaces[n].n_values for n in names)
        rows = zip(self.weighted_draws(), self.normalised_weights(), strict=True)
        return np.stack([weighted_table([draws[n] for n in names], w, cards) for (draws, _), w in rows])

    def _draw(self, n, key):
        resampled = []
        keys = jax.random.split(key, self._query.n)
        for (draws, log_weights), sub in zip(self.weighted_draws(), keys, strict=True):
            index = np.asarray(_draw_indices(sub, asarray(log_weights), n))
            resampled.append({k: v[index] for k, v in draws.items()})
        values = {k: np.stack([r[k] for r in resampled], axis=1)[None] for k in self.spaces}
        values = values if self._query.batched else {k: v[:, :, 0] for k, v in values.items()}
        return Draws(values, method=self.method)

    def _compute_log_evidence(self):
        estimate = _log_evidence(self.weighted_draws(), self.method)
        return estimate if self._query.batched else estimate[0]
