"""The distribution of a flow, stacks of flow layers, and encoders whose output is a flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import ARRAYS, FLAG, FUNCTION, NONE, WHOLE, check_arguments, instance, one_of, whole
from .._util.arrays import asarray
from .._util.keys import as_key
from ..errors import check_memory
from ._batch_norm import InvertibleBatchNorm
from ._encoder import _network_input
from ._flow_bijection import _BIJECTION, ActNorm, Bijection, Composed, LULinear, Permutation, Repeated
from ._flow_coupling import Coupling, InverseAutoregressive, MaskedAutoregressive
from ._flow_transform import AffineTransform, SplineTransform, Transform
from ._network import mlp

LayerName = Literal["coupling", "autoregressive", "inverse autoregressive"]
_LAYERS: dict[str, Any] = {
    "coupling": Coupling,
    "autoregressive": MaskedAutoregressive,
    "inverse autoregressive": InverseAutoregressive,
}
_TRANSFORMS: dict[str, Any] = {"spline": SplineTransform, "affine": AffineTransform}


def flow_layers(
    d: int,
    *,
    key: Any,
    n_layers: int = 4,
    layer: LayerName = "coupling",
    transform: Transform | Literal["spline", "affine"] = "spline",
    n_context: int = 0,
    batch_norm: bool = False,
    **network: Any,
) -> Composed:
    """A stack of flow layers: `ActNorm`, then n_layers blocks of an LU layer, a permutation and `layer`.

    Args:
        d: the number of coordinates.
        key: an int or a JAX key, for weights and permutations.
        n_layers: the number of blocks, which are one compiled loop.
        layer: "coupling" is fast both ways; "autoregressive" has more flexible densities and slow draws;
            "inverse autoregressive" has fast draws and slow densities of given values.
        transform: "spline", "affine", or a `Transform`.
        n_context: the size of the context vector that all networks read.
        batch_norm: whether `InvertibleBatchNorm` takes the place of `ActNorm` and ends every block; learn it
            with `learn.BatchStatistics`.
        network: `width`, `depth` and `activation` of the networks.

    >>> f = flow_layers(3, key=0, n_layers=2)
    >>> u, log_det = f.forward(jnp.array([0.3, 1.0, -1.0]))
    >>> u.shape, log_det.shape
    ((3,), ())
    """
    kinds = {
        "layer": one_of(*_LAYERS),
        "transform": one_of(*_TRANSFORMS) | instance(Transform, "a Transform"),
    }
    check_arguments(locals(), d=WHOLE, n_layers=WHOLE, n_context=whole(0), batch_norm=FLAG, **kinds)
    check_memory("d, n_layers", n_layers, n_layers * (d + n_context) ** 2, "the weights", 4)
    if isinstance(transform, str):
        transform = _TRANSFORMS[transform]()
    blocks = []
    for sub in jax.random.split(as_key(key), n_layers):
        first, second, third = jax.random.split(sub, 3)
        order = Permutation.random(d, key=first) if d > 2 else Permutation(np.arange(d)[::-1])
        made = _LAYERS[layer].random(d, key=third, transform=transform, n_context=n_context, **network)
        norm = [InvertibleBatchNorm(d)] if batch_norm else []
        blocks.append(Composed([LULinear.random(d, key=second), order, made, *norm]))
    first = InvertibleBatchNorm(d) if batch_norm else ActNorm.identity(d)
    return Composed([first, Repeated.stack(blocks)])


class FlowDistribution(eqx.Module):
    """The distribution of x = f⁻¹(u; context), u ~ N(0, I): log p(x) = log N(f(x); 0, I) + log|det ∂f/∂x|.

    It has NumPyro's method names, and is a family of `infer.VariationalGaussian`.

    Args:
        bijection: f, a `Bijection` of vectors (d,).
        d: the number of coordinates.
        context: a vector that the bijection depends on, or None.

    >>> q = FlowDistribution(flow_layers(2, key=0), 2)
    >>> draws = q.sample(jax.random.key(0), (5,))
    >>> draws.shape, q.log_prob(draws).shape
    ((5, 2), (5,))
    """

    bijection: Bijection
    d: int = eqx.field(static=True)
    context: Any = None

    def __check_init__(self):
        check_arguments(self, bijection=_BIJECTION, d=WHOLE, context=ARRAYS | NONE)

    has_rsample = True
    batch_shape = ()

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def dtype(self) -> Any:
        """The dtype of draws: that of the parameters."""
        return _float_dtype(self.bijection)

    def log_prob(self, value: Any) -> Any:
        """Return log p of values (…, d)."""
        value = asarray(value)
        flat = jax.vmap(self._log_prob)(value.reshape(-1, self.d))
        return flat.reshape(value.shape[:-1])

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw values (*sample_shape, d)."""
        return self.sample_and_log_prob(key, sample_shape)[0]

    def sample_and_log_prob(self, key: Any, sample_shape: tuple[int, ...] = ()) -> tuple[Any, Any]:
        """Draw values, and return log p of them from the same pass; no digits are lost by inverting it."""
        noise = jax.random.normal(key, (*sample_shape, self.d), self.dtype)
        value, log_det = jax.vmap(lambda u: self.bijection.inverse(u, self.context))(
            noise.reshape(-1, self.d)
        )
        log_prob = jax.vmap(log_normal)(noise.reshape(-1, self.d)) - log_det
        return value.reshape(noise.shape), log_prob.reshape(sample_shape)

    def _log_prob(self, x: Any) -> Any:
        u, log_det = self.bijection.forward(x, self.context)
        return log_normal(u) + log_det


