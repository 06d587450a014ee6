"""Enumeration: sums and minima over all joint values of finite variables."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ... import finite
from ..._util import sizes
from ..._util.arguments import NONE, WHOLE, check_arguments
from ...energy import checked_energy
from ...errors import BadInput
from ...estimate import Estimate
from ...finite import table
from ...samplers import Draws
from .._map_rows import map_rows
from .._method import Cost, Method, Minimum
from .._posterior import Posterior, has_mean, index_of
from .._query import Query
from .free_energy import (
    compiled_log_partition,
    enumerated_free_energy,
    enumeration_plan,
    enumeration_width,
    format_count,
    n_joint_values,
    n_partition_values,
)
from .unknowns import Unknowns, expectation, find_unknowns, minimum


class Enumeration(Method):
    """Exact inference by enumerating all joint values of finite hidden variables and missing coordinates.

    p(hidden | given) = exp(−e(given, hidden)) / Σ_hidden' exp(−e(given, hidden')), as a table.

    Time grows with the number of joint values, memory with it only for `posterior` and `sample`. Variables
    that the energy sums out in closed form (`free_energy`) are not enumerated.

    Args:
        limit: the largest number of joint values; None is 2²⁰.

    >>> from energax.energies import RBM
    >>> from energax.infer import log_prob
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> log_prob(rbm, {"x": [0, 1, 1]}, Enumeration())                    # 3 fair coins
    -2.079 (exact)
    """

    limit: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_arguments(self, limit=WHOLE | NONE)

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})
    automatic = True
    priority = 30

    @property
    def max_joint_values(self) -> int:
        """The largest number of joint values."""
        return finite.ENUMERATION_LIMIT if self.limit is None else self.limit

    def unsupported_reason(self, task, query):
        if task in ("log_prob", "log_partition"):
            size = n_partition_values(query.energy)
            if size is None or size > self.max_joint_values:
                return f"would have to sum {format_count(size)} joint values for log Z"
        if task == "log_partition":
            return None
        size = n_joint_values(task, query)
        if size is None:
            infinite = [f"{k!r} in {v!r}" for k, v in query.targets.items() if not v.is_finite]
            return f"cannot enumerate the values of {', '.join(infinite)}"
        if size > self.max_joint_values:
            limit = f"{self.max_joint_values:,}"
            return f"would have to visit {format_count(size)} joint values, more than its limit of {limit}"
        return None

    def why(self, task, query):
        if task == "log_partition":
            return f"all {format_count(n_partition_values(query.energy))} joint values can be summed"
        size, partition = n_joint_values(task, query), n_partition_values(query.energy)
        if task == "log_prob" and partition and partition > size:
            return f"log Z is a sum over only {format_count(partition)} joint values"
        return f"the unknowns have only {format_count(size)} joint values"

    def cost(self, task, query):
        chunk = sizes.JOINT_VALUES.value
        partition = n_partition_values(query.energy) if task.startswith("log_") else 0
        if task == "log_partition":
            return Cost(partition, partition, 4 * min(partition, chunk))
        size = n_joint_values(task, query)
        in_memory = size if task in ("posterior", "sample") else min(size, chunk)
        n = 1 if task == "sample" and not query.batched else query.n
        return Cost(n * size + partition, size, 4 * in_memory * min(n, sizes.QUERY_NUMBERS.rows(in_memory)))

    # -- the tasks -------------------------------------------------------------------------------

    def log_partition(self, query, key):
        with finite.enumeration_limit(self.max_joint_values):
            return Estimate(np.asarray(compiled_log_partition(query.energy)), kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(query, key).value
        return Estimate(-self.free_energies(query) - log_z, kind="exact", method=self.label)

    def free_energies(self, query: Query) -> np.ndarray:
        """Return F(given) of every row, (n,)."""
        unknowns, rows = enumeration_plan(query)
        width = enumeration_width(query, unknowns)
        with finite.enumeration_limit(self.max_joint_values):
            return map_rows(
                enumerated_free_energy, rows, query.n, query.energy, unknowns, numbers_per_row=width
            )

    def argmin(self, query, key):
        unknowns, rows = find_unknowns(query)
        width = enumeration_width(query, unknowns)
        values, energy = map_rows(_argmin, rows, query.n, query.energy, unknowns, numbers_per_row=width)
        return Minimum(query.unbatch(values), energy=query.unbatch(energy), method=self.label)

    def posterior(self, query, key):
        return EnumeratedPosterior(query, key)

    def sample(self, query, n, key):
        return EnumeratedPosterior(query)._draw(n, key)


class EnumeratedPosterior(Posterior):
    """p(hidden | given) as a table over all joint values, computed a few rows at a time."""

    method = "enumeration"
    kind = "exact"

    def __init__(self, query: Query, key: Any = None):
        super().__init__(query, key)
        self._unknowns, self._rows = find_unknowns(query)

    def _map(self, function, *arguments, key=None):
        query, unknowns = self._query, self._unknowns
        width = max(enumeration_width(query, unknowns), unknowns.n)
        arguments = (query.energy, unknowns, *arguments)
        return map_rows(function, self._rows, query.n, *arguments, key=key, numbers_per_row=width)

    def _check_possible(self, tree: Any) -> Any:
        """Return the tree; raise if it has a NaN, which only evidence of probability zero makes."""
        for leaf in jax.tree.leaves(tree):
            bad = np.isnan(leaf).reshape(len(leaf), -1).any(1)
            if bad.any():
                where = f" in row {int(np.argmax(bad))}" if self._query.batched else ""
                found = f"evidence of probability zero{where}"
                raise BadInput("given", found, "values that can occur together")
        return tree

    def _compute_marginals(self):
        return self._check_possible(self._map(_marginals))

    def _compute_mean(self):
        return self._check_possible(self._map(_mean))

    def _compute_mode(self):
        return self._map(_argmin)[0]

    def _compute_joint(self, names):
        return self._check_possible(self._map(_joint_table, names))

    def _draw(self, n, key):
        values, log_total = self._map(_draw_rows, n, key=key)
        self._check_possible(log_total)
        if self._query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        return Draws(values, method="enumeration", exact=True)


# -- functions of one row ------------------------------------------------------------------------


def _argmin(row, key, energy, unknowns: Unknowns):
    energy_at = lambda i: checked_energy(energy, {**row["given"], **unknowns.at(row, i)})
    index, value = minimum(energy_at, unknowns.n)
    return unknowns.at(row, index), value


def _log_probs(row, energy, unknowns: Unknowns):
    logits = table(lambda i: -checked_energy(energy, {**row["given"], **unknowns.at(row, i)}), unknowns.n)
    return logits - jax.nn.logsumexp(logits)


def _marginals(row, key, energy, unknowns: Unknowns):
    k = {name: energy.spaces[name].values_per_coordinate for name, _ in unknowns.spaces}
    one_hot = lambda i: {n: jax.nn.one_hot(v.astype(int), k[n]) for n, v in unknowns.at(row, i).items()}
    return expectation(one_hot, _log_probs(row, energy, unknowns))


def _mean(row, key, energy, unknowns: Unknowns):
    values = lambda i: {k: v for k, v in unknowns.at(row, i).items() if has_mean(energy.spaces[k])}
    return expectation(values, _log_probs(row, energy, unknowns))


def _joint_table(row, key, energy, unknowns: Unknowns, names):
    spaces = energy.spaces
    shape = tuple(spaces[n].n_values for n in names)
    log_probs = _log_probs(row, energy, unknowns)

    def position(i):
        values = unknowns.at(row, i)
        flat = jnp.zeros((), int)
        for name, size in zip(names, shape, strict=True):
            flat = flat * size + index_of(spaces[name], values[name])
        return flat

    positions = table(position, unknowns.n)
    flat = jnp.zeros(int(np.prod(shape)), log_probs.dtype)
    return flat.at[positions].add(jnp.exp(log_probs))


def _draw_rows(row, key, energy, unknowns: Unknowns, n):
    log_probs = _log_probs(row, energy, unknowns)
    index = finite.draw(key, log_probs, n)
    return jax.vmap(lambda i: unknowns.at(row, i))(index), jax.nn.logsumexp(log_probs)
