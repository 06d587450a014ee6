"""Laplace's method: the Gaussian with the mode and the curvature of p(hidden | given)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import POSITIVE_NUMBER, WHOLE, check_arguments
from ...algorithms.optimise.lbfgs import minimise
from ...energy import checked_energy
from ...errors import ConvergenceWarning
from ...estimate import Estimate
from .._map_rows import map_rows
from .._method import Cost, Method, Minimum
from .._query import Query
from .unconstrained import GaussianPosterior, flatten_energy, n_coordinates, unsupported_space

_MOST_COORDINATES = 4096
#: The most Newton steps after L-BFGS; near the mode each doubles the number of correct digits.
_NEWTON_STEPS = 30
#: Random moves away from a saddle point, and the length of the first; each next one is four times as long.
_MOST_MOVES, _FIRST_MOVE = 4, 0.01


class Laplace(Method):
    """p(hidden | given) as a Gaussian, N(û, H⁻¹): û the mode, H the Hessian of the energy there.

    With x = b(u) for the bijection b of the space, û minimises E(u) = e(b(u)) − log|∂b/∂u| by L-BFGS, then by
    Newton's method; at a saddle point both start again after a small random move.
    ∫ exp(−E) ≈ exp(−E(û)) √|2πH⁻¹|. Exact for quadratic energies; the more data, the better for others.

    Args:
        tol, max_iter, memory_size: of L-BFGS, as in `LBFGS`.

    Laplace (1774); Tierney and Kadane (1986), Accurate approximations for posterior moments and marginal
    densities.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import posterior
    >>> bowl = NeuralEnergy(lambda x: -x.sum(), 2, confinement=1.0)     # −Σx + ½‖x‖²
    >>> found = posterior(bowl, {}, Laplace())
    >>> found.mean["x"].round(3), found.covariance.round(3).diagonal()
    (array([1., 1.], dtype=float32), array([1., 1.], dtype=float32))
    """

    tol: float = eqx.field(static=True, default=1e-4)
    max_iter: int = eqx.field(static=True, default=500)
    memory_size: int = eqx.field(static=True, default=10)

    deterministic = True
    tasks = frozenset({"argmin", "posterior", "sample", "log_prob", "log_partition"})
    priority = 50

    def __check_init__(self):
        check_arguments(self, max_iter=WHOLE, memory_size=WHOLE, tol=POSITIVE_NUMBER)

    def unsupported_reason(self, task, query):
        reason = unsupported_space(query)
        if reason is not None:
            return reason
        if not query.hidden and task not in ("log_prob", "log_partition"):
            return "needs a hidden variable"
        if task == "log_prob" and not query.energy.inputs and not query.energy.knows("log_partition"):
            return f"needs log Z, which {type(query.energy).__name__} does not have in closed form"
        size = n_coordinates(query)
        if size > _MOST_COORDINATES:
            return f"has a Hessian of {size:,}² numbers, more than {_MOST_COORDINATES:,}²"
        return None

    def why(self, task, query):
        return "the hidden variables are real and the energy has two derivatives"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        size = n_coordinates(query)
        return Cost(evaluations=query.n * (self.max_iter + size), n_bytes=8 * query.n * size**2)

    def fit(self, query: Query) -> dict[str, np.ndarray]:
        """Return mode, Cholesky factor of H and log ∫ exp(−E) of every row; warn if there is no minimum."""
        size = n_coordinates(query)
        found = map_rows(
            _fit_row,
            query.given,
            query.n,
            query.energy,
            self,
            tuple(query.hidden),
            numbers_per_row=4 * size**2,
        )
        if not found["converged"].all():
            n_bad = int((~found["converged"]).sum())
            warnings.warn(
                f"Laplace: {n_bad} of {query.n} rows have no minimum of the energy with a positive definite "
                f"Hessian within {self.max_iter} iterations. Raise max_iter, or use a sampler.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return found

    def posterior(self, query, key):
        return LaplacePosterior(query, self.fit(query), key)

    def sample(self, query, n, key):
        return LaplacePosterior(query, self.fit(query))._draw(n, key)

    def argmin(self, query, key):
        found = self.fit(query)
        values = LaplacePosterior(query, found)._values(found["mode"][None])
        values = {k: v[0] for k, v in values.items()}
        converged = found["converged"] if query.batched else bool(found["converged"][0])
        energy = query.unbatch(found["energy"])
        return Minimum(query.unbatch(values), energy=energy, method=self.label, converged=converged)

    def free_energies(self, query: Query) -> np.ndarray:
        """Return −log ∫ exp(−e) over the hidden variables of every row, (n,)."""
        return -self.fit(query)["log_integral"]

    def log_prob(self, query, key):
        log_z = np.asarray(query.energy.log_partition())
        return Estimate(-self.free_energies(query) - log_z, kind="estimate", method=self.label)

    def log_partition(self, query, key):
        return Estimate(self.fit(query)["log_integral"][0], kind="estimate", method=self.label)


class LaplacePosterior(GaussianPosterior):
    """p(hidden | given) as the Gaussian N(û, H⁻¹) in unconstrained coordinates."""

    method = "laplace"

    def __init__(self, query: Query, found: dict[str, np.ndarray], key: Any = None):
        # LLᵀ = H, so that L⁻ᵀ is a root of H⁻¹.
        super().__init__(query, found["mode"], np.swapaxes(np.linalg.inv(found["factor"]), -1, -2), key)

    def _compute_log_evidence(self):
        return self._log_evidence_by(Laplace())


def _fit_row(row, key, energy, method, names):
    """Mode, factor of the Hessian, log-integral and energy of one row."""
    objective, complete, flat = flatten_energy(energy, row, names)
    u, factor = _find_minimum(objective, flat, method)
    # The minimum of the parabola at û is ½ gᵀH⁻¹g below it, in any coordinates.
    value, slope = jax.value_and_grad(objective)(u)
    below = 0.5 * slope @ jax.scipy.linalg.cho_solve((factor, True), slope)
    log_root = jnp.log(jnp.diagonal(factor)).sum()
    return {
        "mode": u,
        "factor": factor,
        "log_integral": -value + 0.5 * u.size * math.log(2 * math.pi) - log_root,
        "energy": checked_energy(energy, complete(u)),
        "converged": jnp.isfinite(log_root) & (below <= method.tol),
    }


def _find_minimum(objective, start, method):
    """A minimum and the Cholesky factor of the Hessian there, which is NaN if none was found.

    L-BFGS may end at a saddle point, such as weights of 0 of a hidden unit. From there it starts again after
    a random move, which has a part in a direction of descent: Jin et al. (2017), How to escape saddle points
    efficiently.
    """
    settings = {"tol": method.tol, "max_iter": method.max_iter, "memory_size": method.memory_size}
    noise_key = jax.random.key(0)

    def attempt(state):
        u, _, k = state
        noise = jax.random.normal(jax.random.fold_in(noise_key, k), u.shape, u.dtype)
        length = jnp.where(k == 0, 0, _FIRST_MOVE * 4.0 ** (k - 1)).astype(u.dtype)
        new, _, _ = minimise(objective, u + length * noise, **settings)
        new = _newton(objective, new)
        better = (k == 0) | (objective(new) <= objective(u))
        u = jnp.where(better, new, u)
        return u, jnp.linalg.cholesky(jax.hessian(objective)(u)), k + 1

    def is_running(state):
        _, factor, k = state
        return (k == 0) | ((k <= _MOST_MOVES) & ~jnp.isfinite(factor[-1]).all())

    nothing = jnp.full((start.size, start.size), jnp.nan, start.dtype)
    u, factor, _ = jax.lax.while_loop(is_running, attempt, (start, nothing, jnp.zeros((), jnp.int32)))
    return u, factor


def _newton(objective, u):
    """u after Newton's steps, while the Hessian is positive definite and they decrease the value."""
    eps = jnp.finfo(u.dtype).eps

    def is_running(state):
        _, decrease, k = state
        return (k < _NEWTON_STEPS) & (decrease > eps)

    def step(state):
        u, _, k = state
        value, slope = jax.value_and_grad(objective)(u)
        factor = jnp.linalg.cholesky(jax.hessian(objective)(u))
        step = jax.scipy.linalg.cho_solve((factor, True), slope)
        new = u - step
        better = objective(new) <= value
        decrease = jnp.where(better, 0.5 * slope @ step / jnp.maximum(1, jnp.abs(value)), 0)
        return jnp.where(better, new, u), decrease, k + 1

    return jax.lax.while_loop(is_running, step, (u, jnp.full((), jnp.inf, u.dtype), 0))[0]
