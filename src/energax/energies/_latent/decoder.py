"""Directed decoders: a simple hidden cause, and a network from it to what is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...energy import Energy
from ...errors import BadInput, Intractable
from ...missing import is_masked
from ...nn import mlp, reinitialise
from ...spaces import Categorical, Real, Space
from .likelihoods import Bernoulli


class StandardNormal(eqx.Module):
    """z ~ N(0, I) in ℝⁿ, shown to the network as it is."""

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
    """m variables, each uniform over k values, shown to the network as m one-hot vectors.

    `m=None` is one scalar variable.
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
        return -(self.m or 1) * jnp.log(jnp.asarray(float(self.k)))

    def sample(self, key: Any) -> Any:
        return jax.random.randint(key, self.space.shape, 0, self.k)

    def embed(self, z: Any) -> Any:
        """One-hot vectors; soft ones, on the simplex, are passed on as they are."""
        soft = z if jnp.issubdtype(jnp.asarray(z).dtype, jnp.floating) else jax.nn.one_hot(z, self.k)
        return jnp.ravel(soft)


class Decoder(Energy):
    """e(x, z) = −log p(z) − log p(x | f(z)), with any network f; log Z = 0.

    `latent` is a whole number (that many standard normal variables), or an object:
    `StandardNormal(n)`, `UniformChoices(k, m)`. `likelihood` says what the outputs of the
    network mean: `Bernoulli()`, `Gaussian(scale)`. Missing coordinates of x drop their terms.

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
        shown = jax.ShapeDtypeStruct((self.latent.width,), jnp.zeros(()).dtype)
        out = eqx.filter_eval_shape(network, shown)
        if len(out.shape) != 1:
            raise BadInput("network", f"an output of shape {out.shape}", "a vector: one number a feature")
        self.n_features = out.shape[0]

    @classmethod
    def random(
        cls, n_features: int, latent: Any, likelihood: Any = None, *, key: Any, **network: Any
    ) -> Decoder:
        """A multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        latent = StandardNormal(latent) if isinstance(latent, int) else latent
        return cls(mlp(latent.width, n_features, key=key, **network), latent, likelihood)

    def initialise(self, key, data, weight):
        return Decoder(reinitialise(self.network, key), self.latent, self.likelihood)

    @property
    def spaces(self):
        return {"x": self.likelihood.space(self.n_features), "z": self.latent.space}

    def knows(self, what, names=None):
        # p(z | x) is what no decoder knows.
        if what == "conditional":
            return names is not None and set(names) == {"z"}
        if what == "free_energy":
            return names is not None and set(names) == {"z"}
        if what == "draw":
            return names is None or "x" not in names
        return what == "log_partition"

    def __call__(self, *, x, z):
        return self._energy(x, z)

    def relaxed(self, *, x, z):
        """The energy at soft one-hot vectors z, (m, k) or (k,): the Gumbel-softmax path."""
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
            "exact knowledge",
            "Use the encoder it was learned with, or importance sampling.",
        )

    def log_partition(self):
        return jnp.zeros(())

    def draw(self, key, **given):
        if "x" in given:
            return {"z": self.conditional("z", **given)}  # raises, with what to do instead
        first, second = jax.random.split(key)
        z = given["z"] if "z" in given else self.latent.sample(first)
        x = self.conditional("x", z=z).sample(second)
        x = x.astype(self.spaces["x"].jax_dtype)
        return {"x": x} if "z" in given else {"x": x, "z": z}
