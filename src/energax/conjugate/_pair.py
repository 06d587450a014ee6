"""`ConjugatePair`: the part that all conjugate pairs share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from .._util.methods import plain_method
from ..energy import Energy
from ..errors import BadInput, as_numbers, describe
from ..missing import Masked, value_of
from ..spaces import is_concrete


class Rows(NamedTuple):
    """Observations (n, *shape) in float64, and their weights; a missing coordinate has weight 0."""

    value: np.ndarray
    weight: np.ndarray

    def sum(self, values: Any = 1.0) -> np.ndarray:
        """Σ over rows of weight · values."""
        return (self.weight * values).sum(0)


class ConjugatePair(Energy):
    """The base class of conjugate pairs: e(θ, x) = −log p(θ) − log p(x | θ), over θ and one observation x.

    The prior p(θ) ∝ exp(−…) is of a family that contains p(θ | data). Its parameters are arrays: numbers for
    one variable, arrays for several independent ones. They are kept in float64, and fitted by
    `NegativeLogLikelihood` they maximise the evidence of single observations.

    A subclass updates its parameters in `_update`, and has the logarithm of the normaliser of its prior in
    `_log_normaliser`, so that log p(data) = that of the posterior − that of the prior + `_log_base(data)`.

    >>> from energax import posterior
    >>> from energax.conjugate import BetaBernoulli
    >>> coin = BetaBernoulli(1.0, 1.0)
    >>> coin.posterior([1, 1, 0]).predictive.probs.tolist()            # (1 + 2) / (2 + 3)
    0.6
    >>> posterior(coin, {"x": 1}).mean["p"].round(3).tolist()          # after one observation
    0.667
    """

    # -- data ------------------------------------------------------------------------------------

    @abstractmethod
    def _update(self, rows: Rows) -> Self:
        """Return the pair with the parameters of p(θ | rows)."""

    @abstractmethod
    def _log_normaliser(self) -> float:
        """Return log Z of the prior, in float64."""

    @abstractmethod
    def _log_base(self, rows: Rows) -> float:
        """Return the terms of log p(rows | θ) that do not depend on θ."""

    def posterior(self, data: Any, weights: Any = None) -> Self:
        """Return the pair whose prior is the posterior p(θ | data).

        Args:
            data: observations, (n, *shape); NaN marks a missing coordinate, which is left out.
            weights: the weights of the observations, (n,): a weight of 2 is two observations.
        """
        return self._update(self._rows(data, weights))

    def log_evidence(self, data: Any, weights: Any = None) -> float:
        """Return log p(data) = log ∫ p(θ) Π p(xᵢ | θ)^wᵢ dθ, in nats; arguments as in `posterior`."""
        rows = self._rows(data, weights)
        return self._update(rows)._log_normaliser() - self._log_normaliser() + self._log_base(rows)

    @property
    @abstractmethod
    def predictive(self) -> Any:
        """p(x) = ∫ p(x | θ) p(θ) dθ of the next observation, a NumPyro distribution."""

    def _rows(self, data: Any, weights: Any) -> Rows:
        space = self.spaces["x"]
        x = space.check(data, "data")
        value, seen = np.asarray(value_of(x)), np.asarray(x.observed) if isinstance(x, Masked) else None
        if value.ndim == len(space.shape):
            value, seen = value[None], None if seen is None else seen[None]
        if value.ndim != len(space.shape) + 1:
            raise BadInput("data", f"shape {value.shape}", f"(n, {', '.join(map(str, space.shape))})")
        weight = self._check_weights(weights, len(value)).reshape(-1, *(1,) * len(space.shape))
        weight = np.broadcast_to(weight, value.shape)
        return Rows(value.astype(np.float64), weight if seen is None else np.where(seen, weight, 0.0))

    @staticmethod
    def _check_weights(weights: Any, n: int) -> np.ndarray:
        if weights is None:
            return np.ones(n)
        try:
            weight = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            raise BadInput("weights", describe(weights), f"{n} finite numbers >= 0") from None
        if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise BadInput("weights", describe(weights), f"{n} finite numbers >= 0")
        return weight

    # -- the energy ------------------------------------------------------------------------------

    @abstractmethod
    def _after(self, x: Any) -> Self:
        """Return the pair after one observation x, which may be traced."""

    def free_energy(self, *, x):
        """−log of the predictive density of x."""
        return -self.predictive.log_prob(x)

    def log_partition(self):
        return jnp.zeros((), jax.tree.leaves(self)[0].dtype)

    @plain_method
    def knows(self, what, names=None):
        if what == "free_energy" and names is not None:
            return set(names) == {"x"}
        return super().knows(what, names)

    def _prior_given(self, given: Any) -> Self:
        """Return the pair after the observation among the given values, if there is one."""
        return self._after(given["x"]) if "x" in given else self


def as_parameter(
    name: str, value: Any, *, positive: bool = True, shape: tuple[int, ...] | None = None
) -> Any:
    """Return a parameter of a prior as an array, of float64 if given as numbers; raise if it is invalid.

    >>> as_parameter("a", 2)
    array(2.)
    """
    if not isinstance(value, jax.Array):
        array = np.asarray(as_numbers(name, value, "a number, or an array of numbers"))
        if not np.isrealobj(array) or not array.size:
            raise BadInput(name, describe(value), "a number, or an array of numbers")
        value = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    if shape is not None and value.shape != shape:
        raise BadInput(name, f"shape {value.shape}", f"shape {shape}")
    if is_concrete(value):
        numbers = np.asarray(value)
        if not np.isfinite(numbers).all() or (positive and (numbers <= 0).any()):
            found = f"{numbers.ravel()[:3].tolist()}"
            raise BadInput(name, found, "finite numbers > 0" if positive else "finite numbers")
    return value


def same_shapes(**parameters: Any) -> list[Any]:
    """Return parameters, broadcast to one shape; raise if that is not possible."""
    try:
        shape = np.broadcast_shapes(*(np.shape(value) for value in parameters.values()))
    except ValueError:
        found = ", ".join(f"{name} {np.shape(value)}" for name, value in parameters.items())
        raise BadInput(", ".join(parameters), f"the shapes {found}", "shapes that broadcast") from None
    wide = lambda value: value if np.shape(value) == shape else jnp.broadcast_to(value, shape)
    copy = lambda value: np.broadcast_to(value, shape).copy()
    return [copy(v) if isinstance(v, np.ndarray) else wide(v) for v in parameters.values()]
