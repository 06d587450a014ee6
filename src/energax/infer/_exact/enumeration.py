"""Enumeration: every joint value of what is hidden, one after another."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ... import finite
from ...energy import checked_energy
from ...errors import BadInput
from ...estimate import Estimate
from ...finite import table
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Posterior, has_mean, index_of
from .._query import Query, map_rows
from .marginals import (
    closed_log_partition,
    count,
    enumeration_plan,
    enumeration_width,
    free_energy_by_sum,
    partition_size,
    size_to_visit,
)
from .unknowns import Unknowns, expected, lowest, unknowns


class Enumeration(Method):
    """Σ over all joint values of the hidden finite variables and of the missing coordinates.

    Exact, and as dear as there are joint values: a sum of more than `limit` of them is refused.
    Variables that the energy sums out by itself (`free_energy`) are not enumerated.

    >>> from energax.energies import RBM
    >>> from energax.infer import log_prob
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> log_prob(rbm, {"x": [0, 1, 1]}, Enumeration())                    # 3 fair coins
    -2.079 (exact)
    """

    limit: int | None = eqx.field(static=True, default=None)

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})

    @property
    def most(self) -> int:
        """The number of joint values above which it refuses."""
        return finite.ENUMERATION_LIMIT if self.limit is None else self.limit

    def unsupported_reason(self, task, query):
        if task in ("log_prob", "log_partition"):
            size = partition_size(query.energy)
            if size is None or size > self.most:
                return f"would have to sum {count(size)} joint values for log Z"
        if task == "log_partition":
            return None
        size = size_to_visit(task, query)
        if size is None:
            endless = [f"{k!r} in {v!r}" for k, v in query.targets.items() if not v.is_finite]
            return f"cannot list the values of {', '.join(endless)}"
        if size > self.most:
            return f"would have to visit {count(size)} joint values, more than its limit of {self.most:,}"
        return None

    def why(self, task, query):
        if task == "log_partition":
            return f"all {count(partition_size(query.energy))} joint values can be summed"
        size, partition = size_to_visit(task, query), partition_size(query.energy)
        if task == "log_prob" and partition and partition > size:
            return f"log Z is a sum over only {count(partition)} joint values"
        return f"what is hidden has only {count(size)} joint values"

    def cost(self, task, query):
        partition = partition_size(query.energy) if task.startswith("log_") else 0
        if task == "log_partition":
            return Cost(partition, partition, 4 * min(partition, finite._CHUNK))
        size = size_to_visit(task, query)
        clamped = size if task in ("posterior", "sample") else min(size, finite._CHUNK)
        n = 1 if task == "sample" and not query.many else query.n
        return Cost(n * size + partition, size, 4 * clamped * min(n, 2**22 // max(clamped, 1) or 1))

    # -- the tasks ----------------------------------------------------------------------

    def log_partition(self, query, key):
        with finite.enumeration_limit(self.most):
            return Estimate(np.asarray(closed_log_partition(query.energy)), kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(query, key).value
        these, rows = enumeration_plan(query)
        with finite.enumeration_limit(self.most):
            free = map_rows(
                free_energy_by_sum,
                rows,
                query.n,
                query.energy,
                these,
                numbers_per_row=enumeration_width(query, these),
            )
        return Estimate(-free - log_z, kind="exact", method=self.label)

    def argmin(self, query, key):
        these, rows = unknowns(query)
        values, energy = map_rows(
            _argmin,
            rows,
            query.n,
            query.energy,
            these,
            numbers_per_row=enumeration_width(query, these),
        )
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def posterior(self, query, key):
        return EnumeratedPosterior(query, key)

    def sample(self, query, n, key):
        return EnumeratedPosterior(query)._sample(n, key)


class EnumeratedPosterior(Posterior):
    """p(hidden | given) as a table over all joint values, computed a few rows at a time."""

    method = "enumeration"
    kind = "exact"

    def __init__(self, query: Query, key: Any = None):
        super().__init__(query, key)
        self._unknowns, self._rows = unknowns(query)

    def _map(self, function, *arguments, key=None):
        query = self._query
        width = max(enumeration_width(query, self._unknowns), self._unknowns.n)
        return map_rows(
            function,
            self._rows,
            query.n,
            query.energy,
            self._unknowns,
            *arguments,
            key=key,
            numbers_per_row=width,
        )

    def _marginals(self):
        return self._possible(self._map(_coordinate_marginals))

    def _mean(self):
        return self._possible(self._map(_means))

    def _possible(self, answer: Any) -> Any:
        """The answer, unless nothing that is hidden goes with what is given: NaN says so."""
        for leaf in jax.tree.leaves(answer):
            bad = np.isnan(leaf).reshape(len(leaf), -1).any(1)
            if bad.any():
                where = f" in row {int(np.argmax(bad))}" if self._query.many else ""
                raise BadInput(
                    "given", f"evidence of probability zero{where}", "values that can occur together"
                )
        return answer

    def _mode(self):
        return self._map(_argmin)[0]

    def _joint(self, names):
        return self._possible(self._map(_joint, names))

    def _sample(self, n, key):
        drawn, total = self._map(_draws, n, key=key)
        self._possible(total)
        if self._query.many:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in drawn.items()}
        else:
            values = drawn
        return Draws(values, method="enumeration", exact=True)


# -- functions of one row, compiled once a shape -------------------------------------------


def _argmin(row, key, energy, these: Unknowns):
    index, value = lowest(lambda i: checked_energy(energy, {**row["given"], **these.at(row, i)}), these.n)
    return these.at(row, index), value


def _log_probs(row, energy, these: Unknowns):
    logits = table(lambda i: -checked_energy(energy, {**row["given"], **these.at(row, i)}), these.n)
    return logits - jax.nn.logsumexp(logits)


def _coordinate_marginals(row, key, energy, these: Unknowns):
    sizes = {k: energy.spaces[k].values_per_coordinate for k, _ in these.spaces}
    hot = lambda i: {k: jax.nn.one_hot(v.astype(int), sizes[k]) for k, v in these.at(row, i).items()}
    return expected(hot, _log_probs(row, energy, these))


def _means(row, key, energy, these: Unknowns):
    keep = lambda i: {k: v for k, v in these.at(row, i).items() if has_mean(energy.spaces[k])}
    return expected(keep, _log_probs(row, energy, these))


def _joint(row, key, energy, these: Unknowns, names):
    spaces = energy.spaces
    shape = tuple(spaces[n].n_values for n in names)
    log_probs = _log_probs(row, energy, these)

    def place(i):
        values = these.at(row, i)
        flat = jnp.zeros((), int)
        for name, size in zip(names, shape, strict=True):
            flat = flat * size + index_of(spaces[name], values[name])
        return flat

    places = table(place, these.n)
    flat = jnp.zeros(int(np.prod(shape)), log_probs.dtype)
    return flat.at[places].add(jnp.exp(log_probs))


def _draws(row, key, energy, these: Unknowns, n):
    log_probs = _log_probs(row, energy, these)
    index = jax.random.categorical(key, log_probs, shape=(n,))
    return jax.vmap(lambda i: these.at(row, i))(index), jax.nn.logsumexp(log_probs)
