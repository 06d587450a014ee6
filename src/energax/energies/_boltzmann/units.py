"""The units of a layer: binary, Gaussian, softmax and rectified, each an exponential family of its field."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import POSITIVE, check_arguments
from ..._util.xla import softplus
from ...errors import BadInput, check_memory, check_whole_number
from ...spaces import Binary, Categorical, Positive, Real, Space, parameter

#: How far the mean of an initial unit stays from the ends of its range, in counts.
_PSEUDO = 0.5


class Units(eqx.Module):
    """The base class of units: p(v | a) ∝ h(v) exp(t(v) · a), with the field a from biases and other layers.

    A layer has `n_fields` numbers in its field and as many statistics t(v); its values v have
    `space(n_fields)`. Subclasses give t, h and the normaliser log Σ_v h(v) exp(t(v) · a) of every unit.
    """

    #: Whether factor · log h belongs to the same family, so that the energy of a layer can be multiplied.
    multiplies: ClassVar[bool] = True

    #: Numbers in the field of one unit.
    @property
    def fields_per_unit(self) -> int:
        return 1

    def n_units(self, n_fields: int) -> int:
        """Return the number of units of a layer with so many fields; raise if it is not whole."""
        if n_fields % self.fields_per_unit:
            found = f"{n_fields} numbers for {type(self).__name__}"
            raise BadInput("bias", found, f"a multiple of {self.fields_per_unit}")
        return n_fields // self.fields_per_unit

    @abstractmethod
    def space(self, n_fields: int) -> Space:
        """Return the space of the values of a layer."""

    @abstractmethod
    def statistics(self, value: Any, dtype: Any) -> Any:
        """Return t(v), (n_fields,)."""

    @abstractmethod
    def energies(self, value: Any, field: Any) -> Any:
        """Return −t(v) · a − log h(v) of every unit, (n_units,)."""

    def energy(self, value: Any, field: Any) -> Any:
        """Return the sum of `energies`."""
        return self.energies(value, field).sum()

    @abstractmethod
    def log_normalisers(self, field: Any) -> Any:
        """Return log Σ_v h(v) exp(t(v) · a) of every unit, (n_units,)."""

    @abstractmethod
    def distribution(self, field: Any) -> Any:
        """Return p(v | a) of the layer, a NumPyro distribution."""

    @abstractmethod
    def mean_statistics(self, field: Any) -> Any:
        """Return E[t(v) | a], (n_fields,)."""

    def means(self, field: Any) -> Any:
        """Return E[v | a]; of units without a mean E[t(v) | a]."""
        return self.mean_statistics(field)

    @abstractmethod
    def fitted(self, value: Any, counts: Any) -> tuple[Units, Any]:
        """Return the units and the bias at which independent units have the rates or moments of rows.

        value: rows (n, n_units); counts: the weight of every entry, 0 where it is missing.
        """

    def multiplied(self, factor: Any) -> tuple[Units, Any]:
        """Return units with log h multiplied by `factor`, and the ratio of their statistics to these."""
        return self, 1.0


class BinaryUnits(Units):
    """Units with the values 0 and 1: p(v = 1 | a) = σ(a).

    >>> BinaryUnits().log_normalisers(jnp.zeros(2))                     # log 2
    Array([0.6931472, 0.6931472], dtype=float32)
    """

    def space(self, n_fields):
        return Binary(n_fields)

    def statistics(self, value, dtype):
        return value

    def energies(self, value, field):
        return -value * field

    def energy(self, value, field):
        return -(value @ field)

    def log_normalisers(self, field):
        return softplus(field)

    def distribution(self, field):
        from numpyro.distributions import Bernoulli

        return Bernoulli(logits=field).to_event(1)

    def mean_statistics(self, field):
        return jax.nn.sigmoid(field)

    def fitted(self, value, counts):
        mean = (jnp.sum(counts * value, 0) + _PSEUDO) / (jnp.sum(counts, 0) + 2 * _PSEUDO)
        return self, jnp.log(mean) - jnp.log1p(-mean)


class SoftmaxUnits(Units):
    """Units with one of k values: p(v = j | a) ∝ exp(a_j). The field of a unit has k numbers.

    Args:
        k: the number of values.

    Salakhutdinov, Mnih and Hinton (2007), Restricted Boltzmann machines for collaborative filtering.

    >>> units = SoftmaxUnits(3)
    >>> units.space(6), units.energies(jnp.array([0, 2]), jnp.arange(6.0))
    (Categorical(3, 2), Array([-0., -5.], dtype=float32))
    """

    k: int = eqx.field(static=True)

    def __check_init__(self):
        check_whole_number("k", self.k, 2)
        check_memory("k", self.k, self.k, "the values of one unit", 4)

    @property
    def fields_per_unit(self):
        return self.k

    def space(self, n_fields):
        return Categorical(self.k, self.n_units(n_fields))

    def statistics(self, value, dtype):
        return jax.nn.one_hot(value, self.k, dtype=dtype).reshape(-1)

    def energies(self, value, field):
        return -(jax.nn.one_hot(value, self.k, dtype=field.dtype) * field.reshape(-1, self.k)).sum(1)

    def log_normalisers(self, field):
        return jax.nn.logsumexp(field.reshape(-1, self.k), axis=1)

    def distribution(self, field):
        from numpyro.distributions import Categorical as CategoricalDistribution

        return CategoricalDistribution(logits=field.reshape(-1, self.k)).to_event(1)

    def mean_statistics(self, field):
        return jax.nn.softmax(field.reshape(-1, self.k), axis=1).reshape(-1)

    def fitted(self, value, counts):
        hits = jax.nn.one_hot(value, self.k, dtype=counts.dtype) * counts[..., None]
        rates = (hits.sum(0) + _PSEUDO) / (counts.sum(0)[:, None] + self.k * _PSEUDO)
        return self, jnp.log(rates).reshape(-1)


class GaussianUnits(Units):
    """Real units: p(v | a) = N(σa, σ²), from the energy v² / 2σ² − (v/σ) · a.

    Args:
        scale: σ, one number or one per unit; fixed if it is a Python number, learned if it is an array.

    Welling, Rosen-Zvi and Hinton (2004), Exponential family harmoniums.

    >>> GaussianUnits(2.0).distribution(jnp.ones(1)).mean
    Array([2.], dtype=float32)
    """

    scale: Any = parameter(Positive(), default=1.0)

    def __check_init__(self):
        check_arguments(self, scale=POSITIVE)

    def space(self, n_fields):
        return Real(n_fields)

    def statistics(self, value, dtype):
        return value / self.scale

    def energies(self, value, field):
        t = value / self.scale
        return 0.5 * t**2 - t * field

    def log_normalisers(self, field):
        return 0.5 * field**2 + jnp.log(self.scale) + 0.5 * jnp.log(2 * jnp.pi)

    def distribution(self, field):
        from numpyro.distributions import Normal

        return Normal(self.scale * field, jnp.broadcast_to(self.scale, field.shape)).to_event(1)

    def mean_statistics(self, field):
        return field

    def means(self, field):
        return self.scale * field

    def fitted(self, value, counts):
        total = jnp.maximum(jnp.sum(counts, 0), 1e-6)
        mean = jnp.sum(counts * value, 0) / total
        scale = self.scale
        if isinstance(scale, jax.Array):
            # The scale of a constant column is small but not zero.
            spread = jnp.sqrt(jnp.maximum(jnp.sum(counts * (value - mean) ** 2, 0) / total, 1e-6))
            scale = (spread if scale.ndim else jnp.sqrt(jnp.mean(spread**2))).astype(scale.dtype)
        return GaussianUnits(scale), mean / scale

    def multiplied(self, factor):
        root = jnp.sqrt(factor)
        return GaussianUnits(self.scale / root), root


class RectifiedUnits(Units):
    """Counts 0, 1, …, n whose mean is nearly the rectified field: E[v | a] ≈ log(1 + eᵃ) for a < n.

    A unit is the number of active ones among n binary units that share weights and bias, with offsets
    −½, −3/2, …, −n + ½ of their fields. With q = e⁻¹, the q-binomial theorem gives this number a density of
    its own, p(v | a) ∝ exp(a v − v²/2) [n choose v]_q, with the normaliser Π_i (1 + exp(a − i + ½)). Nair and
    Hinton draw max(0, a + N(0, σ(a))) in its place; here draws are exact, and the model has an energy.

    Args:
        n: the largest value.

    Nair and Hinton (2010), Rectified linear units improve restricted Boltzmann machines.

    >>> RectifiedUnits(20).mean_statistics(jnp.array([-4.0, 0.0, 10.0]))
    Array([ 0.0174...,  0.682...,  10. ...], dtype=float32)
    """

    n: int = eqx.field(static=True, default=16)

    multiplies = False

    def __check_init__(self):
        check_whole_number("n", self.n)
        check_memory("n", self.n, self.n, "the values of one unit", 4)

    @property
    def _log_measure(self) -> np.ndarray:
        """log h(v) = −v²/2 + log [n choose v]_q of all values, (n + 1,)."""
        j = np.arange(1, self.n + 1)
        log_ratios = np.log1p(-np.exp(-(self.n - j + 1.0))) - np.log1p(-np.exp(-1.0 * j))
        return -0.5 * np.arange(self.n + 1) ** 2 + np.concatenate([[0], np.cumsum(log_ratios)])

    def _copies(self, field: Any) -> Any:
        """Return the fields of the binary copies of every unit, (n_units, n)."""
        return field[:, None] - (np.arange(1, self.n + 1) - 0.5).astype(field.dtype)

    def space(self, n_fields):
        return Categorical(self.n + 1, n_fields)

    def statistics(self, value, dtype):
        return value.astype(dtype)

    def energies(self, value, field):
        measure = jnp.asarray(self._log_measure, field.dtype)
        return -value.astype(field.dtype) * field - measure[value.astype(int)]

    def log_normalisers(self, field):
        return softplus(self._copies(field)).sum(1)

    def distribution(self, field):
        from numpyro.distributions import Categorical as CategoricalDistribution

        values = np.arange(self.n + 1).astype(field.dtype)
        logits = field[:, None] * values + jnp.asarray(self._log_measure, field.dtype)
        return CategoricalDistribution(logits=logits).to_event(1)

    def mean_statistics(self, field):
        return jax.nn.sigmoid(self._copies(field)).sum(1)

    def fitted(self, value, counts):
        mean = (jnp.sum(counts * value, 0) + 0.1 * _PSEUDO) / (jnp.sum(counts, 0) + _PSEUDO)
        return self, jnp.log(jnp.expm1(jnp.minimum(mean, self.n - _PSEUDO)))
