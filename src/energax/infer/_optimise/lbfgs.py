"""L-BFGS: the lowest energy over real hidden variables, through the bijection of each space."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import POSITIVE_NUMBER, SEED, WHOLE, check_arguments
from ..._util.keys import as_key
from ...algorithms.optimise.lbfgs import minimise
from ...energy import checked_energy
from ...errors import ConvergenceWarning
from ...finite import Assignments
from ...spaces import Space
from .._map_rows import fill_missing, map_rows
from .._method import Cost, Method, Minimum
from .._query import Query

_MAX_JOINT_VALUES = 1024


class LBFGS(Method):
    """argmin over real hidden variables by limited-memory BFGS.

    x = b(u) for the bijection b of the space, and L-BFGS minimises e(b(u)) over u in ℝⁿ. Missing coordinates
    of real variables are optimised too, observed ones stay. Finite hidden variables with at most 1024 joint
    values are enumerated. The result is a local minimum, the lowest of `n_starts` runs.

    Args:
        n_starts: starts, run in parallel; the first is at u = 0, the others are random.
        tol: stop if no coordinate of the gradient in ℝⁿ is larger.
        max_iter: the largest number of iterations; reaching it warns.
        memory_size: pairs of steps and gradients that approximate the Hessian.
        seed: the key of random starts, if `argmin` has no `key`.

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
    automatic = True
    priority = 50

    def __check_init__(self):
        check_arguments(
            self, n_starts=WHOLE, seed=SEED, max_iter=WHOLE, memory_size=WHOLE, tol=POSITIVE_NUMBER
        )

    @property
    def label(self):
        return "L-BFGS"

    def unsupported_reason(self, task, query):
        real, finite, other = _split(query)
        if other:
            return f"cannot move {other}: infinite discrete spaces have no gradient"
        if not real:
            return "needs a real hidden variable, to have a gradient"
        if any(name in query.partially_observed for name in finite):
            return "moves missing coordinates of real variables only"
        constrained = [n for n in real if n in query.partially_observed and query.spaces[n].event_ndim]
        if constrained:
            return f"cannot move single coordinates of {constrained}, which are constrained together"
        n = Assignments(finite).n
        if n > _MAX_JOINT_VALUES:
            return (
                f"would run for each of {n:,} joint values of {list(finite)}, more than {_MAX_JOINT_VALUES:,}"
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
        arguments = (query.energy, self, tuple(real), tuple(finite))
        values, energy, converged = map_rows(
            _minimise, query.given, query.n, *arguments, key=key, numbers_per_row=width
        )
        if not converged.all():
            warnings.warn(
                f"L-BFGS: {int((~converged).sum())} of {query.n} rows did not reach a gradient below "
                f"{self.tol:g} in {self.max_iter} iterations, or stopped before, as at a kink of the energy. "
                "Raise max_iter or tol, or n_starts.",
                ConvergenceWarning,
                stacklevel=3,
            )
        values, energy = query.unbatch((values, energy))
        converged = converged if query.batched else bool(converged[0])
        return Minimum(values, energy=energy, method=self.label, converged=converged)


def _split(query: Query) -> tuple[dict[str, Space], dict[str, Space], list[str]]:
    """Return the targets of a query: real ones, finite ones, and the names of the others."""
    targets = query.targets
    real = {k: v for k, v in targets.items() if v.is_real}
    finite = {k: v for k, v in targets.items() if v.is_finite}
    return real, finite, [k for k in targets if k not in real and k not in finite]


def start_in(space: Any, key: Any) -> Any:
    """Return a start in ℝⁿ for a value of the space: 0 without a key, standard normal with one."""
    shape = space.bijection.inverse_shape(space.shape)
    return jnp.zeros(shape) if key is None else jax.random.normal(key, shape)


def _minimise(row, key, energy, method, real, finite):
    """Return the best values of one row, their energy, and whether the run converged."""
    spaces = energy.spaces
    choices = Assignments({n: spaces[n] for n in finite})

    def complete(u, index):
        values = {n: spaces[n].bijection(u[n]) for n in real}
        return fill_missing(row, {**values, **choices.at(index)})

    def run(start_key, index, first):
        keys = dict(zip(real, jax.random.split(start_key, len(real)), strict=True))
        center = {n: start_in(spaces[n], None) for n in real}
        random = {n: start_in(spaces[n], keys[n]) for n in real}
        start = jax.tree.map(lambda a, b: jnp.where(first, a, b), center, random)
        settings = {"tol": method.tol, "max_iter": method.max_iter, "memory_size": method.memory_size}
        return minimise(lambda u: checked_energy(energy, complete(u, index)), start, **settings)

    start_keys = jax.random.split(key, method.n_starts)
    first = jnp.arange(method.n_starts) == 0
    over_starts = jax.vmap(run, (0, None, 0))
    us, values, converged = jax.vmap(over_starts, (None, 0, None))(start_keys, jnp.arange(choices.n), first)
    best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values).reshape(-1))
    u, value, done = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[best], (us, values, converged))
    example = complete(u, best // method.n_starts)
    return {n: example[n] for n in (*real, *finite)}, value, done
