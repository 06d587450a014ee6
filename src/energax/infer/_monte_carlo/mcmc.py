"""Markov chain Monte Carlo: posteriors and draws by the chains of a sampler."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._util.arguments import NONE, check_arguments, instance
from ...energy import Energy, checked_energy
from ...errors import BadInput, EnergaxError, check_whole_number
from ...missing import value_of
from ...samplers import Draws, Sampler, run_chains
from .._expectation import values_at
from .._map_rows import fill_missing, map_rows
from .._method import Cost, Method
from .._posterior import Posterior, draws_by_row, has_mean
from .._query import Query
from .weights import mean_of_draws


class MCMC(Method):
    """Draws from p(hidden | given) ∝ exp(−e(given, hidden)) by Markov chains of a sampler.

    A sampler passed as `method=` is an `MCMC` with these defaults.

    Args:
        sampler: `Gibbs()`, `NUTS()` or another sampler.
        n_chains: chains that run in parallel; R̂ needs at least two.
        warmup: moves of each chain that are discarded; the sampler may tune its settings in them.
        thin: moves for every draw that is kept.
        n_draws: draws of `posterior`, over all chains; `sample` has its own n.
        progress: whether a bar shows how many draws are done.
        path: a new folder to write the draws of one example to, from where they are then read; None keeps
            them in memory. `samplers.read_draws` reads them again.
        mesh: a `jax.sharding.Mesh`; the chains are split over all its devices.

    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization:
    an improved R̂.

    >>> from energax.energies import RBM
    >>> from energax.infer import sample
    >>> from energax.samplers import Gibbs
    >>> rbm = RBM(np.zeros((3, 2), "f"), np.zeros(3, "f"), np.zeros(2, "f"))
    >>> sample(rbm, 2000, method=MCMC(Gibbs(), warmup=10), key=0).verdict[:33]
    'no problem found (Gibbs, 4 chains'
    """

    sampler: Sampler
    n_chains: int = eqx.field(static=True, default=4)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    n_draws: int = eqx.field(static=True, default=2000)
    progress: bool = eqx.field(static=True, default=False)
    path: Any = eqx.field(static=True, default=None)
    mesh: Any = eqx.field(static=True, default=None)

    tasks = frozenset({"posterior", "sample"})
    priority = 50

    def __check_init__(self):
        if not isinstance(self.sampler, Sampler):
            raise BadInput("sampler", type(self.sampler).__name__, "a Sampler, such as Gibbs()")
        for name, least in (("n_chains", 1), ("warmup", 0), ("thin", 1), ("n_draws", 1)):
            check_whole_number(name, getattr(self, name), least)
        if not isinstance(self.progress, bool):
            raise BadInput("progress", repr(self.progress), "True or False")
        check_arguments(self, mesh=instance(jax.sharding.Mesh, "a jax.sharding.Mesh") | NONE)
        if self.mesh is not None and self.n_chains % self.mesh.size:
            found = f"{self.n_chains} on {self.mesh.size} devices"
            raise BadInput("n_chains", found, "a multiple of the number of devices")

    @property
    def label(self):
        return self.sampler.label

    def unsupported_reason(self, task, query):
        if self.path is not None and query.batched:
            return "writes the draws of one example, not of rows, to a path"
        fixed = self.sampler.unmoved(query.partially_observed)
        if fixed:
            return f"does not move the missing coordinates of {fixed}"
        try:
            self.sampler.check(_clamp(query))
        except EnergaxError as error:
            return f"does not fit: {str(error).rstrip('.')}"
        return None

    def why(self, task, query):
        why = "no exact method supports the query, and a chain needs only the energy"
        if all(space.is_finite for space in query.targets.values()):
            return why
        return f"{why} (with many separated modes use ParallelTempering or TemperedSMC)"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        moves = self.warmup * self.n_chains + self.thin * self.n_draws
        size = sum(max(1, s.size) for s in query.targets.values())
        return Cost(evaluations=query.n * moves, n_bytes=4 * query.n * self.n_draws * size)

    def sample(self, query, n, key):
        return run_chains(
            self.sampler,
            query.energy,
            n,
            key=key,
            given=query.given,
            n_rows=query.n if query.batched else None,
            n_chains=self.n_chains,
            warmup=self.warmup,
            thin=self.thin,
            progress=self.progress,
            path=self.path,
            mesh=self.mesh,
        )

    def posterior(self, query, key):
        return SampledPosterior(query, self.sample(query, self.n_draws, key), key)


def _clamp(query: Query) -> Energy:
    """Return the energy that a chain moves in: with the completely given variables of one row clamped."""
    complete = {k: value_of(v)[0] for k, v in query.given.items() if k not in query.partially_observed}
    return query.energy.given(**complete) if complete else query.energy


class SampledPosterior(Posterior):
    """p(hidden | given) as draws.

    Attributes:
        draws: the `Draws`.
        verdict: their convergence, in words.
    """

    kind = "estimate"

    def __init__(self, query: Query, draws: Draws, key: Any = None):
        super().__init__(query, key)
        self.draws, self.method = draws, draws.method

    @property
    def verdict(self) -> str:
        return self.draws.verdict

    @property
    def problem(self) -> str:
        return self.draws.problem

    def _rows(self) -> dict[str, np.ndarray]:
        """Return the draws with an axis of rows, (n_draws, rows, …), also for one example."""
        values = {k: np.asarray(v) for k, v in self.draws.items()}
        return values if self._query.batched else {k: v[:, None] for k, v in values.items()}

    def _compute_mode(self):
        """Return the draw of lowest energy."""
        rows = {k: np.moveaxis(v, 0, 1) for k, v in self._rows().items()}
        q, both = self._query, {"given": self._query.given, "draws": rows}
        best = map_rows(_best_draw, both, q.n, q.energy, numbers_per_row=self.draws.n)
        return {k: v[np.arange(q.n), best] for k, v in rows.items()}

    def _compute_marginals(self):
        out = {}
        for name, values in self._rows().items():
            space = self.spaces[name]
            if space.is_finite:
                frequencies = [(values == v).mean(0) for v in range(space.values_per_coordinate)]
                out[name] = np.stack(frequencies, axis=-1)
        return out

    def _compute_mean(self):
        return {k: v.mean(0) for k, v in self._rows().items() if has_mean(self.spaces[k])}

    def _compute_expectation(self, function, key):
        values = values_at(self._query, draws_by_row(self._query, self.draws), function)
        return mean_of_draws(values, self.draws)

    def _compute_joint(self, names):
        shape = [self.spaces[n].n_values for n in names]
        rows = self._rows()
        flat = np.zeros(rows[names[0]].shape[:2], int)
        for name, size in zip(names, shape, strict=True):
            space, values = self.spaces[name], rows[name]
            digits = values.reshape(*values.shape[:2], -1).astype(int)
            index = np.zeros(digits.shape[:2], int)
            for i in range(space.size):
                index = index * space.values_per_coordinate + digits[..., i]
            flat = flat * size + index
        n_values = int(np.prod(shape))
        counts = [np.bincount(flat[:, row], minlength=n_values) for row in range(self._query.n)]
        return np.stack(counts) / flat.shape[0]

    def _draw(self, n, key):
        """Return `n` of the draws, chosen at random."""
        chosen = np.asarray(jax.random.choice(key, self.draws.n, (n,), replace=n > self.draws.n))
        chains = {k: v[chosen][None] for k, v in self.draws.items()}
        return Draws(chains, method=f"{self.method}, resampled", chains_checked=self.draws)


def _best_draw(row, key, energy):
    energy_of = lambda values: checked_energy(energy, fill_missing(row["given"], values))
    return jax.vmap(energy_of)(row["draws"]).argmin()
