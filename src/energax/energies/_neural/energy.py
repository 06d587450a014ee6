"""Neural energies: networks whose output is the energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, NUMBER_SCALAR, WHOLE, check_arguments
from ...energy import Energy
from ...nn import mlp, reinitialise
from ...spaces import Real, Space


class NeuralEnergy(Energy):
    """A neural energy: e(x) = f(x) + ½ λ‖x‖², with any network f.

    The output of a network may decrease without bound far from the data. Then exp(−e) has no finite
    integral, and chains diverge. Networks with the usual activations grow at most linearly, so
    that any λ > 0 makes the energy normalisable.

    Args:
        network: f, maps x as a vector (d,) to a scalar.
        space: the space of x; a whole number d is ℝᵈ.
        confinement: λ; fixed if it is a Python number, learned if it is an array.

    LeCun, Chopra, Hadsell, Ranzato and Huang (2006), A tutorial on energy-based learning.

    >>> NeuralEnergy(lambda x: x.sum(), 2, confinement=1.0)(x=jnp.array([1.0, 2.0]))
    Array(5.5, dtype=float32)
    """

    network: Callable[[Any], Any]
    space: Space = eqx.field(static=True)
    confinement: Any

    def __init__(self, network: Callable[[Any], Any], space: int | Space, confinement: Any = 0.1):
        check_arguments(locals(), network=FUNCTION, confinement=NUMBER_SCALAR)
        if not isinstance(space, Space):
            check_arguments(locals(), space=WHOLE)
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
        """An energy with a multilayer perceptron; the keywords go to `nn.mlp`.

        Score matching and Langevin chains need a smooth activation, as the default is.
        """
        if not isinstance(space, Space):
            check_arguments(locals(), space=WHOLE)
            space = Real(space)
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
