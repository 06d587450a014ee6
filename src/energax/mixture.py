"""Mixtures: component energies selected by a hidden index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._util.arguments import NAME, check_arguments, read_array
from ._util.methods import plain_method
from .batch import count_epsilon, multiply_weight
from .energy import (
    Energy,
    enumerated_free_energy,
    enumerated_log_partition,
    free_energy,
    log_partition_cost,
)
from .errors import BadInput, Unsuitable, describe
from .finite import ENUMERATION_LIMIT, draw_one
from .missing import is_masked, mask_other_labels
from .parameters import m_step, precision_of, recenter
from .spaces import Categorical, Simplex, is_concrete, parameter


class Switch(Energy):
    """Energies over the same variables, selected by a hidden index: e(x, z) = e_z(x) + log Z_z."""

    normalised = True

    parts: tuple[Energy, ...]
    name: str = eqx.field(static=True, default="z")

    def __check_init__(self):
        if not self.parts:
            raise BadInput("components", "none", "at least one energy")
        first = self.parts[0].spaces
        for i, part in enumerate(self.parts):
            if part.spaces != first:
                raise BadInput(f"components[{i}]", f"{part.spaces}", f"{first}, as of components[0]")
            _, cost = log_partition_cost(part)
            if not part.knows("log_partition") and (cost is None or cost > ENUMERATION_LIMIT):
                raise Unsuitable(
                    f"A mixture needs log Z of every component, but components[{i}], {type(part).__name__}, "
                    "has no `log_partition` and cannot be enumerated. Give it the method `log_partition`."
                )
        if self.name in first:
            found = f"{self.name!r}, a variable of the components"
            raise BadInput("name", found, "another name", "Try name='k'.")

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

    def row_energies(self, **rows):
        """The energies of many rows, (n, k). A hidden chain would evaluate all parts once for every state."""
        return jax.vmap(lambda row: self.energies(**row))(rows)

    def __call__(self, **variables):
        return self.energies(**{k: v for k, v in variables.items() if k != self.name})[variables[self.name]]

    def draw(self, key, **given):
        given = dict(given)
        if self.name not in given:
            raise BadInput("given", f"{sorted(given)}", f"a value of {self.name!r}", "Only Mixture draws it.")
        choice = given.pop(self.name)
        draws = [part.draw(key, **given) for part in self.parts]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[choice], *draws)

    @property
    def has_m_step(self) -> bool:
        return all(part.has_m_step for part in self.parts)

    def statistics(self, data, posterior):
        return tuple(p.statistics(data, posterior[:, i : i + 1]) for i, p in enumerate(self.parts))

    def maximise(self, statistics, trainable=None):
        below = (None,) * len(self.parts) if trainable is None else trainable.parts
        each = zip(self.parts, statistics, below, strict=True)
        return Switch(tuple(m_step(part, s, b) for part, s, b in each), self.name)

    def recenter(self, statistics, reference):
        each = zip(self.parts, statistics, reference.parts, strict=True)
        return tuple(recenter(part, s, r) for part, s, r in each)


class Mixture(Energy):
    """p(x, z) = π_z p(x | z), of any component energies.

    `components` is a list of energies over the same variables, or one energy over (x, z) that
    holds all k components stacked, such as `energies.Gaussians`. If its class has `normalised = True`,
    ∫ exp(−e(x, z)) dx = 1 for every z, then log Z of the mixture is 0.

    >>> from energax.energies import Gaussians
    >>> two = Mixture(Gaussians(jnp.array([[-1.0], [1.0]]), covariance=jnp.ones((2, 1, 1))))
    >>> two.free_energy(x=jnp.zeros(1))                     # ½ + ½ log 2π
    Array(1.418938..., dtype=float32)
    """

    weights: Any = parameter(Simplex())
    components: Energy
    name: str = eqx.field(static=True, default="z")
    active: jax.Array | None = None

    def __init__(
        self,
        components: Energy | Sequence[Energy],
        weights: Any = None,
        name: str = "z",
        active: Any = None,
    ):
        check_arguments(locals(), name=NAME)
        if not isinstance(components, Energy):
            if not isinstance(components, Sequence):
                raise BadInput("components", describe(components), "an Energy, or a list of energies")
            components = tuple(components)
            for i, part in enumerate(components):
                if not isinstance(part, Energy):
                    raise BadInput(f"components[{i}]", type(part).__name__, "an Energy")
            components = Switch(components, name)
        space = components.spaces.get(name)
        if not isinstance(space, Categorical):
            raise BadInput("components", f"{space!r} for {name!r}", "a categorical index variable")
        with precision_of(components):
            weights = np.full(space.k, 1.0 / space.k) if weights is None else weights
            weights = read_array("weights", weights, f"{space.k} numbers, one per component")
        if weights.shape != (space.k,):
            raise BadInput("weights", f"shape {weights.shape}", f"({space.k},): one per component")
        if is_concrete(weights):
            Simplex(space.k).check(weights, "weights", missing=False)
        self.weights, self.components, self.name = weights, components, name
        self.active = None if active is None else read_array("active", active)

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
        if self.components.knows("energies"):
            energies = self.components.energies(**given)
        else:
            indices = jnp.arange(self.n_components)
            energies = jax.vmap(lambda i: self.components(**given, **{self.name: i}))(indices)
        return energies - jnp.log(self.weights)

    def free_energy(self, **given):
        if set(given) == {self.name} and self.components.normalised:
            return -jnp.log(self.weights[given[self.name]])
        if self.name in given or set(given) | {self.name} != set(self.spaces):
            return enumerated_free_energy(self, given)
        return -jax.nn.logsumexp(-self.joint(**given))

    def conditional(self, name, **given):
        from numpyro.distributions import Categorical as Choice

        if name == self.name:
            return Choice(logits=-self.joint(**given))
        if self.name not in given or is_masked(given[self.name]):
            # z is hidden: a mixture of the components' conditionals, which belongs to no family.
            return super().conditional(name, **given)
        return self.components.conditional(name, **given)

    @plain_method
    def knows(self, what, names=None):
        if what == "log_partition":
            return self.components.normalised
        if what == "free_energy" and names is not None:
            known = set(names) == {self.name} and self.components.normalised
            return known or set(names) == set(self.spaces) - {self.name}
        return super().knows(what, names)

    def log_partition(self):
        if not self.components.normalised:
            return enumerated_log_partition(self)
        return jnp.zeros((), self.weights.dtype)

    def draw(self, key, **given):
        choose, emit = jax.random.split(key)
        if self.name in given:
            return self.components.draw(emit, **given)
        rest = set(self.spaces) - set(given) - {self.name}
        if not rest:
            logits = -self.joint(**given)
        elif not given and self.components.normalised:
            logits = jnp.log(self.weights)
        else:  # the probability of a component includes the sum over its own hidden variables
            energies = jax.vmap(lambda i: free_energy(self, {**given, self.name: i}))
            logits = -energies(jnp.arange(self.n_components))
        z = draw_one(choose, logits)
        return {self.name: z, **(self.components.draw(emit, **given, **{self.name: z}) if rest else {})}

    # -- EM: the posterior of many rows at once, and sufficient statistics --------------------

    def log_posterior(self, data):
        """log p(x, z) for every row and component, (n, k); −∞ for other components than a given z."""
        rest = {k: v for k, v in data.items() if k != self.name}
        if self.components.knows("row_energies"):
            log_p = jnp.log(self.weights) - self.components.row_energies(**rest)
        else:
            log_p = -jax.vmap(lambda row: self.joint(**row))(rest)
        return mask_other_labels(log_p, data[self.name]) if self.name in data else log_p

    @property
    def has_m_step(self) -> bool:
        return self.components.has_m_step

    def statistics(self, data, posterior):
        return {"weight": posterior.sum(0), "parts": self.components.statistics(data, posterior)}

    def expected_statistics(self, data, weight, temperature):
        """(statistics, log-likelihood) of rows that all have a label z; None for others."""
        if self.name not in data or is_masked(data[self.name]):
            return None
        if not (self.components.knows("labelled_statistics") and self.components.knows("labelled_energies")):
            return None
        label, rest = data[self.name], {k: v for k, v in data.items() if k != self.name}
        log_p = jnp.log(self.weights[label]) - self.components.labelled_energies(label, **rest)
        return self.labelled_statistics(rest, label, weight), multiply_weight(weight, log_p).sum()

    def labelled_statistics(self, data, label, weight):
        total = jnp.zeros(self.n_components, weight.dtype).at[label].add(weight)
        return {"weight": total, "parts": self.components.labelled_statistics(data, label, weight)}

    def maximise(self, statistics, trainable=None):
        total = statistics["weight"]
        # A component without rows keeps a weight that is small but not zero.
        total = total + count_epsilon(total)
        if self.active is not None:
            total = jnp.where(self.active, total, 0)
        below = None if trainable is None else trainable.components
        components = m_step(self.components, statistics["parts"], below)
        return Mixture(components, total / total.sum(), self.name, self.active)

    def recenter(self, statistics, reference):
        parts = recenter(self.components, statistics["parts"], reference.components)
        return {"weight": statistics["weight"], "parts": parts}

    def impute(self, data):
        """The rows by name, with missing values at their means given the observed ones."""
        return self.components.impute_given(data, jax.nn.softmax(self.log_posterior(data), axis=1))

    def initialise(self, key, data, weight):
        if not self.components.knows("initialise"):
            raise BadInput(
                "n_init",
                f"{type(self.components).__name__} without random starts",
                "components with `initialise(key, data, weight)`",
                "Start from the energy as it is: n_init=1.",
            )
        options = {} if self.active is None else {"active": self.active}
        components = self.components.initialise(key, data, weight, **options)
        return Mixture(components, self.weights, self.name, self.active)

    # -- padding: programs of few sizes serve mixtures of any number of components -------------

    def pad(self, n):
        """The same mixture with n components; the new ones have weight 0 for ever.

        For components with `take(index)`, whose `initialise` has the argument `active`.
        """
        index = np.arange(n)
        exists = index < self.n_components
        components = self.components.take(np.where(exists, index, 0))
        weights = np.where(exists, np.asarray(self.weights)[np.where(exists, index, 0)], 0)
        return Mixture(components, weights, self.name, exists)

    def crop(self, n):
        """The first n components: the inverse of `pad`."""
        return Mixture(self.components.take(np.arange(n)), np.asarray(self.weights)[:n], self.name)
