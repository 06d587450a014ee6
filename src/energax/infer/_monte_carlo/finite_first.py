"""Draws of finite hidden variables from their exact distribution, then of the other variables given them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.keys import split_key
from ..._util.sizes import power_of_two
from ...energy import Energy, checked_energy
from ...errors import EnergaxError
from ...finite import Assignments, table
from ...samplers import Draws, default_sampler, run_chains
from .._map_rows import map_rows
from .._method import Cost, Method
from .._query import Query
from .mcmc import SampledPosterior

#: The most joint values of the finite variables that are listed.
_MOST_VALUES = 2**14
#: The most joint values of the finite variables, each with chains of its own.
_MOST_CHAIN_GROUPS = 64
#: The fewest draws of the chains of one value, enough to diagnose them.
_FEWEST_DRAWS = 1000


class FiniteFirst(Method):
    """Draws z from its exact p(z | given) ∝ exp(−F(given, z)), then the other hidden variables given z.

    For energies with finite hidden variables z and others x. F(given, z) is the energy's `free_energy`, or
    e(x, z) + log p(x | z), which is the same for every x, from its `conditional` of x. That `conditional`
    also draws x; without it, Markov chains do, some for every z. A chain over (x, z) would have to find all
    values of z by itself, and where they are far apart it does not.

    >>> from energax.energies import Gaussians
    >>> from energax import Mixture, sample
    >>> two = Mixture(Gaussians(jnp.array([[-9.0], [9.0]]), covariance=jnp.ones((2, 1, 1))), [0.9, 0.1])
    >>> draws = sample(two, 1000, method=FiniteFirst(), key=0)
    >>> draws.verdict
    '1000 exact, independent draws (finite first)'
    >>> abs((draws["x"] > 0).mean() - 0.1) < 0.03
    np.True_
    """

    tasks = frozenset({"posterior", "sample"})
    automatic = True
    priority = 45

    @property
    def label(self):
        return "finite first"

    def unsupported_reason(self, task, query):
        energy, finite, rest = query.energy, _finite(query), _rest(query)
        if query.partially_observed:
            return f"does not draw the missing coordinates of {list(query.partially_observed)}"
        if not finite or not rest:
            return "needs finite hidden variables and others"
        n = Assignments(finite).n
        if n > _MOST_VALUES:
            return f"would have to list {n:,} values of {', '.join(finite)}"
        if not (_knows_free_energy(query) or _knows_rest(query)):
            return f"needs F({', '.join(query.names | finite.keys())}) or the conditional of {list(rest)}"
        if _knows_rest(query):
            return None
        if query.batched or n > _MOST_CHAIN_GROUPS:
            return f"needs the conditional of {list(rest)} for rows, or for {n} values of {', '.join(finite)}"
        values = Assignments(finite).at(0)
        given = {k: v[0] for k, v in query.given.items()}
        try:
            default_sampler(energy.given(**given, **values))
        except EnergaxError as error:
            return f"has no chain for {list(rest)}: {str(error).rstrip('.')}"
        return None

    def why(self, task, query):
        how = "their own conditional" if _knows_rest(query) else "chains"
        finite, rest = (", ".join(v) for v in (_finite(query), _rest(query)))
        return f"the probabilities of {finite} are exact, and {rest} are drawn by {how} given {finite}"

    def kind(self, task, query):
        return "exact" if task == "sample" and _knows_rest(query) else "estimate"

    def cost(self, task, query):
        return Cost(evaluations=query.n * Assignments(_finite(query)).n)

    def sample(self, query, n, key):
        if not _knows_rest(query):
            return self._draw_by_chains(query, n, key)
        names = tuple(_finite(query)), tuple(_rest(query))
        width = n * query.width + Assignments(_finite(query)).n
        values = map_rows(
            _draw_row, query.given, query.n, query.energy, *names, n, key=key, numbers_per_row=width
        )
        if query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        return Draws(values, method=self.label, exact=True)

    def _draw_by_chains(self, query: Query, n: int, key: Any) -> Draws:
        finite = Assignments(_finite(query))
        choose_key, chain_key = split_key(key, 2)
        names = tuple(_finite(query))
        logits = map_rows(_logits, query.given, 1, query.energy, names, ())[0]
        generator = np.random.default_rng(np.asarray(jax.random.key_data(choose_key)))
        probabilities = np.exp(logits - logits.max(), dtype=float)
        picks = generator.choice(finite.n, n, p=probabilities / probabilities.sum())
        given = {k: np.broadcast_to(v, (finite.n, *v.shape[1:])) for k, v in query.given.items()}
        listed = jax.tree.map(np.asarray, jax.vmap(finite.at)(np.arange(finite.n)))
        drawn, chains = draw_by_value(query.energy, {**given, **listed}, picks, chain_key)
        values = {**{k: v[picks] for k, v in listed.items()}, **drawn}
        return Draws({k: v[None] for k, v in values.items()}, method=self.label, chains_checked=chains)

    def posterior(self, query, key):
        return SampledPosterior(query, self.sample(query, _FEWEST_DRAWS * 2, key), key)


def draw_by_value(
    energy: Energy, values: dict[str, np.ndarray], picks: np.ndarray, key: Any
) -> tuple[dict[str, np.ndarray], Draws]:
    """Return draws of the hidden variables given row picks[i] of the values, by chains, and all their draws.

    Args:
        energy: the energy.
        values: given values by name, (rows, …).
        picks: the row of every draw, (n,).
        key: a JAX key.
    """
    rows = len(next(iter(values.values())))
    counts = np.bincount(picks, minlength=rows)
    m = power_of_two(max(_FEWEST_DRAWS, int(counts.max())))
    sampler = default_sampler(energy.given(**{k: v[0] for k, v in values.items()}))
    chain_key, order_key = split_key(key, 2)
    draws = run_chains(sampler, energy, m, key=chain_key, given=dict(values), n_rows=rows)
    # The draws of a row in random order, each used once.
    generator = np.random.default_rng(np.asarray(jax.random.key_data(order_key)))
    by_row = np.argsort(picks, kind="stable")
    position = np.empty(len(picks), int)
    position[by_row] = np.arange(len(picks)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = generator.permutation(m)[position]
    return {k: v[position, picks] for k, v in draws.items()}, draws


# -- functions of one row ------------------------------------------------------------------------


def _logits(row, key, energy, finite, rest):
    """Return −F(row, z) for every z; from p(rest | row, z) if `rest` is not empty."""
    values = Assignments({k: energy.spaces[k] for k in finite})

    def one(i):
        given = {**row, **values.at(i)}
        if not rest:
            return -energy.free_energy(**given)
        conditional = energy.conditional(rest[0], **given)
        x = {rest[0]: conditional.sample(jax.random.key(0)).astype(energy.spaces[rest[0]].jax_dtype)}
        return -checked_energy(energy, {**given, **x}) - jnp.sum(conditional.log_prob(x[rest[0]]))

    return table(one, values.n)


def _draw_row(row, key, energy, finite, rest, n):
    by_free_energy = energy.knows("free_energy", (*row, *finite))
    logits = _logits(row, key, energy, finite, () if by_free_energy else rest)
    values = Assignments({k: energy.spaces[k] for k in finite})
    choose_key, draw_key = jax.random.split(key)
    running = jnp.cumsum(jax.nn.softmax(logits))
    fraction = jax.random.uniform(choose_key, (n,), running.dtype)
    picks = jnp.searchsorted(running, fraction * running[-1], side="right")

    def draw(i, key):
        z = values.at(i)
        x = energy.conditional(rest[0], **row, **z).sample(key)
        return {**z, rest[0]: x.astype(energy.spaces[rest[0]].jax_dtype)}

    return jax.vmap(draw)(picks, jax.random.split(draw_key, n))


# -- what the energy has -------------------------------------------------------------------------


def _finite(query: Query) -> dict[str, Any]:
    return {k: v for k, v in query.hidden.items() if v.is_finite}


def _rest(query: Query) -> dict[str, Any]:
    return {k: v for k, v in query.hidden.items() if not v.is_finite}


def _knows_free_energy(query: Query) -> bool:
    energy, finite = query.energy, tuple(_finite(query))
    known = energy.knows("free_energy", query.names | set(finite))
    logits = lambda row: _logits(row, None, energy, finite, ())
    return known and query.supports("free energies of finite values", logits)


def _knows_rest(query: Query) -> bool:
    energy, finite, rest = query.energy, tuple(_finite(query)), tuple(_rest(query))
    if len(rest) != 1 or not energy.knows("conditional", query.names | set(finite)):
        return False
    draw = lambda row: _draw_row(row, jax.random.key(0), energy, finite, rest, 2)
    return query.supports(f"draw of {finite}, then {rest}", draw)
