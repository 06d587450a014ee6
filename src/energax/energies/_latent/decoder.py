"""Decoders: a simple prior over the hidden z, and a network from z to the parameters of p(x | z)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput, Intractable
from ...missing import is_masked
from ...nn import mlp, reinitialise
from ...spaces import Categorical, Real, Space
from .likelihoods import Bernoulli


class StandardNormal(eqx.Module):
    """The prior z ~ N(0, I) in ℝⁿ; the network gets z itself.

    Args:
        n: the number of hidden variables.

    >>> StandardNormal(2).log_prob(jnp.zeros(2))                # −log 2π
    Array(-1.837877, dtype=float32)
    """

    n: int = eqx.field(static=True)

    @property
    def space(self) -> Space:
        return Real(self.n)

    @property
    def width(self) -> int:
        return self.n

    def log_prob(self, z: Any) -> Any:
        return -0.5 * z @ z - 0.5 * self.n * jnp.log(2 * jnp.pi)

    def sample(self, key: Any) -> Any:
        return jax.random.normal(key, (self.n,))

    def embed(self, z: Any) -> Any:
        return z


class UniformChoices(eqx.Module):
    """The prior of m independent variables, uniform over k values; the network gets one-hot vectors (m · k,).

    Args:
        k: the values of each variable.
        m: the number of variables; None is one scalar variable.

    >>> UniformChoices(3, 2).embed(jnp.array([0, 2]))
    Array([1., 0., 0., 0., 0., 1.], dtype=float32)
    """

    k: int = eqx.field(static=True)
    m: int | None = eqx.field(static=True, default=None)

    @property
    def space(self) -> Space:
        return Categorical(self.k) if self.m is None else Categorical(self.k, self.m)

    @property
    def width(self) -> int:
        return self.k * (self.m or 1)

    def log_prob(self, z: Any) -> Any:
        return -(self.m or 1) * jnp.log(asarray(float(self.k)))

    def sample(self, key: Any) -> Any:
        return jax.random.randint(key, self.space.shape, 0, self.k)

    def embed(self, z: Any) -> Any:
        """z as one-hot vectors, (m · k,); relaxed ones, on the simplex, are only flattened."""
        soft = z if jnp.issubdtype(asarray(z).dtype, jnp.floating) else jax.nn.one_hot(z, self.k)
        return jnp.ravel(soft)


class Decoder(Energy):
    """A directed model with a hidden z: e(x, z) = −log p(z) − log p(x | f(z)), with any network f; log Z = 0.

    Learn it with `ELBO`. The terms of missing coordinates of x are left out.

    Args:
        network: f, maps z as a vector (`latent.width`,) to one number per feature, (d,).
        latent: the prior: `StandardNormal(n)`, also given as the whole number n, or
            `UniformChoices(k, m)`.
        likelihood: the distribution of x given the outputs of the network: `Bernoulli()` (the
            default) or `Gaussian(scale)`.

    Kingma and Welling (2014), Auto-encoding variational Bayes; Rezende, Mohamed and Wierstra
    (2014), Stochastic backpropagation and approximate inference in deep generative models.

    >>> coins = Decoder(lambda z: jnp.zeros(3), 2)
    >>> coins(x=jnp.ones(3), z=jnp.zeros(2))                    # 3 log 2 + log 2π
    Array(3.9173186, dtype=float32)
    """

    network: Callable[[Any], Any]
    latent: Any
    likelihood: Any
    n_features: int = eqx.field(static=True)

    marginalises = frozenset({"x"})

    def __init__(self, network: Callable[[Any], Any], latent: Any, likelihood: Any = None):
        self.network = network
        self.latent = StandardNormal(latent) if isinstance(latent, int) else latent
        self.likelihood = Bernoulli() if likelihood is None else likelihood
        embedded = jax.ShapeDtypeStruct((self.latent.width,), jnp.zeros(()).dtype)
        out = eqx.filter_eval_shape(network, embedded)
        if len(out.shape) != 1:
            raise BadInput("network", f"an output of shape {out.shape}", "(d,): one number per feature")
        self.n_features = out.shape[0]

    @classmethod
    def random(
        cls, n_features: int, latent: Any, likelihood: Any = None, *, key: Any, **network: Any
    ) -> Decoder:
        """A decoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        latent = StandardNormal(latent) if isinstance(latent, int) else latent
        return cls(mlp(latent.width, n_features, key=key, **network), latent, likelihood)

    def initialise(self, key, data, weight):
        return Decoder(reinitialise(self.network, key), self.latent, self.likelihood)

    @property
    def spaces(self):
        return {"x": self.likelihood.space(self.n_features), "z": self.latent.space}

    @plain_method
    def knows(self, what, names=None):
        # p(z | x), F(x) and draws given x are integrals through the network.
        if what == "conditional":
            return names is not None and set(names) == {"z"}
        if what == "free_energy":
            return names is not None and set(names) == {"z"}
        if what == "draw":
            return names is None or "x" not in names
        return super().knows(what, names)

    def __call__(self, *, x, z):
        return self._energy(x, z)

    def relaxed_energy(self, *, x, z):
        """The energy at relaxed one-hot vectors z, (m, k) or (k,), for `GumbelSoftmax`."""
        return self._energy(x, z)

    def _energy(self, x, z):
        output = self.network(self.latent.embed(z))
        if is_masked(x):
            terms = jnp.where(x.observed, self.likelihood.log_prob(output, x.value), 0)
        else:
            terms = self.likelihood.log_prob(output, x)
        return -self.latent.log_prob(z) - terms.sum()

    def free_energy(self, *, z):
        return -self.latent.log_prob(z)

    def conditional(self, name, **given):
        if name == "x" and set(given) == {"z"}:
            return self.likelihood.distribution(self.network(self.latent.embed(given["z"])))
        raise Intractable(
            f"conditional({name!r}) given {sorted(given)}",
            "an integral through the network",
            "closed forms",
            "Use the encoder that was learned with it, or importance sampling.",
        )

    def log_partition(self):
        return jnp.zeros(())

    def draw(self, key, **given):
        if "x" in given:
            return {"z": self.conditional("z", **given)}  # raises, with alternatives
        first, second = jax.random.split(key)
        z = given["z"] if "z" in given else self.latent.sample(first)
        x = self.conditional("x", z=z).sample(second)
        x = x.astype(self.spaces["x"].jax_dtype)
        return {"x": x} if "z" in given else {"x": x, "z": z}
