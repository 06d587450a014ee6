"""Deep Boltzmann machines: layers of binary units, each connected with its neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.methods import plain_method
from ..._util.xla import softplus
from ...energy import Energy
from ...finite import ENUMERATION_LIMIT, Assignments, log_sum_exp
from ...missing import mask_of, value_of
from ...spaces import Binary
from .layers import check_rbms, check_stack, layer_names, random_stack
from .mean_field import binary_entropy
from .rbm import RBM
from .units import BinaryUnits

_UNITS = BinaryUnits()
#: Mean-field updates of every hidden layer; the bound holds after any number.
_UPDATES = 10
#: The most joint values of hidden layers that are summed over for every row where F is called known.
_MOST_LISTED = 2**12


class DeepBoltzmannMachine(Energy):
    """A deep Boltzmann machine: e(x, z₁, …) = −Σ_l z_lᵀ W_l z_{l+1} − Σ_l b_lᵀ z_l with z₀ = x, all binary.

    Given the even layers the odd ones are independent, and conversely, so that the machine is an RBM of even
    and odd layers (`bipartite`). log Z sums out one of both: exactly where the other is small, else by
    annealed importance sampling. F(x) is intractable; mean field bounds it from above (`free_energy_bound`),
    which is the positive phase of `ContrastiveDivergence(persistent=True)`; `log_prob` is then a lower bound.

    Args:
        weights: W_l, (n_l, n_{l+1}), from the bottom.
        biases: b_l, (n_l,), the first of the visible layer.

    Salakhutdinov and Hinton (2009), Deep Boltzmann machines.

    >>> machine = DeepBoltzmannMachine.random((4, 3, 2), key=0)
    >>> machine.spaces
    {'x': Binary(4), 'z1': Binary(3), 'z2': Binary(2)}
    >>> machine.bipartite().spaces                                       # (x, z2) and z1
    {'x': Binary(6), 'z': Binary(3)}
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    def __check_init__(self):
        check_stack(self.weights, self.biases)

    @classmethod
    def random(cls, sizes: Sequence[int], *, key: Any, scale: float = 0.01) -> DeepBoltzmannMachine:
        """A machine with layers of these sizes, normal weights and biases of 0."""
        return cls(*random_stack(sizes, key, scale))

    @classmethod
    def from_rbms(cls, rbms: Sequence[RBM]) -> DeepBoltzmannMachine:
        """Return the machine with the weights of a stack of binary RBMs, from the bottom.

        Biases of inner layers are means of the two that an inner layer has.
        """
        rbms = check_rbms(rbms, binary=True)
        between = [(a.hidden_bias + b.bias) / 2 for a, b in itertools.pairwise(rbms)]
        biases = (rbms[0].bias, *between, rbms[-1].hidden_bias)
        return cls(tuple(rbm.weight for rbm in rbms), biases)

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases that match the rates of the data."""
        x, counts = value_of(data["x"]), mask_of(data["x"]) * weight[:, None]
        bias = _UNITS.fitted(x, counts)[1].astype(self.biases[0].dtype)
        keys = jax.random.split(key, len(self.weights))
        draw = lambda k, old: 0.01 * jax.random.normal(k, old.shape, old.dtype)
        weights = tuple(draw(k, old) for k, old in zip(keys, self.weights, strict=True))
        return DeepBoltzmannMachine(weights, (bias, *self.biases[1:]))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, from the bottom."""
        return layer_names(len(self.biases))

    @property
    def spaces(self):
        return {n: Binary(b.shape[-1]) for n, b in zip(self.names, self.biases, strict=True)}

    @plain_method
    def knows(self, what, names=None):
        if what == "free_energy" and names is not None:
            listed = Assignments(self._to_enumerate(names))
            return bool(names) and listed.n <= _MOST_LISTED
        if what == "free_energy_bound":
            return names is None or (frozenset(names) == {"x"} and len(self.biases) > 2)
        if what == "conditional" and names is not None:
            return len(frozenset(names)) == len(self.biases) - 1 and frozenset(names) <= set(self.names)
        if what == "log_partition":
            sizes = [sum(s.size for s in self._half(i).values()) for i in (0, 1)]
            return 2 ** min(sizes) <= ENUMERATION_LIMIT
        return super().knows(what, names)

    def _half(self, parity: int) -> dict[str, Binary]:
        return dict(list(self.spaces.items())[parity::2])

    def _to_enumerate(self, names: Any) -> dict[str, Binary]:
        """The hidden layers of one parity, if there are neighbours among the hidden layers; else none."""
        hidden = [i for i, name in enumerate(self.names) if name not in names]
        if all(b - a > 1 for a, b in itertools.pairwise(hidden)):
            return {}
        halves = [[i for i in hidden if i % 2 == parity] for parity in (0, 1)]
        spaces = list(self.spaces.items())
        lists = [dict(spaces[i] for i in half) for half in halves]
        return min(lists, key=lambda half: sum(s.size for s in half.values()))

    def field(self, i: int, layers: dict[str, Any]) -> Any:
        """Return the field of layer i, b_i + z_{i−1}ᵀ W_{i−1} + W_i z_{i+1}."""
        total = self.biases[i]
        if i > 0:
            total = total + layers[self.names[i - 1]] @ self.weights[i - 1]
        if i < len(self.weights):
            total = total + self.weights[i] @ layers[self.names[i + 1]]
        return total

    def __call__(self, **layers):
        values = [layers[name] for name in self.names]
        between = zip(values[:-1], self.weights, values[1:], strict=True)
        biased = zip(values, self.biases, strict=True)
        return -sum(a @ w @ b for a, w, b in between) - sum(v @ b for v, b in biased)

    def free_energy(self, **given):
        listed = Assignments(self._to_enumerate(given))
        if listed.spaces:
            listed.check_size("free_energy", "Use free_energy_bound, or Gibbs for draws.")
            return -log_sum_exp(lambda i: -self.free_energy(**given, **listed.at(i)), listed.n)
        zeros = {n: jnp.zeros(s.size, self.biases[0].dtype) for n, s in self.spaces.items()}
        hidden = [i for i, name in enumerate(self.names) if name not in given]
        summed = sum(softplus(self.field(i, {**zeros, **given})).sum() for i in hidden)
        return self(**{**zeros, **given}) - summed

    def log_partition(self):
        return self.bipartite().log_partition()

    def bipartite(self) -> RBM:
        """Return the RBM whose visible units are the even layers, side by side, and hidden ones the odd.

        Its log Z is that of the machine, and one sweep of its Gibbs chains is one of the machine.
        """
        even, odd = range(0, len(self.biases), 2), range(1, len(self.biases), 2)
        block = lambda i, j: (
            self.weights[i] if j == i + 1 else self.weights[j].T if i == j + 1 else self._zeros(i, j)
        )
        weight = jnp.concatenate([jnp.concatenate([block(i, j) for j in odd], 1) for i in even], 0)
        side = lambda layers: jnp.concatenate([self.biases[i] for i in layers])
        return RBM(weight, side(even), side(odd))

    def _zeros(self, i: int, j: int) -> Any:
        return jnp.zeros((self.biases[i].shape[0], self.biases[j].shape[0]), self.biases[0].dtype)

    def conditional(self, name, **given):
        return _UNITS.distribution(self.field(self.names.index(name), given))

    def mean_field(self, *, x: Any) -> dict[str, Any]:
        """Return the rates of all hidden layers under the best independent units given x, by name.

        The first pass up doubles the fields from below, in place of those from above that do not exist yet.
        Then layers are updated in turn, which never raises the bound.
        """
        rates = {"x": x}
        for i in range(1, len(self.biases)):
            factor = 1.0 if i == len(self.biases) - 1 else 2.0
            below = rates[self.names[i - 1]] @ self.weights[i - 1]
            rates[self.names[i]] = jax.nn.sigmoid(self.biases[i] + factor * below)

        def sweep(_, rates):
            for i in range(1, len(self.biases)):
                rates = {**rates, self.names[i]: jax.nn.sigmoid(self.field(i, rates))}
            return rates

        rates = jax.lax.fori_loop(0, _UPDATES, sweep, rates)
        return {name: rates[name] for name in self.names[1:]}

    def free_energy_bound(self, *, x):
        """Return an upper bound of F(x): E_q[e(x, z)] − H(q) of independent hidden units q, by mean field."""
        rates = jax.lax.stop_gradient(jax.tree.map(jax.lax.stop_gradient, self).mean_field(x=x))
        return self(x=x, **rates) - sum(binary_entropy(r) for r in rates.values())

    def propose(self, key, *, x):
        """Draw the hidden even layers from their mean-field rates; F sums out the odd ones."""
        rates = self.mean_field(x=x)
        names = self.names[2::2]
        q = {name: _UNITS.distribution(_logit(rates[name])) for name in names}
        keys = dict(zip(names, jax.random.split(key, len(names) + 1), strict=False))
        values = {name: q[name].sample(keys[name]).astype(self.biases[0].dtype) for name in names}
        return values, sum(
            (q[name].log_prob(values[name]) for name in names), jnp.zeros_like(self.biases[0][0])
        )

    def multiply(self, factor: Any) -> DeepBoltzmannMachine:
        """factor · e, which is linear in its parameters."""
        return jax.tree.map(lambda a: factor * a, self)

    def inference(self, task):
        """A lower bound of log p(x) by mean field; annealed importance sampling for log Z."""
        return {"log_prob": "VariationalBound", "log_partition": "AnnealedImportance"}.get(task)


def _logit(rates: Any) -> Any:
    """Return log-odds of rates, kept away from 0 and 1 so that no draw has probability 0."""
    rates = jnp.clip(rates, 1e-4, 1 - 1e-4)
    return jnp.log(rates) - jnp.log1p(-rates)
