"""Deep belief networks: an RBM at the top, and directed layers from it down to the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import MATRIX, VECTOR, WHOLE, check_arguments, check_each, instance
from ..._util.keys import as_key
from ..._util.methods import plain_method
from ...distributions import log_prob
from ...energy import Energy, log_partition_cost
from ...errors import BadInput
from ...finite import ENUMERATION_LIMIT
from .layers import check_rbms, layer_names
from .rbm import RBM
from .units import Units


class Recognition(eqx.Module):
    """q(above | below) of independent units with the field Rᵀ t(below) + r.

    Args:
        weight: R, (n_below, n_above).
        bias: r, (n_above,).
    """

    weight: jax.Array
    bias: jax.Array

    def __check_init__(self):
        check_arguments(self, weight=MATRIX, bias=VECTOR)
        if self.weight.shape[-1] != self.bias.shape[-1]:
            raise BadInput("weight", f"shape {self.weight.shape}", f"(…, {self.bias.shape[-1]}), as the bias")


_RBM = instance(RBM, "an RBM of energax.energies")


class DeepBeliefNetwork(Energy):
    """p(x, z₁, …) = p(x | z₁) … p(z_{m−1} | z_m) p(z_m, z_{m+1}), with an RBM for the last two layers.

    Each directed layer p(z_l | z_{l+1}) takes the weights and visible biases of an RBM; its recognition
    weights, for q(z_{l+1} | z_l), start at those of the same RBM and are free in `UpDown`. log Z is that of
    the top. Draws are chains at the top and ancestral draws below; log p(x) has a lower bound by draws of q,
    with the top layer summed out (`VariationalBound`).

    Args:
        layers: the directed layers, from the bottom, as RBMs; their hidden biases are not used.
        top: the RBM of the last two layers.
        recognition: the recognition weights of the directed layers; None takes those of the RBMs.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    >>> network = DeepBeliefNetwork.random((6, 4, 3), key=0)
    >>> network.spaces
    {'x': Binary(6), 'z1': Binary(4), 'z2': Binary(3)}
    """

    layers: tuple[RBM, ...]
    top: RBM
    recognition: tuple[Recognition, ...]

    def __init__(self, layers: Sequence[RBM], top: RBM, recognition: Sequence[Recognition] | None = None):
        check_arguments({"top": top}, top=_RBM)
        self.layers, self.top = check_each("layers", layers, _RBM, "RBMs, from the bottom"), top
        if recognition is None:
            recognition = [Recognition(rbm.weight, rbm.hidden_bias) for rbm in self.layers]
        expected = instance(Recognition, "a Recognition of energax.energies")
        self.recognition = check_each("recognition", recognition, expected, "one for every directed layer")
        stack = (*self.layers, top)
        if not self.layers or len(self.recognition) != len(self.layers):
            found = f"{len(self.layers)} layers, {len(self.recognition)} of recognition weights"
            raise BadInput("layers", found, "one or more, with as many recognition weights")
        check_rbms(stack, "layers")
        for i, (rbm, q) in enumerate(zip(self.layers, self.recognition, strict=True)):
            if tuple(q.weight.shape[-2:]) != tuple(rbm.weight.shape[-2:]):
                found, shape = f"weights of shape {q.weight.shape}", f"{rbm.weight.shape}, as of its layer"
                raise BadInput(f"recognition[{i}]", found, shape)

    @classmethod
    def from_rbms(cls, rbms: Sequence[RBM]) -> DeepBeliefNetwork:
        """Return the network of a stack of RBMs, from the bottom, as `pretrain_rbms` learns it."""
        rbms = check_rbms(rbms)
        return cls(rbms[:-1], rbms[-1])

    @classmethod
    def random(
        cls, sizes: Sequence[int], *, key: Any, scale: float = 0.01, visible: Units | None = None
    ) -> DeepBeliefNetwork:
        """A network with layers of these sizes, normal weights and biases of 0.

        visible: the units of x; None is binary, as all other layers are.
        """
        if len(check_each("sizes", sizes, WHOLE, "three or more sizes of layers")) < 3:
            raise BadInput("sizes", repr(tuple(sizes)), "three or more sizes", "With two, use RBM.random.")
        keys = jax.random.split(as_key(key), len(sizes) - 1)
        kinds = [visible, *[None] * (len(sizes) - 2)]
        each = zip(sizes[:-1], sizes[1:], keys, kinds, strict=True)
        return cls.from_rbms([RBM.random(n, m, key=k, scale=scale, visible=v) for n, m, k, v in each])

    def initialise(self, key, data, weight):
        """Small random weights, and visible biases that match the data."""
        keys = jax.random.split(key, len(self.layers) + 1)
        noise = lambda k, rbm: 0.01 * jax.random.normal(k, rbm.weight.shape, rbm.weight.dtype)
        bottom = self.layers[0].initialise(keys[0], data, weight)
        inner = [
            RBM(noise(k, rbm), rbm.bias, rbm.hidden_bias, rbm.visible, rbm.hidden)
            for k, rbm in zip(keys[1:], (*self.layers[1:], self.top), strict=True)
        ]
        return DeepBeliefNetwork.from_rbms([bottom, *inner])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, from the bottom."""
        return layer_names(len(self.layers) + 2)

    @property
    def spaces(self):
        spaces = [*[rbm.spaces["x"] for rbm in (*self.layers, self.top)], self.top.spaces["z"]]
        return dict(zip(self.names, spaces, strict=True))

    @plain_method
    def knows(self, what, names=None):
        if what == "free_energy" and names is not None:
            return self._first_given(names) is not None
        if what == "conditional" and names is not None:
            return frozenset(names) == set(self.names[1:]) or frozenset(names) == set(self.names[:-1])
        if what == "log_partition":
            cost = log_partition_cost(self.top)[1]
            return cost is not None and cost <= ENUMERATION_LIMIT
        if what == "draw":
            # Exact draws of the lower layers need all layers above them, or the whole top.
            return names is not None and {self.names[-2]} <= set(names) and self.names[0] not in names
        if what == "propose":
            return names is None or frozenset(names) == {"x"}
        return super().knows(what, names)

    def _first_given(self, names: Any) -> int | None:
        """The lowest given layer, if those above it are given too, except perhaps the last; else None."""
        given = [i for i, name in enumerate(self.names) if name in names]
        if not given or not set(names) <= set(self.names):
            return None
        last = len(self.names) - 1
        needed = set(range(given[0], last)) if given[0] < last else {last}
        return given[0] if needed <= set(given) else None

    def __call__(self, **values):
        top = self.top(x=values[self.names[-2]], z=values[self.names[-1]])
        return top + self._directed(values, 0)

    def _directed(self, values: dict[str, Any], first: int) -> Any:
        """Return −Σ_{l ≥ first} log p(z_l | z_{l+1}) of the directed layers."""
        total = 0.0
        for rbm, below, above in list(zip(self.layers, self.names[:-2], self.names[1:-1], strict=True))[
            first:
        ]:
            field = rbm.visible_field(values[above])
            units = rbm.visible
            total = total + units.energy(values[below], field) + units.log_normalisers(field).sum()
        return total

    def free_energy(self, **given):
        first = self._first_given(given)
        if first is None:
            return super().free_energy(**given)
        low, high = self.names[-2:]
        if low in given and high in given:
            top = self.top(x=given[low], z=given[high])
        else:
            top = self.top.free_energy(**({"x": given[low]} if low in given else {"z": given[high]}))
        return top + self._directed(given, first)

    def log_partition(self):
        return self.top.log_partition()

    def conditional(self, name, **given):
        if name == self.names[-1] and self.names[-2] in given:
            return self.top.conditional("z", x=given[self.names[-2]])
        if name == "x" and "z1" in given:
            return self.layers[0].conditional("x", z=given["z1"])
        return super().conditional(name, **given)

    def draw(self, key, **given):
        """Draw the layers below the given ones from the top down, and the last one if it is not given."""
        values = dict(given)
        if self.names[-1] not in values:
            key, sub = jax.random.split(key)
            above = self.top.conditional("z", x=values[self.names[-2]])
            values[self.names[-1]] = above.sample(sub).astype(self.spaces[self.names[-1]].jax_dtype)
        for rbm, below, above in reversed(
            list(zip(self.layers, self.names[:-2], self.names[1:-1], strict=True))
        ):
            if below not in values:
                key, sub = jax.random.split(key)
                drawn = rbm.conditional("x", z=values[above]).sample(sub)
                values[below] = drawn.astype(self.spaces[below].jax_dtype)
        return {n: v for n, v in values.items() if n not in given}

    def undirected(self) -> tuple[RBM, dict[str, str]]:
        """Return the RBM at the top, and the names here of its x and z."""
        return self.top, {"x": self.names[-2], "z": self.names[-1]}

    # -- recognition -----------------------------------------------------------------------------

    def recognise(self, i: int, below: Any) -> Any:
        """Return q(z_{i+1} | z_i), a NumPyro distribution."""
        rbm, q = self.layers[i], self.recognition[i]
        return rbm.hidden.distribution(rbm.visible.statistics(below, q.weight.dtype) @ q.weight + q.bias)

    def propose(self, key, *, x):
        """Draw all layers but the last from q, from the bottom up, and return log q of the draws."""
        values, below, log_q = {}, x, jnp.zeros_like(self.top.bias[0])
        for i, sub in enumerate(jax.random.split(key, len(self.layers))):
            q = self.recognise(i, below)
            below = q.sample(sub).astype(self.spaces[self.names[i + 1]].jax_dtype)
            values[self.names[i + 1]], log_q = below, log_q + log_prob(q, below)
        return values, log_q

    def log_proposal(self, **values):
        """Return log q(z₁, …, z_m | x)."""
        each = enumerate(zip(self.names[:-2], self.names[1:-1], strict=True))
        return sum(log_prob(self.recognise(i, values[below]), values[above]) for i, (below, above) in each)

    def inference(self, task):
        """The method of the family: lower bounds of log p(x), and draws from the top down."""
        names = {"log_prob": "VariationalBound", "sample": "TopDown"}
        return names.get(task)
