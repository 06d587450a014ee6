"""Restricted Boltzmann machines: a visible and a hidden layer, connected only with each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.keys import as_key
from ..._util.xla import softplus
from ...energy import Energy, enumerated_free_energy
from ...errors import BadInput
from ...missing import is_masked, mask_of, value_of
from ...spaces import Binary, Positive, Real, parameter


def _check_layers(machine: RBM | GaussianRBM) -> None:
    """Raise `BadInput` unless there is one weight per pair of a visible and a hidden unit."""
    expected = (machine.bias.shape[-1], machine.hidden_bias.shape[-1])
    if tuple(machine.weight.shape[-2:]) != expected:
        raise BadInput("weight", f"shape {machine.weight.shape}", f"{expected}, from the two biases")


class RBM(Energy):
    """A restricted Boltzmann machine: e(x, z) = −xᵀWz − bᵀx − cᵀz, x and z binary.

    Missing coordinates of x are summed out exactly: they are independent given z.

    Args:
        weight: W, (n_visible, n_hidden).
        bias: b, (n_visible,).
        hidden_bias: c, (n_hidden,).

    Smolensky (1986), Information processing in dynamical systems: foundations of harmony theory.

    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> rbm.log_partition()                                  # 5 log 2
    Array(3.465736, dtype=float32)
    """

    weight: jax.Array
    bias: jax.Array
    hidden_bias: jax.Array

    marginalises = frozenset({"x"})
    enumerates_missing = True

    def __check_init__(self):
        _check_layers(self)

    @classmethod
    def random(cls, n_visible: int, n_hidden: int, *, key: Any, scale: float = 0.01) -> RBM:
        """A machine with normal weights of standard deviation `scale` and biases of 0."""
        weight = scale * jax.random.normal(as_key(key), (n_visible, n_hidden))
        return cls(weight, jnp.zeros(n_visible), jnp.zeros(n_hidden))

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases that match the mean of each coordinate."""
        x, counts = value_of(data["x"]), mask_of(data["x"]) * weight[:, None]
        mean = (jnp.sum(counts * x, 0) + 0.5) / (jnp.sum(counts, 0) + 1.0)
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return RBM(noise, (jnp.log(mean) - jnp.log1p(-mean)).astype(self.bias.dtype), 0 * self.hidden_bias)

    @property
    def spaces(self):
        return {"x": Binary(self.bias.shape[-1]), "z": Binary(self.hidden_bias.shape[-1])}

    def __call__(self, *, x, z):
        field = self.weight @ z + self.bias
        if is_masked(x):
            visible = jnp.where(x.observed, x.value * field, softplus(field)).sum()
        else:
            visible = x @ field
        return -visible - z @ self.hidden_bias

    def free_energy(self, *, x=None, z=None):
        if is_masked(x):
            return enumerated_free_energy(self, {"x": x})
        if z is None:
            return -(x @ self.bias) - softplus(x @ self.weight + self.hidden_bias).sum()
        return -(z @ self.hidden_bias) - softplus(self.weight @ z + self.bias).sum()

    def multiply(self, factor: Any) -> RBM:
        """factor · e, which is linear in its parameters."""
        return RBM(factor * self.weight, factor * self.bias, factor * self.hidden_bias)

    def inference(self, task):
        """Annealed importance sampling, for log Z where neither layer can be enumerated."""
        return "AnnealedImportance" if task in ("log_prob", "log_partition") else None

    def conditional(self, name, **given):
        from numpyro.distributions import Bernoulli

        if name == "z":
            return Bernoulli(logits=given["x"] @ self.weight + self.hidden_bias).to_event(1)
        return Bernoulli(logits=self.weight @ given["z"] + self.bias).to_event(1)


