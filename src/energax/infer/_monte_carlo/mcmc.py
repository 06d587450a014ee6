"""Markov chains as an inference: a sampler, its warm-up, and how many chains."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ...energy import Energy, checked_energy
from ...errors import BadInput, EnergaxError
from ...missing import known
from ...samplers import Draws, Langevin, Sampler, run_chains
from .._method import Cost, Method
from .._posterior import Posterior, has_mean
from .._query import Query, map_rows, merged


class MCMC(Method):
    """`n_chains` Markov chains of a sampler; a bare sampler as `method=` is one with these defaults.

    Args:
        sampler: `Gibbs()`, `Langevin()`, ….
        n_chains: chains side by side; at least two can be compared with each other.
        warmup: moves thrown away, in which the sampler may tune itself.
        thin: moves for each draw kept.
        n_draws: draws that `posterior` makes (`sample` is told).

    >>> from energax.energies import RBM
    >>> from energax.infer import sample
    >>> from energax.samplers import Gibbs
    >>> rbm = RBM(np.zeros((3, 2), "f"), np.zeros(3, "f"), np.zeros(2, "f"))
    >>> sample(rbm, 2000, method=MCMC(Gibbs(), warmup=10), key=0).verdict[:35]
    'no sign of trouble (Gibbs, 4 chains'
    """

    sampler: Sampler
    n_chains: int = eqx.field(static=True, default=4)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    n_draws: int = eqx.field(static=True, default=2000)

    tasks = frozenset({"posterior", "sample"})

    def __check_init__(self):
        if not isinstance(self.sampler, Sampler):
            raise BadInput("sampler", type(self.sampler).__name__, "a Sampler, such as Gibbs()")
        for name, least in (("n_chains", 1), ("warmup", 0), ("thin", 1), ("n_draws", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise BadInput(name, repr(value), f"a whole number >= {least}")

    @property
    def label(self):
        return self.sampler.label

    def unsupported_reason(self, task, query):
        if isinstance(self.sampler, Langevin):
            finite = [n for n, s in query.partially_observed.items() if s.is_finite]
            stuck = [n for n, s in query.partially_observed.items() if s.event_ndim]
            if finite or stuck:
                return f"does not move the missing coordinates of {finite + stuck}"
        try:
            self.sampler.check(_clamped(query))
        except EnergaxError as error:
            return f"does not fit: {str(error).rstrip('.')}"
        return None

    def why(self, task, query):
        return "nothing exact covers what is hidden, and a chain needs only the energy"

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
            n_rows=query.n if query.many else None,
            n_chains=self.n_chains,
            warmup=self.warmup,
            thin=self.thin,
        )

    def posterior(self, query, key):
        return SampledPosterior(query, self.sample(query, self.n_draws, key), self, key)


class SampledPosterior(Posterior):
    """p(hidden | given) as draws; `verdict` says how far to trust them."""

    kind = "estimate"

    def __init__(self, query: Query, draws: Draws, source: MCMC, key: Any = None):
        super().__init__(query, key)
        self.draws, self._source, self.method = draws, source, draws.method

    @property
    def verdict(self) -> str:
        return self.draws.verdict

    def _mode(self):
        """The draw of lowest energy: no argmin, but the best that was seen."""
        rows = {k: np.moveaxis(v, 0, 1) for k, v in self._rows().items()}
        q = self._query
        best = map_rows(_best, {"given": q.given, "draws": rows}, q.n, q.energy, numbers_per_row=self.draws.n)
        return {k: v[np.arange(q.n), best] for k, v in rows.items()}

    def _rows(self) -> dict[str, np.ndarray]:
        """(n, rows, …), also for one example."""
        values = self.draws.values
        return dict(values) if self._query.many else {k: v[:, None] for k, v in values.items()}

    def _marginals(self):
        out = {}
        for name, values in self._rows().items():
            space = self.spaces[name]
            if space.is_finite:
                each = [(values == v).mean(0) for v in range(space.values_per_coordinate)]
                out[name] = np.stack(each, axis=-1)
        return out

    def _mean(self):
        return {k: v.mean(0) for k, v in self._rows().items() if has_mean(self.spaces[k])}

    def _joint(self, names):
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
        out = np.zeros((self._query.n, int(np.prod(shape))))
        for row in range(self._query.n):
            out[row] = np.bincount(flat[:, row], minlength=out.shape[1]) / flat.shape[0]
        return out

    def _sample(self, n, key):
        """`n` of the draws, chosen at random."""
        pick = np.asarray(jax.random.choice(key, self.draws.n, (n,), replace=n > self.draws.n))
        chains = {k: v[pick][None] for k, v in self.draws.values.items()}
        return Draws(chains, method=f"{self.method}, resampled", caveat=self.draws.verdict)


def _best(row, key, energy):
    energies = jax.vmap(lambda values: checked_energy(energy, merged(row["given"], values)))(row["draws"])
    return energies.argmin()


def _clamped(query: Query) -> Energy:
    """The energy that a chain sees: complete given variables held, the others moving."""
    complete = {k: known(v)[0] for k, v in query.given.items() if k not in query.partially_observed}
    return query.energy.given(**complete) if complete else query.energy
