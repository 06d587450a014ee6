"""Enumeration: every joint value of what is hidden, one after another."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import finite
from ..energy import answers, free_energy, log_partition_cost
from ..estimate import Estimate
from ..finite import log_sum_exp, table
from ..missing import known
from ..samplers import Draws
from ._method import Cost, Method, Minimum
from ._posterior import Posterior, has_mean, index_of
from ._question import Question, map_rows
from ._unknowns import Unknowns, expected, lowest, unknowns


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
    def _limit(self) -> int:
        return finite.ENUMERATION_LIMIT if self.limit is None else self.limit

    def unsuitable(self, task, question):
        if task in ("log_prob", "log_partition"):
            size = _partition_size(question.energy)
            if size is None or size > self._limit:
                return f"would have to sum {_count(size)} joint values for log Z"
        if task == "log_partition":
            return None
        size = _size(task, question)
        if size is None:
            endless = [f"{k!r} in {v!r}" for k, v in question.sought.items() if not v.is_finite]
            return f"cannot list the values of {', '.join(endless)}"
        if size > self._limit:
            return f"would have to visit {_count(size)} joint values, more than its limit of {self._limit:,}"
        return None

    def why(self, task, question):
        if task == "log_partition":
            return f"all {_count(_partition_size(question.energy))} joint values can be summed"
        size, partition = _size(task, question), _partition_size(question.energy)
        if task == "log_prob" and partition and partition > size:
            return f"log Z is a sum over only {_count(partition)} joint values"
        return f"what is hidden has only {_count(size)} joint values"

    def cost(self, task, question):
        partition = _partition_size(question.energy) if task.startswith("log_") else 0
        if task == "log_partition":
            return Cost(partition, partition, 4 * min(partition, finite._CHUNK))
        size = _size(task, question)
        held = size if task in ("posterior", "sample") else min(size, finite._CHUNK)
        n = 1 if task == "sample" and not question.many else question.n
        return Cost(n * size + partition, size, 4 * held * min(n, 2**22 // max(held, 1) or 1))

    # -- the tasks ----------------------------------------------------------------------

    def log_partition(self, question, key):
        with finite.enumeration_limit(self._limit):
            return Estimate(np.asarray(_log_partition(question.energy)), kind="exact", method=self.label)

    def log_prob(self, question, key):
        log_z = self.log_partition(question, key).value
        these, rows = _to_sum(question)
        with finite.enumeration_limit(self._limit):
            free = map_rows(
                _free_energy,
                rows,
                question.n,
                question.energy,
                these,
                numbers_per_row=_width(question, these),
            )
        return Estimate(-free - log_z, kind="exact", method=self.label)

    def argmin(self, question, key):
        these, rows = unknowns(question)
        values, energy = map_rows(
            _argmin, rows, question.n, question.energy, these, numbers_per_row=_width(question, these)
        )
        return Minimum(question.answer(values), energy=question.answer(energy), method=self.label)

    def posterior(self, question, key):
        return EnumeratedPosterior(question)

    def sample(self, question, n, key):
        return EnumeratedPosterior(question)._sample(n, key)


class EnumeratedPosterior(Posterior):
    """p(hidden | given) as a table over all joint values, computed a few rows at a time."""

    method = "enumeration"
    kind = "exact"

    def __init__(self, question: Question):
        super().__init__(question)
        self._unknowns, self._rows = unknowns(question)

    def _map(self, function, *arguments, key=None):
        question = self._question
        width = max(_width(question, self._unknowns), self._unknowns.n)
        return map_rows(
            function,
            self._rows,
            question.n,
            question.energy,
            self._unknowns,
            *arguments,
            key=key,
            numbers_per_row=width,
        )

    def _marginals(self):
        return self._map(_coordinate_marginals)

    def _mean(self):
        return self._map(_means)

    def _joint(self, names):
        return self._map(_joint, names)

    def _sample(self, n, key):
        drawn = self._map(_draws, n, key=key)
        if self._question.many:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in drawn.items()}
        else:
            values = drawn
        return Draws(values, method="enumeration", exact=True)


# -- functions of one row, compiled once a shape -------------------------------------------


@eqx.filter_jit
def _log_partition(energy):
    return energy.log_partition()


def _free_energy(row, key, energy, these: Unknowns):
    if not these.spaces:
        return free_energy(energy, row["given"])
    term = lambda i: -free_energy(energy, {**row["given"], **these.at(row, i)})
    return these.log_copies(row) - log_sum_exp(term, these.n)


def _argmin(row, key, energy, these: Unknowns):
    index, value = lowest(lambda i: energy(**{**row["given"], **these.at(row, i)}), these.n)
    return these.at(row, index), value


def _log_probs(row, energy, these: Unknowns):
    logits = table(lambda i: -energy(**{**row["given"], **these.at(row, i)}), these.n)
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
    index = jax.random.categorical(key, _log_probs(row, energy, these), shape=(n,))
    return jax.vmap(lambda i: these.at(row, i))(index)


# -- sizes -----------------------------------------------------------------------------------


def _to_sum(question: Question) -> tuple[Unknowns, dict[str, Any]]:
    """The cheapest set to enumerate for F(given); the energy's knowledge sums out the rest.

    Either the missing coordinates, with the hidden variables by `free_energy`; or the hidden
    variables, with those missing coordinates that the energy's own call sums out.
    """
    energy = question.energy
    complete = {k: known(v) for k, v in question.row().items()}
    by_knowledge = not question.hidden or (
        bool(question.given)
        and energy.knows("free_energy", question.names)
        and answers(energy.free_energy, **complete)
    )
    left = energy.marginalises & frozenset(question.partly)
    ways = [unknowns(question, hidden=not by_knowledge)]
    if left:
        ways.append(unknowns(question, left=left))
    return min(ways, key=lambda way: way[0].n if way[0].is_finite else float("inf"))


def _size(task: str, question: Question) -> int | None:
    these, _ = _to_sum(question) if task == "log_prob" else unknowns(question)
    return these.n if these.is_finite else None


def _partition_size(energy: Any) -> int | None:
    if energy.knows("log_partition"):
        return 0
    return log_partition_cost(energy)[1]


def _width(question: Question, these: Unknowns) -> int:
    """Numbers that one row's enumeration holds at a time."""
    size = sum(max(1, space.size) for space in question.spaces.values())
    return min(these.n, finite._CHUNK) * (size + 1)


def _count(n: int | None) -> str:
    if n is None:
        return "uncountably many"
    return f"{n:,}" if n < 10**15 else f"about 10^{len(str(n)) - 1}"


def joint_values_needed(task: str, question: Question) -> str:
    """The size of the exact computation, in words."""
    sizes = [_partition_size(question.energy)] if task.startswith("log_") else []
    sizes += [] if task == "log_partition" else [_size(task, question)]
    finite = [size for size in sizes if size is not None]
    if len(finite) < len(sizes):
        endless = [f"{k!r} in {v!r}" for k, v in question.spaces.items() if not v.is_finite]
        return f"an integral over {', '.join(endless)}"
    return f"{_count(max(finite))} joint values"
