"""A restricted Boltzmann machine whose biases depend on inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arguments import MATRIX, WEIGHT_SCALAR, WHOLE, check_arguments, check_layer_sizes, instance
from ..._util.keys import as_key
from ..._util.methods import plain_method
from ...energy import Energy, log_partition_cost
from ...errors import BadInput
from ...finite import ENUMERATION_LIMIT
from ...spaces import Real
from .rbm import RBM
from .units import Units


class ConditionalRBM(Energy):
    """p(x | u) of an RBM with the biases b + Aᵀu and c + Bᵀu, for inputs u that are always given.

    `ContrastiveDivergence` learns it with every chain at the inputs of its row. Inputs may be anything known
    beforehand: earlier frames of a sequence, or which entries of a row of ratings exist.

    Args:
        rbm: the machine over x and z, with any units.
        input_weight: A, (n_inputs, n_visible).
        input_hidden_weight: B, (n_inputs, n_hidden).

    Taylor, Hinton and Roweis (2007), Modeling human motion using binary latent variables; Mnih, Larochelle
    and Hinton (2011), Conditional restricted Boltzmann machines for structured output prediction.

    >>> machine = ConditionalRBM.random(2, 4, 3, key=0)
    >>> machine.spaces, sorted(machine.inputs)
    ({'u': Real(2), 'x': Binary(4), 'z': Binary(3)}, ['u'])
    """

    rbm: RBM
    input_weight: jax.Array
    input_hidden_weight: jax.Array

    inputs = frozenset({"u"})

    def __check_init__(self):
        rbm = instance(RBM, "an RBM of energax.energies")
        check_arguments(self, rbm=rbm, input_weight=MATRIX, input_hidden_weight=MATRIX)
        n = self.input_weight.shape[-2]
        for name, layer in (("input_weight", self.rbm.bias), ("input_hidden_weight", self.rbm.hidden_bias)):
            shape = tuple(getattr(self, name).shape[-2:])
            if shape != (n, layer.shape[-1]):
                raise BadInput(name, f"shape {shape}", f"{(n, layer.shape[-1])}, from inputs and biases")

    @classmethod
    def random(
        cls,
        n_inputs: int,
        n_visible: int,
        n_hidden: int,
        *,
        key: Any,
        scale: float = 0.01,
        visible: Units | None = None,
        hidden: Units | None = None,
    ) -> ConditionalRBM:
        """A machine with normal weights of standard deviation `scale` and biases of 0."""
        check_arguments(locals(), n_inputs=WHOLE, n_visible=WHOLE, n_hidden=WHOLE, scale=WEIGHT_SCALAR)
        check_layer_sizes("n_inputs", (n_inputs, n_visible + n_hidden))
        keys = jax.random.split(as_key(key), 3)
        rbm = RBM.random(n_visible, n_hidden, key=keys[0], scale=scale, visible=visible, hidden=hidden)
        draw = lambda key, layer: scale * jax.random.normal(key, (n_inputs, layer.shape[0]))
        return cls(rbm, draw(keys[1], rbm.bias), draw(keys[2], rbm.hidden_bias))

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases of the rates of the data."""
        keys = jax.random.split(key, 3)
        rbm = self.rbm.initialise(keys[0], data, weight)
        draw = lambda key, old: 0.01 * jax.random.normal(key, old.shape, old.dtype)
        return ConditionalRBM(rbm, draw(keys[1], self.input_weight), draw(keys[2], self.input_hidden_weight))

    @property
    def spaces(self):
        return {"u": Real(self.input_weight.shape[-2]), **self.rbm.spaces}

    @plain_method
    def knows(self, what, names=None):
        if what == "free_energy" and names is not None:
            if frozenset(names) == {"u"}:
                cost = log_partition_cost(self.rbm)[1]
                return cost is not None and cost <= ENUMERATION_LIMIT
            return "u" in names and frozenset(names) <= {"u", "x", "z"}
        if what == "conditional" and names is not None:
            return frozenset(names) in ({"u", "x"}, {"u", "z"})
        return super().knows(what, names)

    def at(self, u: Any) -> RBM:
        """Return the machine over x and z at these inputs.

        >>> ConditionalRBM.random(2, 4, 3, key=0).at(jnp.ones(2)).spaces
        {'x': Binary(4), 'z': Binary(3)}
        """
        u = jnp.asarray(u, self.input_weight.dtype)
        bias = self.rbm.bias + u @ self.input_weight
        return self.rbm.with_biases(bias, self.rbm.hidden_bias + u @ self.input_hidden_weight)

    def __call__(self, *, u, x, z):
        return self.at(u)(x=x, z=z)

    def free_energy(self, *, u, x=None, z=None):
        if x is None and z is None:
            return -self.at(u).log_partition()
        if x is not None and z is not None:
            return self.at(u)(x=x, z=z)
        return self.at(u).free_energy(x=x, z=z)

    def conditional(self, name, *, u, **given):
        return self.at(u).conditional(name, **given)