def log_normal(u: Any) -> Any:
    """log N(u; 0, I)."""
    return -0.5 * u @ u - 0.5 * u.size * math.log(2 * math.pi)


def _float_dtype(module: Any) -> Any:
    """The dtype of the real parameters of a module; JAX's default if there are none."""
    leaves = [a for a in jax.tree.leaves(module) if eqx.is_inexact_array(a)]
    return jnp.result_type(*leaves) if leaves else jnp.zeros(()).dtype


class FlowEncoder(eqx.Module):
    """An encoder by a conditional flow: q(z | x) is the `FlowDistribution` with context network(x).

    Args:
        network: maps x, as a vector (d,), to the context of the bijection. Missing coordinates are zeros.
        bijection: f, of vectors (n_latent,).
        n_latent: the number of hidden variables.
        sees_mask: whether the network takes (2d,), where the second half is 1 for observed coordinates.

    Rezende and Mohamed (2015), Variational inference with normalizing flows; Kingma et al. (2016), Improved
    variational inference with inverse autoregressive flow.

    >>> q = FlowEncoder.random(4, 2, key=0)(x=jnp.ones(4))
    >>> q.event_shape, q.sample(jax.random.key(0)).shape
    ((2,), (2,))
    """

    network: Callable[[Any], Any]
    bijection: Bijection
    n_latent: int = eqx.field(static=True)
    sees_mask: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, bijection=_BIJECTION, n_latent=WHOLE, sees_mask=FLAG)

    @classmethod
    def random(
        cls,
        n_features: int,
        n_latent: int,
        *,
        key: Any,
        n_layers: int = 2,
        n_context: int = 16,
        sees_mask: bool = False,
        width: int = 64,
        depth: int = 1,
        activation: Callable[[Any], Any] = jax.nn.silu,
        **flow: Any,
    ) -> FlowEncoder:
        """An encoder with a multilayer perceptron, a Gaussian with a mean and scales, and flow layers on it.

        Args:
            n_features, n_latent: the sizes of x and z.
            key: an int or a JAX key.
            n_layers: flow layers.
            n_context: outputs of the network, which mean, scales and flow layers read.
            sees_mask: as above.
            width, depth, activation: of all networks.
            flow: `layer` and `transform` of `flow_layers`.
        """
        counts = {"n_features": WHOLE, "n_latent": WHOLE, "n_layers": WHOLE, "n_context": WHOLE}
        check_arguments(locals(), **counts, sees_mask=FLAG)
        first, second, third = jax.random.split(as_key(key), 3)
        sizes: dict[str, Any] = {"width": width, "depth": depth, "activation": activation}
        network = mlp(n_features * (1 + sees_mask), n_context, key=first, **sizes)
        layers = flow_layers(n_latent, key=second, n_layers=n_layers, n_context=n_context, **flow, **sizes)
        # The parameters of this coupling depend on the context only: u = (z − μ(x)) / σ(x).
        gaussian = Coupling.random(
            n_latent, key=third, n_fixed=0, n_context=n_context, transform=AffineTransform(8.0), **sizes
        )
        return cls(network, Composed([*layers.layers, gaussian]), n_latent, sees_mask)

    def __call__(self, *, x: Any) -> FlowDistribution:
        context = self.network(_network_input(x, self.sees_mask))
        return FlowDistribution(self.bijection, self.n_latent, context)
