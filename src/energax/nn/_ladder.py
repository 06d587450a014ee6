"""The encoder of a ladder of hidden layers: a path up from x, and draws on the way down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FLAG, FUNCTION, WHOLE, check_arguments, check_each
from .._util.keys import as_key
from ..errors import BadInput
from ._encoder import _network_input, gaussian_of
from ._network import mlp


class LadderEncoder(eqx.Module):
    """An encoder of a ladder of hidden layers: q(z | x) = q(z_L | x) Π_l q(z_l | z_{l+1}, x).

    The path up from x computes h_l = up_l(h_{l−1}), h₀ = x, and a Gaussian N(m_l, v_l) = read_l(h_l) of every
    layer, what x says about it. On the way down z_L ~ N(m_L, v_L), and z_l is drawn from the normalised
    product of N(m_l, v_l) and N(μ_l, σ_l²) = down_l(z_{l+1}), what the layer above says. The variables are
    those of `energies.LadderPrior`, in one vector, the lowest layer first.

    Args:
        up: one network per layer; the first takes x (d,), as `Encoder` does.
        read: one per layer, maps h_l to (2 n_l,).
        down: one per layer but the top, maps z_{l+1} to (2 n_l,).
        sizes: n₁, …, n_L.
        sees_mask: whether the first network takes (2d,), where the second half is 1 for observed coordinates.

    Sønderby, Raiko, Maaløe, Sønderby and Winther (2016), Ladder variational autoencoders.

    >>> q = LadderEncoder.random(4, (3, 2), key=0)(x=jnp.ones(4))
    >>> z = q.sample(jax.random.key(0))
    >>> z.shape, q.log_prob(z).shape
    ((5,), ())
    """

    up: tuple[Callable[[Any], Any], ...]
    read: tuple[Callable[[Any], Any], ...]
    down: tuple[Callable[[Any], Any], ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    sees_mask: bool = eqx.field(static=True, default=False)

    @classmethod
    def random(
        cls,
        n_features: int,
        sizes: Sequence[int],
        *,
        key: Any,
        sees_mask: bool = False,
        width: int = 64,
        depth: int = 1,
        activation: Callable[[Any], Any] = jax.nn.silu,
    ) -> LadderEncoder:
        """An encoder with multilayer perceptrons of `depth` hidden layers of `width` units each."""
        sizes = check_each("sizes", sizes, WHOLE, "the lengths of the layers, from the bottom")
        check_arguments(locals(), n_features=WHOLE, sees_mask=FLAG)
        keys = iter(jax.random.split(as_key(key), 3 * len(sizes)))
        shape: dict[str, Any] = {"width": width, "depth": depth, "activation": activation}
        inputs = [n_features * (1 + sees_mask), *[width] * (len(sizes) - 1)]
        up = [mlp(n, width, key=next(keys), **shape) for n in inputs]
        read = [mlp(width, 2 * n, key=next(keys), depth=0) for n in sizes]
        down = [mlp(above, 2 * n, key=next(keys), **shape) for n, above in itertools.pairwise(sizes)]
        return cls(tuple(up), tuple(read), tuple(down), sizes, sees_mask)

    def __check_init__(self):
        n = len(check_each("sizes", self.sizes, WHOLE, "the lengths of the layers, from the bottom"))
        for name, count in (("up", n), ("read", n), ("down", n - 1)):
            networks = check_each(name, getattr(self, name), FUNCTION, "networks")
            if len(networks) != count:
                raise BadInput(name, f"{len(networks)} networks for {n} layers", f"{count} networks")

    def __call__(self, *, x: Any) -> LadderDistribution:
        h, found = _network_input(x, self.sees_mask), []
        for up, read in zip(self.up, self.read, strict=True):
            h = up(h)
            found.append(gaussian_of(read(h)))
        return LadderDistribution(tuple(found), self.down, self.sizes)


class LadderDistribution(eqx.Module):
    """q(z | x) of a `LadderEncoder` at one x, with NumPyro's method names.

    Args:
        from_below: mean and scale of every layer by the path up, the lowest first.
        down: the networks of the path down.
        sizes: the lengths of the layers.
    """

    from_below: tuple[tuple[Any, Any], ...]
    down: tuple[Callable[[Any], Any], ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    has_rsample = True
    batch_shape = ()

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (sum(self.sizes),)

    @property
    def mean(self) -> Any:
        """Every layer at its mean, given the mean of the layer above it."""
        return self._walk(lambda layer, mean, scale: mean)[0]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw values (*sample_shape, n)."""
        return self.sample_and_log_prob(key, sample_shape)[0]

    def sample_and_log_prob(self, key: Any, sample_shape: tuple[int, ...] = ()) -> tuple[Any, Any]:
        """Draw values, and return log q of them from the same pass."""
        dtype = self.from_below[0][0].dtype
        noise = jax.random.normal(key, (*sample_shape, sum(self.sizes)), dtype)

        def one(noise):
            parts = self._split(noise)
            return self._walk(lambda layer, mean, scale: mean + scale * parts[layer])

        value, log_q = jax.vmap(one)(noise.reshape(-1, noise.shape[-1]))
        return value.reshape(noise.shape), log_q.reshape(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """Return log q of values (…, n)."""

        def one(value):
            parts = self._split(value)
            return self._walk(lambda layer, mean, scale: parts[layer])[1]

        return jax.vmap(one)(value.reshape(-1, value.shape[-1])).reshape(value.shape[:-1])

    def _split(self, z: Any) -> list[Any]:
        ends = list(itertools.accumulate(self.sizes))
        return [z[end - n : end] for n, end in zip(self.sizes, ends, strict=True)]

    def _walk(self, choose: Callable[[int, Any, Any], Any]) -> tuple[Any, Any]:
        """Return z and log q(z), with every layer chosen from the top down by its number, mean and scale."""
        layers: list[Any] = []
        log_q: Any = 0.0
        for i in reversed(range(len(self.sizes))):
            mean, scale = self.from_below[i]
            if layers:
                mean, scale = _product(mean, scale, *gaussian_of(self.down[i](layers[0])))
            layers.insert(0, choose(i, mean, scale))
            u = (layers[0] - mean) / scale
            log_q = log_q - 0.5 * u @ u - jnp.log(scale).sum() - 0.5 * u.size * jnp.log(2 * jnp.pi)
        return jnp.concatenate(layers), log_q


def _product(mean: Any, scale: Any, other_mean: Any, other_scale: Any) -> tuple[Any, Any]:
    """Return mean and scale of the normalised product of two Gaussians."""
    first, second = scale**-2, other_scale**-2
    total = first + second
    return (first * mean + second * other_mean) / total, total**-0.5
