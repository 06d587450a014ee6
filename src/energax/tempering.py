"""An energy at another temperature, and what of its knowledge survives that."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .energy import Energy, FiniteDistribution
from .errors import BadInput
from .missing import is_masked
from .spaces import fixed, is_concrete

_KNOWLEDGE = ("free_energy", "conditional", "draw", "log_partition", "score")


class Tempered(Energy):
    """e / T: flatter for T > 1, sharper for T < 1.

    Of an energy that knows `scaled(share)`, share · e as an energy of its own kind, everything that it
    knows is known at any temperature; of any other, p(name | all others) where a power of that is a
    distribution of the same family.

    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.ones((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> hot = rbm / 2.0
    >>> hot.conditional("z", x=jnp.ones(3)).mean                      # sigmoid(3 / 2)
    Array([0.81757444, 0.81757444], dtype=float32)
    """

    energy: Energy
    temperature: Any = fixed()

    def __check_init__(self):
        if is_concrete(self.temperature):
            try:
                number = np.shape(self.temperature) == () and not isinstance(self.temperature, str)
                fits = number and 0 < float(self.temperature) < np.inf
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise BadInput("temperature", repr(self.temperature), "a finite number > 0")

    @property
    def spaces(self):
        return self.energy.spaces

    @property
    def inputs(self):  # type: ignore[override]
        return self.energy.inputs

    @property
    def marginalises(self):  # type: ignore[override]
        # A sum over missing values at T = 1 is none at another temperature.
        return self.energy.marginalises if self.energy.knows("scaled") else frozenset()

    @property
    def _scaled(self) -> Any:
        return self.energy.scaled(1 / self.temperature)  # type: ignore[attr-defined]

    def knows(self, what, names=None):
        if self.energy.knows("scaled"):
            return what in _KNOWLEDGE and self.energy.knows(what, names)
        one_is_left = names is None or len(frozenset(names)) >= len(self.spaces) - 1
        return what == "conditional" and one_is_left and self.energy.knows(what, names)

    def __call__(self, **variables):
        if self.energy.knows("scaled"):
            return self._scaled(**variables)
        return self.energy(**variables) / self.temperature

    def free_energy(self, **given):
        if self.knows("free_energy"):
            return self._scaled.free_energy(**given)
        return super().free_energy(**given)

    def log_partition(self):
        return self._scaled.log_partition() if self.knows("log_partition") else super().log_partition()

    def draw(self, key, **given):
        return self._scaled.draw(key, **given) if self.knows("draw") else super().draw(key, **given)

    def conditional(self, name, **given):
        if self.energy.knows("scaled"):
            return self._scaled.conditional(name, **given)
        whole = {name, *given} >= set(self.spaces) and not any(map(is_masked, given.values()))
        if whole and self.energy.knows("conditional", given):
            tempered = power(self.energy.conditional(name, **given), 1 / self.temperature)
            if tempered is not None:
                return tempered
        return super().conditional(name, **given)


def power(distribution: Any, exponent: Any) -> Any:
    """p^exponent, normalised, where that is of the family of p; None where it is not.

    >>> from numpyro.distributions import Normal
    >>> float(power(Normal(3.0, 1.0), 0.25).scale)
    2.0
    """
    from numpyro import distributions as d
    from numpyro.distributions.discrete import (
        BernoulliLogits,
        BernoulliProbs,
        CategoricalLogits,
        CategoricalProbs,
    )

    if isinstance(distribution, FiniteDistribution):
        logits = exponent * distribution.log_probs
        return FiniteDistribution(jax.nn.log_softmax(logits), distribution.space)
    if isinstance(distribution, d.Independent):
        base = power(distribution.base_dist, exponent)
        return None if base is None else base.to_event(distribution.reinterpreted_batch_ndims)
    # By logits where there are some: probabilities that have underflown cannot be brought back.
    if isinstance(distribution, BernoulliLogits):
        return BernoulliLogits(exponent * distribution.logits)
    if isinstance(distribution, BernoulliProbs):
        logits = exponent * (jnp.log(distribution.probs) - jnp.log1p(-distribution.probs))
        most = jnp.finfo(logits.dtype).max
        return BernoulliLogits(jnp.clip(logits, -most, most))
    if isinstance(distribution, CategoricalLogits):
        return CategoricalLogits(exponent * distribution.logits)
    if isinstance(distribution, CategoricalProbs):
        return CategoricalLogits(exponent * jnp.log(distribution.probs))
    if type(distribution) is d.Normal:
        return d.Normal(distribution.loc, distribution.scale / jnp.sqrt(exponent))
    if type(distribution) is d.MultivariateNormal:
        return d.MultivariateNormal(distribution.loc, scale_tril=distribution.scale_tril / jnp.sqrt(exponent))
    return None
