"""Exact knowledge: what the energy itself answers in closed form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...energy import supports_call
from ...errors import Unsuitable
from ...estimate import Estimate
from ...missing import is_masked
from ...samplers import Draws, draw_rest
from ...spaces import Binary
from .._method import Cost, Method, Minimum
from .._posterior import Posterior, check_single_variable, has_mean
from .._query import Query, map_batches, map_rows
from .marginals import closed_log_partition, free_energy_by_knowledge, has_closed_form


class Exact(Method):
    """The energy's own `free_energy`, `log_partition`, `conditional` and, if it has one, `argmin`.

    >>> from energax.energies import RBM
    >>> from energax.infer import posterior
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> posterior(rbm, {"x": [0, 1, 1]}, Exact()).mean["z"]
    array([0.5, 0.5], dtype=float32)
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})

    def unsupported_reason(self, task, query):
        energy, name = query.energy, type(query.energy).__name__
        if task in ("log_prob", "log_partition") and not energy.knows("log_partition"):
            return f"needs log Z, which {name} does not know in closed form"
        if task == "log_partition":
            return None
        if task == "log_prob":
            return None if has_closed_form(query) else f"needs free_energy({', '.join(query.given)}), unknown"
        if task == "argmin" and _knows_argmin(query):
            return None
        if task == "argmin" and query.partially_observed:
            return f"does not know the best values of the missing coordinates of {list(query.partially_observed)}"
        lacking = _lacking_conditional(query)
        if lacking is None and query.partially_observed and task == "sample" and not _draws_missing(query):
            return f"cannot draw the missing coordinates of {list(query.partially_observed)} in closed form"
        if lacking is None and task == "argmin":
            name = next(iter(query.hidden))
            if not supports_call(_mode_of, query.row(), None, energy, name):
                return f"does not know the mode of {name!r}"
        return lacking

    def why(self, task, query):
        return f"{type(query.energy).__name__} knows the answer in closed form"

    def cost(self, task, query):
        return Cost(evaluations=query.n)

    def log_partition(self, query, key):
        return Estimate(np.asarray(closed_log_partition(query.energy)), kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(query, key).value
        rows, n = query.given, query.n
        free = map_rows(free_energy_by_knowledge, rows, n, query.energy, numbers_per_row=_width(query))
        return Estimate(-free - log_z, kind="exact", method=self.label)

    def minima(self, query):
        """The best values of every row, and their energies."""
        if _knows_argmin(query):
            return map_rows(_known_argmin, query.given, query.n, query.energy)
        name = next(iter(query.hidden))
        return map_rows(_known_mode, query.given, query.n, query.energy, name)

    def argmin(self, query, key):
        values, energy = self.minima(query)
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def posterior(self, query, key):
        return ConditionalPosterior(query, key)

    def sample(self, query, n, key):
        return ConditionalPosterior(query)._sample(n, key)


class ConditionalPosterior(Posterior):
    """p(hidden | given) as the distribution that the energy's `conditional` names."""

    method = "exact"
    kind = "exact"

    def __init__(self, query: Query, key: Any = None):
        super().__init__(query, key)
        self.name = next(iter(query.hidden))

    def _map(self, function, *arguments, key=None):
        q = self._query
        return map_rows(
            function, q.given, q.n, q.energy, self.name, *arguments, key=key, numbers_per_row=_width(q)
        )

    def _marginals(self):
        if not self.spaces[self.name].is_finite:
            return {}
        return {self.name: self._map(_marginals)}

    def _mean(self):
        out = {self.name: self._map(_mean)} if has_mean(self.spaces[self.name]) else {}
        return out | {k: v for k, v in self._imputed().items() if has_mean(self.spaces[k])}

    def _imputed(self):
        """E[x | what is seen of it] for the partly missing variables."""
        q = self._query
        if not q.partially_observed:
            return {}
        k = self.spaces[self.name].n_values or 1
        return map_batches(_imputed, q.given, q.n, q.energy, numbers_per_row=k * _width(q))

    def _mode(self):
        query = self._query
        reason = Exact().unsupported_reason("argmin", query)
        if reason is not None:
            raise Unsuitable(
                f"mode: {type(query.energy).__name__} {reason}. "
                "Use argmin(energy, given), which finds a minimum by other means."
            )
        return Exact().minima(query)[0]

    def _joint(self, names):
        check_single_variable(names, self.name)
        return self._map(_listed)

    def _sample(self, n, key):
        partially_observed = tuple(self._query.partially_observed)
        if partially_observed and not _draws_missing(self._query):
            raise Unsuitable(
                f"{type(self._query.energy).__name__} cannot draw the missing coordinates of "
                f"{list(partially_observed)} in closed form. Use sample(energy, n, given, method=Gibbs(), key=…)."
            )
        drawn = self._map(_draws, n, partially_observed, key=key)
        values = {k: np.swapaxes(v, 0, 1)[None] if self._query.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)


# -- functions of one row ---------------------------------------------------------------------


def _known_argmin(row, key, energy):
    values = energy.argmin(**row)
    return values, energy(**{**row, **values})


def _known_mode(row, key, energy, name):
    mode = _mode_of(row, key, energy, name)
    return {name: mode}, energy(**row, **{name: mode})


def _mode_of(row, key, energy, name):
    return mode(energy.conditional(name, **row), energy.spaces[name])


def _marginals(row, key, energy, name):
    return marginals(energy.conditional(name, **row), energy.spaces[name])


def _mean(row, key, energy, name):
    return energy.conditional(name, **row).mean


def _imputed(rows, energy):
    """Many rows at once: `impute` is given rows, and bounds what it holds of each by itself."""
    completed = energy.impute(jax.tree.map(jnp.asarray, rows))
    return {k: completed[k] for k, v in rows.items() if is_masked(v)}


def _impute_one(row, energy):
    return _imputed(jax.tree.map(lambda a: jnp.asarray(a)[None], row), energy)


def _draws(row, key, energy, name, n, partially_observed):
    return jax.vmap(lambda k: _one_draw(row, k, energy, name, partially_observed))(jax.random.split(key, n))


def _one_draw(row, key, energy, name, partially_observed):
    """The hidden variable given what is seen, then the missing coordinates given it and what is seen."""
    first, second = jax.random.split(key)
    drawn = {name: energy.conditional(name, **row).sample(first).astype(energy.spaces[name].jax_dtype)}
    for variable in partially_observed:
        seen = row[variable]
        others = {**{k: v for k, v in row.items() if k != variable}, **drawn}
        distribution = energy.conditional(variable, **others)
        value = jnp.asarray(seen.value)
        drawn[variable] = draw_rest(distribution, value, second, jnp.asarray(seen.observed))
    return drawn


def _listed(row, key, energy, name):
    distribution, space = energy.conditional(name, **row), energy.spaces[name]
    if hasattr(distribution, "log_probs"):
        return jnp.exp(distribution.log_probs)
    log_probs = jax.vmap(distribution.log_prob)(space.values())
    return jnp.exp(log_probs.reshape(len(log_probs), -1).sum(1))  # one a coordinate, if it says so


# -- what a distribution says ---------------------------------------------------------------


def marginals(distribution: Any, space: Any) -> Any:
    """Probabilities of every coordinate, (*shape, values)."""
    if isinstance(space, Binary):
        on = jnp.asarray(distribution.mean).reshape(space.shape)
        return jnp.stack([1 - on, on], axis=-1)
    probs = getattr(distribution, "probs", None)
    if probs is None:
        probs = distribution.base_dist.probs
    if hasattr(distribution, "log_probs") and space.size > 1:
        table = probs.reshape((space.values_per_coordinate,) * space.size)
        axes = range(space.size)
        probs = jnp.stack([table.sum(tuple(a for a in axes if a != i)) for i in axes])
    return probs.reshape(*space.shape, space.values_per_coordinate)


def mode(distribution: Any, space: Any) -> Any:
    """The most probable value of a distribution over a finite space or of a normal one."""
    from numpyro import distributions as d

    if hasattr(distribution, "log_probs"):
        return distribution.mode
    base = distribution
    while isinstance(base, d.Independent):
        base = base.base_dist
    if isinstance(base, (d.Normal, d.MultivariateNormal, d.LowRankMultivariateNormal)):
        return distribution.mean
    finite = (d.BernoulliLogits, d.BernoulliProbs, d.CategoricalLogits, d.CategoricalProbs)
    if space.is_finite and isinstance(base, finite):
        return jnp.argmax(marginals(distribution, space), -1).astype(space.jax_dtype)
    raise NotImplementedError(f"the mode of {type(distribution).__name__}")


# -- what is known ------------------------------------------------------------------------------


def _knows_argmin(query: Query) -> bool:
    energy = query.energy
    return energy.knows("argmin", query.names) and supports_call(getattr(energy, "argmin"), **query.row())  # noqa: B009


def _lacking_conditional(query: Query) -> str | None:
    energy, hidden = query.energy, query.hidden
    if len(hidden) != 1:
        return f"knows conditionals of one variable, but hidden are {list(query.targets)}"
    name = next(iter(hidden))
    if any(v not in energy.marginalises for v in query.partially_observed):
        return f"does not cover the missing coordinates of {list(query.partially_observed)}"
    if not energy.knows("conditional", query.names) or not supports_call(
        energy.conditional, name, **query.row()
    ):
        given = ", ".join(query.given)
        return f"needs p({name} | {given}), which {type(energy).__name__} does not know"
    if query.partially_observed and not supports_call(_impute_one, query.row(), energy):
        return f"does not know the missing coordinates of {list(query.partially_observed)} in closed form"
    return None


def _draws_missing(query: Query) -> bool:
    """Whether p(missing | seen, hidden) can be drawn from: one variable, of a family that conditions."""
    if len(query.partially_observed) != 1:
        return False
    name, partially_observed = next(iter(query.hidden)), tuple(query.partially_observed)
    return supports_call(_one_draw, query.row(), jax.random.key(0), query.energy, name, partially_observed)


def _width(query: Query) -> int:
    return sum(max(1, space.size) for space in query.spaces.values())
