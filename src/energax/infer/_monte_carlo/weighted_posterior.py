"""Posteriors made of weighted draws, and the draws with their effective sizes and Pareto k̂."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.weights import effective_sample_size, log_mean_weight, normalise_weights, weighted_mean
from ...energy import checked_energy
from ...estimate import Estimate, Kind
from ...samplers import Draws
from .._expectation import values_at
from .._map_rows import fill_missing, map_rows
from .._posterior import Posterior, draws_by_row, has_mean
from .._query import Query
from .weights import GOOD_PARETO_K, least_effective_draws, pareto_k


class WeightedDraws(Draws):
    """Independent draws of a proposal, with weights: E[f] ≈ Σ w f.

    Args:
        rows: arrays by name, (rows, n, …).
        log_weights: (rows, n).
        method: the name of the method.
        batched: whether the draws keep their axis of rows.
        is_bounded: whether the weights are known to be bounded, so that only their effective number counts.
        remedy: what to do about weights that cannot be trusted.

    Attributes:
        log_weights: log w up to a constant, (n,), or (n, rows) for rows.
        weights: weights that sum to one, in the same shape.
    """

    def __init__(
        self,
        rows: dict[str, Any],
        log_weights: Any,
        *,
        method: str,
        batched: bool,
        is_bounded: bool = False,
        remedy: str = "",
    ):
        chains = {k: np.swapaxes(v, 0, 1)[None] if batched else v[:1] for k, v in rows.items()}
        super().__init__(chains, method=method)
        self._batched, self._is_bounded, self._remedy = batched, is_bounded, remedy
        self.row_log_weights = np.asarray(log_weights)

    @property
    def log_weights(self) -> np.ndarray:
        return self._by_draw(self.row_log_weights)

    @property
    def weights(self) -> np.ndarray:
        return self._by_draw(self.row_weights).astype(self.row_log_weights.dtype)

    @functools.cached_property
    def row_weights(self) -> np.ndarray:
        """Weights that sum to one, (rows, n), in float64."""
        return normalise_weights(self.row_log_weights)

    def _by_draw(self, weights: np.ndarray) -> np.ndarray:
        return weights.T if self._batched else weights[0]

    # -- diagnostics -----------------------------------------------------------------------------

    @property
    def effective_draws(self) -> Any:
        """The effective sample size 1 / Σ w² of the weights; one per row."""
        return self._row_effective if self._batched else self._row_effective[0]

    @property
    def pareto_k(self) -> Any:
        """The Pareto k̂ of the weights; one per row. Above 0.7 they cannot be trusted."""
        return self._row_pareto_k if self._batched else self._row_pareto_k[0]

    @functools.cached_property
    def _row_effective(self) -> np.ndarray:
        return np.nan_to_num(effective_sample_size(self.row_weights), nan=0.0)

    @functools.cached_property
    def _row_pareto_k(self) -> np.ndarray:
        return pareto_k(self.row_log_weights)

    @functools.cached_property
    def ess(self) -> np.ndarray:
        return np.full(self._diagnosed.shape[-1], self._row_effective.min())

    @functools.cached_property
    def ess_tail(self) -> np.ndarray:
        return self.ess

    @functools.cached_property
    def rhat(self) -> np.ndarray:
        return np.full(self._diagnosed.shape[-1], np.nan)

    @functools.cached_property
    def problem(self) -> str:
        if np.isnan(self.row_log_weights).any():
            return "the weights of some draws are not numbers"
        few = self._row_effective < least_effective_draws(self.n)
        if few.any():
            where = f" in {int(few.sum())} of {few.size} rows" if self._batched else ""
            found = f"only {self._row_effective.min():.1f} of {self.n} draws are effective{where}"
            return f"{found}; {self._remedy}" if self._remedy else found
        if self._is_bounded:
            return ""
        wild = self._row_pareto_k > GOOD_PARETO_K
        if wild.any():
            where = f" in {int(wild.sum())} of {wild.size} rows" if self._batched else ""
            found = f"Pareto k-hat is {self._row_pareto_k.max():.2f}, above {GOOD_PARETO_K}{where}"
            return f"{found}; {self._remedy}" if self._remedy else found
        return ""

    @functools.cached_property
    def verdict(self) -> str:
        summary = f"at least {self._row_effective.min():.0f} of {self.n} weighted draws are effective"
        if not self._is_bounded:
            summary += f", Pareto k-hat at most {self._row_pareto_k.max():.2f}"
        if self.problem:
            return f"unreliable ({self.method}): {self.problem}"
        return f"no problem found ({self.method}): {summary}"


class WeightedPosterior(Posterior):
    """p(hidden | given) as weighted draws.

    Args:
        query: the query.
        draws: the `WeightedDraws`, of all hidden variables.
        key: the key of the query.
        log_normaliser: log Z, if mean weights are exp(−F(given)) and Z is known; the log evidence is then
            that of the same draws.
        evidence_kind: its kind.

    Attributes:
        draws: the `WeightedDraws`, with `weights`.
        verdict: whether the weights can be trusted, in words.
    """

    kind = "estimate"

    def __init__(
        self,
        query: Query,
        draws: WeightedDraws,
        key: Any = None,
        log_normaliser: Any = None,
        evidence_kind: Kind = "estimate",
    ):
        super().__init__(query, key)
        self.draws, self.method = draws, draws.method
        self._log_normaliser, self._evidence_kind = log_normaliser, evidence_kind

    @property
    def weights(self) -> np.ndarray:
        """Weights of the draws that sum to one, (n,), or (n, rows) for rows."""
        return self.draws.weights

    @property
    def effective_draws(self) -> Any:
        """The effective sample size 1 / Σ w² of the weights, one per row."""
        return self.draws.effective_draws

    @property
    def pareto_k(self) -> Any:
        """The Pareto k̂ of the weights, one per row. Above 0.7 they cannot be trusted."""
        return self.draws.pareto_k

    @property
    def verdict(self) -> str:
        return self.draws.verdict

    @property
    def problem(self) -> str:
        return self.draws.problem

    def _rows(self) -> dict[str, np.ndarray]:
        return draws_by_row(self._query, self.draws)

    def _compute_mode(self):
        """Return the draw of lowest energy."""
        rows, q = self._rows(), self._query
        both = {"given": q.given, "draws": rows}
        best = map_rows(_lowest_energy, both, q.n, q.energy, numbers_per_row=self.draws.n * q.width)
        return {k: v[np.arange(q.n), best] for k, v in rows.items()}

    def _compute_marginals(self):
        found = {}
        for name, values in self._rows().items():
            space = self.spaces[name]
            if space.is_finite:
                is_value = [values == v for v in range(space.values_per_coordinate)]
                found[name] = np.stack([self._mean_of(v) for v in is_value], axis=-1)
        return found

    def _compute_mean(self):
        return {k: self._mean_of(v) for k, v in self._rows().items() if has_mean(self.spaces[k])}

    def _mean_of(self, values: np.ndarray) -> np.ndarray:
        """Return Σ w f of every row, in the precision of the weights."""
        mean, _ = weighted_mean(values, self.draws.row_weights)
        return mean.astype(self.draws.row_log_weights.dtype)

    def _compute_joint(self, names):
        rows, spaces = self._rows(), self.spaces
        index = np.zeros(self.draws.row_weights.shape, int)
        for name in names:
            digits = rows[name].reshape(*index.shape, -1).astype(int)
            for i in range(digits.shape[-1]):
                index = index * spaces[name].values_per_coordinate + digits[..., i]
        n = int(np.prod([spaces[name].n_values for name in names]))
        pairs = zip(index, self.draws.row_weights, strict=True)
        return np.stack([np.bincount(i, w, minlength=n) for i, w in pairs])

    def _draw(self, n, key):
        """Return `n` draws, chosen with probabilities that are the weights."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        chosen = [generator.choice(self.draws.n, n, p=w) for w in self.draws.row_weights]
        picked = {
            k: np.stack([v[i] for v, i in zip(v, chosen, strict=True)]) for k, v in self._rows().items()
        }
        chains = {k: np.swapaxes(v, 0, 1)[None] if self._query.batched else v for k, v in picked.items()}
        return Draws(chains, method=f"{self.method}, resampled", chains_checked=self.draws)

    def _compute_expectation(self, function, key):
        values = values_at(self._query, self._rows(), function)
        return weighted_mean(values, self.draws.row_weights)

    def _compute_log_evidence(self):
        if self._log_normaliser is None or not self._query.given:
            return super()._compute_log_evidence()
        value, error = log_mean_weight(self.draws.row_log_weights)
        dtype = jnp.zeros(()).dtype
        value = np.asarray(value - self._log_normaliser, dtype)
        estimate = Estimate(value, np.asarray(error, dtype), self._evidence_kind, self.method)
        return estimate if self._query.batched else estimate[0]


def _lowest_energy(row, key, energy):
    energy_of = lambda values: checked_energy(energy, fill_missing(row["given"], values))
    return jax.vmap(energy_of)(row["draws"]).argmin()
