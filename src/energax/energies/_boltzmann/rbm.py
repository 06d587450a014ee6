"""Restricted Boltzmann machines: a visible and a hidden layer, connected only with each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arguments import (
    MATRIX,
    NONE,
    POSITIVE,
    VECTOR,
    WEIGHT_SCALAR,
    WHOLE,
    check_arguments,
    check_layer_sizes,
    instance,
)
from ..._util.keys import as_key
from ..._util.methods import plain_method
from ..._util.xla import softplus
from ...energy import Energy, enumerated_free_energy
from ...errors import BadInput
from ...missing import is_masked, mask_of, value_of
from ...spaces import Binary, Positive, Real, parameter
from .units import BinaryUnits, GaussianUnits, Units

_UNITS = instance(Units, "units of energax.energies", "Try BinaryUnits().")


def _check_layers(machine: RBM | GaussianRBM) -> None:
    """Raise `BadInput` unless there is one weight per pair of a visible and a hidden unit."""
    check_arguments(machine, weight=MATRIX, bias=VECTOR, hidden_bias=VECTOR)
    expected = (machine.bias.shape[-1], machine.hidden_bias.shape[-1])
    if tuple(machine.weight.shape[-2:]) != expected:
        raise BadInput("weight", f"shape {machine.weight.shape}", f"{expected}, from the two biases")


class RBM(Energy):
    """A restricted Boltzmann machine: e(x, z) = −xᵀWz − bᵀx − cᵀz, by default with x and z binary.

    Other units have their statistics t in place of x and z, and a term −log h of their own:
    e(x, z) = −t(x)ᵀ W t(z) − bᵀt(x) − cᵀt(z) − log h(x) − log h(z). Given one layer, the units of the other
    are independent. Missing coordinates of x are summed out exactly.

    Args:
        weight: W, (n_visible, n_hidden).
        bias: b, (n_visible,).
        hidden_bias: c, (n_hidden,).
        visible: the units of x: `BinaryUnits()`, `SoftmaxUnits(k)`, `GaussianUnits(scale)` or
            `RectifiedUnits(n)`.
        hidden: the units of z.

    Smolensky (1986), Information processing in dynamical systems: foundations of harmony theory;
    Welling, Rosen-Zvi and Hinton (2004), Exponential family harmoniums, for other units.

    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> rbm.log_partition()                                  # 5 log 2
    Array(3.465736, dtype=float32)
    >>> from energax.energies import RectifiedUnits, SoftmaxUnits
    >>> RBM.random(4, 2, visible=SoftmaxUnits(3), hidden=RectifiedUnits(5), key=0).spaces
    {'x': Categorical(3, 4), 'z': Categorical(6, 2)}
    """

    weight: jax.Array
    bias: jax.Array
    hidden_bias: jax.Array
    visible: Units = BinaryUnits()
    hidden: Units = BinaryUnits()

    marginalises = frozenset({"x"})
    enumerates_missing = True

    def __check_init__(self):
        _check_layers(self)
        check_arguments(self, visible=_UNITS, hidden=_UNITS)
        if isinstance(self.visible, GaussianUnits) and isinstance(self.hidden, GaussianUnits):
            remedy = "Use Gaussian units in one layer, and binary or rectified ones in the other."
            raise BadInput(
                "hidden", "Gaussian units in both layers", "a density with a finite integral", remedy
            )
        self.spaces  # noqa: B018  raises if the fields are no whole number of units

    @classmethod
    def random(
        cls,
        n_visible: int,
        n_hidden: int,
        *,
        key: Any,
        scale: float = 0.01,
        visible: Units | None = None,
        hidden: Units | None = None,
    ) -> RBM:
        """A machine with normal weights of standard deviation `scale` and biases of 0."""
        units = {"visible": _UNITS | NONE, "hidden": _UNITS | NONE}
        check_arguments(locals(), n_visible=WHOLE, n_hidden=WHOLE, scale=WEIGHT_SCALAR, **units)
        visible, hidden = visible or BinaryUnits(), hidden or BinaryUnits()
        n, m = n_visible * visible.fields_per_unit, n_hidden * hidden.fields_per_unit
        check_layer_sizes("n_visible, n_hidden", (n, m))
        weight = scale * jax.random.normal(as_key(key), (n, m))
        return cls(weight, jnp.zeros(n), jnp.zeros(m), visible, hidden)

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases that match the mean of each coordinate."""
        x, counts = value_of(data["x"]), mask_of(data["x"]) * weight[:, None]
        visible, bias = self.visible.fitted(x, counts)
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return RBM(noise, bias.astype(self.bias.dtype), 0 * self.hidden_bias, visible, self.hidden)

    @property
    def spaces(self):
        n, m = self.bias.shape[-1], self.hidden_bias.shape[-1]
        return {"x": self.visible.space(n), "z": self.hidden.space(m)}

    @plain_method
    def knows(self, what, names=None):
        if what == "multiply" and not (self.visible.multiplies and self.hidden.multiplies):
            return False
        return super().knows(what, names)

    def __call__(self, *, x, z):
        field = self.visible_field(z)
        if is_masked(x):
            units = self.visible
            terms = jnp.where(x.observed, units.energies(x.value, field), -units.log_normalisers(field))
            visible = terms.sum()
        else:
            visible = self.visible.energy(x, field)
        return visible + self.hidden.energy(z, self.hidden_bias)

    def visible_field(self, z: Any) -> Any:
        """Return W t(z) + b, the field of the visible units given the hidden ones."""
        return self.weight @ self.hidden.statistics(z, self.weight.dtype) + self.bias

    def hidden_field(self, x: Any) -> Any:
        """Return Wᵀ t(x) + c, the field of the hidden units given the visible ones."""
        return self.visible.statistics(x, self.weight.dtype) @ self.weight + self.hidden_bias

    def hidden_means(self, x: Any) -> Any:
        """Return E[z | x]; of softmax units the probabilities of all values, one unit after the other."""
        return self.hidden.means(self.hidden_field(x))

    def free_energy(self, *, x=None, z=None):
        if is_masked(x):
            return enumerated_free_energy(self, {"x": x})
        if z is None:
            return self.visible.energy(x, self.bias) - self.hidden.log_normalisers(self.hidden_field(x)).sum()
        return (
            self.hidden.energy(z, self.hidden_bias)
            - self.visible.log_normalisers(self.visible_field(z)).sum()
        )

    def multiply(self, factor: Any) -> RBM:
        """factor · e, which is linear in its parameters."""
        visible, r = self.visible.multiplied(factor)
        hidden, s = self.hidden.multiplied(factor)
        weight, bias = factor / (r * s) * self.weight, factor / r * self.bias
        return RBM(weight, bias, factor / s * self.hidden_bias, visible, hidden)

    def with_biases(self, bias: Any, hidden_bias: Any) -> RBM:
        """Return the machine with other biases."""
        return RBM(self.weight, bias, hidden_bias, self.visible, self.hidden)

    def inference(self, task):
        """Annealed importance sampling, for log Z where neither layer can be enumerated."""
        return "AnnealedImportance" if task in ("log_prob", "log_partition") else None

    def conditional(self, name, **given):
        if name == "z":
            return self.hidden.distribution(self.hidden_field(given["x"]))
        return self.visible.distribution(self.visible_field(given["z"]))


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
        check_arguments(self, scale=POSITIVE)

    @classmethod
    def random(
        cls, n_visible: int, n_hidden: int, *, key: Any, scale: Any = None, spread: float = 0.01
    ) -> GaussianRBM:
        """A machine with normal weights of standard deviation `spread` and biases of 0.

        Unless a `scale` is given, it is learned, one number per feature, from 1 on.
        """
        check_arguments(locals(), n_visible=WHOLE, n_hidden=WHOLE, spread=WEIGHT_SCALAR)
        check_layer_sizes("n_visible, n_hidden", (n_visible, n_hidden))
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
