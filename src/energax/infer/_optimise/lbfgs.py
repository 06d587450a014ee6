"""L-BFGS through the bijection of each space: the lowest energy of real hidden variables."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.keys import as_key
from ...algorithms.optimise.lbfgs import minimise
from ...energy import checked_energy
from ...errors import ConvergenceWarning
from ...finite import Assignments
from .._method import Cost, Method, Minimum
from .._query import Query, map_rows, merged

_MOST_FINITE = 1024


class LBFGS(Method):
    """argmin over real hidden variables, moved in ℝⁿ by limited-memory BFGS.

    Missing real coordinates are moved too, the known ones stay. Finite hidden variables with
    few joint values are tried one by one. Of `n_starts` random starts the best end is kept:
    the answer is a local minimum, the global one if the energy has no other.

    Args:
        n_starts: starts, all run side by side; the first at the middle of every space.
        tol: stop where no coordinate of the gradient (in ℝⁿ) is above this.
        max_iter: iterations at most; reaching it warns.

    Liu and Nocedal (1989), On the limited memory BFGS method for large scale optimization.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import argmin
    >>> bowl = NeuralEnergy(lambda x: -x.sum(), 2, confinement=1.0)
    >>> argmin(bowl, {}, LBFGS())["x"].round(3)
    array([1., 1.], dtype=float32)
    """

    n_starts: int = eqx.field(static=True, default=1)
    tol: float = eqx.field(static=True, default=1e-4)
    max_iter: int = eqx.field(static=True, default=500)
    memory_size: int = eqx.field(static=True, default=10)
    seed: int = eqx.field(static=True, default=0)

    deterministic = True
    tasks = frozenset({"argmin"})

    @property
    def label(self):
        return "L-BFGS"

    def unsupported_reason(self, task, query):
        real, finite, other = _split(query)
        if other:
            return f"cannot move {other}: whole numbers without end have no gradient"
        if not real:
            return "needs a real hidden variable, to have a gradient"
        if any(name in query.partially_observed for name in finite):
            return "moves missing coordinates of real variables only"
        stuck = [n for n in real if n in query.partially_observed and query.spaces[n].event_ndim]
        if stuck:
            return f"cannot move single coordinates of {stuck}, which are constrained together"
        n = Assignments(finite).n
        if n > _MOST_FINITE:
            return (
                f"would be run for each of {n:,} joint values of {list(finite)}, more than {_MOST_FINITE:,}"
            )
        return None

    def why(self, task, query):
        real, _, _ = _split(query)
        return f"{', '.join(real)} {'is' if len(real) == 1 else 'are'} real and the energy has a gradient"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        _, finite, _ = _split(query)
        runs = query.n * self.n_starts * Assignments(finite).n
        return Cost(evaluations=runs * self.max_iter)

    def argmin(self, query, key):
        real, finite, _ = _split(query)
        size = sum(max(1, space.size) for space in real.values())
        width = 2 * (self.memory_size + 4) * size * self.n_starts * Assignments(finite).n
        key = as_key(self.seed) if key is None else key
        values, energy, converged = map_rows(
            _minimise,
            query.given,
            query.n,
            query.energy,
            self,
            tuple(real),
            tuple(finite),
            key=key,
            numbers_per_row=width,
        )
        if not converged.all():
            warnings.warn(
                f"L-BFGS: {int((~converged).sum())} of {query.n} rows did not reach a gradient below "
                f"{self.tol:g} in {self.max_iter} iterations, or stood still before, as at a kink of the "
                "energy. Raise max_iter or tol, or n_starts.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Minimum(
            query.answer(values),
            energy=query.answer(energy),
            method=self.label,
            converged=converged if query.many else bool(converged[0]),
        )


def _split(query: Query):
    """Sought variables: real, finite, and those that are neither."""
    targets = query.targets
    real = {k: v for k, v in targets.items() if v.is_real}
    finite = {k: v for k, v in targets.items() if v.is_finite}
    return real, finite, [k for k in targets if k not in real and k not in finite]


def start_in(space: Any, key: Any) -> Any:
    """A place in ℝⁿ to begin at: 0 for no key, standard normal for one."""
    shape = space.bijection.inverse_shape(space.shape)
    return jnp.zeros(shape) if key is None else jax.random.normal(key, shape)


def _minimise(row, key, energy, method, real, finite):
    spaces = energy.spaces
    choices = Assignments({n: spaces[n] for n in finite})

    def complete(u, index):
        moved = {n: spaces[n].bijection(u[n]) for n in real}
        return merged(row, {**moved, **choices.at(index)})

    def run(start_key, index, first):
        keys = dict(zip(real, jax.random.split(start_key, len(real)), strict=True))
        centre = {n: start_in(spaces[n], None) for n in real}
        away = {n: start_in(spaces[n], keys[n]) for n in real}
        start = jax.tree.map(lambda a, b: jnp.where(first, a, b), centre, away)
        settings = {"tol": method.tol, "max_iter": method.max_iter, "memory_size": method.memory_size}
        return minimise(lambda u: checked_energy(energy, complete(u, index)), start, **settings)

    starts = jax.random.split(key, method.n_starts)
    first = jnp.arange(method.n_starts) == 0
    over_starts = jax.vmap(run, (0, None, 0))
    us, values, converged = jax.vmap(over_starts, (None, 0, None))(starts, jnp.arange(choices.n), first)
    best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values).reshape(-1))
    u, value, done = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[best], (us, values, converged))
    answer = complete(u, best // method.n_starts)
    return {n: answer[n] for n in (*real, *finite)}, value, done
