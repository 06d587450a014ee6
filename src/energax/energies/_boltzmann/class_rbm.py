"""A restricted Boltzmann machine with a label: the joint density of x and y, and p(y | x) in closed form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arguments import (
    MATRIX,
    VECTOR,
    WEIGHT_SCALAR,
    check_arguments,
    check_layer_sizes,
    instance,
    whole,
)
from ..._util.keys import as_key
from ..._util.methods import plain_method
from ...energy import Energy, enumerated_free_energy
from ...errors import BadInput
from ...missing import mask_of, value_of
from ...spaces import Categorical
from .rbm import RBM
from .units import SoftmaxUnits, Units


class ClassRBM(Energy):
    """An RBM with a label y beside x: e(x, y, z) = e_rbm(x, z) − d_y − U_y · t(z).

    p(y | x) ∝ exp(−F(x, y)) in closed form, so that the same model is learned jointly
    (`ContrastiveDivergence`), discriminatively (`CrossEntropy`), or with labels of some rows only.

    Args:
        rbm: the machine over x and z, with any units.
        label_weight: U, (n_classes, n_hidden).
        label_bias: d, (n_classes,).

    Larochelle and Bengio (2008), Classification using discriminative restricted Boltzmann machines.

    >>> machine = ClassRBM.random(4, 3, 2, key=0)
    >>> machine.spaces
    {'x': Binary(4), 'y': Categorical(2), 'z': Binary(3)}
    >>> machine.knows("free_energy", {"x"}), machine.knows("free_energy", {"y"})
    (True, False)
    """

    rbm: RBM
    label_weight: jax.Array
    label_bias: jax.Array

    def __check_init__(self):
        rbm = instance(RBM, "an RBM of energax.energies")
        check_arguments(self, rbm=rbm, label_weight=MATRIX, label_bias=VECTOR)
        expected = (self.label_bias.shape[-1], self.rbm.hidden_bias.shape[-1])
        if tuple(self.label_weight.shape[-2:]) != expected:
            raise BadInput("label_weight", f"shape {self.label_weight.shape}", f"{expected}, from the biases")

    @classmethod
    def random(
        cls,
        n_visible: int,
        n_hidden: int,
        n_classes: int,
        *,
        key: Any,
        scale: float = 0.01,
        visible: Units | None = None,
        hidden: Units | None = None,
    ) -> ClassRBM:
        """A machine with normal weights of standard deviation `scale` and biases of 0."""
        check_arguments(locals(), n_classes=whole(2), scale=WEIGHT_SCALAR)
        check_layer_sizes("n_classes", (n_classes, 1))
        first, second = jax.random.split(as_key(key))
        rbm = RBM.random(n_visible, n_hidden, key=first, scale=scale, visible=visible, hidden=hidden)
        shape = (n_classes, rbm.hidden_bias.shape[0])
        return cls(rbm, scale * jax.random.normal(second, shape), jnp.zeros(n_classes))

    def initialise(self, key, data, weight):
        """Small random weights, and visible and label biases of the rates of the data."""
        first, second = jax.random.split(key)
        rbm = self.rbm.initialise(first, data, weight) if "x" in data else self.rbm
        noise = 0.01 * jax.random.normal(second, self.label_weight.shape, self.label_weight.dtype)
        bias = self.label_bias
        if "y" in data:
            y, counts = value_of(data["y"]), mask_of(data["y"]) * weight
            units = SoftmaxUnits(bias.shape[-1])
            bias = units.fitted(y[:, None], counts[:, None])[1].astype(bias.dtype)
        return ClassRBM(rbm, noise, bias)

    @property
    def spaces(self):
        spaces = self.rbm.spaces
        return {"x": spaces["x"], "y": Categorical(self.label_bias.shape[-1]), "z": spaces["z"]}

    @plain_method
    def knows(self, what, names=None):
        if what == "free_energy" and names is not None:
            return bool(frozenset(names) & {"x", "z"}) and frozenset(names) <= {"x", "y", "z"}
        if what == "conditional" and names is not None:
            return bool(frozenset(names) & {"x", "z"})
        if what == "multiply":
            return self.rbm.knows("multiply")
        return super().knows(what, names)

    def given_label(self, y: Any) -> RBM:
        """Return the machine over x and z whose density is p(x, z | y) up to a constant."""
        return self.rbm.with_biases(self.rbm.bias, self.rbm.hidden_bias + self.label_weight[y])

    def label_logits(self, z: Any) -> Any:
        """Return d + U t(z), the logits of y given the hidden units."""
        return self.label_bias + self.label_weight @ self.rbm.hidden.statistics(z, self.label_weight.dtype)

    def __call__(self, *, x, y, z):
        return self.rbm(x=x, z=z) - self.label_logits(z)[y]

    def free_energy(self, *, x=None, y=None, z=None):
        if z is not None:
            label = jax.nn.logsumexp(self.label_logits(z)) if y is None else self.label_logits(z)[y]
            return (self.rbm.free_energy(z=z) if x is None else self.rbm(x=x, z=z)) - label
        if x is None:
            return enumerated_free_energy(self, {} if y is None else {"y": y})
        energies = self._label_energies(x)
        return -jax.nn.logsumexp(-energies) if y is None else energies[y]

    def _label_energies(self, x: Any) -> Any:
        """Return F(x, y) for every label, (n_classes,)."""
        fields = self.rbm.hidden_field(x) + self.label_weight
        hidden = jax.vmap(lambda field: self.rbm.hidden.log_normalisers(field).sum())(fields)
        return self.rbm.visible.energy(x, self.rbm.bias) - self.label_bias - hidden

    def multiply(self, factor: Any) -> ClassRBM:
        """factor · e: y and x are scaled alike."""
        _, ratio = self.rbm.hidden.multiplied(factor)
        rbm = self.rbm.multiply(factor)
        return ClassRBM(rbm, factor / ratio * self.label_weight, factor * self.label_bias)

    def inference(self, task):
        """Annealed importance sampling, for log Z where no layer can be enumerated."""
        return "AnnealedImportance" if task in ("log_prob", "log_partition") else None

    def conditional(self, name, **given):
        from numpyro.distributions import Categorical as CategoricalDistribution

        if name == "y":
            known = "z" in given
            logits = self.label_logits(given["z"]) if known else -self._label_energies(given["x"])
            return CategoricalDistribution(logits=logits)
        if name == "x" and "z" in given:
            return self.rbm.conditional("x", z=given["z"])
        if name == "z" and "y" in given and "x" in given:
            return self.given_label(given["y"]).conditional("z", x=given["x"])
        return super().conditional(name, **given)
