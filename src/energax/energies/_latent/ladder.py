"""A prior of several layers of hidden variables, each given the one above it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, WHOLE, check_each
from ..._util.keys import as_key
from ..._util.printing import pretty_repr
from ...errors import BadInput, describe
from ...nn import gaussian_of, mlp
from ...spaces import Real, Space


class LadderPrior(eqx.Module):
    """The prior of a ladder of hidden layers: p(z) = N(z_L; 0, I) Π_l N(z_l; μ_l, diag σ_l²), given z_{l+1}.

    z holds all layers in one vector, the lowest first. The network of the decoder gets the lowest layer z₁;
    the layers above shape its distribution. `nn.LadderEncoder` is the encoder for it.

    Args:
        networks: one per layer but the top, from the bottom: network_l maps z_{l+1} to (μ_l, s_l), (2 n_l,),
            and σ_l = softplus(s_l) + 10⁻⁴.
        sizes: n₁, …, n_L, the lengths of the layers.

    Rezende, Mohamed and Wierstra (2014), Stochastic backpropagation and approximate inference in deep
    generative models; Sønderby et al. (2016), Ladder variational autoencoders.

    >>> prior = LadderPrior.random((3, 2), key=0)
    >>> z = prior.sample(jax.random.key(0))
    >>> z.shape, prior.embed(z).shape, prior.log_prob(z).shape
    ((5,), (3,), ())
    """

    networks: tuple[Callable[[Any], Any], ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, networks: Sequence[Callable[[Any], Any]], sizes: Sequence[int]):
        self.networks = check_each("networks", networks, FUNCTION, "one per layer but the top")
        check_layers(sizes)
        self.sizes = tuple(sizes)
        if len(self.networks) != len(self.sizes) - 1:
            found = f"{len(self.networks)} networks for {len(self.sizes)} layers"
            raise BadInput("networks", found, "one per layer but the top")
        for i, network in enumerate(self.networks):
            above = jax.ShapeDtypeStruct((self.sizes[i + 1],), jnp.zeros(()).dtype)
            out = eqx.filter_eval_shape(network, above).shape
            if out != (2 * self.sizes[i],):
                found = f"an output of shape {out}"
                raise BadInput(f"networks[{i}]", found, f"({2 * self.sizes[i]},): mean and spread")

    @classmethod
    def random(cls, sizes: Sequence[int], *, key: Any, **network: Any) -> LadderPrior:
        """A prior with multilayer perceptrons; `width`, `depth` and `activation` go to `nn.mlp`."""
        check_layers(sizes)
        keys = jax.random.split(as_key(key), len(sizes) - 1)
        pairs = zip(itertools.pairwise(sizes), keys, strict=True)
        return cls([mlp(above, 2 * below, key=k, **network) for (below, above), k in pairs], sizes)

    def __repr__(self) -> str:
        return pretty_repr(self)

    @property
    def space(self) -> Space:
        return Real(sum(self.sizes))

    @property
    def width(self) -> int:
        return self.sizes[0]

    def split(self, z: Any) -> list[Any]:
        """Return the layers of z, the lowest first."""
        ends = list(itertools.accumulate(self.sizes))
        return [z[end - n : end] for n, end in zip(self.sizes, ends, strict=True)]

    def log_prob(self, z: Any) -> Any:
        layers = self.split(z)
        total = _log_standard_normal(layers[-1])
        for network, below, above in zip(self.networks, layers[:-1], layers[1:], strict=True):
            mean, scale = gaussian_of(network(above))
            total = total + _log_standard_normal((below - mean) / scale) - jnp.log(scale).sum()
        return total

    def sample(self, key: Any) -> Any:
        keys = jax.random.split(key, len(self.sizes))
        layers = [jax.random.normal(keys[-1], (self.sizes[-1],))]
        for network, n, sub in zip(self.networks[::-1], self.sizes[-2::-1], keys[:-1], strict=True):
            mean, scale = gaussian_of(network(layers[0]))
            layers.insert(0, mean + scale * jax.random.normal(sub, (n,), mean.dtype))
        return jnp.concatenate(layers)

    def embed(self, z: Any) -> Any:
        return z[: self.sizes[0]]


def check_layers(sizes: Sequence[int]) -> None:
    """Raise `BadInput` unless there are two or more layers with a positive number of variables each."""
    expected = "the lengths of two or more layers, from the bottom"
    if len(check_each("sizes", sizes, WHOLE, expected)) < 2:
        remedy = "With one layer, use StandardNormal(n) and nn.Encoder."
        raise BadInput("sizes", describe(sizes), expected, remedy)


def _log_standard_normal(u: Any) -> Any:
    return -0.5 * u @ u - 0.5 * u.size * jnp.log(2 * jnp.pi)
