"""A network whose output is the energy itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ...energy import Energy
from ...nn import mlp, reinitialise
from ...spaces import Real, Space


class NeuralEnergy(Energy):
    """e(x) = f(x) + ½ λ‖x‖², with any network f from x to a number.

    A network may fall without end far from the data, and then exp(−e) has no finite integral:
    no density, and chains that run away. Networks of the usual activations grow at most
    linearly, so that any `confinement` λ > 0 makes the energy normalisable. λ is a fixed
    number if given as one, a parameter if given as an array.

    `space` is ℝᵈ if given as a whole number, or any space.

    LeCun, Chopra, Hadsell, Ranzato and Huang (2006), A tutorial on energy-based learning.

    >>> NeuralEnergy(lambda x: x.sum(), 2, confinement=1.0)(x=jnp.array([1.0, 2.0]))
    Array(5.5, dtype=float32)
    """

    network: Callable[[Any], Any]
    space: Space = eqx.field(static=True)
    confinement: Any

    def __init__(self, network: Callable[[Any], Any], space: int | Space, confinement: Any = 0.1):
        self.network = network
        self.space = space if isinstance(space, Space) else Real(space)
        self.confinement = confinement

    @classmethod
    def random(
        cls,
        space: int | Space,
        *,
        key: Any,
        confinement: Any = 0.1,
        width: int = 64,
        depth: int = 2,
        **network: Any,
    ) -> NeuralEnergy:
        """A multilayer perceptron; the keywords go to `nn.mlp`. Keep the activation smooth."""
        space = space if isinstance(space, Space) else Real(space)
        built = mlp(space.size, "scalar", key=key, width=width, depth=depth, **network)
        return cls(built, space, confinement)

    def initialise(self, key, data, weight):
        return NeuralEnergy(reinitialise(self.network, key), self.space, self.confinement)

    @property
    def spaces(self):
        return {"x": self.space}

    def __call__(self, *, x):
        flat = jnp.ravel(x)
        return self.network(flat) + 0.5 * self.confinement * flat @ flat
