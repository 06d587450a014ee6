"""An energy at another temperature, with the closed forms that it keeps there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._util.methods import plain_method
from .distributions import power
from .energy import Energy
from .errors import BadInput
from .missing import is_masked
from .spaces import fixed, is_concrete

#: Closed forms that an energy with `multiply` keeps at any temperature.
_KEPT = ("free_energy", "conditional", "draw", "log_partition", "score")


class Tempered(Energy):
    """e / T: flatter for T > 1, sharper for T < 1.

    An energy with `multiply(factor)`, factor · e as an energy of its own class, keeps all its closed forms at
    any temperature. Any other keeps p(name | all others), if a power of it belongs to the same family.

    >>> import jax.numpy as jnp
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
                scalar = np.shape(self.temperature) == () and not isinstance(self.temperature, str)
                valid = scalar and 0 < float(self.temperature) < np.inf
            except (TypeError, ValueError):
                valid = False
            if not valid:
                raise BadInput("temperature", repr(self.temperature), "a finite number > 0")

    @property
    def spaces(self):
        return self.energy.spaces

    @property
    def inputs(self):  # type: ignore[override]
        return self.energy.inputs

    @property
    def marginalises(self):  # type: ignore[override]
        # A sum over missing values at T = 1 is not the sum at another temperature.
        return self.energy.marginalises if self.energy.knows("multiply") else frozenset()

    @property
    def _scaled(self) -> Any:
        return self.energy.multiply(1 / self.temperature)  # type: ignore[attr-defined]

    @plain_method
    def knows(self, what, names=None):
        if what not in _KEPT:
            return super().knows(what, names)
        if self.energy.knows("multiply"):
            return self.energy.knows(what, names)
        one_is_left = names is None or len(frozenset(names)) >= len(self.spaces) - 1
        return what == "conditional" and one_is_left and self.energy.knows(what, names)

    def __call__(self, **variables):
        if self.energy.knows("multiply"):
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
        if self.energy.knows("multiply"):
            return self._scaled.conditional(name, **given)
        complete = {name, *given} >= set(self.spaces) and not any(map(is_masked, given.values()))
        if complete and self.energy.knows("conditional", given):
            tempered = power(self.energy.conditional(name, **given), 1 / self.temperature)
            if tempered is not None:
                return tempered
        return super().conditional(name, **given)
