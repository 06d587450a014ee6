"""Encoders: networks whose output is a distribution over a hidden variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._util.keys import as_key
from .._util.xla import softplus
from ..errors import BadInput
from ..missing import known, mask_of
from ._network import mlp


def _seen(x: Any, sees_mask: bool) -> Any:
    """What the network is shown: zeros where nothing is known, and the mask itself if it asks."""
    value = jnp.ravel(known(x))
    if not sees_mask:
        return jnp.where(jnp.ravel(mask_of(x)), value, 0) if value is not x else value
    observed = jnp.ravel(mask_of(x))
    return jnp.concatenate([jnp.where(observed, value, 0), observed.astype(value.dtype)])


class Encoder(eqx.Module):
    """q(z | x) = N(z; μ(x), diag σ(x)²), with (μ, s) = network(x) and σ = softplus(s).

    `network` maps x, flat, to 2 n_latent numbers. A missing coordinate of x is shown as zero;
    with `sees_mask` the network takes 2d numbers, the second half saying what was observed.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> import jax
    >>> q = Encoder.random(4, 2, key=0)(x=jnp.ones(4))
    >>> q.event_shape, q.sample(jax.random.key(0)).shape
    ((2,), (2,))
    """

    network: Callable[[Any], Any]
    sees_mask: bool = eqx.field(static=True, default=False)

    @classmethod
    def random(
        cls, n_features: int, n_latent: int, *, key: Any, sees_mask: bool = False, **network: Any
    ) -> Encoder:
        """A multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        return cls(mlp(n_features * (1 + sees_mask), 2 * n_latent, key=key, **network), sees_mask)

    def __call__(self, *, x: Any) -> Any:
        from numpyro.distributions import Normal

        mean, spread = jnp.split(self.network(_seen(x, self.sees_mask)), 2)
        return Normal(mean, softplus(spread) + 1e-4).to_event(1)


class BernoulliEncoder(eqx.Module):
    """q(z | x) = Π Bernoulli(z_j; sigmoid(network(x)_j)), for binary hidden variables.

    >>> BernoulliEncoder.random(4, 3, key=0)(x=jnp.ones(4)).event_shape
    (3,)
    """

    network: Callable[[Any], Any]
    sees_mask: bool = eqx.field(static=True, default=False)

    @classmethod
    def random(
        cls, n_features: int, n_hidden: int, *, key: Any, sees_mask: bool = False, **network: Any
    ) -> BernoulliEncoder:
        """A multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        return cls(mlp(n_features * (1 + sees_mask), n_hidden, key=key, **network), sees_mask)

    def __call__(self, *, x: Any) -> Any:
        from numpyro.distributions import Bernoulli

        return Bernoulli(logits=self.network(_seen(x, self.sees_mask))).to_event(1)


class CategoricalEncoder(eqx.Module):
    """q(z | x) = Π Categorical(z_j; softmax(network(x)_j)): m hidden variables of k values each.

    `n_variables=None` is one scalar variable in Categorical(k).

    >>> CategoricalEncoder.random(4, 10, 3, key=0)(x=jnp.ones(4)).event_shape
    (3,)
    """

    network: Callable[[Any], Any]
    n_values: int = eqx.field(static=True)
    n_variables: int | None = eqx.field(static=True, default=None)
    sees_mask: bool = eqx.field(static=True, default=False)

    @classmethod
    def random(
        cls,
        n_features: int,
        n_values: int,
        n_variables: int | None = None,
        *,
        key: Any,
        sees_mask: bool = False,
        **network: Any,
    ) -> CategoricalEncoder:
        """A multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        if n_values < 2:
            raise BadInput("n_values", repr(n_values), "at least 2")
        n_out = n_values * (n_variables or 1)
        built = mlp(n_features * (1 + sees_mask), n_out, key=as_key(key), **network)
        return cls(built, n_values, n_variables, sees_mask)

    def __call__(self, *, x: Any) -> Any:
        from numpyro.distributions import Categorical

        logits = self.network(_seen(x, self.sees_mask))
        if self.n_variables is None:
            return Categorical(logits=logits)
        return Categorical(logits=logits.reshape(self.n_variables, self.n_values)).to_event(1)
