"""Couplings and autoregressive layers: bijections whose parameters are computed by a network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import (
    FUNCTION,
    NONE,
    WHOLE,
    check_arguments,
    check_each,
    check_layer_sizes,
    instance,
    whole,
)
from .._util.arrays import asarray
from .._util.keys import as_key
from ..errors import BadInput
from ._flow_bijection import Bijection
from ._flow_transform import SplineTransform, Transform
from ._network import mlp, reinitialise

#: The scale of the first weights of a last layer, relative to the usual: flows start near the identity.
_LAST_SCALE = 0.1


_TRANSFORM = instance(Transform, "a Transform of energax.nn")


def _shrink_last(network: Any) -> Any:
    """The same network with a smaller last layer, so that its outputs are near 0."""
    last = lambda n: (n.layers[-1].weight, n.layers[-1].bias)
    return eqx.tree_at(last, network, replace_fn=lambda a: a * _LAST_SCALE)


def _restart(network: Any, key: Any) -> Any:
    """The network with new weights."""
    new = reinitialise(network, key)
    return _shrink_last(new) if isinstance(new, eqx.nn.MLP | MaskedNetwork) else new


def _with_context(x: Any, context: Any) -> Any:
    return x if context is None else jnp.concatenate([x, asarray(context, x.dtype)])


class Coupling(Bijection):
    """u_a = x_a, u_b = g(x_b; network(x_a, context)): one part of x changes the other.

    Both directions take one pass of the network. log|det| = Σ log g′.

    Args:
        network: maps (n_fixed + n_context,) to (m · n_parameters,), for the m coordinates of x_b. If it would
            have no input, it takes one number, which is 0.
        n_fixed: the number of coordinates in x_a, which come first.
        transform: g: `SplineTransform()` or `AffineTransform()`.

    Dinh, Sohl-Dickstein and Bengio (2017), Density estimation using Real NVP; Durkan et al. (2019), Neural
    spline flows.

    >>> layer = Coupling.random(3, key=0)
    >>> x = jnp.array([0.3, 1.0, -1.0])
    >>> bool(jnp.allclose(layer.inverse(layer.forward(x)[0])[0], x, atol=1e-5))
    True
    """

    network: Callable[[Any], Any]
    n_fixed: int = eqx.field(static=True)
    transform: Transform

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, n_fixed=whole(0), transform=_TRANSFORM)

    @classmethod
    def random(
        cls,
        d: int,
        *,
        key: Any,
        transform: Transform | None = None,
        n_fixed: int | None = None,
        n_context: int = 0,
        **network: Any,
    ) -> Coupling:
        """A coupling with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`.

        `n_fixed` is d // 2 by default.
        """
        sizes = {"d": WHOLE, "n_context": whole(0), "n_fixed": whole(0) | NONE}
        check_arguments(locals(), **sizes, transform=_TRANSFORM | NONE)
        transform = SplineTransform() if transform is None else transform
        n_fixed = d // 2 if n_fixed is None else n_fixed
        if not 0 <= n_fixed < d:
            raise BadInput("n_fixed", repr(n_fixed), f"a whole number from 0 to {d - 1}")
        n_out = (d - n_fixed) * transform.n_parameters
        made = mlp(max(1, n_fixed + n_context), n_out, key=key, **network)
        return cls(_shrink_last(made), n_fixed, transform)

    def initialise(self, key, x, weight, context=None):
        return Coupling(_restart(self.network, key), self.n_fixed, self.transform)

    def _parameters(self, fixed: Any, context: Any) -> Any:
        given = _with_context(fixed, context)
        given = given if given.size else jnp.zeros(1, fixed.dtype)
        return self.network(given).reshape(-1, self.transform.n_parameters)

    def forward(self, x, context=None):
        return self._apply(self.transform.forward, asarray(x), context)

    def inverse(self, u, context=None):
        return self._apply(self.transform.inverse, asarray(u), context)

    def _apply(self, function, x, context):
        fixed, free = x[: self.n_fixed], x[self.n_fixed :]
        value, log_slope = function(free, self._parameters(fixed, context))
        return jnp.concatenate([fixed, value]), log_slope.sum()


class MaskedNetwork(eqx.Module):
    """A network (d,) → (d, n_out) whose output i depends on the inputs before i, and on the context, only.

    Every hidden unit has a number k, and reads the inputs up to the k-th; output i reads the units with
    k < i. The masks follow from the sizes.

    Args:
        layers: the linear layers, the inputs of the first being x and the context.
        n_out: numbers per output.
        activation: of the hidden layers.

    Germain, Gregor, Murray and Larochelle (2015), MADE: masked autoencoder for distribution estimation.

    >>> network = MaskedNetwork.random(3, 1, key=0)
    >>> jax.jacobian(network)(jnp.ones(3))[:, 0] != 0
    Array([[False, False, False],
           [ True, False, False],
           [ True,  True, False]], dtype=bool)
    """

    layers: tuple[eqx.nn.Linear, ...]
    n_out: int = eqx.field(static=True)
    activation: Callable[[Any], Any]

    def __check_init__(self):
        check_arguments(self, n_out=WHOLE, activation=FUNCTION)
        check_each("layers", self.layers, instance(eqx.nn.Linear, "an equinox.nn.Linear"), "linear layers")

    @classmethod
    def random(
        cls,
        d: int,
        n_out: int,
        *,
        key: Any,
        n_context: int = 0,
        width: int = 64,
        depth: int = 2,
        activation: Callable[[Any], Any] = jax.nn.silu,
    ) -> MaskedNetwork:
        """A network with `depth` hidden layers of `width` units."""
        counts = {"d": WHOLE, "n_out": WHOLE, "n_context": whole(0), "width": WHOLE, "depth": WHOLE}
        check_arguments(locals(), **counts, activation=FUNCTION)
        check_layer_sizes("d, width, depth", (width, d * n_out + n_context + depth * width))
        sizes = [d + n_context, *[width] * depth, d * n_out]
        keys = jax.random.split(as_key(key), depth + 1)
        made = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
        return _shrink_last(cls(tuple(made), n_out, activation))

    @property
    def n_inputs(self) -> int:
        """d, the number of inputs without the context."""
        return self.layers[-1].weight.shape[0] // self.n_out

    def _masks(self) -> list[np.ndarray]:
        """The masks of the weights of all layers; units read those of an equal or a lower number."""
        d = self.n_inputs
        width, n_read = self.layers[0].weight.shape
        inputs = np.concatenate([np.arange(1, d + 1), np.zeros(n_read - d, int)])
        # Evenly spread over 0, …, d − 1; those of number 0 read the context only.
        hidden = np.arange(width) * d // width
        outputs = np.repeat(np.arange(d), self.n_out)
        numbers = [inputs, *[hidden] * (len(self.layers) - 1), outputs]
        return [b[:, None] >= a for a, b in itertools.pairwise(numbers)]

    def __call__(self, x: Any, context: Any = None) -> Any:
        h = _with_context(asarray(x), context)
        for i, (layer, mask) in enumerate(zip(self.layers, self._masks(), strict=True)):
            h = self.activation(h) if i else h
            h = jnp.where(mask, layer.weight, 0) @ h + layer.bias
        return h.reshape(self.n_inputs, self.n_out)


class _Autoregressive(Bijection):
    """A layer whose transform of a coordinate has parameters from the coordinates before it."""

    network: Callable[..., Any]
    transform: Transform

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, transform=_TRANSFORM)

    @classmethod
    def random(
        cls, d: int, *, key: Any, transform: Transform | None = None, n_context: int = 0, **settings: Any
    ) -> Self:
        """A layer with a masked network; `width`, `depth` and `activation` go to `MaskedNetwork.random`."""
        check_arguments(locals(), transform=_TRANSFORM | NONE)
        transform = SplineTransform() if transform is None else transform
        network = MaskedNetwork.random(d, transform.n_parameters, key=key, n_context=n_context, **settings)
        return cls(network, transform)

    def initialise(self, key, x, weight, context=None):
        return type(self)(_restart(self.network, key), self.transform)


class MaskedAutoregressive(_Autoregressive):
    """u_i = g(x_i; network(x_1, …, x_{i−1}, context)): `forward` takes one pass of the network, `inverse` d.

    For densities of data. More flexible than couplings, and slower to draw from.

    Args:
        network: a `MaskedNetwork`, or any function (x, context) → (d, n_parameters) whose row i depends on
            the coordinates before i only.
        transform: g: `SplineTransform()` or `AffineTransform()`.

    Papamakarios, Pavlakou and Murray (2017), Masked autoregressive flow for density estimation.

    >>> layer = MaskedAutoregressive.random(3, key=0)
    >>> x = jnp.array([0.3, 1.0, -1.0])
    >>> bool(jnp.allclose(layer.inverse(layer.forward(x)[0])[0], x, atol=1e-5))
    True
    """

    def forward(self, x, context=None):
        return _at_once(self.network, self.transform.forward, x, context)

    def inverse(self, u, context=None):
        return _one_by_one(self.network, self.transform.inverse, u, context)


class InverseAutoregressive(_Autoregressive):
    """x_i = g(u_i; network(u_1, …, u_{i−1}, context)): `inverse` takes one pass of the network, `forward` d.

    For posteriors and proposals: draws come with their density in one pass.

    Args:
        network, transform: as those of `MaskedAutoregressive`.

    Kingma et al. (2016), Improved variational inference with inverse autoregressive flow.

    >>> layer = InverseAutoregressive.random(3, key=0)
    >>> u = jnp.array([0.3, 1.0, -1.0])
    >>> bool(jnp.allclose(layer.forward(layer.inverse(u)[0])[0], u, atol=1e-5))
    True
    """

    def forward(self, x, context=None):
        return _one_by_one(self.network, self.transform.inverse, x, context)

    def inverse(self, u, context=None):
        return _at_once(self.network, self.transform.forward, u, context)


def _at_once(network: Any, function: Any, given: Any, context: Any) -> tuple[Any, Any]:
    """Return `function` of all coordinates, whose parameters depend on the coordinates that are given."""
    given = asarray(given)
    value, log_slope = function(given, network(given, context))
    return value, log_slope.sum()


def _one_by_one(network: Any, function: Any, given: Any, context: Any) -> tuple[Any, Any]:
    """The same where the parameters depend on the results: after step i, the first i results are exact."""
    given = asarray(given)

    def step(carry, _):
        value, log_slope = function(given, network(carry[0], context))
        return (value, log_slope.sum()), None

    start = (jnp.zeros_like(given), jnp.zeros((), given.dtype))
    return jax.lax.scan(step, start, None, length=given.size)[0]
