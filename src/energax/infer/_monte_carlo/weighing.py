"""Weighted draws of one row, by any proposal: the caller's, a fitted Student t, or an adapted mixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util import sizes
from ...distributions import draw_rest as draw_missing
from ...energy import Energy
from ...missing import is_masked
from ...samplers import knows_conditional
from .._expectation import Exceeds, call_by_name
from .adaptive import AdaptiveMixture, adapt
from .proposals import Student, fit_laplace, propose_student, unconstrained_target, weighted_draw

Drawer = Callable[[Any], tuple[dict[str, Any], Any]]


class Source(eqx.Module):
    """Where proposals come from.

    Attributes:
        proposal: the caller's, an `AdaptiveMixture`, or None.
        real: the variables that a fitted proposal draws.
        pilot: the Student t of all rows; None fits one to the mode of every row.
    """

    proposal: Any
    real: tuple[str, ...] = eqx.field(static=True, default=())
    pilot: Student | None = None

    @property
    def is_fitted(self) -> bool:
        return is_fitted(self.proposal)


def is_fitted(proposal: Any) -> bool:
    """Return whether the library fits the proposal."""
    return proposal is None or isinstance(proposal, AdaptiveMixture)


class Wanted(eqx.Module):
    """A function whose expectation is wanted, and the names of its arguments and of all hidden variables."""

    function: Any
    names: tuple[str, ...] = eqx.field(static=True)
    targets: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, row: dict[str, Any], drawn: dict[str, Any], energy: Energy, key: Any) -> Any:
        """Return f at drawn values, and at draws of hidden variables that the proposal does not draw."""
        return call_by_name(self.function, self.names, {**row, **self.complete(row, drawn, energy, key)})

    def complete(self, row: dict[str, Any], drawn: dict[str, Any], energy: Energy, key: Any) -> Any:
        if set(self.names) <= set(drawn) | {k for k, v in row.items() if not is_masked(v)}:
            return drawn
        return draw_rest(row, drawn, energy, self.targets, key)


def make_drawer(
    row: dict[str, Any], key: Any, energy: Energy, source: Source, wanted: Wanted | None = None
) -> Drawer:
    """Return a function from a key to one weighted draw: values by name, and log p̃ − log q."""
    if not source.is_fitted:
        return lambda k: weighted_draw(row, k, energy, source.proposal)
    target, start, constrained = unconstrained_target(row, energy, source.real)
    student = fit_laplace(target, start) if source.pilot is None else source.pilot
    propose: Callable[[Any], tuple[Any, Any]] = lambda k: propose_student(k, student)
    if source.proposal is not None:
        mixture = source.proposal
        log_target = _log_target(row, energy, target, constrained, wanted)
        event = None if wanted is None or not isinstance(wanted.function, Exceeds) else wanted.function
        threshold = None if event is None else event.threshold
        components = adapt(mixture, student, log_target, threshold, key)
        propose = lambda k: components.propose(k, mixture.df)

    def draw(k):
        u, log_q = propose(k)
        return constrained(u), -target(u) - log_q

    return draw


def _log_target(row, energy, target, constrained, wanted):
    """Return (u, key) → log |f| p̃ and a score; for an event log p̃ and the function that it bounds."""
    if wanted is None:
        return lambda u, key: (-target(u), jnp.zeros(()))
    if isinstance(wanted.function, Exceeds):
        score = Wanted(wanted.function.function, wanted.names, wanted.targets)
        return lambda u, key: (-target(u), score(row, constrained(u), energy, key).astype(u.dtype))

    def log_target(u, key):
        value = wanted(row, constrained(u), energy, key).astype(u.dtype)
        return -target(u) + jnp.log(jnp.sqrt(jnp.sum(value**2))), jnp.zeros(())

    return log_target


def draw_rest(
    row: dict[str, Any], drawn: dict[str, Any], energy: Energy, targets: tuple[str, ...], key: Any
) -> dict[str, Any]:
    """Return the drawn values and a draw of the other targets given them, by name.

    Of the energy's conditional, if one variable is left, else by enumeration. Of a partially observed
    variable only the missing coordinates are drawn.
    """
    rest = [n for n in targets if n not in drawn]
    example = {**row, **drawn}
    spaces = energy.spaces
    if not rest:
        return {n: drawn[n] for n in targets}
    others = {k: v for k, v in example.items() if k != rest[0]}
    if len(rest) == 1 and knows_conditional(energy, rest[0], others):
        (name,) = rest
        distribution = energy.conditional(name, **others)
        if name in row:
            value = draw_missing(distribution, row[name].value, key, row[name].observed)
        else:
            value = distribution.sample(key)
        found = {name: value}
    else:
        found = Energy.draw(energy, key, **example)
    rest_values = {n: found[n].astype(spaces[n].jax_dtype) for n in rest}
    return {n: {**drawn, **rest_values}[n] for n in targets}


# -- functions of one row, for `map_rows` --------------------------------------------------------


def log_mean_of_draws(row, key, energy, source, k):
    """Return log mean w, its standard error, and the effective sample size."""
    fit_key, draw_key = _split(key, source)
    draw = make_drawer(row, fit_key, energy, source)
    return log_mean(_map_keys(lambda sub: draw(sub)[1], draw_key, k))


def weighted_draws(row, key, energy, source, targets, k):
    """Return draws of all targets by name (k, …), and log weights (k,)."""
    fit_key, draw_key = _split(key, source)
    draw = make_drawer(row, fit_key, energy, source)

    def one(sub):
        proposal_key, rest_key = jax.random.split(sub)
        drawn, log_weight = draw(proposal_key)
        return draw_rest(row, drawn, energy, targets, rest_key), log_weight

    return _map_keys(one, draw_key, k)


def weighted_values(row, key, energy, source, wanted, k):
    """Return f at draws (k, …), and log weights (k,); an adaptive proposal is moved to |f| p."""
    fit_key, draw_key = _split(key, source)
    draw = make_drawer(row, fit_key, energy, source, wanted)

    def one(sub):
        proposal_key, rest_key = jax.random.split(sub)
        drawn, log_weight = draw(proposal_key)
        return wanted(row, drawn, energy, rest_key), log_weight

    return _map_keys(one, draw_key, k)


def log_mean(log_weights: Any) -> tuple[Any, Any, Any]:
    """Return log mean w, its standard error (delta method), and the effective sample size (Σw)² / Σw²."""
    k = log_weights.shape[0]
    log_sum = jax.nn.logsumexp(log_weights)
    log_squares = jax.nn.logsumexp(2 * log_weights)
    ess = jnp.exp(2 * log_sum - log_squares)
    # The variance relative to w̄² is Σ(w − w̄)² / ((k − 1) k w̄²); a single draw has no spread.
    variance = jnp.maximum(1 / ess - 1 / k, 0) * k / (k - 1) if k > 1 else jnp.full_like(log_sum, jnp.inf)
    return log_sum - jnp.log(jnp.asarray(k, log_sum.dtype)), jnp.sqrt(variance), ess


def _split(key: Any, source: Source) -> Any:
    """Return keys for fitting and for drawing; only an adaptive proposal needs two."""
    return jax.random.split(key) if isinstance(source.proposal, AdaptiveMixture) else (key, key)


def _map_keys(function: Any, key: Any, k: int) -> Any:
    keys = jax.random.split(key, k)
    return jax.lax.map(function, keys, batch_size=min(k, sizes.DRAWS.value))
