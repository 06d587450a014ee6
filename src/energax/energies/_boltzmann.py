"""Restricted Boltzmann machines: one layer seen, one hidden, connections only between them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..energy import Energy, enumerated_free_energy
from ..errors import BadInput
from ..keys import as_key
from ..missing import is_masked
from ..spaces import Binary


class RBM(Energy):
    """e(x, z) = −xᵀWz − bᵀx − cᵀz, x and z binary.

    Missing coordinates of x are summed out exactly: given z each is a coin of its own.

    Smolensky (1986), Information processing in dynamical systems: foundations of harmony theory.

    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> rbm.log_partition()                                  # 5 log 2
    Array(3.465736, dtype=float32)
    """

    weight: jax.Array
    bias: jax.Array
    hidden_bias: jax.Array

    marginalises = frozenset({"x"})

    def __check_init__(self):
        expected = (self.bias.shape[-1], self.hidden_bias.shape[-1])
        if tuple(self.weight.shape[-2:]) != expected:
            raise BadInput("weight", f"shape {self.weight.shape}", f"{expected}, from the two biases")

    @classmethod
    def random(cls, n_visible: int, n_hidden: int, *, key: Any, scale: float = 0.01) -> RBM:
        """Small random weights, no biases."""
        weight = scale * jax.random.normal(as_key(key), (n_visible, n_hidden))
        return cls(weight, jnp.zeros(n_visible), jnp.zeros(n_hidden))

    def initialise(self, key, data, weight):
        """Small random weights, and biases that match how often each pixel is on."""
        from ..missing import known, mask_of

        x, seen = known(data["x"]), mask_of(data["x"]) * weight[:, None]
        on = (jnp.sum(seen * x, 0) + 0.5) / (jnp.sum(seen, 0) + 1.0)
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return RBM(noise, (jnp.log(on) - jnp.log1p(-on)).astype(self.bias.dtype), 0 * self.hidden_bias)

    @property
    def spaces(self):
        return {"x": Binary(self.bias.shape[-1]), "z": Binary(self.hidden_bias.shape[-1])}

    def __call__(self, *, x, z):
        field = self.weight @ z + self.bias
        if is_masked(x):
            seen = jnp.where(x.observed, x.value * field, jax.nn.softplus(field)).sum()
        else:
            seen = x @ field
        return -seen - z @ self.hidden_bias

    def free_energy(self, *, x=None, z=None):
        if is_masked(x):
            return enumerated_free_energy(self, {"x": x})
        if z is None:
            return -x @ self.bias - jax.nn.softplus(x @ self.weight + self.hidden_bias).sum()
        return -z @ self.hidden_bias - jax.nn.softplus(self.weight @ z + self.bias).sum()

    def conditional(self, name, **given):
        from numpyro.distributions import Bernoulli

        if name == "z":
            return Bernoulli(logits=given["x"] @ self.weight + self.hidden_bias).to_event(1)
        return Bernoulli(logits=self.weight @ given["z"] + self.bias).to_event(1)
