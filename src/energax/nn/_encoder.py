"""Encoders: networks whose output is a distribution over the hidden variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FLAG, FUNCTION, NONE, WHOLE, check_arguments, instance, whole
from .._util.keys import as_key
from .._util.xla import softplus
from ..errors import as_numbers
from ..missing import is_masked, mask_of, value_of
from ..spaces import Categorical, Space
from ._network import mlp


def _network_input(x: Any, sees_mask: bool) -> Any:
    """x as a vector with zeros for missing values, followed by the mask if `sees_mask`."""
    value, observed = jnp.ravel(value_of(x)), jnp.ravel(mask_of(x))
    if not jnp.issubdtype(value.dtype, jnp.floating):
        value = value.astype(float)
    if is_masked(x):
        value = jnp.where(observed, value, 0)
    return jnp.concatenate([value, observed.astype(value.dtype)]) if sees_mask else value


_SPACE = instance(Space, "a space, such as Categorical(10) or Real(2)")


def embedded_size(space: Space) -> int:
    """The length of `embed_value` for values of this space.

    >>> from energax import Categorical, Real
    >>> embedded_size(Categorical(3)), embedded_size(Real(2))
    (3, 2)
    """
    check_arguments({"space": space}, space=_SPACE)
    return space.size * (space.k if isinstance(space, Categorical) else 1)


def embed_value(space: Space, value: Any) -> Any:
    """A value of the space as a vector: categories as one-hot vectors, all else as it is."""
    check_arguments({"space": space}, space=_SPACE)
    value = as_numbers("value", value, "numbers")
    if isinstance(space, Categorical):
        value = jax.nn.one_hot(jnp.asarray(value).astype(int), space.k)
    return jnp.ravel(value)


class Encoder(eqx.Module):
    """A Gaussian encoder: q(z | x) = N(z; μ(x), diag σ(x)²), (μ, s) = network(x), σ = softplus(s) + 10⁻⁴.

    Args:
        network: maps x, as a vector (d,), to (2 n_latent,). Missing coordinates of x are zeros.
        sees_mask: whether the network takes (2d,), where the second half is 1 for observed
            coordinates and 0 for missing ones.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> import jax
    >>> q = Encoder.random(4, 2, key=0)(x=jnp.ones(4))
    >>> q.event_shape, q.sample(jax.random.key(0)).shape
    ((2,), (2,))
    """

    network: Callable[[Any], Any]
    sees_mask: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, sees_mask=FLAG)

    @classmethod
    def random(
        cls, n_features: int, n_latent: int, *, key: Any, sees_mask: bool = False, **network: Any
    ) -> Encoder:
        """An encoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        check_arguments(locals(), n_features=WHOLE, n_latent=WHOLE, sees_mask=FLAG)
        return cls(mlp(n_features * (1 + sees_mask), 2 * n_latent, key=key, **network), sees_mask)

    def __call__(self, *, x: Any) -> Any:
        return _normal(self.network(_network_input(x, self.sees_mask)))


