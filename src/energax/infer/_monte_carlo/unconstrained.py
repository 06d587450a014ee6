"""An energy in standardised coordinates: its real variables as one vector in ℝᵈ, near a standard normal."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..._util.methods import plain_method
from ...energy import Energy, free_energy
from ...spaces import Real
from .._optimise.lbfgs import start_in
from .proposals import Student

#: The name of the vector of all real variables.
VECTOR = "unconstrained"


class Standardised(Energy):
    """e(x(v)) − log |dx/dv| over v in ℝᵈ, where x = b(μ + A v), b is the bijection of the spaces of x.

    All real variables are one vector v; finite variables keep their names. log Z is that of e.

    Args:
        energy: e.
        location: μ, A and its determinant.
    """

    energy: Energy
    location: Student

    @property
    def _real(self):
        return tuple(sorted(n for n, s in self.energy.spaces.items() if s.is_real))

    @property
    def spaces(self):
        finite = {n: s for n, s in self.energy.spaces.items() if not s.is_real}
        return {VECTOR: Real(self.location.mean.shape[0]), **finite}

    def constrain(self, vector: Any) -> tuple[dict[str, Any], Any]:
        """Return the real variables by name at v, and log |dx/dv|."""
        spaces = self.energy.spaces
        _, unravel = ravel_pytree({n: start_in(spaces[n], None) for n in self._real})
        mean, factor, spread = self.location
        stretched = factor @ vector if factor.ndim == 2 else factor * vector
        u, x, log_det = unravel(mean + stretched), {}, jnp.sum(jnp.log(spread))
        for name in self._real:
            bijection = spaces[name].bijection
            x[name] = bijection(u[name])
            log_det = log_det + jnp.sum(bijection.log_abs_det_jacobian(u[name], x[name]))
        return x, log_det

    def __call__(self, **variables):
        return self._evaluate(variables)

    def free_energy(self, **given):
        return self._evaluate(given)

    def _evaluate(self, given):
        rest = {n: v for n, v in given.items() if n != VECTOR}
        x, log_det = self.constrain(given[VECTOR])
        return free_energy(self.energy, {**x, **rest}) - log_det

    @plain_method
    def knows(self, what, names=None):
        if what not in ("free_energy", "conditional"):
            return super().knows(what, names)
        if names is not None and VECTOR not in names:
            return False
        inner = None if names is None else (frozenset(names) - {VECTOR}) | frozenset(self._real)
        return self.energy.knows(what, inner)

    def conditional(self, name, **given):
        rest = {n: v for n, v in given.items() if n != VECTOR}
        return self.energy.conditional(name, **self.constrain(given[VECTOR])[0], **rest)


def flat_unconstrained(energy: Energy, values: dict[str, Any]) -> np.ndarray:
    """Return the real variables of draws (n, …) as vectors in ℝᵈ, (n, d), in the order of `Standardised`."""
    real = sorted(n for n, s in energy.spaces.items() if s.is_real)
    inverse = [np.asarray(energy.spaces[n].bijection.inv(jnp.asarray(values[n]))) for n in real]
    return np.concatenate([u.reshape(u.shape[0], -1) for u in inverse], axis=1)


def as_scale(flat: np.ndarray, widen: float = 1.0, most: int = 256) -> Student:
    """Return location and scale of rows (n, d): a full covariance up to `most` dimensions, else diagonal."""
    dtype = jnp.zeros(()).dtype
    flat = flat[np.isfinite(flat).all(1)].astype(float)
    if flat.shape[1] > most:
        spread = widen * np.maximum(flat.std(0), 1e-6)
        return Student(*(jnp.asarray(a, dtype) for a in (flat.mean(0), spread, spread)))
    covariance = np.atleast_2d(np.cov(flat.T)) + 1e-10 * np.eye(flat.shape[1])
    eigenvalues, vectors = np.linalg.eigh(covariance)
    spread = widen * np.sqrt(np.maximum(eigenvalues, 1e-12))
    return Student(*(jnp.asarray(a, dtype) for a in (flat.mean(0), vectors * spread, spread)))
