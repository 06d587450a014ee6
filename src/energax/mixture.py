"""Mixtures: energies chosen by a hidden index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .batch import count_epsilon
from .energy import (
    Energy,
    enumerated_free_energy,
    enumerated_log_partition,
    free_energy,
    log_partition_cost,
)
from .errors import BadInput, Unsuitable
from .finite import ENUMERATION_LIMIT
from .missing import is_masked, mask_other_labels
from .parameters import constrained_maximum, has_m_step, precision_of, recentred
from .spaces import Categorical, Simplex, is_concrete, parameter
from .tempering import Tempered as Tempered


class Switch(Energy):
    """Any energies over the same variables, chosen by a hidden index: e(x, z) = e_z(x) + log Z_z."""

    normalised = True

    parts: tuple[Energy, ...]
    name: str = eqx.field(static=True, default="z")

    def __check_init__(self):
        if not self.parts:
            raise BadInput("components", "none", "at least one energy")
        first = self.parts[0].spaces
        for i, part in enumerate(self.parts):
            if part.spaces != first:
                raise BadInput(f"components[{i}]", f"{part.spaces}", f"{first}, as in the first")
            _, cost = log_partition_cost(part)
            if not part.knows("log_partition") and (cost is None or cost > ENUMERATION_LIMIT):
                raise Unsuitable(
                    f"A mixture needs log Z of every component, but components[{i}], {type(part).__name__}, "
                    "does not know it and it cannot be enumerated. Give it the method `log_partition`."
                )
        if self.name in first:
            raise BadInput(
                "name", f"{self.name!r}, a variable of the components", "a new name", "Try name='k'."
            )

    @property
    def spaces(self):
        return {**self.parts[0].spaces, self.name: Categorical(len(self.parts))}

    @property
    def inputs(self):  # type: ignore[override]
        return frozenset().union(*(part.inputs for part in self.parts))

    @property
    def marginalises(self):  # type: ignore[override]
        return frozenset.intersection(*(part.marginalises for part in self.parts))

    def energies(self, **given):
        """The energy of one example under every component, (k,)."""
        return jnp.stack([free_energy(part, given) + part.log_partition() for part in self.parts])

    def __call__(self, **variables):
        return self.energies(**{k: v for k, v in variables.items() if k != self.name})[variables[self.name]]

    def draw(self, key, **given):
        given = dict(given)
        if self.name not in given:
            raise BadInput("given", f"{sorted(given)}", f"a value of {self.name!r}", "Mixture draws it.")
        choice = given.pop(self.name)
        draws = [part.draw(key, **given) for part in self.parts]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[choice], *draws)

    @property
    def has_m_step(self) -> bool:
        return all(map(has_m_step, self.parts))

    def statistics(self, data, posterior):
        return tuple(p.statistics(data, posterior[:, i : i + 1]) for i, p in enumerate(self.parts))

    def maximise(self, statistics, trainable=None):
        moves = (None,) * len(self.parts) if trainable is None else trainable.parts
        each = zip(self.parts, statistics, moves, strict=True)
        return Switch(tuple(constrained_maximum(p, s, m) for p, s, m in each), self.name)

    def recentred(self, statistics, reference):
        each = zip(self.parts, statistics, reference.parts, strict=True)
        return tuple(recentred(part, s, r) for part, s, r in each)


class Mixture(Energy):
    """p(x, z) = π_z p(x | z), of any component energies.

    `components` is a list of energies over the same variables, or one energy over (x, z) that
    holds all k components stacked, such as `energies.Gaussians`. One whose class says
    `normalised = True` has ∫ exp(−e(x, z)) dx = 1 for every z, and the mixture log Z = 0.

    >>> from energax.energies import Gaussians
    >>> two = Mixture(Gaussians(jnp.array([[-1.0], [1.0]]), covariance=jnp.ones((2, 1, 1))))
    >>> two.free_energy(x=jnp.zeros(1))                     # ½ + ½ log 2π
    Array(1.418938..., dtype=float32)
    """

    weights: Any = parameter(Simplex())
    components: Energy
    name: str = eqx.field(static=True, default="z")

    def __init__(self, components: Energy | Sequence[Energy], weights: Any = None, name: str = "z"):
        if not isinstance(components, Energy):
            components = tuple(components)
            for i, part in enumerate(components):
                if not isinstance(part, Energy):
                    raise BadInput(f"components[{i}]", type(part).__name__, "an Energy")
            components = Switch(components, name)
        space = components.spaces.get(name)
        if not isinstance(space, Categorical):
            raise BadInput("components", f"{space!r} for {name!r}", "a categorical index variable")
        with precision_of(components):
            weights = jnp.asarray(np.full(space.k, 1.0 / space.k) if weights is None else weights)
        if weights.shape != (space.k,):
            raise BadInput("weights", f"shape {weights.shape}", f"({space.k},): one a component")
        if is_concrete(weights):
            Simplex(space.k).check(weights, "weights", missing=False)
        self.weights, self.components, self.name = weights, components, name

    @property
    def spaces(self):
        return self.components.spaces

    @property
    def inputs(self):  # type: ignore[override]
        return self.components.inputs

    @property
    def marginalises(self):  # type: ignore[override]
        return self.components.marginalises

    @property
    def n_components(self) -> int:
        return self.weights.shape[0]

    def __call__(self, **variables):
        return self.components(**variables) - jnp.log(self.weights[variables[self.name]])

    def joint(self, **given):
        """−log p(given, z) for every z, (k,)."""
        if hasattr(self.components, "energies"):
            energies = self.components.energies(**given)
        else:
            indices = jnp.arange(self.n_components)
            energies = jax.vmap(lambda i: self.components(**given, **{self.name: i}))(indices)
        return energies - jnp.log(self.weights)

    def free_energy(self, **given):
        if self.name in given or set(given) | {self.name} != set(self.spaces):
            return enumerated_free_energy(self, given)
        return -jax.nn.logsumexp(-self.joint(**given))

    def conditional(self, name, **given):
        from numpyro.distributions import Categorical as Choice

        if name == self.name:
            return Choice(logits=-self.joint(**given))
        if self.name not in given or is_masked(given[self.name]):
            # Theirs, mixed: of no family that they may be of.
            return super().conditional(name, **given)
        return self.components.conditional(name, **given)

    def knows(self, what, names=None):
        if what == "log_partition":
            return getattr(self.components, "normalised", False)
        if what == "free_energy" and names is not None:
            return set(names) == set(self.spaces) - {self.name}
        return super().knows(what, names)

    def log_partition(self):
        if not getattr(self.components, "normalised", False):
            return enumerated_log_partition(self)
        return jnp.zeros((), self.weights.dtype)

    def draw(self, key, **given):
        choose, emit = jax.random.split(key)
        if self.name in given:
            return self.components.draw(emit, **given)
        rest = set(self.spaces) - set(given) - {self.name}
        if not rest:
            logits = -self.joint(**given)
        elif not given and getattr(self.components, "normalised", False):
            logits = jnp.log(self.weights)
        else:  # what a component weighs is its own sum, too
            free = lambda i: free_energy(self, {**given, self.name: i})
            logits = -jax.vmap(free)(jnp.arange(self.n_components))
        z = jax.random.categorical(choose, logits)
        return {self.name: z, **(self.components.draw(emit, **given, **{self.name: z}) if rest else {})}

    # -- EM: the posterior of many rows at once, and the sums that a new θ is made of -------

    def log_posterior(self, data):
        """(log p(x, z)) for every row and component, (n, k); −∞ for what a row is known not to be of."""
        rest = {k: v for k, v in data.items() if k != self.name}
        if hasattr(self.components, "row_energies"):
            found = jnp.log(self.weights) - self.components.row_energies(**rest)
        else:
            found = -jax.vmap(lambda row: self.joint(**row))(rest)
        return mask_other_labels(found, data[self.name]) if self.name in data else found

    @property
    def has_m_step(self) -> bool:
        return has_m_step(self.components)

    def statistics(self, data, posterior):
        return {"weight": posterior.sum(0), "parts": self.components.statistics(data, posterior)}

    def maximise(self, statistics, trainable=None):
        total = statistics["weight"]
        # A component nobody belongs to keeps a weight that is small but not zero.
        total = total + count_epsilon(total)
        moves = None if trainable is None else trainable.components
        components = constrained_maximum(self.components, statistics["parts"], moves)
        return Mixture(components, total / total.sum(), self.name)

    def recentred(self, statistics, reference):
        parts = recentred(self.components, statistics["parts"], reference.components)
        return {"weight": statistics["weight"], "parts": parts}

    def impute(self, data):
        """The rows with what is missing at its mean given what is known, by name."""
        return self.components.impute(data, jax.nn.softmax(self.log_posterior(data), axis=1))

    def initialise(self, key, data, weight):
        if not hasattr(self.components, "initialise"):
            raise BadInput(
                "n_init",
                f"a start of its own for {type(self.components).__name__}",
                "components with `initialise(key, data, weight)`",
                "Begin at the energy as it is: n_init=1.",
            )
        components = self.components.initialise(key, data, weight)
        return Mixture(components, self.weights, self.name)
