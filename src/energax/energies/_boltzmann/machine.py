"""The general Boltzmann machine: visible and hidden binary units with connections within both layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arguments import (
    FLAG,
    MATRIX,
    NONE,
    VECTOR,
    WEIGHT_SCALAR,
    WHOLE,
    check_arguments,
    check_layer_sizes,
    whole,
)
from ..._util.keys import as_key
from ..._util.methods import plain_method
from ..._util.xla import softplus
from ...energy import Energy
from ...errors import BadInput
from ...missing import mask_of, value_of
from ...spaces import Binary
from .mean_field import binary_entropy, settle
from .units import BinaryUnits

_UNITS = BinaryUnits()


class BoltzmannMachine(Energy):
    """A Boltzmann machine: e(x, z) = −xᵀWz − bᵀx − cᵀz − Σ_{i<j} L_ij x_i x_j − Σ_{i<j} M_ij z_i z_j.

    Only the entries of L and M above their diagonals are used. Without M the hidden units are independent
    given x (a semi-restricted machine), and F(x) has a closed form; without hidden units the machine is an
    Ising model, which `PseudoLikelihood` learns without sampling. With M, `ContrastiveDivergence` takes the
    mean-field bound of F(x) in the positive phase. Chains visit the units of a connected layer one by one.

    Args:
        bias: b, (n_visible,).
        visible_weight: L, (n_visible, n_visible); None is no connection.
        weight: W, (n_visible, n_hidden); None is a machine without hidden units.
        hidden_bias: c, (n_hidden,).
        hidden_weight: M, (n_hidden, n_hidden); None is no connection.

    Ackley, Hinton and Sejnowski (1985), A learning algorithm for Boltzmann machines; Osindero and Hinton
    (2008), Modeling image patches with a directed hierarchy of Markov random fields, for connected visible
    units.

    >>> BoltzmannMachine(jnp.zeros(2), jnp.full((2, 2), 1.0)).log_partition()      # log(3 + e)
    Array(1.7436..., dtype=float32)
    """

    bias: jax.Array
    visible_weight: jax.Array | None = None
    weight: jax.Array | None = None
    hidden_bias: jax.Array | None = None
    hidden_weight: jax.Array | None = None

    def __check_init__(self):
        biases = {"bias": VECTOR, "hidden_bias": VECTOR | NONE}
        weights = dict.fromkeys(("visible_weight", "weight", "hidden_weight"), MATRIX | NONE)
        check_arguments(self, **biases, **weights)
        d = self.bias.shape[-1]
        if (self.weight is None) != (self.hidden_bias is None):
            found = "None" if self.weight is None else "hidden_bias=None"
            raise BadInput("weight", found, "weight and hidden_bias together, or neither")
        if self.weight is None and self.hidden_weight is not None:
            raise BadInput("hidden_weight", "weights without hidden units", "weight and hidden_bias too")
        h = 0 if self.hidden_bias is None else self.hidden_bias.shape[-1]
        for name, shape in (("visible_weight", (d, d)), ("weight", (d, h)), ("hidden_weight", (h, h))):
            value = getattr(self, name)
            if value is not None and tuple(value.shape[-2:]) != shape:
                raise BadInput(name, f"shape {value.shape}", f"{shape}, from the biases")

    @classmethod
    def random(
        cls, n_visible: int, n_hidden: int = 0, *, key: Any, scale: float = 0.01, hidden_lateral: bool = True
    ) -> BoltzmannMachine:
        """A machine with normal weights and biases of 0; `hidden_lateral=False` leaves out M."""
        counts = {"n_visible": WHOLE, "n_hidden": whole(0), "hidden_lateral": FLAG}
        check_arguments(locals(), **counts, scale=WEIGHT_SCALAR)
        check_layer_sizes("n_visible, n_hidden", (n_visible + n_hidden,) * 2)
        keys = jax.random.split(as_key(key), 3)
        draw = lambda key, *shape: scale * jax.random.normal(key, shape)
        bias, visible = jnp.zeros(n_visible), draw(keys[0], n_visible, n_visible)
        if not n_hidden:
            return cls(bias, visible)
        hidden = draw(keys[2], n_hidden, n_hidden) if hidden_lateral else None
        return cls(bias, visible, draw(keys[1], n_visible, n_hidden), jnp.zeros(n_hidden), hidden)

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases that match the rates of the data."""
        x, counts = value_of(data["x"]), mask_of(data["x"]) * weight[:, None]
        bias = _UNITS.fitted(x, counts)[1].astype(self.bias.dtype)
        weights = (self.visible_weight, self.weight, self.hidden_weight)
        draw = lambda k, old: None if old is None else 0.01 * jax.random.normal(k, old.shape, old.dtype)
        visible, between, hidden = (
            draw(k, old) for k, old in zip(jax.random.split(key, 3), weights, strict=True)
        )
        return BoltzmannMachine(bias, visible, between, self.hidden_bias, hidden)

    @property
    def spaces(self):
        spaces = {"x": Binary(self.bias.shape[-1])}
        return spaces if self.hidden_bias is None else {**spaces, "z": Binary(self.hidden_bias.shape[-1])}

    @plain_method
    def knows(self, what, names=None):
        if self.weight is None and what in ("free_energy", "conditional", "free_energy_bound"):
            return False
        if what == "free_energy_bound" and self.hidden_weight is None:
            return False
        if what in ("free_energy", "conditional") and names is not None:
            independent = {"x": self.hidden_weight is None, "z": self.visible_weight is None}
            return any(frozenset(names) == {name} and known for name, known in independent.items())
        return super().knows(what, names)

    def __call__(self, *, x, z=None):
        total = -(x @ self.bias) - _pairs(self.visible_weight, x)
        if z is None:
            return total
        return total - x @ self.weight @ z - z @ self.hidden_bias - _pairs(self.hidden_weight, z)

    def free_energy(self, *, x=None, z=None):
        if z is None:
            return self(x=x) - softplus(x @ self.weight + self.hidden_bias).sum()
        rest = -(z @ self.hidden_bias) - _pairs(self.hidden_weight, z)
        return rest - softplus(self.weight @ z + self.bias).sum()

    def conditional(self, name, **given):
        field = (
            given["x"] @ self.weight + self.hidden_bias
            if name == "z"
            else self.weight @ given["z"] + self.bias
        )
        return _UNITS.distribution(field)

    def coordinate_logits(self, name: str, i: Any, **values: Any) -> Any:
        """Return log p(unit i = 0, 1 | all others) up to a constant, (2,), from its field."""
        x, z = values["x"], values.get("z")
        between: Any = self.weight
        hidden_bias: Any = self.hidden_bias
        if name == "x":
            field = self.bias[i] + _row(self.visible_weight, i, x)
            field = field if z is None else field + between[i] @ z
        else:
            field = hidden_bias[i] + _row(self.hidden_weight, i, z) + x @ between[:, i]
        return jnp.stack([jnp.zeros_like(field), field])

    def free_energy_bound(self, *, x):
        """Return an upper bound of F(x): E_q[e(x, z)] − H(q) of independent hidden units q, by mean field."""
        symmetric = _symmetric(self.hidden_weight)
        field = x @ self.weight + self.hidden_bias
        rates = settle(jax.lax.stop_gradient(symmetric), jax.lax.stop_gradient(field))
        return self(x=x, z=rates) - binary_entropy(rates)

    def multiply(self, factor: Any) -> BoltzmannMachine:
        """factor · e, which is linear in its parameters."""
        return jax.tree.map(lambda a: factor * a, self)

    def inference(self, task):
        """Annealed importance sampling, for log Z where it cannot be enumerated."""
        return "AnnealedImportance" if task in ("log_prob", "log_partition") else None


def _pairs(weight: Any, value: Any) -> Any:
    """Return Σ_{i<j} W_ij v_i v_j."""
    return 0.0 if weight is None else value @ jnp.triu(weight, 1) @ value


def _symmetric(weight: Any) -> Any:
    upper = jnp.triu(weight, 1)
    return upper + upper.T


def _row(weight: Any, i: Any, value: Any) -> Any:
    """Return Σ_j W_ij v_j over the other units of the layer."""
    if weight is None:
        return 0.0
    j = jnp.arange(value.shape[0])
    both = jnp.where(j > i, weight[i], jnp.where(j < i, weight[:, i], 0))
    return both @ value
