"""Closed forms: the energy's own `free_energy`, `log_partition`, `conditional` and `argmin`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ...distributions import draw_rest, marginals, mode, probabilities
from ...errors import Unsuitable
from ...estimate import Estimate
from ...missing import is_masked
from ...samplers import Draws
from .._map_rows import map_batches, map_rows
from .._method import Cost, Method, Minimum
from .._posterior import Posterior, check_single_variable, has_mean
from .._query import Query
from . import components
from .free_energy import closed_free_energy, compiled_log_partition, has_closed_form


class Exact(Method):
    """Exact inference by the energy's own closed forms.

    log p(x) = −F(x) − log Z by its `free_energy` and `log_partition`, p(z | x) by its `conditional`, and the
    minimum by its `argmin` or the mode of its `conditional`.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> from energax.infer import posterior
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> posterior(rbm, {"x": [0, 1, 1]}, Exact()).mean["z"]
    array([0.5, 0.5], dtype=float32)
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})
    automatic = True
    priority = 20

    def unsupported_reason(self, task, query):
        energy, name = query.energy, type(query.energy).__name__
        if task in ("log_prob", "log_partition") and not energy.knows("log_partition"):
            return f"needs log Z, which {name} does not have in closed form"
        if task == "log_partition":
            return None
        if task == "log_prob":
            if has_closed_form(query):
                return None
            return f"needs free_energy({', '.join(query.given)}), which {name} does not have"
        if task == "argmin" and _has_argmin(query):
            return None
        partially_observed = list(query.partially_observed)
        if task == "argmin" and partially_observed:
            return f"does not minimise over the missing coordinates of {partially_observed}"
        reason = _no_conditional_reason(query)
        if reason is None and partially_observed and task == "sample" and not _draws_missing(query):
            return f"cannot draw the missing coordinates of {partially_observed} in closed form"
        if reason is None and task == "argmin" and not _has_mode(query):
            return f"does not have the mode of {next(iter(query.hidden))!r}"
        return reason

    def why(self, task, query):
        return f"{type(query.energy).__name__} has the result in closed form"

    def cost(self, task, query):
        return Cost(evaluations=query.n)

    def log_partition(self, query, key):
        return Estimate(np.asarray(compiled_log_partition(query.energy)), kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(query, key).value
        return Estimate(-self.free_energies(query) - log_z, kind="exact", method=self.label)

    def free_energies(self, query: Query) -> np.ndarray:
        """Return F(given) of every row, (n,)."""
        if components.hides_component(query):
            return -components.log_evidence(query.energy, query.given)
        width = query.width
        return map_rows(closed_free_energy, query.given, query.n, query.energy, numbers_per_row=width)

    def minima(self, query: Query) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the best values of every row, by name, and their energies, (n,)."""
        if _has_argmin(query):
            return map_rows(_argmin, query.given, query.n, query.energy)
        name = next(iter(query.hidden))
        return map_rows(_argmin_by_mode, query.given, query.n, query.energy, name)

    def argmin(self, query, key):
        values, energy = self.minima(query)
        return Minimum(query.unbatch(values), energy=query.unbatch(energy), method=self.label)

    def posterior(self, query, key):
        return ConditionalPosterior(query, key)

    def sample(self, query, n, key):
        return ConditionalPosterior(query)._draw(n, key)


class ConditionalPosterior(Posterior):
    """p(hidden | given) as the distribution that the energy's `conditional` returns."""

    method = "exact"
    kind = "exact"

    def __init__(self, query: Query, key: Any = None):
        super().__init__(query, key)
        self.name = next(iter(query.hidden))

    def _map(self, function, *arguments, key=None):
        q = self._query
        arguments = (q.energy, self.name, *arguments)
        return map_rows(function, q.given, q.n, *arguments, key=key, numbers_per_row=q.width)

    def _compute_marginals(self):
        q = self._query
        if not self.spaces[self.name].is_finite:
            return {}
        if components.hides_component(q):
            return {self.name: components.responsibilities(q.energy, q.given)}
        return {self.name: self._map(_marginals)}

    def _compute_mean(self):
        out = {self.name: self._map(_mean)} if has_mean(self.spaces[self.name]) else {}
        return out | {k: v for k, v in self._impute().items() if has_mean(self.spaces[k])}

    @property
    def covariance(self) -> dict[str, np.ndarray]:
        """The covariance matrix of the hidden variable, by name, if it is a normal vector: (d, d)."""
        if not self._query.supports(f"covariance of {self.name}", lambda row: self._covariance_of(row)):
            family = type(self._query.energy).__name__
            raise Unsuitable(
                f"covariance: the posterior of {self.name!r} under {family} has no covariance matrix."
            )
        compute = lambda: {self.name: self._map(_covariance)}
        return self._query.unbatch(self._cached("covariance", compute))

    def _covariance_of(self, row):
        return _covariance(row, None, self._query.energy, self.name)

    def _impute(self):
        """Return E[x | given] of the partially observed variables."""
        q = self._query
        if not q.partially_observed:
            return {}
        if components.hides_component(q):
            completed = components.impute(q.energy, q.given)
            return {k: completed[k] for k in q.partially_observed}
        k = self.spaces[self.name].n_values or 1
        return map_batches(_impute, q.given, q.n, q.energy, numbers_per_row=k * q.width)

    def _compute_mode(self):
        query = self._query
        reason = Exact().unsupported_reason("argmin", query)
        if reason is not None:
            raise Unsuitable(
                f"mode: {type(query.energy).__name__} {reason}. "
                "Use argmin(energy, given), which has other methods."
            )
        return Exact().minima(query)[0]

    def _compute_joint(self, names):
        check_single_variable(names, self.name)
        return self._map(_joint_table)

    def _draw(self, n, key):
        partially_observed = tuple(self._query.partially_observed)
        if partially_observed and not _draws_missing(self._query):
            raise Unsuitable(
                f"{type(self._query.energy).__name__} cannot draw the missing coordinates of "
                f"{list(partially_observed)} in closed form. Use sample(energy, n, given, Gibbs(), key=0)."
            )
        values = self._map(_draw_rows, n, partially_observed, key=key)
        if self._query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        return Draws(values, method=self.method, exact=True)


# -- functions of one row ------------------------------------------------------------------------


def _argmin(row, key, energy):
    values = energy.argmin(**row)
    return values, energy(**{**row, **values})


def _argmin_by_mode(row, key, energy, name):
    value = _mode(row, energy, name)
    return {name: value}, energy(**row, **{name: value})


def _mode(row, energy, name):
    return mode(energy.conditional(name, **row), energy.spaces[name])


def _marginals(row, key, energy, name):
    return marginals(energy.conditional(name, **row), energy.spaces[name])


def _mean(row, key, energy, name):
    return energy.conditional(name, **row).mean


def _covariance(row, key, energy, name):
    return energy.conditional(name, **row).covariance_matrix


def _joint_table(row, key, energy, name):
    return probabilities(energy.conditional(name, **row), energy.spaces[name])


def _draw_rows(row, key, energy, name, n, partially_observed):
    return jax.vmap(lambda k: _draw_row(row, k, energy, name, partially_observed))(jax.random.split(key, n))


def _draw_row(row, key, energy, name, partially_observed):
    """Return a draw of the hidden variable given the row, then of missing coordinates given both."""
    first, second = jax.random.split(key)
    drawn = {name: energy.conditional(name, **row).sample(first).astype(energy.spaces[name].jax_dtype)}
    for variable in partially_observed:
        observed = row[variable]
        others = {**{k: v for k, v in row.items() if k != variable}, **drawn}
        distribution = energy.conditional(variable, **others)
        value = asarray(observed.value)
        drawn[variable] = draw_rest(distribution, value, second, asarray(observed.observed))
    return drawn


# -- a function of many rows ---------------------------------------------------------------------


def _impute(rows, energy):
    """Return the partially observed variables, completed; `energy.impute` bounds its own memory."""
    completed = energy.impute(jax.tree.map(asarray, rows))
    return {k: completed[k] for k, v in rows.items() if is_masked(v)}


# -- which closed forms the energy has -----------------------------------------------------------


def _has_argmin(query: Query) -> bool:
    energy: Any = query.energy
    return energy.knows("argmin", query.names) and query.supports("argmin", lambda row: energy.argmin(**row))


def _has_mode(query: Query) -> bool:
    name = next(iter(query.hidden))
    return query.supports(f"mode of {name}", lambda row: _mode(row, query.energy, name))


def _no_conditional_reason(query: Query) -> str | None:
    """Return why the energy has no `conditional` for this query; None if it has."""
    energy, hidden = query.energy, query.hidden
    if len(hidden) != 1:
        return f"has conditionals of one variable, but hidden are {list(query.targets)}"
    name = next(iter(hidden))
    partially_observed = list(query.partially_observed)
    if any(v not in energy.marginalises for v in partially_observed):
        return f"does not sum out the missing coordinates of {partially_observed}"
    conditional = lambda row: energy.conditional(name, **row)
    if not (
        energy.knows("conditional", query.names) and query.supports(f"conditional of {name}", conditional)
    ):
        return f"needs p({name} | {', '.join(query.given)}), which {type(energy).__name__} does not have"
    impute = lambda row: _impute(jax.tree.map(lambda a: asarray(a)[None], row), energy)
    if partially_observed and not query.supports("impute", impute):
        return f"does not impute the missing coordinates of {partially_observed} in closed form"
    return None


def _draws_missing(query: Query) -> bool:
    """Return whether p(missing | observed, hidden) can be drawn from: one variable, of a known family."""
    if len(query.partially_observed) != 1:
        return False
    name, partially_observed = next(iter(query.hidden)), tuple(query.partially_observed)
    draw = lambda row: _draw_row(row, jax.random.key(0), query.energy, name, partially_observed)
    return query.supports(f"draw of {name} and {partially_observed}", draw)
