"""Inverse transform sampling: draws of one number through the inverse of its distribution function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import distributions
from ..._util.arrays import asarray
from ...energy import free_energy
from ...estimate import Estimate
from ...finite import ENUMERATION_LIMIT
from ...samplers import Draws
from ...spaces import Count, Space
from .._map_rows import map_rows
from .._method import Cost, Method
from .._query import Query
from .numeric_cdf import build_cdfs, build_count_cdf, sum_weights

_ROWS = 256  # of numeric functions that are in memory at once


class InverseTransform(Method):
    """Independent draws x = F⁻¹(u), u uniform in (0, 1), of one number with the distribution function F.

    The number is real, positive, in an interval, a count or one of finitely many values; all other variables
    are given. If the energy has a `conditional` with an inverse F⁻¹ in closed form, that is used. Finite
    values are summed exactly. Else F is computed numerically: exp(−e) is integrated on an adaptive grid in
    ℝ, on which the bijection of the space lies, and interpolated by monotone cubics; counts are summed until
    the terms are negligible. log Z of an energy over one number is the same integral.

    Devroye (1986), Non-uniform random variate generation, chapter 2; Fritsch and Carlson (1980), Monotone
    piecewise cubic interpolation.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import log_partition, sample
    >>> wells = NeuralEnergy(lambda x: ((x**2 - 1) ** 2).sum(), 1, confinement=0.0)
    >>> sample(wells, 5, method=InverseTransform(), key=0)["x"].shape
    (5, 1)
    >>> log_partition(wells, InverseTransform())                  # log ∫ exp(−(x² − 1)²) dx
    0.680 (estimate)
    """

    tasks = frozenset({"sample", "log_partition", "log_prob"})
    priority = 40
    deterministic = True

    @property
    def label(self):
        return "inverse transform"

    def unsupported_reason(self, task, query):
        if query.partially_observed:
            return f"cannot draw the missing coordinates of {list(query.partially_observed)}"
        variables = query.targets if task == "sample" else query.spaces
        found = ", ".join(f"{k!r} in {v!r}" for k, v in variables.items())
        if len(variables) != 1 or not _is_number(*variables.values()):
            return f"needs one variable that is one number, not {found}"
        (space,) = variables.values()
        if space.is_finite and space.n_values > ENUMERATION_LIMIT:
            return f"would have to sum {space.n_values:,} values, more than {ENUMERATION_LIMIT:,}"
        return None

    def why(self, task, query):
        return "the unknown is one number"

    def kind(self, task, query):
        (space,) = (query.targets if task == "sample" else query.spaces).values()
        closed = task == "sample" and _has_inverse(query)
        return "exact" if closed or space.is_finite else "estimate"

    def cost(self, task, query):
        (space,) = (query.targets if task == "sample" else query.spaces).values()
        return Cost(evaluations=query.n * (space.n_values if space.is_finite else 3000))

    def sample(self, query, n, key):
        ((name, space),) = query.targets.items()
        error = 0.0
        if _has_inverse(query):
            values = map_rows(
                _invert, query.given, query.n, query.energy, name, n, key=key, numbers_per_row=n
            )
        else:
            uniform = _uniform(key, query.n * n).reshape(query.n, n)
            found = _build(query, name)
            error = max(getattr(f, "error", 0.0) for f in found)
            inverses = np.stack([f.inverse(u) for f, u in zip(found, uniform, strict=True)])
            values = np.asarray(_from_line(space, inverses))
        values = values.reshape(query.n, n, *space.shape)
        chains = {name: np.swapaxes(values, 0, 1)[None] if query.batched else values}
        exact = space.is_finite or error == 0.0
        caveat = "" if exact else f"F by quadrature, relative error of its mass at most {error:.1e}"
        return Draws(chains, method=self.label, exact=True, caveat=caveat)

    def log_partition(self, query, key):
        (name,) = query.spaces
        (found,) = _build(Query(query.energy, {}), name)
        return Estimate(
            _in_precision(found.log_mass), kind=self.kind("log_partition", query), method=self.label
        )

    def log_prob(self, query, key):
        log_z = self.log_partition(query, key).value
        energies = map_rows(_row_energy, query.given, query.n, query.energy)
        return Estimate(-energies - log_z, kind=self.kind("log_prob", query), method=self.label)


def _is_number(space: Space) -> bool:
    known = space.is_finite or space.is_real or isinstance(space, Count)
    return space.size == 1 and space.event_ndim == 0 and known


def _in_precision(value: float) -> np.ndarray:
    return np.asarray(value, jnp.zeros(()).dtype)


def _uniform(key: Any, n: int) -> np.ndarray:
    """Return n numbers in (0, 1) with 64 random bits each: 24 bits would cut off the tails."""
    high, low = np.asarray(jax.random.bits(key, (2, n), jnp.uint32), float)
    return np.clip((high + (low + 0.5) / 2**32) / 2**32, 2.0**-64, 1 - 2.0**-53)


# -- closed forms ----------------------------------------------------------------------------------


def _has_inverse(query: Query) -> bool:
    """Return whether the energy has a conditional of its hidden number with an inverse in closed form."""
    ((name, space),) = query.targets.items()
    if not query.energy.knows("conditional", query.names) or space.is_finite:
        return False
    draw = lambda row: _invert(row, jax.random.key(0), query.energy, name, 1)
    return query.supports(f"inverse of {name}", draw)


def _invert(row, key, energy, name, n):
    conditional = energy.conditional(name, **row)
    # Half of the spacing of the numbers in [0, 1), so that 0 is not among them.
    uniform = jax.random.uniform(key, (n, *energy.spaces[name].shape))
    return distributions.icdf(conditional, uniform + jnp.finfo(uniform.dtype).eps / 4)


# -- numeric functions -------------------------------------------------------------------------------


def _build(query: Query, name: str) -> list[Any]:
    """Return the numeric distribution function of every row."""
    space = query.spaces[name]
    evaluate = lambda rows, at: _log_densities(query, name, rows, at)
    if space.is_finite:
        values = np.asarray(space.values()).reshape(-1)
        each = lambda r: sum_weights(evaluate(np.full(len(values), r), values))
        return [each(r) for r in range(query.n)]
    if not space.is_real:
        return [build_count_cdf(lambda k, r=r: evaluate(np.full(len(k), r), k)) for r in range(query.n)]
    found = []
    for start in range(0, query.n, _ROWS):
        density = lambda rows, u, start=start: evaluate(start + rows, u)
        found += build_cdfs(density, min(_ROWS, query.n - start))
    return found


def _log_densities(query: Query, name: str, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return −e at numbers of given rows; for real spaces at points of ℝ, plus log |dx/du|."""
    given = {k: v[rows] for k, v in query.given.items()}
    if not len(at):
        return np.zeros(0)
    both = {"given": given, "at": np.asarray(at)}
    return map_rows(_log_density, both, len(at), query.energy, name, numbers_per_row=query.width)


def _log_density(row, key, energy, name):
    space = energy.spaces[name]
    at = row["at"].reshape(space.shape)
    if not space.is_real:
        return -free_energy(energy, {**row["given"], name: at.astype(space.jax_dtype)})
    x = space.bijection(at)
    log_det = jnp.sum(space.bijection.log_abs_det_jacobian(at, x))
    return -free_energy(energy, {**row["given"], name: x}) + log_det


def _from_line(space: Space, values: np.ndarray) -> Any:
    """Return values of the space from points of ℝ, or from indices."""
    if space.is_finite:
        return np.asarray(space.values()).reshape(-1)[values]
    if not space.is_real:
        return values.astype(np.dtype(space.jax_dtype))
    return space.bijection(asarray(values, jnp.zeros(()).dtype))


def _row_energy(row, key, energy):
    return free_energy(energy, row)