class ConditionalEncoder(eqx.Module):
    """A Gaussian encoder q(z | x, y) = N(z; μ, diag σ²), (μ, s) = network(x, y), σ = softplus(s) + 10⁻⁴.

    Args:
        network: maps x and y, one vector after the other, to (2 n_latent,). A class y is a one-hot vector.
        given: the space of y.
        sees_mask: whether the mask of x, 1 where observed, comes between x and y.

    >>> from energax import Categorical
    >>> q = ConditionalEncoder.random(4, 2, Categorical(3), key=0)
    >>> q(x=jnp.ones(4), y=jnp.array(2)).event_shape
    (2,)
    """

    network: Callable[[Any], Any]
    given: Space = eqx.field(static=True)
    sees_mask: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, given=_SPACE, sees_mask=FLAG)

    @classmethod
    def random(
        cls,
        n_features: int,
        n_latent: int,
        given: Space,
        *,
        key: Any,
        sees_mask: bool = False,
        **network: Any,
    ) -> ConditionalEncoder:
        """An encoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        check_arguments(locals(), n_features=WHOLE, n_latent=WHOLE, given=_SPACE, sees_mask=FLAG)
        n_in = n_features * (1 + sees_mask) + embedded_size(given)
        return cls(mlp(n_in, 2 * n_latent, key=key, **network), given, sees_mask)

    def __call__(self, *, x: Any, y: Any) -> Any:
        both = jnp.concatenate([_network_input(x, self.sees_mask), embed_value(self.given, y)])
        return _normal(self.network(both))


def gaussian_of(output: Any) -> tuple[Any, Any]:
    """Return the mean μ and the scale σ = softplus(s) + 10⁻⁴ of an output (μ, s).

    >>> gaussian_of(jnp.zeros(2))                                       # 0, log 2
    (Array([0.], dtype=float32), Array([0.693247...], dtype=float32))
    """
    mean, spread = jnp.split(output, 2)
    return mean, softplus(spread) + 1e-4


def _normal(output: Any) -> Any:
    """N(μ, diag σ²) from (μ, s)."""
    from numpyro.distributions import Normal

    return Normal(*gaussian_of(output)).to_event(1)


class BernoulliEncoder(eqx.Module):
    """A Bernoulli encoder: q(z | x) = Π_j Bernoulli(z_j; sigmoid(network(x)_j)), for binary hidden variables.

    Args:
        network: maps x, as a vector (d,), to (n_hidden,). Missing coordinates of x are zeros.
        sees_mask: whether the network takes (2d,), where the second half is 1 for observed
            coordinates and 0 for missing ones.

    >>> BernoulliEncoder.random(4, 3, key=0)(x=jnp.ones(4)).event_shape
    (3,)
    """

    network: Callable[[Any], Any]
    sees_mask: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, sees_mask=FLAG)

    @classmethod
    def random(
        cls, n_features: int, n_hidden: int, *, key: Any, sees_mask: bool = False, **network: Any
    ) -> BernoulliEncoder:
        """An encoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        check_arguments(locals(), n_features=WHOLE, n_hidden=WHOLE, sees_mask=FLAG)
        return cls(mlp(n_features * (1 + sees_mask), n_hidden, key=key, **network), sees_mask)

    def __call__(self, *, x: Any) -> Any:
        from numpyro.distributions import Bernoulli

        return Bernoulli(logits=self.network(_network_input(x, self.sees_mask))).to_event(1)


class CategoricalEncoder(eqx.Module):
    """A categorical encoder: q(z | x) = Π_j Categorical(z_j; softmax(network(x)_j)).

    Args:
        network: maps x, as a vector (d,), to (m · k,). Missing coordinates of x are zeros.
        n_values: k, the values of each hidden variable.
        n_variables: m, the number of hidden variables; None is one scalar variable.
        sees_mask: whether the network takes (2d,), where the second half is 1 for observed
            coordinates and 0 for missing ones.

    >>> CategoricalEncoder.random(4, 10, 3, key=0)(x=jnp.ones(4)).event_shape
    (3,)
    """

    network: Callable[[Any], Any]
    n_values: int = eqx.field(static=True)
    n_variables: int | None = eqx.field(static=True, default=None)
    sees_mask: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, n_values=whole(2), n_variables=WHOLE | NONE, sees_mask=FLAG)

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
        """An encoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        sizes = {"n_features": WHOLE, "n_values": whole(2), "n_variables": WHOLE | NONE}
        check_arguments(locals(), **sizes, sees_mask=FLAG)
        n_out = n_values * (n_variables or 1)
        built = mlp(n_features * (1 + sees_mask), n_out, key=as_key(key), **network)
        return cls(built, n_values, n_variables, sees_mask)

    def __call__(self, *, x: Any) -> Any:
        from numpyro.distributions import Categorical

        logits = self.network(_network_input(x, self.sees_mask))
        if self.n_variables is None:
            return Categorical(logits=logits)
        return Categorical(logits=logits.reshape(self.n_variables, self.n_values)).to_event(1)