class GaussianRBM(Energy):
    """A Gaussian-Bernoulli machine: e(x, z) = Σ (x − b)² / 2σ² − (x/σ)ᵀWz − cᵀz, x real and z binary.

    Given z the coordinates of x are independent, N(b + σWz, σ²), so x has a mixture of as many Gaussians
    as z has values. Missing coordinates of x are integrated out exactly.

    Args:
        weight: W, (n_visible, n_hidden).
        bias: b, (n_visible,).
        hidden_bias: c, (n_hidden,).
        scale: σ, one number or one per feature; fixed if it is a Python number, learned if it is
            an array.

    Welling, Rosen-Zvi and Hinton (2004), Exponential family harmoniums.

    >>> rbm = GaussianRBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> rbm.log_partition()                                  # 3/2 log 2π + 2 log 2
    Array(4.14311, dtype=float32)
    """

    weight: jax.Array
    bias: jax.Array
    hidden_bias: jax.Array
    scale: Any = parameter(Positive(), default=1.0)

    marginalises = frozenset({"x"})
    enumerates_missing = True

    def __check_init__(self):
        _check_layers(self)

    @classmethod
    def random(
        cls, n_visible: int, n_hidden: int, *, key: Any, scale: Any = None, spread: float = 0.01
    ) -> GaussianRBM:
        """A machine with normal weights of standard deviation `spread` and biases of 0.

        Unless a `scale` is given, it is learned, one number per feature, from 1 on.
        """
        weight = spread * jax.random.normal(as_key(key), (n_visible, n_hidden))
        scale = jnp.ones(n_visible) if scale is None else scale
        return cls(weight, jnp.zeros(n_visible), jnp.zeros(n_hidden), scale)

    def initialise(self, key, data, weight):
        """Small random weights, the mean of the data and, if the scale is learned, its deviation."""
        x, counts = value_of(data["x"]), mask_of(data["x"]) * weight[:, None]
        total = jnp.maximum(jnp.sum(counts, 0), 1e-6)
        mean = jnp.sum(counts * x, 0) / total
        scale = self.scale
        if isinstance(scale, jax.Array):
            variance = jnp.sum(counts * (x - mean) ** 2, 0) / total
            # The scale of a constant column is small but not zero.
            spread = jnp.sqrt(jnp.maximum(variance, 1e-6))
            scale = (spread if scale.ndim else jnp.sqrt(jnp.mean(spread**2))).astype(scale.dtype)
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return GaussianRBM(noise, mean.astype(self.bias.dtype), 0 * self.hidden_bias, scale)

    @property
    def spaces(self):
        return {"x": Real(self.bias.shape[-1]), "z": Binary(self.hidden_bias.shape[-1])}

    def __call__(self, *, x, z):
        drive = self.weight @ z
        value = value_of(x)
        energies = 0.5 * ((value - self.bias) / self.scale) ** 2 - value / self.scale * drive
        if is_masked(x):
            energies = jnp.where(x.observed, energies, self._marginal_energies(drive))
        return energies.sum() - z @ self.hidden_bias

    def _marginal_energies(self, drive):
        """−log ∫ exp(−(x − b)² / 2σ² + x · drive / σ) dx of every coordinate, (n_visible,)."""
        log_volume = 0.5 * jnp.log(2 * jnp.pi) + jnp.log(self.scale)
        return -log_volume - 0.5 * drive**2 - self.bias / self.scale * drive

    def free_energy(self, *, x=None, z=None):
        if is_masked(x):
            return enumerated_free_energy(self, {"x": x})
        if z is None:
            logits = (x / self.scale) @ self.weight + self.hidden_bias
            return 0.5 * jnp.sum(((x - self.bias) / self.scale) ** 2) - softplus(logits).sum()
        return self._marginal_energies(self.weight @ z).sum() - z @ self.hidden_bias

    def multiply(self, factor: Any) -> GaussianRBM:
        """factor · e: the standard deviations are divided by the square root of the factor."""
        root = jnp.sqrt(factor)
        return GaussianRBM(root * self.weight, self.bias, factor * self.hidden_bias, self.scale / root)

    def conditional(self, name, **given):
        from numpyro.distributions import Bernoulli, Normal

        if name == "z":
            logits = (given["x"] / self.scale) @ self.weight + self.hidden_bias
            return Bernoulli(logits=logits).to_event(1)
        scale = jnp.broadcast_to(self.scale, self.bias.shape)
        return Normal(self.bias + scale * (self.weight @ given["z"]), scale).to_event(1)

    def draw(self, key, **given):
        """Draw z from its enumerated marginal, then x given z."""
        first, second = jax.random.split(key)
        if "x" in given:
            return {"z": self.conditional("z", **given).sample(first).astype(given["x"].dtype)}
        if "z" in given:
            return {"x": self.conditional("x", **given).sample(second)}
        z = Energy.conditional(self, "z").sample(first).astype(self.bias.dtype)
        return {"x": self.conditional("x", z=z).sample(second), "z": z}
