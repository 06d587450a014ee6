"""The path from a product of independent variables to an energy, with the closed forms that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.methods import plain_method
from ..._util.xla import softplus
from ...distributions import geometric_mean, log_overlap
from ...energy import Energy, checked_energy, free_energy, supports_call
from ...samplers import knows_conditional
from ...spaces import Binary, Space, fixed


class Independent(Energy):
    """−log q(x) of independent variables: finite coordinates with given logits, standard normal real ones.

    Args:
        logits: of the finite variables, by name: (*shape,) if binary, else (*shape, k).
        variables: the names and spaces of all variables, in order.
    """

    logits: dict[str, Any]
    variables: tuple[tuple[str, Space], ...] = eqx.field(static=True)

    @property
    def spaces(self):
        return dict(self.variables)

    def __call__(self, **variables):
        return sum(self._term(name, value) for name, value in variables.items())

    def _term(self, name, value):
        """−log q of one variable."""
        if isinstance(self.spaces[name], Binary):
            logits = self.logits[name]
            return jnp.sum(softplus(logits)) - jnp.sum(value * logits)
        return -jnp.sum(self.conditional(name).log_prob(value))

    def free_energy(self, **given):
        return self(**given)

    def log_partition(self):
        return jnp.zeros(())

    def conditional(self, name, **given):
        from numpyro import distributions as d

        space = self.spaces[name]
        if not space.is_finite:
            return d.Normal(jnp.zeros(space.shape), 1.0).to_event(space.ndim)
        family = d.BernoulliLogits if isinstance(space, Binary) else d.CategoricalLogits
        return family(self.logits[name]).to_event(space.ndim)

    def draw(self, key, **given):
        hidden = [name for name in self.spaces if name not in given]
        keys = jax.random.split(key, len(hidden) + 1)
        draw = lambda name, k: self.conditional(name).sample(k).astype(self.spaces[name].jax_dtype)
        return {name: draw(name, k) for name, k in zip(hidden, keys, strict=False)}


class GeometricPath(Energy):
    """(1 − β) e₀ + β e: the energy of the geometric path from a base e₀ to an energy e.

    p(name | all others) and the free energy without one variable are closed forms if those of both ends are:
    with e(x, z) = F(x) − log p(z | x),
    F_β(x) = (1 − β) F₀(x) + β F(x) − log Σ_z p₀(z | x)^(1 − β) p(z | x)^β.
    """

    base: Independent
    energy: Energy
    beta: Any = fixed()

    @property
    def spaces(self):
        return self.energy.spaces

    def at(self, beta: Any) -> GeometricPath:
        """Return the energy at another β."""
        return GeometricPath(self.base, self.energy, beta)

    @plain_method
    def knows(self, what, names=None):
        if what not in ("free_energy", "conditional"):
            return super().knows(what, names)
        if names is None:
            return self.energy.knows("conditional") and self.energy.knows(what)
        hidden = [n for n in self.spaces if n not in names]
        if len(hidden) != 1 or not self.energy.knows(what, frozenset(names)):
            return False
        given = {n: jax.ShapeDtypeStruct(self.spaces[n].shape, self.spaces[n].jax_dtype) for n in names}
        if not knows_conditional(self.energy, hidden[0], given):
            return False
        return supports_call(self._log_overlap, hidden[0], given, 0.5)

    def __call__(self, **variables):
        ends = checked_energy(self.base, variables), checked_energy(self.energy, variables)
        return (1 - self.beta) * ends[0] + self.beta * ends[1]

    def conditional(self, name, **given):
        if knows_conditional(self.energy, name, given):
            mean = geometric_mean(*self._conditionals(name, given), self.beta)
            if mean is not None:
                return mean
        return super().conditional(name, **given)

    def free_energy(self, **given):
        if not self.knows("free_energy", frozenset(given)):
            return super().free_energy(**given)
        (name,) = (n for n in self.spaces if n not in given)
        ends = free_energy(self.base, given), free_energy(self.energy, given)
        overlap = jnp.sum(self._log_overlap(name, given, self.beta))
        return (1 - self.beta) * ends[0] + self.beta * ends[1] - overlap

    def log_ratio(self, beta: Any, given: Mapping[str, Any]) -> Any:
        """Return F_β₀(given) − F_β(given), from this β₀ to another: the change of a log-weight.

        It is a sum of differences, not a difference of sums: with ten thousand steps of 10⁻⁴ in float32 the
        rounding of a free energy of 1000 would add up to a tenth.
        """
        hidden = [n for n in self.spaces if n not in given]
        change = beta - self.beta
        if not hidden:
            return change * (checked_energy(self.base, given) - checked_energy(self.energy, given))
        if not self.knows("free_energy", frozenset(given)):
            return free_energy(self, given) - free_energy(self.at(beta), given)
        overlap = lambda beta: self._log_overlap(hidden[0], given, beta)
        linear = change * (free_energy(self.base, given) - free_energy(self.energy, given))
        return linear + jnp.sum(overlap(beta) - overlap(self.beta))

    def _conditionals(self, name, given):
        return self.energy.conditional(name, **given), self.base.conditional(name)

    def _log_overlap(self, name, given, beta):
        overlap = log_overlap(*self._conditionals(name, given), beta)
        if overlap is None:
            raise NotImplementedError(f"the geometric mean of conditionals of {name!r}")
        return overlap
